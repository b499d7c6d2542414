"""The lowering of convolutions, products, pooling and normalisations."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.elementwise import dtype_of
from gsl.front.fx.spellings.table import Site, Writer, call, options
from gsl.front.fx.spellings.write_shape import pads, relaid
from gsl.front.fx.tree import Native

_SPATIAL: Final = "DHW"


def padded(x: Any, padding: Sequence[int], value: float = 0.0) -> Native:
    """The operand with its last axes padded: that before each, then that after each. Negative widths crop."""
    rank = len(padding) // 2
    pairs = [(padding[i], padding[rank + i]) for i in range(rank)]
    return call(F.pad, x, pads(pairs), **options(value=(value, 0.0)))


def _in_dtype(s: Site, *operands: Any) -> tuple[Any, ...]:
    """The operands in the dtype that the result is to have."""
    if not s["out_dtype"]:
        return operands
    return tuple(call("to", x, dtype_of(s["out_dtype"])) for x in operands)


# ---------------------------------------------------------------- convolutions and products


def _conv(rank: int) -> Writer:
    target, plain = getattr(F, f"conv{rank}d"), "NC" + _SPATIAL[-rank:]
    zeros, ones = (0,) * rank, (1,) * rank

    def write(s: Site) -> Native:
        x, weight = _in_dtype(s, *s.operands[:2])
        x = relaid(x, s["data_layout"], plain)
        weight = relaid(weight, s["kernel_layout"], "OI" + plain[2:])
        padding = s["padding"][:rank]
        if padding != s["padding"][rank:]:
            x, padding = padded(x, s["padding"]), zeros
        kwargs = options(
            stride=(s["strides"], ones),
            padding=(padding, zeros),
            dilation=(s["dilation"], ones),
            groups=(s["groups"], 1),
        )
        result = call(target, x, weight, *s.operands[2:], **kwargs)
        return _laid_out(result, plain, s["out_layout"] or s["data_layout"])

    return write


def _conv_transpose(rank: int) -> Writer:
    target, plain = getattr(F, f"conv_transpose{rank}d"), "NC" + _SPATIAL[-rank:]
    zeros, ones = (0,) * rank, (1,) * rank

    def write(s: Site) -> Native:
        x, weight = _in_dtype(s, *s.operands[:2])
        x = relaid(x, s["data_layout"], plain)
        weight = relaid(weight, s["kernel_layout"], "IO" + plain[2:])
        before, after = s["padding"][:rank], s["padding"][rank:]
        padding = tuple(map(min, before, after))
        kwargs = options(
            stride=(s["strides"], ones),
            padding=(padding, zeros),
            output_padding=(s["output_padding"], zeros),
            groups=(s["groups"], 1),
            dilation=(s["dilation"], ones),
        )
        result = call(target, x, weight, *s.operands[2:], **kwargs)
        if before != after:
            # Padding crops the result; torch takes off the same on both sides.
            result = padded(result, [p - q for p, q in zip(padding * 2, s["padding"], strict=True)])
        return _laid_out(result, plain, s["out_layout"] or s["data_layout"])

    return write


def _laid_out(result: Native, source: str, target: str) -> Native:
    found = relaid(result, source, target)
    assert isinstance(found, Native)
    return found


def _dense(s: Site) -> Native:
    return call(F.linear, *_in_dtype(s, *s.operands[:2]), *s.operands[2:])


def _matmul(s: Site) -> Native:
    return call(torch.matmul, *_in_dtype(s, *s.operands))


def _batch_matmul(s: Site) -> Native:
    a, b = _in_dtype(s, *s.operands)
    a = call(torch.transpose, a, 1, 2) if s["transpose_a"] else a
    b = call(torch.transpose, b, 1, 2) if s["transpose_b"] else b
    return call(torch.bmm, a, b)


def _bias_add(s: Site) -> Native:
    x, bias = s.operands
    found, axis = s.type(), s["axis"]
    behind = -1 - axis if axis < 0 else None if found is None else found.ndim - 1 - axis
    if behind == 0:
        return call(operator.add, x, bias)
    if behind is not None:
        return call(operator.add, x, call(torch.reshape, bias, (-1, *(1,) * behind)))
    # Without the rank, the axis is made the last one.
    return call(torch.movedim, call(operator.add, call(torch.movedim, x, axis, -1), bias), -1, axis)


def biased(s: Site) -> Native:
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


def _attention(s: Site) -> Native:
    mask = s.operands[3] if len(s.operands) > 3 else None
    kwargs = options(
        attn_mask=(mask, None), is_causal=(s["is_causal"], False), scale=(s["scale"], None),
        enable_gqa=(s["enable_gqa"], False),
    )  # fmt: skip
    return call(F.scaled_dot_product_attention, *s.operands[:3], **kwargs)


# ---------------------------------------------------------------- pooling


def _fits(s: Site, rank: int) -> bool:
    """True if torch's pooling takes the padding: the same on both sides, and half the window at most."""
    both = s["padding"][:rank]
    return bool(both == s["padding"][rank:] and all(2 * p <= k for p, k in zip(both, s["pool_size"], strict=True)))


