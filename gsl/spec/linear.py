"""Products of matrices, bias, and attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import call
from gsl.spec.spec import REQUIRED, AttrSpec, OpSpec, Types

_OUT_DTYPE = AttrSpec("", n.product_dtype)


def _units(attrs: Mapping[str, Any], types: Types) -> Any:
    """The number of features of the result."""
    weight = n.shape_of(types, 1)
    return weight[0] if weight else None


def _in_dtype(torch: Any, out_dtype: str, *tensors: Any) -> tuple[Any, ...]:
    return tuple([t.to(getattr(torch, out_dtype)) for t in tensors]) if out_dtype else tensors


def _matmul(torch: Any, a: Any, b: Any, out_dtype: str) -> Any:
    return torch.matmul(*_in_dtype(torch, out_dtype, a, b))


def _batch_matmul(torch: Any, a: Any, b: Any, out_dtype: str, transpose_a: bool, transpose_b: bool) -> Any:
    if a.dim() != 3 or b.dim() != 3:
        raise ValueError(f"expected operands of 3 dimensions, found {a.dim()} and {b.dim()}")
    a, b = _in_dtype(torch, out_dtype, a, b)
    return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


def _dense(torch: Any, data: Any, weight: Any, out_dtype: str) -> Any:
    if weight.dim() != 2:
        raise ValueError(f"expected a weight of 2 dimensions, found {weight.dim()}")
    return torch.nn.functional.linear(*_in_dtype(torch, out_dtype, data, weight))


def _bias_add(torch: Any, data: Any, bias: Any, axis: int) -> Any:
    if bias.dim() != 1:
        raise ValueError(f"expected a bias of 1 dimension, found {bias.dim()}")
    if bias.shape[0] != data.shape[axis]:
        raise ValueError(f"expected a bias of {data.shape[axis]} elements, found {bias.shape[0]}")
    return data + bias.reshape(-1, *[1] * (data.dim() - 1 - axis))


def _attention(
    torch: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    scale: float | None,
    is_causal: bool,
    enable_gqa: bool,
) -> Any:
    if key.shape[-2] != value.shape[-2]:
        # The kernels of some versions of torch would compute something.
        raise ValueError(f"nn.attention: {key.shape[-2]} keys, but {value.shape[-2]} values")
    if enable_gqa and any(x.dim() > 2 and isinstance(x.shape[-3], int) and x.shape[-3] == 0 for x in (key, value)):
        # Torch would divide by zero, which ends the process.
        raise ValueError("nn.attention: keys or values without heads can't be shared by groups of queries")
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


_BYTES = e.exactly([[7, -7, 3], [5, 0, -2]], "int8"), e.exactly([[7, 5], [-7, 0], [3, -2]], "int8")
_Q, _K, _V = (e.rand(2, 4, 3, 8, seed=seed) for seed in range(3))
_PAIR = e.rand(2, 2, 3, 8), e.rand(2, 2, 3, 8, seed=1)

OPS: tuple[OpSpec, ...] = (
    # As torch.matmul, for operands of any rank.
    OpSpec(
        "matmul",
        "Matmul",
        ("a", "b"),
        _matmul,
        {"out_dtype": _OUT_DTYPE},
        aliases=("nn.matmul", "MatMul"),
        examples=(call(e.X, e.rand(4, 5)), call(*_BYTES, out_dtype="int32"), call(e.MATRIX, e.rand(4, 3))),
        torch_names="mm bmm mv dot",
    ),
    OpSpec(
        "nn.batch_matmul",
        "BatchMatmul",
        ("tensor_a", "tensor_b"),
        _batch_matmul,
        {"out_dtype": _OUT_DTYPE, "transpose_a": n.switch(False), "transpose_b": n.switch(True)},
        aliases=("BatchMatMul",),
        examples=(
            call(e.X, e.rand(2, 5, 4)),
            call(e.X, e.rand(2, 3, 5), transpose_a=True, transpose_b=False),
        ),
    ),
    # The weight is (units, in).
    OpSpec(
        "nn.dense",
        "Dense",
        ("data", "weight"),
        _dense,
        {"units": AttrSpec(derive=_units), "out_dtype": _OUT_DTYPE},
        aliases=("linear",),
        carried=lambda attrs, rank: {axis: axis for axis in range(rank - 1)},
        examples=(
            call(e.X, e.rand(5, 4)),
            call(e.rand(2, 3, 4, dtype="float16"), e.rand(5, 4, dtype="float16"), out_dtype="float32"),
            call(e.MATRIX, e.rand(2, 4)),
        ),
    ),
    OpSpec(
        "nn.bias_add",
        "BiasAdd",
        ("data", "bias"),
        _bias_add,
        {"axis": AttrSpec(1, n.axis())},
        examples=(call(e.X, e.rand(3)), call(e.X, e.ROW, axis=-1)),
    ),
    OpSpec(
        "einsum",
        "Einsum",
        ("data",),
        lambda torch, data, equation: torch.einsum(equation, *data),
        {"equation": AttrSpec(REQUIRED, n.equation)},
        examples=(call((e.X, e.rand(4, 5)), equation="bik, kj -> bji"),),
        torch_names="tensordot",
    ),
    # softmax(query key^T scale + mask) value; scale None is 1 / sqrt(size of the last axis of query). A bool mask
    # says what takes part, a float mask is added.
    OpSpec(
        "nn.attention",
        "Attention",
        ("query", "key", "value", "mask"),
        _attention,
        {
            "scale": AttrSpec(None, n.optional(n.real), candidates=(None, 0.5)),
            "is_causal": n.switch(False),
            "enable_gqa": n.switch(False),
        },
        optional=1,
        aliases=("scaled_dot_product_attention",),
        examples=(
            call(_Q, _K, _V),
            call(_Q, _K, _V, is_causal=True),
            call(_Q, _K, _V, e.rand(3, 3), scale=0.5),
            call(_Q, *_PAIR, enable_gqa=True),
        ),
        torch_names="scaled_dot_product_attention _scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_fused_attention_overrideable",
    ),
)
