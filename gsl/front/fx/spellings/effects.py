"""The effects of native calls besides computing a result: changing an operand, drawing at random, sharing memory."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Container, Hashable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import torch
from torch import fx, nn
from torch._ops import HigherOrderOperator, OpOverload

from gsl.spec.natives import parameters, schema_of


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_IN_PLACE: Final = _words("add sub mul truediv floordiv mod pow and or xor lshift rshift matmul")
_MUTATING: Final = frozenset[Any](
    [operator.setitem, operator.delitem, operator.iconcat, *(getattr(operator, f"i{name}") for name in _IN_PLACE)]
)
_MUTATING_METHODS: Final = frozenset[Any](["__setitem__", "__delitem__", *(f"__i{name}__" for name in _IN_PLACE)])
_HARMLESS: Final = frozenset(("and_", "or_", "not_", "is_"))
"""Functions of the module ``operator`` with an underscore that change nothing."""

_FLAGS: Final = ("training", "train", "use_input_stats")
"""The names that normalisations have for the flag with which they update their running statistics."""


def mutated(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    """The positions of the operands that the call changes in place: of ``args``, then of ``kwargs`` in their order."""
    if isinstance(target, HigherOrderOperator):
        return ()  # these are functions of values, and a name as out= is one of the operator that they call
    if isinstance(target, OpOverload) and not _may_write(target):
        return ()
    named = _named(target, args, kwargs)
    if isinstance(target, OpOverload):
        found = [parameter.name for parameter in schema_of(target) if parameter.is_written]
    elif _has_underscore(target) or (isinstance(target, Hashable) and target in _MUTATING | _MUTATING_METHODS):
        return (0,) if args or kwargs else ()
    else:
        found = [name for name in ("out", "into") if name in kwargs]
        if named.get("inplace", (None, False))[1] is not False:
            found.append("input")
        if named.get("max_norm", (None, None))[1] is not None:
            found.append("weight")
    # Running statistics are updated without any schema saying so.
    if "running_mean" in named and any(named.get(flag, (None, False))[1] is not False for flag in _FLAGS):
        found += ["running_mean", "running_var"]
    places = {named[name][0] for name in found if name in named and named[name][1] is not None}
    return tuple(sorted(place for place in places if place is not None))


@functools.cache
def _may_write(target: OpOverload) -> bool:
    """True for an operator that changes an operand in some of its calls."""
    return any(parameter.is_written or parameter.name == "running_mean" for parameter in schema_of(target))


def _has_underscore(target: Any) -> bool:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name.endswith("_") and not name.endswith("__") and name not in _HARMLESS


def _named(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, tuple[int | None, Any]]:
    """The arguments by name, as far as the names are known: position (``None`` for a default) and value."""
    named: dict[str, tuple[int | None, Any]] = {}
    for position, (name, default) in enumerate(_parameters(target)):
        if position < len(args):
            named[name] = (position, args[position])
        elif default is not inspect.Parameter.empty:
            named[name] = (None, default)
    for position, (name, value) in enumerate(kwargs.items(), start=len(args)):
        named[name] = (position, value)
    return named


def _parameters(target: Any) -> tuple[tuple[str, Any], ...]:
    """The names and defaults of the parameters, as far as they are known."""
    return _known_parameters(target) if isinstance(target, Hashable) and not isinstance(target, str) else ()


@functools.cache
def _known_parameters(target: Any) -> tuple[tuple[str, Any], ...]:
    empty = inspect.Parameter.empty
    if isinstance(target, OpOverload):
        return tuple((p.name, p.default if p.has_default else empty) for p in schema_of(target))
    if getattr(target, "__module__", None) == operator.add.__module__:
        return ()  # they are called a and b, which takes Python long to parse
    try:
        return tuple((name, p.default) for name, p in inspect.signature(target).parameters.items())
    except (TypeError, ValueError):  # it is not written in Python
        return tuple((name, empty) for name in parameters(target))


def gives_memory(node: fx.Node) -> bool:
    """True for a call that lets a tensor lie in the memory of another one from then on."""
    return _name(node.target) == "set_"


def mutates_module(module: nn.Module) -> bool:
    """True if calling the module changes its operand, or its own buffers or weights."""
    for part in module.modules():
        if getattr(part, "inplace", False) is True or getattr(part, "max_norm", None) is not None:
            return True
        if part.training and getattr(part, "running_mean", None) is not None:
            return True
    return False


def mutated_weights(module: nn.Module) -> Iterator[torch.Tensor]:
    """The weights and buffers of a module of torch's own that a call of it changes."""
    for part in module.modules():
        names: tuple[str, ...] = ()
        if part.training:
            names = ("running_mean", "running_var", "num_batches_tracked")
        if getattr(part, "max_norm", None) is not None:
            names += ("weight",)
        for name in names:
            value = getattr(part, name, None)
            if isinstance(value, torch.Tensor):
                yield value


