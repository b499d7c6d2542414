"""Rewrites that XLA's algebraic simplifier makes, stated as rules of GSL.

What is rewritten into what is a fact about XLA (``algebraic_simplifier.cc``); the statements are GSL's. Ranks are those
of the patterns: where a rule reads axes, of matrices and batches of them.
"""

from __future__ import annotations

from typing import Any

from gsl import Subst, attr, op, pat


def _any(count: int, ndim: int | None = None) -> list[pat.Pattern]:
    return [pat.Wildcard(ndim=ndim) for _ in range(count)]


def _numbers(count: int) -> list[pat.Pattern]:
    return [pat.Const(ndim=0) for _ in range(count)]


def _number(value: float) -> pat.Pattern:
    return pat.Const(value, ndim=0)


def _arithmetic() -> dict[str, tuple[object, ...]]:
    (x, y, z, w), (c, d) = _any(4), _numbers(2)
    alike = (x.shape == y.shape) & (y.shape == z.shape)
    four = alike & (z.shape == w.shape)
    return {
        "add(x, 0)": (x + _number(0), x),
        "subtract(x, 0)": (x - _number(0), x),
        "subtract(x, x)": (x - x, op.ZerosLike(x)),
        "multiply(x, 1)": (x * _number(1), x),
        "multiply(x, 0)": (x * _number(0), op.ZerosLike(x)),
        "divide(x, 1)": (x / _number(1), x),
        "negate(negate(x))": (-op.Negative(x), x),
        "add(x, negate(y))": (x + -y, x - y),
        "subtract(x, negate(y))": (x - -y, x + y),
        "multiply of negations": (-x * -y, x * y),
        "negate of a difference": (-(x - y), y - x),
        "add(add(x, c), d)": ((x + c) + d, x + (c + d)),
        "multiply(multiply(x, c), d)": ((x * c) * d, x * (c * d)),
        "subtract a constant": (x - c, x + -c),
        "divide by a constant": (x / c, x * (1.0 / c)),
        "factor of two products": (x * z + y * z, (x + y) * z, alike),
        "factor of a sum with itself": (x * y + x, x * (y + 1), x.shape == y.shape),
        "factor of two quotients": (x / z + y / z, (x + y) / z, alike),
        "quotient of a quotient": ((x / y) / z, x / (y * z), alike),
        "division by a quotient": (x / (y / z), (x * z) / y, alike),
        "quotient of quotients": ((x / y) / (z / w), (x * w) / (y * z), four),
        "product of quotients": ((x / y) * (z / w), (x * z) / (y * w), four),
        "square of a negation": (op.Square(-x), op.Square(x)),
        "power(x, 2)": (op.Power(x, _number(2)), x * x),
        "power(x, 3)": (op.Power(x, _number(3)), x * (x * x)),
        "power(x, 1)": (op.Power(x, _number(1)), x),
        "exp of a sum": (op.Exp(x) * op.Exp(y), op.Exp(x + y)),
        "divide by exp": (x / op.Exp(y), x * op.Exp(-y)),
        "log(exp(x))": (op.Log(op.Exp(x)), x),
        "exp(log(x))": (op.Exp(op.Log(x)), x),
        "reciprocal of exp": (_number(1) / op.Exp(x), op.Exp(-x)),
        "divide by sqrt": (x / op.Sqrt(y), x * op.Rsqrt(y)),
        "maximum(x, x)": (op.Maximum(x, x), x),
        "minimum(x, x)": (op.Minimum(x, x), x),
        "maximum(maximum(x, y), y)": (op.Maximum(op.Maximum(x, y), y), op.Maximum(x, y)),
        "minimum(minimum(x, y), y)": (op.Minimum(op.Minimum(x, y), y), op.Minimum(x, y)),
        "maximum of negations": (op.Maximum(-x, -y), -op.Minimum(x, y)),
        "relu(relu(x))": (op.ReLU(op.ReLU(x)), op.ReLU(x)),
        "copy(x)": (op.Copy(x), x),
        "subtraction of equals": ((x + y) - y, x, x.shape == y.shape),
        "addition to a difference": ((x - y) + y, x, x.shape == y.shape),
        "a common summand": ((x + z) - (y + z), x - y, alike),
        "minus a product": (-(x * y), x * -y),
        "divide by -1": (x / _number(-1), -x),
        "subtract from 0": (_number(0) - x, -x),
        "sigmoid of a negation": (_number(1) / (_number(1) + op.Exp(x)), op.Sigmoid(-x)),
        "product of powers": (op.Power(x, _number(2)) * x, op.Power(x, 3)),
        "power of a power": (op.Power(op.Power(x, _number(2)), _number(2)), op.Power(x, 4)),
        "square of a product": (op.Square(x * y), op.Square(x) * op.Square(y), x.shape == y.shape),
        "difference of squares": ((x + y) * (x - y), op.Square(x) - op.Square(y), x.shape == y.shape),
        "sum of products with one": (x * y - y, (x - 1) * y, x.shape == y.shape),
        "tanh of a negation": (op.Tanh(-x), -op.Tanh(x)),
        "exponential of a difference": (op.Exp(x) / op.Exp(y), op.Exp(x - y)),
        "a square divided by exp": (op.Square(x) / op.Exp(y), op.Square(x) * op.Exp(-y)),
        "maximum of three": (op.Maximum(x, op.Maximum(y, z)), op.Maximum(op.Maximum(x, y), z)),
        "clip of a clip": (op.Minimum(op.Minimum(x, y), z), op.Minimum(x, op.Minimum(y, z))),
        "a product with a negation": (x * _number(-1), -x),
    }  # fmt: skip