def _max_pool(rank: int) -> Writer:
    target, plain, zeros = getattr(F, f"max_pool{rank}d"), "NC" + _SPATIAL[-rank:], (0,) * rank

    def write(s: Site) -> Native:
        x, padding = relaid(s.x, s["layout"], plain), s["padding"][:rank]
        if not _fits(s, rank):
            dtype = dtype_of(s.known().dtype)
            least = -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
            x, padding = padded(x, s["padding"], least), zeros
        kwargs = options(
            stride=(s["strides"], s["pool_size"]),
            padding=(padding, zeros),
            dilation=(s["dilation"], (1,) * rank),
            ceil_mode=(s["ceil_mode"], False),
        )
        return _laid_out(call(target, x, s["pool_size"], **kwargs), plain, s["out_layout"] or s["layout"])

    return write


def _avg_pool(rank: int) -> Writer:
    target, plain, zeros = getattr(F, f"avg_pool{rank}d"), "NC" + _SPATIAL[-rank:], (0,) * rank

    def write(s: Site) -> Native:
        x = relaid(s.x, s["layout"], plain)
        common = options(stride=(s["strides"], s["pool_size"]), ceil_mode=(s["ceil_mode"], False))
        if _fits(s, rank):
            kwargs = options(padding=(s["padding"][:rank], zeros), count_include_pad=(s["count_include_pad"], True))
            if s["padding"] == zeros * 2 and not s["ceil_mode"]:
                # Without padding it does not matter whether it counts.
                kwargs = {}
            result = call(target, x, s["pool_size"], **common, **kwargs)
        else:
            result = call(target, padded(x, s["padding"]), s["pool_size"], **common)
            if not s["count_include_pad"]:
                # The share of each window that is not padding.
                inside = padded(call(torch.ones_like, x), s["padding"])
                result = call(operator.truediv, result, call(target, inside, s["pool_size"], **common))
        return _laid_out(result, plain, s["out_layout"] or s["layout"])

    return write


def _adaptive(kind: str, rank: int) -> Writer:
    target, plain = getattr(F, f"adaptive_{kind}_pool{rank}d"), "NC" + _SPATIAL[-rank:]

    def write(s: Site) -> Native:
        size = s["output_size"]
        if None in size:
            spatial = (
                s.known().shape if s["layout"] == plain else [s.known().shape[s["layout"].index(a)] for a in plain]
            )
            size = tuple(own if wanted is None else wanted for own, wanted in zip(spatial[2:], size, strict=True))
        result = call(target, relaid(s.x, s["layout"], plain), size[0] if len(set(size)) == 1 else size)
        return _laid_out(result, plain, s["out_layout"] or s["layout"])

    return write


def _global(kind: str, rank: int) -> Writer:
    plain = "NC" + _SPATIAL[-rank:]

    def write(s: Site) -> Native:
        x = relaid(s.x, s["layout"], plain)
        axes = tuple(range(2, 2 + rank))
        result = call(torch.amax if kind == "max" else torch.mean, x, dim=axes if rank > 1 else 2, keepdim=True)
        return _laid_out(result, plain, s["out_layout"] or s["layout"])

    return write


# ---------------------------------------------------------------- normalisations


def _affine(s: Site) -> tuple[Any, Any]:
    """Weight and bias, ``None`` where there is none or it is not used."""
    weight, bias = (*s.operands[1:3], None, None)[:2]
    return (weight if s["scale"] else None, bias if s["center"] else None)


