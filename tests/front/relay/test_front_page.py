"""The two examples with which the language was introduced on Relay, with what they print."""

from __future__ import annotations

import numpy as np
from tvm import relay

from gsl import Subst, Workload, attr, op, pat
from tests.front.relay.helpers import var, without_types

ATTRS = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype")


def merged_sum() -> Subst:
    """conv(x, w1) + conv(x, w2) = conv(x, w1 + w2)"""
    x, w1, w2 = pat.Wildcard(), pat.Variable(), pat.Variable()
    conv1 = op.Conv2D(x, w1)
    conv2 = op.Conv2D(x, w2, **pat.same_attr(conv1, ATTRS))
    same = (w1.shape == w2.shape) & (w1.dtype == w2.dtype)
    return Subst(conv1 + conv2, conv1.like(x, w1 + w2), where=same)


def merged_parallel() -> Subst:
    """conv(x, w0), conv(x, w1), … = split(conv(x, concatenate(w0, w1, …)))"""
    x, w0, w = pat.Wildcard(), pat.Variable(), pat.Variable()
    first = op.Conv2D(x, w0, groups=1, data_layout="NCHW", kernel_layout="OIHW")
    conv = op.Conv2D(x, w, **pat.same_attr(first, [*ATTRS, "kernel_size"]))
    convs = pat.Variadic(conv, templates=[conv, w], first=[first, w0], min_len=2)
    j, k = attr.Symbol(), attr.Symbol()
    joined = op.Concatenate(pat.Variadic(convs(w, j), index=j, length=convs.length), axis=0)
    ends = attr.Variadic(lambda n: attr.Sum(lambda m: convs(w, m).shape[0], n + 1), convs.length - 1)
    parts = op.Split(first.like(x, joined), indices_or_sections=ends, axis=1)
    return Subst(convs, pat.Variadic(parts[k], index=k))


def test_two_convolutions_of_one_input_become_one():
    subst = merged_sum()
    x = relay.var('x', shape=(2, 2, 4, 4))
    w1 = relay.var('w1', shape=(4, 2, 1, 1))
    w2 = relay.var('w2', shape=(4, 2, 1, 1))
    y = relay.nn.conv2d(x, w1) + relay.nn.conv2d(x, w2)
    wl = Workload.from_expr(y, {'x'})
    assert without_types(wl.mod) == """\
def @main(%x: Tensor[(2, 2, 4, 4), float32], %w1: Tensor[(4, 2, 1, 1), float32], %w2: Tensor[(4, 2, 1, 1), float32]) \
-> Tensor[(2, 4, 4, 4), float32] {
  %0 = nn.conv2d(%x, %w1, padding=[0, 0, 0, 0]);
  %1 = nn.conv2d(%x, %w2, padding=[0, 0, 0, 0]);
  add(%0, %1)
}"""
    new_wl = subst(wl)
    assert without_types(new_wl.mod) == """\
def @main(%x: Tensor[(2, 2, 4, 4), float32], %v_param_1: Tensor[(4, 2, 1, 1), float32]) \
-> Tensor[(2, 4, 4, 4), float32] {
  nn.conv2d(%x, %v_param_1, padding=[0, 0, 0, 0])
}"""
    assert list(new_wl.params) == ["_param_1"]
    wl.build()
    new_wl.build()
    x = np.random.default_rng(0).random((2, 2, 4, 4))
    assert np.max(np.abs(wl(x=x) - new_wl(x=x))) < 1e-6


def test_the_merged_weight_is_the_sum():
    x, w1, w2 = var("x", 1, 2, 4, 4), var("w1", 4, 2, 1, 1), var("w2", 4, 2, 1, 1)
    wl = Workload.from_expr(relay.nn.conv2d(x, w1) + relay.nn.conv2d(x, w2), {"x"})
    (merged,) = merged_sum()(wl).params.values()
    assert np.array_equal(merged.numpy(), wl.params["w1"].numpy() + wl.params["w2"].numpy())


def test_parallel_convolutions_with_different_channels_become_one():
    x = relay.var('x', shape=(1, 3, 8, 8))
    weights = [relay.var(f'w{i}', shape=(channels, 3, 3, 3)) for i, channels in enumerate((2, 4, 6))]
    convs = [relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1))) for w in weights]
    wl = Workload.from_expr(relay.Tuple(convs), {'x'})
    new_wl = merged_parallel()(wl)
    assert without_types(new_wl.mod) == """\
def @main(%x: Tensor[(1, 3, 8, 8), float32], %v_param_1: Tensor[(12, 3, 3, 3), float32]) \
-> (Tensor[(1, 2, 8, 8), float32], Tensor[(1, 4, 8, 8), float32], Tensor[(1, 6, 8, 8), float32]) {
  %0 = nn.conv2d(%x, %v_param_1, padding=[1, 1, 1, 1]);
  %1 = split(%0, indices_or_sections=[2, 6], axis=1);
  %2 = %1.0;
  %3 = %1.1;
  %4 = %1.2;
  %5 = nn.relu(%2);
  %6 = nn.relu(%3);
  %7 = nn.relu(%4);
  (%5, %6, %7)
}"""
    x = np.random.default_rng(0).random((1, 3, 8, 8))
    for before, after in zip(wl(x=x), new_wl(x=x)):
        assert np.max(np.abs(before - after)) < 1e-5
