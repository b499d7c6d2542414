"""Calls as programs of Relay have them, and what they are read as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tvm import relay

from gsl.spec.examples import Sample


def rand(*shape: int) -> torch.Tensor:
    return Sample(shape).tensor()  # type: ignore[no-any-return]


VARS: dict[str, torch.Tensor] = {
    "x": rand(2, 4, 7, 6),
    "y": rand(1, 1, 4, 6),
    "w": rand(6, 4, 3, 3),
    "d": rand(4, 1, 3, 3),
    "a": rand(2, 3, 4),
    "b": rand(2, 5, 4),
    "m": rand(3, 4),
    "n": rand(5, 4),
    "v": rand(4),
    "u": rand(5),
    "p": rand(4).abs() + 0.5,
    "i": torch.tensor([[7, -7, 3], [5, 0, -2]], dtype=torch.int32),
    "j": torch.tensor([[2, 2, -2], [-3, 4, 5]], dtype=torch.int32),
    "h": rand(3, 4).half(),
    "q": rand(2, 3) > 0,
    "k": torch.tensor([[2, 0, 1]], dtype=torch.int32),
    "s": rand(2, 4, 9),
}


class Vars:
    """The variables of native calls, and constants."""

    def __init__(self) -> None:
        self.all = {
            name: relay.var(name, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."))
            for name, value in VARS.items()
        }

    def __getattr__(self, name: str) -> Any:
        return self.all[name]


def c(value: Any, dtype: str = "float32") -> Any:
    """A constant."""
    return relay.const(value, dtype)


V = Vars()
nn = relay.nn

READ: list[tuple[Callable[[], Any], str]] = [
    (lambda: V.a * c(0.1), "multiply(a, 0.1)"),
    (lambda: c(2, "int32") - V.i, "subtract(2, i)"),
    # A number that names this one shorter is larger than all of its dtype.
    (lambda: V.a + c(np.finfo("float32").min), "add(a, -3.4028234663852886e+38)"),
    (lambda: V.a + c(np.ones(4)), "add(a, const(float32, (4,)))"),
    (lambda: c(1.0) + c(2.0), "add(const(float32, ()), const(float32, ()))"),
    (lambda: V.h * c(0.1, "float16"), "multiply(h, 0.0999755859375)"),
    (lambda: relay.power(V.p, c(0.5)), "power(p, 0.5)"),
    (lambda: relay.trunc_mod(V.i, V.j), "mod(i, j)"),
    (lambda: relay.op.mod(V.i, V.j), "mod(i, j)"),
    (lambda: relay.floor_divide(V.i, c(2, "int32")), "floor_divide(i, 2)"),
    (lambda: relay.where(V.q, V.i, c(0, "int32")), "where(q, i, 0)"),
    (lambda: relay.clip(V.a, 0.1, 6.0), "clip(a, a_min=0.1, a_max=6.0)"),
    (lambda: relay.clip(V.a, 0.0, float("inf")), "clip(a, a_min=0.0)"),
    (lambda: relay.clip(V.i, -2.0, 3.0), "clip(i, a_min=-2, a_max=3)"),
    (lambda: relay.cast(V.i, "bool"), "cast(i, dtype='bool')"),
    (lambda: relay.cast_like(V.i, V.a), "cast(i, dtype='float32')"),
    (lambda: nn.batch_flatten(V.x), "reshape(x, newshape=(2, 168))"),
    (lambda: relay.reshape(V.x, (-4, 1, -1, -2)), "reshape(x, newshape=(1, 2, 4, 7, 6))"),
    (lambda: relay.reshape(V.x, (0, 0, -3)), "reshape(x, newshape=(2, 4, 42))"),
    (lambda: relay.transpose(V.a), "transpose(a, axes=(2, 1, 0))"),
    (lambda: relay.transpose(V.a, (0, -1, 1)), "transpose(a, axes=(0, 2, 1))"),
    (lambda: relay.expand_dims(V.a, -1, 2), "expand_dims(a, axis=3, num_newaxis=2)"),
    (lambda: relay.expand_dims(V.a, -2), "expand_dims(a, axis=2)"),
    (lambda: relay.squeeze(V.d), "squeeze(d, axis=(1,))"),
    (lambda: relay.squeeze(V.d, [-3]), "squeeze(d, axis=(1,))"),
    (lambda: relay.broadcast_to_like(V.v, V.a), "broadcast_to(v, shape=(2, 3, 4))"),
    (lambda: relay.concatenate([V.m, V.n], 0), "concatenate((m, n))"),
    (lambda: relay.stack([V.m, V.m], -1), "stack((m, m), axis=2)"),
    (lambda: relay.split(V.a, 2, -1).astuple(), "split(a, indices_or_sections=(2,), axis=2)"),
    (lambda: relay.split(V.a, (1, 3), 2).astuple(), "split(a, indices_or_sections=(1, 3), axis=2)"),
    (lambda: relay.strided_slice(V.a, [0, 1], [2, 3]),
     "strided_slice(a, begin=(1,), end=(3,), strides=(1,), axes=(1,))"),
    # A missing stride is 1.
    (lambda: relay.strided_slice(V.a, [0, 0, 1], [2, 3, 4], [2]),
     "strided_slice(a, begin=(0, 1), end=(2, 4), strides=(2, 1), axes=(0, 2))"),
    (lambda: relay.strided_slice(V.a, [0, 1], [-1, 2], slice_mode="size"),
     "strided_slice(a, begin=(1,), end=(3,), strides=(1,), axes=(1,))"),
    (lambda: relay.strided_slice(V.a, [-1], [-5], [-1], axes=[2]),
     "strided_slice(a, begin=(3,), end=(-5,), strides=(-1,), axes=(2,))"),
    (lambda: relay.slice_like(V.n, V.m), "strided_slice(n, begin=(0,), end=(3,), strides=(1,), axes=(0,))"),
    (lambda: relay.take(V.a, c(1, "int32"), 1), "take(a, 1, axis=1)"),
    (lambda: relay.take(V.a, c([0, 2], "int32"), 1), "take(a, const(int32, (2,)), axis=1)"),
    (lambda: relay.take(V.a, V.k, 1), "take(a, clip(k, a_min=0, a_max=2), axis=1)"),
    (lambda: relay.take(V.a, V.i, 1, mode="wrap"), "take(a, floor_mod(i, 3), axis=1)"),
    (lambda: relay.take(V.a, V.k, 1, mode="fast"), "take(a, k, axis=1)"),
    (lambda: nn.pad(V.m, ((1, 0), (0, 2))), "nn.pad(m, pad_width=((1, 0), (0, 2)))"),
    (lambda: nn.pad(V.i, ((1, 0), (0, 2)), 2.0), "nn.pad(i, pad_width=((1, 0), (0, 2)), pad_value=2)"),
    (lambda: nn.pad(V.m, ((1, 0), (0, 2)), pad_mode="reflect"),
     "nn.pad(m, pad_width=((1, 0), (0, 2)), pad_mode='reflect')"),
    (lambda: nn.mirror_pad(V.m, ((1, 0), (0, 2)), "REFLECT"),
     "nn.pad(m, pad_width=((1, 0), (0, 2)), pad_mode='reflect')"),
    (lambda: relay.trilu(V.m, c(1, "int32"), False), "trilu(m, k=1, upper=False)"),
    (lambda: relay.matrix_set_diag(V.m, c(np.zeros((2, 3))), (0, 1), "LEFT_RIGHT"),
     "matrix_set_diag(m, const(float32, (2, 3)), k=(0, 1), align='LEFT_RIGHT')"),
    (lambda: relay.sum(V.i, 1), "cast(sum(i, axis=(1,)), dtype='int32')"),
    (lambda: relay.sum(V.a, -1, exclude=True), "sum(a, axis=(0, 1))"),
    (lambda: relay.mean(V.a, keepdims=True), "mean(a, axis=(0, 1, 2), keepdims=True)"),
    (lambda: relay.prod(V.i), "cast(prod(i, axis=(0, 1)), dtype='int32')"),
    (lambda: relay.argmax(V.a, 1), "cast(argmax(a, axis=(1,)), dtype='int32')"),
    (lambda: relay.variance(V.a, 1, unbiased=True), "variance(a, axis=(1,), unbiased=True)"),
    (lambda: relay.variance(V.a, [0, -1], exclude=True), "variance(a, axis=(1,))"),
    (lambda: relay.all(V.q, 1), "all(q, axis=(1,))"),
    (lambda: relay.cumsum(V.i, 1), "cumsum(i, axis=1, dtype='int32')"),
    (lambda: relay.cumsum(V.a, exclusive=True), "cumsum(a, exclusive=True)"),
    (lambda: relay.full(c(2, "int32"), (2, 2)), "full(2, shape=(2, 2), dtype='int32')"),
    (lambda: relay.full(c(2.5), (2,), "float32"), "full(2.5, shape=(2,))"),
    (lambda: relay.arange(c(1, "int32"), c(7, "int32"), c(2, "int32"), "int32"),
     "arange(start=1, stop=7, step=2, dtype='int32')"),
    (lambda: relay.arange(c(3.0)), "arange(stop=3, dtype='float32')"),
    (lambda: nn.matmul(V.m, V.n, transpose_b=True), "nn.dense(m, n)"),
    (lambda: relay.op.nn._make.matmul(V.m, V.n, None, "", False, True), "nn.dense(m, n)"),
    (lambda: nn.matmul(V.m, V.m, transpose_a=True), "matmul(transpose(m, axes=(1, 0)), m)"),
    (lambda: nn.dense(V.m, V.n, units=5, out_dtype="float32"), "nn.dense(m, n)"),
    (lambda: nn.dense(V.h, V.h, out_dtype="float32"), "nn.dense(h, h, out_dtype='float32')"),
    (lambda: nn.batch_matmul(V.a, V.b), "nn.batch_matmul(a, b)"),
    (lambda: nn.bias_add(V.a, V.v, -1), "nn.bias_add(a, v, axis=2)"),
    (lambda: nn.dense(V.m, V.n) + V.u, "nn.bias_add(nn.dense(m, n), u)"),
    (lambda: V.u + nn.matmul(V.m, V.n, transpose_b=True), "nn.bias_add(nn.dense(m, n), u)"),
    (lambda: nn.batch_matmul(V.a, V.b) + V.u, "nn.bias_add(nn.batch_matmul(a, b), u, axis=2)"),
    (lambda: relay.reshape(nn.dense(relay.reshape(V.a, (6, 4)), V.n), (2, 3, 5)) + V.u,
     "nn.bias_add(nn.dense(a, n), u, axis=2)"),
    (lambda: nn.dense(V.m, V.n) + c(np.ones((1, 5))), "add(nn.dense(m, n), const(float32, (1, 5)))"),
    (lambda: relay.exp(nn.dense(V.m, V.n)) + V.u, "add(exp(nn.dense(m, n)), u)"),
    (lambda: relay.einsum([V.m, V.n], "ij, kj -> ik"), "einsum((m, n), equation='ab,cb->ac')"),
    (lambda: nn.conv2d(V.x, V.w), "nn.conv2d(x, w)"),
    (lambda: nn.conv2d(V.x, V.w, padding=1, channels=6, kernel_size=3, out_dtype="float32"),
     "nn.conv2d(x, w, padding=(1, 1, 1, 1))"),
    (lambda: nn.conv2d(V.x, V.d, groups=4, padding=(0, 1), strides=2),
     "nn.conv2d(x, d, strides=(2, 2), padding=(0, 1, 0, 1), groups=4)"),
    (lambda: nn.max_pool2d(V.x, (3, 3), (2, 2), padding=1, ceil_mode=True),
     "nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1), ceil_mode=True)"),
    (lambda: nn.avg_pool2d(V.x, 2, 2, ceil_mode=True, count_include_pad=True),
     "nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2), ceil_mode=True, count_include_pad=True)"),
    (lambda: nn.adaptive_avg_pool2d(V.x, (1,)), "nn.adaptive_avg_pool2d(x, output_size=(1, 1))"),
    (lambda: nn.adaptive_max_pool1d(V.s), "nn.adaptive_max_pool1d(s, output_size=(None,))"),
    (lambda: nn.global_avg_pool1d(V.s), "nn.adaptive_avg_pool1d(s, output_size=(1,))"),
    (lambda: nn.global_avg_pool2d(V.x), "nn.global_avg_pool2d(x)"),
    (lambda: nn.batch_norm(V.x, V.p, V.v, V.v, V.p, scale=False)[0], "nn.batch_norm(x, p, v, v, p, scale=False)"),
    (lambda: nn.layer_norm(V.a, V.p, V.v), "nn.layer_norm(a, p, v, axis=(2,))"),
    (lambda: nn.group_norm(V.x, V.p, V.v, 2), "nn.group_norm(x, p, v, num_groups=2)"),
    (lambda: nn.instance_norm(V.x, V.p, V.v), "nn.instance_norm(x, p, v)"),
    (lambda: nn.l2_normalize(V.a, 0.5, [1]), "nn.l2_normalize(a, eps=0.5, axis=(1,))"),
    (lambda: nn.l2_normalize(V.a, 0.5), "nn.l2_normalize(a, eps=0.5, axis=(0, 1, 2))"),
    (lambda: nn.softmax(V.a), "nn.softmax(a, axis=2)"),
    (lambda: nn.log_softmax(V.m, axis=0), "nn.log_softmax(m, axis=0)"),
    (lambda: nn.leaky_relu(V.a, 0.2), "nn.leaky_relu(a, alpha=0.2)"),
    (lambda: nn.prelu(V.x, V.v), "nn.prelu(x, v)"),
    (lambda: nn.dropout(V.a, 0.3), "nn.dropout(a, rate=0.3)"),
]  # fmt: skip

UNREAD: dict[str, Callable[[], Any]] = {
    "division of integers that rounds to zero": lambda: relay.divide(V.i, V.j),
    "the same by its name": lambda: relay.trunc_divide(V.i, V.j),
    "division of floats, rounded": lambda: relay.floor_divide(V.a, V.v),
    "the remainder of floats by the rounded quotient": lambda: relay.floor_mod(V.a, V.v),
    "the same with the sign of the dividend": lambda: relay.trunc_mod(V.a, V.v),
    "powers of integers": lambda: relay.power(V.i, c(2, "int32")),
    "halves rounded away from zero": lambda: relay.round(V.a),
    "a sum of bools modulo 2": lambda: V.q + V.q,
    "a mean of integers": lambda: relay.mean(V.i),
    "integer bounds that are not whole": lambda: relay.clip(V.i, -1.5, 2.5),
    "bounds the wrong way round": lambda: relay.clip(V.a, 1.0, -1.0),
    "a function of integers that stays one": lambda: relay.sigmoid(V.i),
    "a condition that is no bool": lambda: relay.where(V.i, V.i, V.j),
    "places of a batch": lambda: relay.take(V.a, c([[0], [1]], "int32"), 1, batch_dims=1),
    "a mirror that repeats the edge": lambda: nn.mirror_pad(V.m, ((1, 0), (0, 2)), "SYMMETRIC"),
    "padding with what is computed": lambda: nn.pad(V.m, ((1, 0), (0, 2)), relay.sum(V.v)),
    "the last of the largest": lambda: relay.argmax(V.a, 1, select_last_index=True),
    "the variance about another mean": lambda: relay.op._make._variance(
        V.a, relay.mean(V.a, 0, True), [1], False, False, False
    ),
    "updates that are added": lambda: relay.scatter_elements(V.m, c(np.zeros((3, 4)), "int64"), V.m, 0, "add"),
    "a trace": lambda: relay.einsum([c(np.ones((3, 3)))], "ii->i"),
    "a window that begins in the padding": lambda: nn.max_pool2d(V.x, 2, 2, padding=1, ceil_mode=True),
    "an average of integers": lambda: nn.avg_pool1d(relay.reshape(V.i, (1, 2, 3)), 2),
    "channels that Relay's kernel looks for elsewhere": lambda: nn.group_norm(V.a, V.p, V.v, 2, axis=2),
    "channels of one group for all": lambda: nn.conv2d_transpose(V.x, c(np.ones((4, 3, 2, 2))), groups=2),
    "a layout in blocks": lambda: nn.max_pool2d(relay.layout_transform(V.x, "NCHW", "NCHW4c"), 2, layout="NCHW4c"),
    "an approximation": lambda: nn.fast_softmax(V.a),
    "no axes, which Relay can't compile": lambda: nn.l2_normalize(V.a, 0.5, []),
    "another function": lambda: nn.space_to_depth(V.y, 2),
}
"""Calls without an exact reading."""
