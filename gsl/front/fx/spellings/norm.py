"""Spellings of normalisations, dropout and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from gsl.front.fx.spellings.bind import Call, flag, integer, integers, number, unread_unless
from gsl.front.fx.spellings.elementwise import dtype_of, tensor
from gsl.front.fx.spellings.table import Row
from gsl.front.tree import Canon, Literal


def filled(c: Call, value: float, shape: Sequence[Any], like: Any) -> Literal:
    """A literal tensor for an operand that was left out."""
    unread_unless(all(isinstance(s, int) for s in shape))
    return Literal(torch.full(tuple(shape), value, dtype=dtype_of(c.dtype_of(like))))


def ones_or(c: Call, weight: Any, shape: Sequence[Any], like: Any) -> Any:
    return filled(c, 1.0, shape, like) if weight is None else tensor(c, weight)


def zeros_or(c: Call, bias: Any, shape: Sequence[Any], like: Any) -> Any:
    return filled(c, 0.0, shape, like) if bias is None else tensor(c, bias)


def batch_norm(c: Call, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: Any) -> Canon:
    """Inference only: the running statistics are used."""
    channels = () if weight is not None and bias is not None else c.typed(x).shape[1:2]
    gamma, beta = ones_or(c, weight, channels, x), zeros_or(c, bias, channels, x)
    return Canon(
        "nn.batch_norm",
        (tensor(c, x), gamma, beta, tensor(c, mean), tensor(c, var)),
        {"axis": 1, "epsilon": float(number(eps))},
    )


def _batch_norm(c: Call) -> Canon:
    unread_unless(c.training is False)
    return batch_norm(c, c.input, c.running_mean, c.running_var, c.weight, c.bias, c.eps)


def _affine(c: Call) -> tuple[Any, ...]:
    """The operands of a normalisation whose weight and bias may be missing, both or the bias."""
    if c.weight is None:
        unread_unless(c.bias is None)
        return (tensor(c, c.input),)
    return (tensor(c, c.input), tensor(c, c.weight), *([] if c.bias is None else [tensor(c, c.bias)]))


def _last_axes(shape: Any) -> tuple[int, ...]:
    return tuple(range(-len(integers(shape)), 0))


def _layer_norm(c: Call) -> Canon:
    attrs = {"axis": _last_axes(c.normalized_shape), "epsilon": float(number(c.eps))}
    return Canon("nn.layer_norm", _affine(c), attrs)


def _rms_norm(c: Call) -> Canon:
    """Without an epsilon torch takes that of the dtype in which it computes."""
    x = tensor(c, c.input)
    eps = c.eps
    if eps is None:
        unread_unless(c.dtype_of(x) in ("float32", "float64"))
        eps = torch.finfo(dtype_of(c.dtype_of(x))).eps
    operands = (x,) if c.weight is None else (x, tensor(c, c.weight))
    return Canon("nn.rms_norm", operands, {"axis": _last_axes(c.normalized_shape), "epsilon": float(number(eps))})


def _group_norm(c: Call) -> Canon:
    attrs = {"num_groups": integer(c.num_groups), "axis": 1, "epsilon": float(number(c.eps))}
    return Canon("nn.group_norm", _affine(c), attrs)


def _native_group_norm(c: Call) -> Canon:
    attrs = {"num_groups": integer(c.group), "axis": 1, "epsilon": float(number(c.eps))}
    return Canon("nn.group_norm", _affine(c), attrs)


def _instance_norm(c: Call) -> Canon:
    """Of the operand's own statistics only."""
    unread_unless(c.running_mean is None and c.running_var is None and c.use_input_stats is True)
    kind = c.tensor_type(c.input)
    unread_unless(kind is None or kind.ndim > 2)
    return Canon("nn.instance_norm", _affine(c), {"axis": 1, "epsilon": float(number(c.eps))})


def _normalize(c: Call) -> Canon:
    """Torch bounds the norm, the canonical operator its square."""
    unread_unless(c.p == 2 and not isinstance(c.p, bool) and c.out is None and number(c.eps) > 0)
    kind = c.tensor_type(c.input)
    # Where the square of the bound is no number, the two differ.
    unread_unless(kind is None or kind.dtype in ("float32", "float64"))
    return Canon("nn.l2_normalize", (tensor(c, c.input),), {"eps": float(c.eps) ** 2, "axis": integers(c.dim)})


