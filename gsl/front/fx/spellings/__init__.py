"""The spellings of the canonical operators in torch: one table that is read in both directions.

``read`` turns a native call into a tree of canonical ones, ``write`` a canonical call into a tree of native ones. A
stand-in for a tensor passes through both untouched. A reading is exactly the same function as the call, result dtype
included; where that is not certain, there is none.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import nn
from torch._ops import OpOverload

from gsl.front.fx.spellings import (
    activation,
    create,
    elementwise,
    index,
    linear,
    norm,
    reduce,
    shape,
    window,
)
from gsl.front.fx.spellings.bind import BoundCall, FxSignature, FxUnreadError, TypeOf, Watched
from gsl.front.fx.spellings.lower import lower
from gsl.front.fx.spellings.table import (
    Dialect,
    FxIndex,
    FxLift,
    FxLower,
    Native,
    Site,
    Weight,
    by_target,
    call,
    resolve,
)
from gsl.front.tree import NO_SPELLING, Canon, compose
from gsl.graph import TUPLE, TensorType, Type
from gsl.modules import FUSION_OF, Fusion


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """The function that a module calls with its input, its weights, and its own attributes.

    ``weights`` and ``attributes`` are words ``parameter`` or ``parameter=name on the module``.
    """

    function: str
    weights: str = ""
    attributes: str = ""

    def call(self, module: nn.Module) -> tuple[Any, dict[str, Any]]:
        """The function, and all its arguments but the input."""
        kwargs: dict[str, Any] = {}
        for parameter, name in _pairs(self.weights):
            kwargs[parameter] = None if getattr(module, name) is None else Weight(name)
        for parameter, name in _pairs(self.attributes):
            kwargs[parameter] = getattr(module, name)
        return resolve(self.function), kwargs

    def any_call(self, attributes: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The same for a module in inference of which only some attributes are known."""
        kwargs: dict[str, Any] = {parameter: Weight(name) for parameter, name in _pairs(self.weights)}
        for parameter, name in _pairs(self.attributes):
            if name == "training":
                kwargs[parameter] = False
            elif name in attributes:
                kwargs[parameter] = attributes[name]
        return resolve(self.function), kwargs


def _pairs(words: str) -> list[tuple[str, str]]:
    return [(parameter, name or parameter) for parameter, _, name in (word.partition("=") for word in words.split())]


_CONV = "stride padding dilation groups"
_CONV_TRANSPOSE = "stride padding output_padding groups dilation"
_STATISTICS = "running_mean running_var weight bias"
_AVG_POOL = "kernel_size stride padding ceil_mode count_include_pad"
_MAX_POOL = "kernel_size stride padding dilation ceil_mode return_indices"

_OF_RANKS: Final[Mapping[str, ModuleRow]] = {
    "Conv": ModuleRow("F.conv{}d", "weight bias", _CONV),
    "ConvTranspose": ModuleRow("F.conv_transpose{}d", "weight bias", _CONV_TRANSPOSE),
    "BatchNorm": ModuleRow("F.batch_norm", _STATISTICS, "eps training"),
    "InstanceNorm": ModuleRow("F.instance_norm", _STATISTICS, "eps"),
    "Dropout": ModuleRow("F.dropout{}d", "", "p training"),
    "MaxPool": ModuleRow("F.max_pool{}d", "", _MAX_POOL),
    "AvgPool": ModuleRow("F.avg_pool{}d", "", f"{_AVG_POOL} divisor_override"),
    "AdaptiveAvgPool": ModuleRow("F.adaptive_avg_pool{}d", "", "output_size"),
    "AdaptiveMaxPool": ModuleRow("F.adaptive_max_pool{}d", "", "output_size return_indices"),
    "ZeroPad": ModuleRow("F.pad", "", "pad=padding value"),
    "ConstantPad": ModuleRow("F.pad", "", "pad=padding value"),
}
"""Modules of one, two and three axes, by their names before the number of these."""