def _moved(x: Any, axis: Any, place: Any) -> Any:
    return x if axis == place else call(torch.movedim, x, axis, place)


def _batch_norm(s: Site) -> Native:
    (weight, bias), axis = _affine(s), s["axis"]
    x = _moved(s.x, axis, 1)
    kwargs = options(weight=(weight, None), bias=(bias, None), eps=(s["epsilon"], 1e-5))
    result = _moved(call(F.batch_norm, x, *s.operands[3:5], **kwargs), 1, axis)
    assert isinstance(result, Native)
    return result


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


def _layer_norm(s: Site) -> Native:
    weight, bias = _affine(s)
    x, last, sizes = _normalised_axes(s)
    kwargs = options(weight=(weight, None), bias=(bias, None), eps=(s["epsilon"], 1e-5))
    result = call(F.layer_norm, x, sizes, **kwargs)
    return result if tuple(s["axis"]) == last else call(torch.movedim, result, last, s["axis"])


def _rms_norm(s: Site) -> Native:
    x, last, sizes = _normalised_axes(s)
    result = call(F.rms_norm, x, sizes, *s.operands[1:], eps=s["epsilon"])
    return result if tuple(s["axis"]) == last else call(torch.movedim, result, last, s["axis"])


def _group_norm(s: Site) -> Native:
    weight, bias = _affine(s)
    kwargs = options(weight=(weight, None), bias=(bias, None), eps=(s["epsilon"], 1e-5))
    result = _moved(call(F.group_norm, _moved(s.x, s["axis"], 1), s["num_groups"], **kwargs), 1, s["axis"])
    assert isinstance(result, Native)
    return result


def _instance_norm(s: Site) -> Native:
    weight, bias = _affine(s)
    kwargs = options(weight=(weight, None), bias=(bias, None), eps=(s["epsilon"], 1e-5))
    result = _moved(call(F.instance_norm, _moved(s.x, s["axis"], 1), **kwargs), 1, s["axis"])
    assert isinstance(result, Native)
    return result


def _l2_normalize(s: Site) -> Native:
    """Torch bounds the norm, the canonical operator its square."""
    axes = s["axis"]
    if axes:
        return call(F.normalize, s.x, **options(dim=(axes[0] if len(axes) == 1 else axes, 1)), eps=math.sqrt(s["eps"]))
    if axes is None:
        s.known()
    alone = call(F.normalize, call(torch.unsqueeze, s.x, -1), dim=-1, eps=math.sqrt(s["eps"]))
    return call(torch.squeeze, alone, -1)


def _softmax(target: Any) -> Writer:
    return lambda s: call(target, s.x, dim=s["axis"])


def _prelu(s: Site) -> Native:
    x, slope = s.operands
    axis, slopes = s["axis"], s.type(1)
    found = s.type()
    alike = found is None or slopes is None or found.dtype == slopes.dtype
    if alike and (axis == 1 or (slopes is not None and slopes.shape == (1,))):
        return call(F.prelu, x, slope)
    behind = -1 - axis if axis < 0 else s.known().ndim - 1 - axis
    if slopes is not None and slopes.ndim != 1:
        behind = 0
    scaled = call(operator.mul, call(torch.reshape, slope, (-1, *(1,) * behind)) if behind else slope, x)
    return call(torch.where, call(operator.gt, x, 0), x, scaled)


def _dropout(s: Site) -> Native:
    return call(F.dropout, s.x, **options(p=(s["rate"], 0.5)), training=False)


WRITERS: Final[Mapping[str, Writer]] = {
    **{f"nn.conv{n}d": _conv(n) for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _conv_transpose(n) for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"nn.adaptive_{kind}_pool{n}d": _adaptive(kind, n) for n in (1, 2, 3) for kind in ("avg", "max")},
    **{f"nn.global_{kind}_pool{n}d": _global(kind, n) for n in (1, 2, 3) for kind in ("avg", "max")},
    "nn.dense": _dense,
    "matmul": _matmul,
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias_add,
    "nn.attention": _attention,
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.softmax": _softmax(F.softmax),
    "nn.log_softmax": _softmax(F.log_softmax),
    "nn.prelu": _prelu,
    "nn.dropout": _dropout,
}
