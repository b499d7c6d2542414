"""Spellings of normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, integer, integers, number, real, unread_unless
from gsl.front.fx.spellings.table import FxLower, FxRow, Native, Site, call, dtype_of, options, row, tensor
from gsl.front.tree import Canon, LiteralOperand


def filled(c: BoundCall, value: float, like: Any) -> LiteralOperand:
    """A literal tensor for an operand that was left out, of the type of another one."""
    kind = c.typed(like)
    unread_unless(all(isinstance(size, int) for size in kind.shape))
    return LiteralOperand(torch.full(kind.shape, value, dtype=dtype_of(kind.dtype)))  # type: ignore[arg-type]


def _batch_norm(c: BoundCall) -> Canon:
    """With the running statistics. Without any, a single image is normalised by its own, as some weights are."""
    if c.running_mean is None and c.running_var is None:
        return _own_statistics(c)
    unread_unless(c.training is False)
    # Of halves, the statistics and weights may be of float32.
    gamma = filled(c, 1.0, c.running_mean) if c.weight is None else tensor(c, c.weight)
    beta = filled(c, 0.0, c.running_mean) if c.bias is None else tensor(c, c.bias)
    operands = (tensor(c, c.input), gamma, beta, tensor(c, c.running_mean), tensor(c, c.running_var))
    return Canon("nn.batch_norm", operands, {"axis": 1, "epsilon": real(c.eps)})


def _affine(c: BoundCall) -> tuple[Any, ...]:
    """The operands of a normalisation whose weight and bias may be missing, both or the bias."""
    if c.weight is None:
        unread_unless(c.bias is None)
        return (tensor(c, c.input),)
    return (tensor(c, c.input), tensor(c, c.weight), *([] if c.bias is None else [tensor(c, c.bias)]))


def _last_axes(shape: Any) -> tuple[int, ...]:
    return tuple(range(-len(integers(shape)), 0))


def _layer_norm(c: BoundCall) -> Canon:
    attrs = {"axis": _last_axes(c.normalized_shape), "epsilon": real(c.eps)}
    return Canon("nn.layer_norm", _affine(c), attrs)


def _rms_norm(c: BoundCall) -> Canon:
    """Without an epsilon torch takes that of the dtype in which it computes."""
    x = tensor(c, c.input)
    eps = c.eps
    if eps is None:
        unread_unless(c.dtype_of(x) in ("float32", "float64"))
        eps = torch.finfo(dtype_of(c.dtype_of(x))).eps
    operands = (x,) if c.weight is None else (x, tensor(c, c.weight))
    return Canon("nn.rms_norm", operands, {"axis": _last_axes(c.normalized_shape), "epsilon": real(eps)})


def _group_norm(c: BoundCall) -> Canon:
    attrs = {"num_groups": integer(c.num_groups), "axis": 1, "epsilon": real(c.eps)}
    return Canon("nn.group_norm", _affine(c), attrs)


def _instance_norm(c: BoundCall) -> Canon:
    """Of the operand's own statistics only."""
    unread_unless(c.running_mean is None and c.running_var is None and c.use_input_stats is True)
    kind = c.tensor_type(c.input)
    unread_unless(kind is None or kind.ndim > 2)
    return Canon("nn.instance_norm", _affine(c), {"axis": 1, "epsilon": real(c.eps)})


def _own_statistics(c: BoundCall) -> Canon:
    """A batch norm of a single image by its own statistics, as instance norms are decomposed into."""
    kind = c.typed(c.input)
    unread_unless(c.training is True and kind.ndim > 2 and kind.shape[0] == 1)
    return Canon("nn.instance_norm", _affine(c), {"axis": 1, "epsilon": real(c.eps)})


def _normalize(c: BoundCall) -> Canon:
    """Torch bounds the norm, the canonical operator its square."""
    unread_unless(c.p == 2 and not isinstance(c.p, bool) and c.out is None and number(c.eps) > 0)
    kind = c.tensor_type(c.input)
    # Where the square of the bound is no number, the two differ.
    unread_unless(kind is None or kind.dtype in ("float32", "float64"))
    return Canon("nn.l2_normalize", (tensor(c, c.input),), {"eps": float(c.eps) ** 2, "axis": integers(c.dim)})


# ---------------------------------------------------------------- writing


def _options(s: Site) -> dict[str, Any]:
    """Weight and bias, as far as they are there and used, and epsilon."""
    weight, bias = (*s.operands[1:3], None, None)[:2]
    given = {"weight": (weight if s["scale"] else None, None), "bias": (bias if s["center"] else None, None)}
    return options(**given, eps=(s["epsilon"], 1e-5))


def _moved(x: Any, axis: Any, place: Any) -> Any:
    return x if axis == place else call(torch.movedim, x, axis, place)