def _layout() -> dict[str, tuple[object, ...]]:
    x, y, z = _any(3, 2)
    t = pat.Wildcard()
    turned = op.Transpose(t)
    shaped = op.Reshape(t)
    wide = op.BroadcastTo(t)
    flat = (1, 0)
    return {
        "transpose of a negation": (-turned, turned.like(-t)),
        "transpose of an exponential": (op.Exp(turned), turned.like(op.Exp(t))),
        "two transpositions": (op.Transpose(op.Transpose(x, axes=flat), axes=flat), x),
        "sum of transposed": (op.Transpose(x, axes=flat) + op.Transpose(y, axes=flat), op.Transpose(x + y, axes=flat),
                              x.shape == y.shape),
        "product of transposed": (op.Transpose(x, axes=flat) * op.Transpose(y, axes=flat),
                                  op.Transpose(x * y, axes=flat), x.shape == y.shape),
        "reshape of a negation": (-shaped, op.Reshape(-t, newshape=shaped.shape)),
        "reshape of tanh": (op.Tanh(shaped), op.Reshape(op.Tanh(t), newshape=shaped.shape)),
        "reshape to its own shape": (op.Reshape(t, shape=t.shape), t),
        "broadcast to its own shape": (op.BroadcastTo(t, shape=t.shape), t),
        "broadcast of a negation": (-wide, op.BroadcastTo(-t, shape=wide.shape)),
        "broadcast of tanh": (op.Tanh(wide), op.BroadcastTo(op.Tanh(t), shape=wide.shape)),
        "reverse(reverse(x))": (op.Reverse(op.Reverse(x, axis=(0,)), axis=(0,)), x),
        "reverse of a negation": (-op.Reverse(x, axis=(1,)), op.Reverse(-x, axis=(1,))),
        "pad by nothing": (op.Pad(x, pad_width=((0, 0), (0, 0)), pad_value=0.0, pad_mode="constant"), x),
        "pad of a pad": (_pad(_pad(x, 1, 0), 2, 3), _pad(x, 3, 3)),
        "negation of a pad": (-_pad(x, 1, 2), _pad(-x, 1, 2)),
        "concatenate of a concatenate": (op.Concatenate([op.Concatenate([x, y], axis=0), z], axis=0),
                                         op.Concatenate([x, y, z], axis=0)),
        "negation of a concatenate": (-op.Concatenate([x, y], axis=1), op.Concatenate([-x, -y], axis=1)),
        "exponential of a concatenate": (op.Exp(op.Concatenate([x, y], axis=1)),
                                         op.Concatenate([op.Exp(x), op.Exp(y)], axis=1)),
        "a new axis and away with it": (op.Squeeze(op.ExpandDims(x, axis=1, num_newaxis=1), axis=(1,)), x),
        "negation of a transposed": (op.Transpose(-x, axes=flat), -op.Transpose(x, axes=flat)),
    }  # fmt: skip


def _pad(x: object, low: int, high: int) -> pat.Call:
    return op.Pad(x, pad_width=((low, high), (0, 0)), pad_value=0.0, pad_mode="constant")


def _sum(x: object, *axes: int) -> pat.Call:
    return op.Sum(x, axis=axes, keepdims=False, exclude=False)


def _max(x: object, *axes: int) -> pat.Call:
    return op.Max(x, axis=axes, keepdims=False, exclude=False)


def _mean(x: object, *axes: int) -> pat.Call:
    return op.Mean(x, axis=axes, keepdims=False, exclude=False)