def _dropout(c: Call) -> Canon:
    unread_unless(c.training is False)
    return Canon("nn.dropout", (tensor(c, c.input),), {"rate": float(number(c.p))})


def _attention(c: Call) -> Canon:
    unread_unless(number(c.dropout_p) == 0)
    operands = [tensor(c, c.query), tensor(c, c.key), tensor(c, c.value)]
    if c.attn_mask is not None:
        operands.append(tensor(c, c.attn_mask))
    attrs = {
        "scale": None if c.scale is None else float(number(c.scale)),
        "is_causal": flag(c.is_causal),
        "enable_gqa": flag(c.enable_gqa),
    }
    return Canon("nn.attention", tuple(operands), attrs)


_BATCH_NORM = "input running_mean running_var weight=None bias=None training=False momentum=0.1 eps=1e-05"
_NATIVE_BATCH_NORM = "input weight bias running_mean running_var momentum eps training=False cudnn_enabled=True"
_SDPA = "query key value attn_mask=None dropout_p=0.0 is_causal=False scale=None enable_gqa=False"

ROWS: Final = (
    Row("F.batch_norm", _BATCH_NORM, _batch_norm),
    Row(
        "torch.batch_norm aten.batch_norm.default",
        "input weight bias running_mean running_var training momentum eps cudnn_enabled",
        _batch_norm,
    ),
    Row("F.layer_norm", "input normalized_shape weight=None bias=None eps=1e-05", _layer_norm),
    Row(
        "torch.layer_norm aten.layer_norm.default",
        "input normalized_shape weight=None bias=None eps=1e-05 cudnn_enable=True",
        _layer_norm,
    ),
    Row("torch.rms_norm F.rms_norm aten.rms_norm.default", "input normalized_shape weight=None eps=None", _rms_norm),
    Row("F.group_norm", "input num_groups weight=None bias=None eps=1e-05", _group_norm),
    Row(
        "torch.group_norm aten.group_norm.default",
        "input num_groups weight=None bias=None eps=1e-05 cudnn_enabled=True",
        _group_norm,
    ),
    Row(
        "F.instance_norm",
        "input running_mean=None running_var=None weight=None bias=None use_input_stats=True momentum=0.1 eps=1e-05",
        _instance_norm,
    ),
    Row(
        "torch.instance_norm aten.instance_norm.default",
        "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled",
        _instance_norm,
    ),
    Row("F.normalize", "input p=2.0 dim=1 eps=1e-12 out=None", _normalize),
    Row("F.dropout F.dropout1d F.dropout2d F.dropout3d", "input p=0.5 training=True inplace=False", _dropout),
    Row("F.alpha_dropout F.feature_alpha_dropout", "input p=0.5 training=False inplace=False", _dropout),
    Row(
        "torch.dropout aten.dropout.default torch.feature_dropout aten.feature_dropout.default",
        "input p training",
        _dropout,
        inplace=True,
    ),
    Row("F.scaled_dot_product_attention aten.scaled_dot_product_attention.default", _SDPA, _attention),
)
FIELDS: Final = (
    Row("aten._native_batch_norm_legit_no_training.default", _NATIVE_BATCH_NORM, _batch_norm),
    Row(
        "torch.native_batch_norm aten.native_batch_norm.default",
        "input weight bias running_mean running_var training momentum eps",
        _batch_norm,
    ),
    Row(
        "torch.native_layer_norm aten.native_layer_norm.default", "input normalized_shape weight bias eps", _layer_norm
    ),
    Row(
        "torch.native_group_norm aten.native_group_norm.default",
        "input weight bias N C HxW group eps",
        _native_group_norm,
    ),
    Row("torch.native_dropout aten.native_dropout.default", "input p training", _dropout),
    Row(
        "aten._scaled_dot_product_flash_attention.default aten._scaled_dot_product_flash_attention_for_cpu.default "
        "aten._scaled_dot_product_fused_attention_overrideable.default",
        _SDPA + " return_debug_mask=False attn_bias=None",
        _attention,
    ),
    Row(
        "aten._scaled_dot_product_efficient_attention.default",
        "query key value attn_mask compute_log_sumexp dropout_p=0.0 is_causal=False scale=None enable_gqa=False",
        _attention,
    ),
)