MODULES: Final[Mapping[type[nn.Module], ModuleRow]] = {
    **{
        getattr(nn, f"{name}{rank}d"): replace(row, function=row.function.format(rank))
        for name, row in _OF_RANKS.items()
        for rank in (1, 2, 3)
    },
    nn.Linear: ModuleRow("F.linear", "weight bias"),
    nn.SyncBatchNorm: ModuleRow("F.batch_norm", _STATISTICS, "eps training"),
    nn.LayerNorm: ModuleRow("F.layer_norm", "weight bias", "normalized_shape eps"),
    nn.RMSNorm: ModuleRow("F.rms_norm", "weight", "normalized_shape eps"),
    nn.GroupNorm: ModuleRow("F.group_norm", "weight bias", "num_groups eps"),
    nn.Embedding: ModuleRow("F.embedding", "weight", "padding_idx max_norm norm_type scale_grad_by_freq sparse"),
    nn.Dropout: ModuleRow("F.dropout", "", "p training"),
    nn.AlphaDropout: ModuleRow("F.alpha_dropout", "", "p training"),
    nn.ReLU: ModuleRow("F.relu"),
    nn.ReLU6: ModuleRow("F.relu6"),
    nn.LeakyReLU: ModuleRow("F.leaky_relu", "", "negative_slope"),
    nn.PReLU: ModuleRow("F.prelu", "weight"),
    nn.ELU: ModuleRow("F.elu", "", "alpha"),
    nn.SELU: ModuleRow("F.selu"),
    nn.GELU: ModuleRow("F.gelu", "", "approximate"),
    nn.SiLU: ModuleRow("F.silu"),
    nn.Mish: ModuleRow("F.mish"),
    nn.Sigmoid: ModuleRow("torch.sigmoid"),
    nn.Tanh: ModuleRow("torch.tanh"),
    nn.Hardswish: ModuleRow("F.hardswish"),
    nn.Hardsigmoid: ModuleRow("F.hardsigmoid"),
    nn.Hardtanh: ModuleRow("F.hardtanh", "", "min=min_val max=max_val"),
    nn.Softplus: ModuleRow("F.softplus", "", "beta threshold"),
    nn.Softmax: ModuleRow("F.softmax", "", "dim"),
    nn.LogSoftmax: ModuleRow("F.log_softmax", "", "dim"),
    nn.AvgPool1d: ModuleRow("F.avg_pool1d", "", _AVG_POOL),
    nn.Identity: ModuleRow("torch.clone"),
    nn.Flatten: ModuleRow("torch.flatten", "", "start_dim end_dim"),
    nn.Unflatten: ModuleRow("torch.unflatten", "", "dim sizes=unflattened_size"),
    nn.PixelShuffle: ModuleRow("torch.pixel_shuffle", "", "upscale_factor"),
    nn.PixelUnshuffle: ModuleRow("torch.pixel_unshuffle", "", "downscale_factor"),
    nn.ChannelShuffle: ModuleRow("torch.channel_shuffle", "", "groups"),
    nn.GLU: ModuleRow("F.glu", "", "dim"),
}
"""Exact types: a subclass may do something else."""

_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(module: nn.Module) -> bool:
    """True if calling the module computes the function of its type, and does nothing else."""
    if "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS):
        return False
    return getattr(module, "padding_mode", "zeros") == "zeros"


FAMILIES: Final[tuple[Any, ...]] = (
    elementwise, activation, linear, window, norm, shape, index, reduce, create,
)  # fmt: skip
"""Modules with ``ROWS``, and ``FIELDS`` where calls have several results."""

CALLS: Final[FxIndex] = by_target(itertools.chain.from_iterable(family.ROWS for family in FAMILIES))
FIELDS: Final[FxIndex] = by_target(itertools.chain.from_iterable(getattr(family, "FIELDS", ()) for family in FAMILIES))


def read(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf) -> Canon | None:
    """The canonical reading of a call of a function, an operator overload or (by name) a method.

    An in-place spelling is read as the functional call. ``None``: there is no exact reading.
    """
    return _first(CALLS, target, args, kwargs, type_of)


def read_fields(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf
) -> dict[int, Canon] | None:
    """The canonical readings of single fields of a call with several results: of the first, or of all in a tuple."""
    found = _first(FIELDS, target, args, kwargs, type_of)
    if found is None:
        return None
    return dict(enumerate(found.operands)) if found.op == TUPLE else {0: found}


def why_unread(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf) -> str:
    """The reason why a call has no reading: the test that fails in the row that comes furthest."""
    rows = [*_rows(CALLS, target), *_rows(FIELDS, target)]
    if not rows:
        return NO_SPELLING
    reasons = ["it has an argument of which nothing is known here, or lacks one"]
    for signature, reader in rows:
        values = _bound(signature, target, args, kwargs)
        if values is None:
            continue
        call = Watched(target, values, type_of)
        try:
            reader(call)
        except FxUnreadError as error:
            reasons.append(call.reason(error))
        else:
            reasons.append("not all of its results that are used have a reading")
    return reasons[-1]


def has_fields(target: Any) -> bool:
    """True if single fields of a call with several results may have readings."""
    return bool(_rows(FIELDS, target))