def _reductions() -> dict[str, tuple[object, ...]]:
    (x, y), (c,) = _any(2, 2), _numbers(1)
    same = x.shape == y.shape
    flat = (1, 0)
    return {
        "sum of sums": (_sum(_sum(x, 0), 0), _sum(x, 0, 1)),
        "maximum of maxima": (_max(_max(x, 0), 0), _max(x, 0, 1)),
        "sum of a negation": (_sum(-x, 0), -_sum(x, 0)),
        "sum of a multiple": (_sum(x * c, 1), _sum(x, 1) * c),
        "sum of a transposed": (_sum(op.Transpose(x, axes=flat), 0), _sum(x, 1)),
        "maximum of a transposed": (_max(op.Transpose(x, axes=flat), 0), _max(x, 1)),
        "sum of a sum": (_sum(x, 0) + _sum(y, 0), _sum(x + y, 0), same),
        "sum of a concatenate": (_sum(op.Concatenate([x, y], axis=0), 0), _sum(x, 0) + _sum(y, 0)),
        "sum of a pad": (_sum(_pad(x, 1, 2), 0), _sum(x, 0)),
        "sum of a reverse": (_sum(op.Reverse(x, axis=(1,)), 0), op.Reverse(_sum(x, 0), axis=(0,))),
        "sum over no axis": (_sum(x), x),
        "sum of a reshape": (_sum(op.Transpose(x, axes=flat), 0, 1), _sum(x, 0, 1)),
        "maximum of a negation": (op.Max(-x, axis=(0,), keepdims=False, exclude=False),
                                  -op.Min(x, axis=(0,), keepdims=False, exclude=False)),
        "sum of a difference": (_sum(x, 1) - _sum(y, 1), _sum(x - y, 1), same),
        "mean by a sum": (_mean(x, 0) * c, _mean(x * c, 0)),
        "sum that keeps its axis": (op.Sum(-x, axis=(1,), keepdims=True, exclude=False),
                                    -op.Sum(x, axis=(1,), keepdims=True, exclude=False)),
        "mean of a negation": (_mean(-x, 0), -_mean(x, 0)),
        "mean of means": (_mean(_mean(x, 1), 0), _mean(x, 0, 1)),
        "mean of a multiple": (_mean(x * c, 0), _mean(x, 0) * c),
        "mean of a sum": (_mean(x, 0) + _mean(y, 0), _mean(x + y, 0), same),
        "variance of a shifted": (op.Variance(x + c, axis=(0,), keepdims=False, exclude=False, unbiased=False),
                                  op.Variance(x, axis=(0,), keepdims=False, exclude=False, unbiased=False)),
    }  # fmt: skip


def _products() -> dict[str, tuple[object, ...]]:
    (x, y, z), (c,) = _any(3, 2), _numbers(1)
    u, v, w = _any(3, 3)
    flat, inner = (1, 0), (0, 2, 1)

    def dot(a: object, b: object) -> pat.Call:
        return op.Matmul(a, b, out_dtype="")

    return {
        "dot of transposed": (dot(op.Transpose(x, axes=flat), op.Transpose(y, axes=flat)),
                              op.Transpose(dot(y, x), axes=flat)),
        "transpose of a dot": (op.Transpose(dot(x, y), axes=flat),
                               dot(op.Transpose(y, axes=flat), op.Transpose(x, axes=flat))),
        "transpose of a batch of dots": (op.Transpose(dot(u, v), axes=inner),
                                         dot(op.Transpose(v, axes=inner), op.Transpose(u, axes=inner))),
        "dot of a dot": (dot(dot(x, y), z), dot(x, dot(y, z))),
        "dots of a batch": (dot(dot(u, v), w), dot(u, dot(v, w))),
        "dot of a sum": (dot(x, y) + dot(x, z), dot(x, y + z), y.shape == z.shape),
        "sum of dots, the first": (dot(x, z) + dot(y, z), dot(x + y, z), x.shape == y.shape),
        "difference of dots": (dot(x, y) - dot(x, z), dot(x, y - z), y.shape == z.shape),
        "dots of a batch of negations": (dot(-u, -v), dot(u, v)),
        "dot of a negation": (dot(-x, y), -dot(x, y)),
        "dot of a multiple": (dot(x * c, y), dot(x, y) * c),
        "multiple of a dot": (dot(x, y) * c, dot(x, y * c)),
        "dot of a concatenate of rows": (dot(op.Concatenate([x, y], axis=0), z),
                                         op.Concatenate([dot(x, z), dot(y, z)], axis=0)),
        "dot of a concatenate of columns": (dot(x, op.Concatenate([y, z], axis=1)),
                                            op.Concatenate([dot(x, y), dot(x, z)], axis=1)),
        "sum of a dot's rows": (_sum(dot(x, y), 0), dot(_sum(x, 0), y)),
        "sum of a dot's columns": (_sum(dot(x, y), 1), dot(x, _sum(y, 1))),
        "dense of a transposed weight": (op.Dense(x, op.Transpose(y, axes=flat), out_dtype=""), dot(x, y)),
    }  # fmt: skip


def rules() -> dict[str, Subst]:
    """The rules by name."""
    stated = {**_arithmetic(), **_layout(), **_reductions(), **_products()}
    return {
        name: Subst(source, target, where=[*where, *_floats(source)], name=name)
        for name, (source, target, *where) in stated.items()
    }


def _floats(source: Any) -> list[attr.Expr]:
    """All tensors of a source have one dtype, as in XLA, and it is one of floats."""
    first, *others = [part for part in pat.walk(source) if isinstance(part, pat.Wildcard)]
    return [attr.In(first.dtype, ("float32", "float64")), *(other.dtype == first.dtype for other in others)]