_RANDOM_FUNCTIONS: Final = _words(
    "rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal poisson binomial "
    "gumbel_softmax rrelu_ fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices "
    "fractional_max_pool3d_with_indices bernoulli_ normal_ uniform_ random_ exponential_ geometric_ cauchy_ "
    "log_normal_ _sample_dirichlet _standard_gamma svd_lowrank pca_lowrank lobpcg"
)
"""Functions and methods that always draw."""

_RECURRENT: Final = _words("lstm gru rnn_tanh rnn_relu")
"""Functions of several layers, which draw between them in training."""

_RANDOM_FLAGS: Final = ("training", "train")


def is_random(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """True if the call draws from a random generator."""
    name = target if isinstance(target, str) else str(getattr(target, "__name__", ""))
    if isinstance(target, OpOverload):
        name = target._opname
        if not may_draw(target):
            return False
    elif name in _RANDOM_FUNCTIONS:
        return True
    elif name in _RECURRENT:
        # Their two signatures have a probability and then the flag of training.
        return all(rate and train for rate, train in pairwise(args) if type(rate) is float and type(train) is bool)
    elif isinstance(target, str) or not ("dropout" in name or "rrelu" in name or "attention" in name):
        return False
    named = {name: value for name, (_, value) in _named(target, args, kwargs).items()}
    if "attention" in name:
        if "dropout_p" not in named:
            return "dropout_p" not in dict(_parameters(target))
        return named["dropout_p"] not in (0, 0.0) and named.get("training", True) is not False
    flags = [named[flag] for flag in _RANDOM_FLAGS if flag in named]
    return not (flags and flags[0] is False)


@functools.cache
def may_draw(target: OpOverload) -> bool:
    """True for an operator that draws from a random generator in some of its calls."""
    name = target._opname
    if torch.Tag.nondeterministic_seeded in target.tags or "dropout" in name or "attention" in name:
        return True
    return any(parameter.name == "generator" for parameter in schema_of(target))


_RANDOM_MODULES: Final = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU,
    nn.MultiheadAttention, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d, nn.RNNBase,
)  # fmt: skip