def read_module(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf) -> Canon | None:
    """The canonical reading of a module's call. ``Weight("weight")`` in it stands for ``module.weight``."""
    fusion = FUSION_OF.get(type(module), Fusion(type(module)))
    row = MODULES.get(fusion.base)
    if row is None or len(args) + len(kwargs) != 1 + fusion.adds or (fusion.adds and kwargs) or not is_plain(module):
        return None
    operand, *others = (*args, *kwargs.values())
    function, parameters = row.call(module)

    def typed(value: Any) -> Type | None:
        if isinstance(value, Weight):
            weight = getattr(module, value.name)
            return TensorType.of(weight)
        return type_of(value)

    return _followed(fusion, read(function, (operand,), parameters, typed), others)


def _followed(fusion: Fusion, canon: Canon | None, others: Sequence[Any]) -> Canon | None:
    """The reading of a fused module, of which the plain one reads as ``canon``."""
    if canon is None:
        return None
    if fusion.adds:
        canon = Canon("add", (canon, *others))
    return canon if fusion.activation is None else Canon(f"nn.{fusion.activation}", (canon,))


def read_any_module(
    kind: type[nn.Module], operands: tuple[Any, ...], attributes: Mapping[str, Any], type_of: TypeOf
) -> Canon | None:
    """The canonical reading of a call of a module of a class in inference, as far as it is the same for all of them."""
    fusion = FUSION_OF.get(kind, Fusion(kind))
    row = MODULES.get(fusion.base)
    if row is None or (fusion.adds and len(operands) != 2):
        return None
    function, parameters = row.any_call(attributes)
    own = operands[:1] if fusion.adds else operands
    return _followed(fusion, read(function, own, parameters, type_of), operands[1:])


def _first(
    table: FxIndex, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf
) -> Canon | None:
    for signature, reader in _rows(table, target):
        values = _bound(signature, target, args, kwargs)
        if values is not None:
            try:
                return reader(BoundCall(target, values, type_of))
            except FxUnreadError:
                continue
    return None


def _rows(table: FxIndex, target: Any) -> Sequence[tuple[FxSignature, FxLift]]:
    try:
        return table.get(target, ())
    except TypeError:
        return ()


def _bound(
    signature: FxSignature, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    if isinstance(target, OpOverload):
        return signature.bind_schema(target, args, kwargs)
    return signature.bind(args, kwargs)


# ---------------------------------------------------------------- writing


WRITERS: Final[Mapping[str, FxLower]] = {
    row.op: row.write for family in FAMILIES for row in family.ROWS if row.write is not None
}

BIASED: Final = frozenset(["nn.dense", *(f"nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose"))])
"""The operators whose native call takes a bias."""


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf, dialect: Dialect) -> Native:
    """A canonical call, with all its attributes, as a tree of native calls.

    A tuple operand is a Python tuple of operands. ValueError: what torch needs to know is not known.
    """
    return _written(WRITERS.get(op, _composed), Site(op, attrs, tuple(operands), type_of), dialect)


def _composed(s: Site) -> Any:
    """A call that torch lacks, as others."""

    def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf) -> Any:
        return WRITERS.get(op, _composed)(Site(op, attrs, tuple(operands), type_of))

    return compose(s.op, s.attrs, s.operands, write, s.type_of)


def write_biased(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf, dialect: Dialect
) -> Native:
    """A convolution or dense layer together with the bias of its channels, which is the last operand.

    Also a ``matmul`` of matrices and a bias of its last axis.
    """
    if op not in BIASED and op != "matmul":
        raise ValueError(f"{op} takes no bias")
    return _written(_biased, Site(op, attrs, tuple(operands), type_of), dialect)


def _biased(s: Site) -> Native:
    """A convolution, dense layer or matrix product and the bias of its channels, which is the last operand."""
    if s.op == "matmul" and not s["out_dtype"]:
        a, b, bias = s.operands
        return call(torch.addmm, bias, a, b)
    if not s["out_dtype"]:
        joined = WRITERS[s.op](s)
        assert isinstance(joined, Native)
        return joined
    # Torch wants a bias of the same dtype as the operands; added afterwards, it promotes as it should.
    layout = s.attrs.get("out_layout") or s.attrs.get("data_layout") or "C"
    behind = len(layout) - 1 - layout.index("C")
    bias = call(torch.reshape, s.operands[-1], (-1, *(1,) * behind)) if behind else s.operands[-1]
    return call(operator.add, WRITERS[s.op](replace(s, operands=s.operands[:-1])), bias)


def _written(writer: FxLower, site: Site, dialect: Dialect) -> Native:
    tree = writer(site)
    result = lower(tree) if dialect == "aten" else tree
    assert isinstance(result, Native)
    return result