def _of_channels(write: Callable[[Site, Any], Native]) -> FxLower:
    """Writes a normalisation of channels, which torch has in axis 1: ``write`` is told the operand with them there."""

    def moved(s: Site) -> Native:
        result = _moved(write(s, _moved(s.x, s["axis"], 1)), 1, s["axis"])
        assert isinstance(result, Native)
        return result

    return moved


def _normalised_axes(s: Site) -> tuple[Any, tuple[int, ...], tuple[Any, ...]]:
    """The operand with its normalised axes last, those places, and the sizes of the axes."""
    axes = s["axis"]
    last = tuple(range(-len(axes), 0))
    found = s.type()
    if found is not None:
        sizes = tuple(found.shape[axis] for axis in axes)
        last = tuple(range(found.ndim - len(axes), found.ndim))
    else:
        # The weight has the sizes too.
        sizes = s.known(1).shape if len(s.operands) > 1 else s.known().shape
    return (s.x if tuple(axes) == last else call(torch.movedim, s.x, axes, last)), last, sizes


def _of_last_axes(write: Callable[[Site, Any, tuple[Any, ...]], Native]) -> FxLower:
    """Writes a normalisation of axes, which torch has behind all others: ``write`` is told the operand with them there,
    and their sizes."""

    def moved(s: Site) -> Native:
        x, last, sizes = _normalised_axes(s)
        result = write(s, x, sizes)
        return result if tuple(s["axis"]) == last else call(torch.movedim, result, last, s["axis"])

    return moved


def _write_l2_normalize(s: Site) -> Native:
    """Torch bounds the norm, the canonical operator its square."""
    axes = s["axis"]
    if axes:
        return call(F.normalize, s.x, **options(dim=(axes[0] if len(axes) == 1 else axes, 1)), eps=math.sqrt(s["eps"]))
    if axes is None:
        s.known()
    alone = call(F.normalize, call(torch.unsqueeze, s.x, -1), dim=-1, eps=math.sqrt(s["eps"]))
    return call(torch.squeeze, alone, -1)


_BATCH_NORM = "input running_mean running_var weight=None bias=None training=False momentum=0.1 eps=1e-05"

ROWS: Final = (
    row("nn.batch_norm", "F.batch_norm", _BATCH_NORM, read=_batch_norm, write=_of_channels(
        lambda s, x: call(F.batch_norm, x, *s.operands[3:5], **_options(s))
    )),
    FxRow(
        "torch.batch_norm aten.batch_norm.default",
        "input weight bias running_mean running_var training momentum eps cudnn_enabled", _batch_norm,
    ),
    row(
        "nn.layer_norm", "F.layer_norm torch.layer_norm aten.layer_norm.default",
        "input normalized_shape weight=None bias=None eps=1e-05 cudnn_enable=True", read=_layer_norm,
        write=_of_last_axes(lambda s, x, sizes: call(F.layer_norm, x, sizes, **_options(s))),
    ),
    row(
        "nn.rms_norm", "torch.rms_norm F.rms_norm aten.rms_norm.default",
        "input normalized_shape weight=None eps=None", read=_rms_norm,
        write=_of_last_axes(lambda s, x, sizes: call(F.rms_norm, x, sizes, *s.operands[1:], eps=s["epsilon"])),
    ),
    row(
        "nn.group_norm", "F.group_norm torch.group_norm aten.group_norm.default",
        "input num_groups weight=None bias=None eps=1e-05 cudnn_enabled=True", read=_group_norm,
        write=_of_channels(lambda s, x: call(F.group_norm, x, s["num_groups"], **_options(s))),
    ),
    row(
        "nn.instance_norm", "F.instance_norm",
        "input running_mean=None running_var=None weight=None bias=None use_input_stats=True momentum=0.1 eps=1e-05",
        read=_instance_norm, write=_of_channels(lambda s, x: call(F.instance_norm, x, **_options(s))),
    ),
    FxRow(
        "torch.instance_norm aten.instance_norm.default",
        "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled", _instance_norm,
    ),
    row("nn.l2_normalize", "F.normalize", "input p=2.0 dim=1 eps=1e-12 out=None", read=_normalize,
        write=_write_l2_normalize),
)  # fmt: skip
FIELDS: Final = (
    FxRow(
        "aten._native_batch_norm_legit_no_training.default torch.native_batch_norm aten.native_batch_norm.default",
        "input weight bias running_mean running_var training=False momentum=0.1 eps=1e-05", _batch_norm,
    ),
    FxRow("aten._native_batch_norm_legit.no_stats", "input weight bias training momentum eps", _own_statistics),
    FxRow("torch.native_layer_norm aten.native_layer_norm.default", "input normalized_shape weight bias eps",
          _layer_norm),
    FxRow("torch.native_group_norm aten.native_group_norm.default", "input weight bias N C HxW num_groups eps",
          _group_norm),
)  # fmt: skip