def is_random_module(module: nn.Module) -> bool:
    """True if calling the module may draw from a random generator."""
    fractional = (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
    return any(
        isinstance(part, fractional) or (part.training and isinstance(part, _RANDOM_MODULES))
        for part in module.modules()
    )


_VIEWS: Final = _words(
    "view view_as reshape reshape_as transpose swapaxes swapdims permute movedim moveaxis t mT mH T H adjoint expand "
    "expand_as broadcast_to broadcast_tensors squeeze unsqueeze select narrow chunk split split_with_sizes "
    "tensor_split hsplit vsplit dsplit unsafe_chunk unsafe_split unsafe_view detach contiguous flatten ravel "
    "unflatten unbind unfold diagonal as_strided alias real imag conj conj_physical resolve_conj resolve_neg positive "
    "pos view_as_real view_as_complex to type type_as float double half bfloat16 int long short char byte bool cpu "
    "cuda meshgrid atleast_1d atleast_2d atleast_3d einsum dropout dropout1d dropout2d dropout3d alpha_dropout "
    "feature_alpha_dropout feature_dropout native_dropout sum_to_size getitem __getitem__ getattr pixel_shuffle "
    "pixel_unshuffle channel_shuffle native_channel_shuffle requires_grad_ share_memory_ values indices lift_fresh "
    "asarray as_tensor numpy_T matrix_H"
)
"""Functions, methods and aten operators that may return an operand or a view of it."""


_BY_STRIDES: Final = _words(
    "as_strided as_strided_copy as_strided_scatter view_as_complex view_as_complex_copy stride is_contiguous "
    "storage_offset"
)
"""Functions, methods and aten operators that read an operand by its strides, or tell these."""
_LAZY: Final = frozenset(_words("conj _conj adjoint mH H matrix_H _neg_view"))
_CARRIED_OUT: Final = frozenset(_words("conj_physical resolve_conj resolve_neg"))
RESHAPES: Final[Mapping[Any, Any]] = {
    "view": "reshape",
    "view_as": "reshape_as",
    torch.Tensor.view: torch.Tensor.reshape,
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
    torch.ops.aten._unsafe_view.default: torch.ops.aten.reshape.default,
}
"""Views that only exist for some strides, and the calls that copy where they don't."""
_DENSE: Final = {
    "_pdist_forward": (0,), "native_group_norm": (0, 1, 2), "native_group_norm_backward": (0, 1, 2, 3, 4),
    "native_layer_norm_backward": (3, 4), "_weight_norm_interface": (0, 1),
    "_weight_norm_interface_backward": (0, 1, 2, 3),
}  # fmt: skip
DENSE: Final[Mapping[Any, tuple[int, ...]]] = {
    getattr(torch.ops.aten, name).default: places for name, places in _DENSE.items()
}
"""Calls whose kernels want these operands to be dense, and make no copies of others."""
_ATTENTION: Final = {
    "flash_attention": 3, "flash_attention_for_cpu": 3, "efficient_attention": 3, "cudnn_attention": 3,
    "flash_attention_backward": 5, "flash_attention_for_cpu_backward": 5, "efficient_attention_backward": 4,
    "cudnn_attention_backward": 4,
}  # fmt: skip
ROWS: Final[Mapping[Any, int]] = {
    getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default: count for name, count in _ATTENTION.items()
}
"""Calls whose kernels take the last axes of the first operands to be dense, and make no copies of others, with the
number of these operands."""


ATTENTION: Final = frozenset[Any]((
    torch.nn.functional.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default,
))  # fmt: skip
"""Calls of attention that choose a kernel by their operands."""


def mask_of(node: fx.Node) -> Any:
    """The mask of a call of attention; ``None`` where there is none."""
    return node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")


def is_by_strides(node: fx.Node) -> bool:
    """True if a native call only exists for some strides of its operand, and a copy is no substitute."""
    name = _name(node.target) if node.op in ("call_function", "call_method") else ""
    as_other = name in ("view", "view_copy") and any(
        isinstance(arg, torch.dtype) for arg in (*node.args, *node.kwargs.values())
    )
    return as_other or name in _BY_STRIDES


def makes_lazy(node: fx.Node, lazy: Container[fx.Node]) -> bool:
    """True if a call may return a tensor that leaves a conjugation, or a change of sign, to its readers; ``lazy`` has
    such operands."""
    name = _name(node.target)
    is_lazy = name not in _CARRIED_OUT and any(operand in lazy for operand in node.all_input_nodes)
    return name in _LAZY or (is_lazy and is_view(node.target))


def is_view(target: Any) -> bool:
    """True if the result of the call may share memory with an operand. Errs on that side."""
    if isinstance(target, OpOverload) and any(result.alias_info is not None for result in target._schema.returns):
        return True
    name = _name(target)
    return name.strip("_") in _VIEWS or name in _VIEWS


def _name(target: Any) -> str:
    """The name of an operator, a function or a method."""
    if isinstance(target, OpOverload):
        return str(target._opname)
    return target if isinstance(target, str) else str(getattr(target, "__name__", ""))
