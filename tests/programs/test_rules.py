"""Rules of two programs: what they match, what they demand, and what they become."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gsl
from gsl import Refuted, RuleSet, Subst, Supported, Workload, pat
from gsl.rules import NORMAL
from tests.helpers.models import exported
from tests.helpers.nets import Of
from tests.programs.functions import (
    SHAPES,
    Attention,
    attention,
    eager,
    fused,
    gelu,
    inputs,
    rms,
    rms_norm,
    tanh_gelu,
)  # fmt: skip


def fires(rule: Subst, wl: Workload, *, times: int = 1) -> Workload:
    """The workload in which a rule has fired so often, with equal numbers."""
    new = rule(wl)
    assert new.trace.count(rule.name) == times, rule.explain(wl)
    wl.compare(new).check()
    return new


def workload(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Workload:
    return Workload.from_torch(Of(function), tuple(torch.randn(shape) for shape in shapes))


# One rule, everywhere


def test_attention_in_an_export() -> None:
    assert fires(attention(), Workload.from_torch(Attention(), inputs())).op_counts() == {"nn.attention": 1}


def test_attention_in_a_traced_module() -> None:
    wl = Workload.from_fx(torch.fx.symbolic_trace(Attention()), inputs())
    assert fires(attention(), wl).op_counts() == {"nn.attention": 1}


@pytest.mark.parametrize("dynamic", [False, True])
def test_attention_in_a_captured_graph(dynamic: bool) -> None:
    backend = gsl.torch_backend(attention(), then="eager")
    model = Attention()
    fast = torch.compile(model, backend=backend, dynamic=dynamic)
    torch.testing.assert_close(fast(*inputs()), model(*inputs()))
    assert [trace.summary() for trace in backend.traces] == [{"attention": 1}]


def test_attention_with_symbolic_sizes() -> None:
    b, n, m = map(torch.export.Dim, "bnm")
    shapes = ({0: b, 2: n}, {0: b, 2: m}, {0: b, 2: m}, {0: b, 2: n, 3: m})
    wl = Workload.from_torch(Attention(), inputs(), dynamic_shapes=shapes)
    assert fires(attention(), wl).op_counts()["nn.attention"] == 1


@pytest.mark.relax
def test_attention_in_relax() -> None:
    from tvm.relax.frontend.torch import from_exported_program

    wl = Workload.from_relax(from_exported_program(torch.export.export(Attention(), inputs())))
    assert fires(attention(), NORMAL(wl, iterative=True)).op_counts()["nn.attention"] == 1


def written(name: str) -> Callable[..., Any]:
    """Attention as the module of a model of transformers computes it."""
    module = __import__(f"transformers.models.{name}.modeling_{name}", fromlist=["eager_attention_forward"])
    part = SimpleNamespace(num_key_value_groups=1, training=False, dropout=0.0)

    def before(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float, p: float) -> Tensor:
        found: Tensor = module.eager_attention_forward(part, q, k, v, mask, scaling=scale, dropout=p)[0]
        return found

    return before


def turned(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float, p: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale).transpose(1, 2).contiguous()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_attention_of_transformers_is_found_by_its_own_function(name: str) -> None:
    import transformers as hf

    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config, model = {"bert": (hf.BertConfig, hf.BertModel), "llama": (hf.LlamaConfig, hf.LlamaModel)}[name]
    built = model(config(**small, vocab_size=40, use_cache=False, attn_implementation="eager")).eval()

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = built

        def forward(self, ids: Tensor) -> Any:
            return self.model(ids, return_dict=False)[0]

    wl = Workload.from_torch(First(), (torch.arange(1, 9)[None],))
    rule = Subst.from_programs(written(name), turned, name=name, **SHAPES)
    fires(rule, wl, times=2)


def test_the_norm_of_a_model_is_found_by_its_function() -> None:
    def written_out(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)).to(dtype)

    rule = Subst.from_programs(written_out, rms_norm, x="*b d", weight="d", name="rms norm")
    assert "dtype=x" in str(rule)  # the dtype that the result is cast to is that of the leaf
    fires(rule, Workload.from_exported(exported("llama")), times=3)


# Sizes that may be 1


def test_a_size_that_may_be_one() -> None:
    def masked(x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x - mask, -1)

    def expanded(x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(torch.sub(x, mask.expand(mask.shape[0], x.shape[1])), -1)

    rule = Subst.from_programs(masked, expanded, x="b n", mask="#b #n", name="masked")
    assert str(rule).count("== 1)") == 2
    for shape in ((3, 4), (1, 4), (3, 1), (1, 1)):
        wl = workload(masked, (3, 4), shape)
        assert fires(rule, wl).op_counts()["broadcast_to"] == 1
    assert rule(workload(masked, (1, 4), (3, 4))).trace.count("masked") == 0


def test_a_size_that_may_be_one_is_told_by_another_shape() -> None:
    with pytest.raises(gsl.errors.PatternError, match="#c is the size c or 1, and no other shape tells c"):
        Subst.from_programs(lambda x, y: (x.relu(), y.exp()), lambda x, y: (x.relu(), y.exp()), x="b n", y="#c")


# What a rule is


def test_attention_prints_as_patterns() -> None:
    assert attention().to_python("attention") == """\
q = pat.Wildcard(ndim=4)
k = pat.Wildcard(shape=(q.shape[0], q.shape[1], None, q.shape[3]))
matmul = op.Matmul(q, op.Transpose(k, axes=(0, 1, 3, 2)), out_dtype='')
scale = pat.Const(ndim=0)
mask = pat.Wildcard()
v = pat.Wildcard(shape=(q.shape[0], q.shape[1], k.shape[2], None))
source = op.Matmul(op.Softmax((matmul * scale) + mask, axis=-1), v, out_dtype='')
target = op.Attention(q, k, v, mask, scale=scale.value)
attention = Subst(
    source,
    target,
    where=[
        mask.ndim >= 2,
        mask.shape[-2] == q.shape[2],
        mask.shape[-1] == k.shape[2],
        mask.dtype == q.dtype,
    ],
    name='attention',
)"""


def test_a_rule_is_verified() -> None:
    assert isinstance(attention().verify(max_examples=30), Supported)
    any_mask = Subst.from_programs(eager, fused, **SHAPES)
    verdict = any_mask.verify()
    assert isinstance(verdict, Refuted)
    assert "bool[" in str(verdict.counterexample)


def test_a_wrong_rule_is_refuted() -> None:
    def forgets(x: Tensor, *, factor: float) -> Tensor:
        return torch.relu(x)

    def scaled(x: Tensor, *, factor: float) -> Tensor:
        return torch.relu(x) * factor

    assert isinstance(Subst.from_programs(scaled, forgets).verify(max_examples=30), Refuted)


def test_a_rule_is_like_any_other() -> None:
    rule, wl = attention(), Workload.from_torch(Attention(), inputs())
    again = pickle.loads(pickle.dumps(rule))
    assert str(again) == str(rule)
    assert set(again.leaves) == {*SHAPES, "scale"}
    assert again(wl).trace.count("attention") == 1
    assert "svg" in (rule.visualize()._repr_svg_() or "")
    assert RuleSet([rule])(wl).trace.count("attention") == 1
    assert "expected" in str(rule.explain(workload(lambda a, b: torch.softmax(a @ b, -1) @ b, (3, 3), (3, 3))))
    assert next(rule.match(wl))[rule.leaves["mask"]].name == "mask"


# Leaves, sizes, ranks


def test_what_is_not_said_is_free() -> None:
    rule = Subst.from_programs(eager, fused, name="free")
    for lead in ((), (2,), (2, 3), (2, 1, 3)):
        fires(rule, workload(lambda q, k, v, m: torch.softmax(q @ k.mT * 0.5 + m, -1) @ v,
                             (*lead, 4, 8), (*lead, 5, 8), (*lead, 5, 6), (4, 5)))  # fmt: skip


def test_equal_names_are_equal_sizes() -> None:
    def add(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x) + torch.relu(y)

    def sub(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x) - -torch.relu(y)

    rule = Subst.from_programs(add, sub, x="*b n n", y="*b n n", name="square")
    fires(rule, workload(add, (2, 3, 3), (2, 3, 3)))
    for shapes in (((2, 3, 4), (2, 3, 4)), ((2, 3, 3), (1, 3, 3)), ((2, 3, 3), (3, 3)), ((3,), (3,))):
        assert not list(rule.match(workload(add, *shapes)))


def test_numbers_and_any_sizes_in_shapes() -> None:
    rule = Subst.from_programs(lambda x: x.exp().log(), lambda x: x, x="_ 3", name="three")
    assert len(list(rule.match(workload(lambda x: x.exp().log(), (5, 3))))) == 1
    for shape in ((5, 4), (5, 3, 3), (3,)):
        assert not list(rule.match(workload(lambda x: x.exp().log(), shape)))


def test_views_become_expressions_of_sizes() -> None:
    def heads(x: Tensor, w: Tensor, *, h: int) -> Tensor:
        b, n, _ = x.shape
        return F.linear(x, w).view(b, n, h, -1).transpose(1, 2)

    def permuted(x: Tensor, w: Tensor, *, h: int) -> Tensor:
        b, n, _ = x.shape
        return F.linear(x, w).view(b, n, h, w.shape[0] // h).permute(0, 2, 1, 3)

    model = Of(lambda x, w: F.linear(x, w).view(2, 5, 4, 3).transpose(1, 2))
    wl = Workload.from_torch(model, (torch.randn(2, 5, 6), torch.randn(12, 6)))
    for shape in ("f e", "h*d e"):
        rule = Subst.from_programs(heads, permuted, x="b n e", w=shape, name="heads")
        assert ".newshape[2]" in str(rule)
        fires(rule, wl)


@pytest.mark.parametrize(
    ("size", "expression"),
    [
        (lambda x: x.shape[0] * x.shape[1] * 2, "x0.shape[0] * (x0.shape[1] * 2)"),
        (lambda x: x.shape[1] // 2 + 1, "((x0.shape[1] // 2) + 1)"),
        (lambda x: x.shape[0] + x.shape[1], "(x0.shape[0] + x0.shape[1])"),
        (lambda x: 3 * x.shape[0] - 2, "((x0.shape[0] * 3) - 2)"),
    ],
)
def test_sizes_are_computed(size: Callable[[Tensor], int], expression: str) -> None:
    def before(x: Tensor) -> Tensor:
        return torch.relu(x.sum() + torch.zeros(size(x)))

    rule = Subst.from_programs(before, lambda x: F.relu(x.sum() + torch.zeros(size(x))), x="a b", name="sizes")
    assert expression in str(rule)
    fires(rule, workload(before, (6, 10)))


@pytest.mark.parametrize("scale", [lambda d: d**-0.5, lambda d: 1 / math.sqrt(d), lambda d: 8.0 / d])
def test_literals_that_follow_from_sizes(scale: Callable[[int], float]) -> None:
    def before(q: Tensor, k: Tensor) -> Tensor:
        return torch.relu(q @ k.mT * scale(q.shape[-1]))

    def after(q: Tensor, k: Tensor) -> Tensor:
        return torch.relu(q * scale(q.shape[-1]) @ k.mT)

    rule = Subst.from_programs(before, after, q="*b n d", k="*b m d", name="scaled")
    fires(rule, workload(before, (2, 3, 48), (2, 5, 48)))
    other = workload(lambda q, k: torch.relu(q @ k.mT * 0.123), (2, 3, 48), (2, 5, 48))
    assert not list(rule.match(other))


def test_reshapes_of_any_number_of_axes() -> None:
    def before(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2).exp().reshape(x.shape)

    rule = Subst.from_programs(before, lambda x: x.exp(), x="*b n", name="pairs")
    for shape in ((8,), (3, 8), (2, 3, 4, 8)):
        fires(rule, workload(before, shape))


def test_paddings_of_any_number_of_axes() -> None:
    def before(x: Tensor) -> Tensor:
        return F.pad(x, (1, 1)).sum(-1)

    rule = Subst.from_programs(before, lambda x: x.sum(-1), name="padded")
    for shape in ((8,), (3, 8), (2, 3, 4, 8)):
        fires(rule, workload(before, shape))


# Literals


def test_other_literals_are_as_they_are() -> None:
    rule = Subst.from_programs(tanh_gelu, gelu, name="gelu")
    assert fires(rule, workload(tanh_gelu, (3, 4))).op_counts() == {"gelu": 1}
    other = workload(lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x**3))), (3, 4))
    assert not list(rule.match(other))


def test_named_literals_vary() -> None:
    rule = Subst.from_programs(rms, rms_norm, x="*b d", weight="d", name="rms norm")
    for eps in (1e-4, 1e-3):
        new = fires(rule, workload(functools.partial(rms, eps=eps), (2, 3, 8), (8,)))
        assert f"epsilon={eps}" in str(new)
    matching = workload(functools.partial(rms, eps=1e-5), (2, 3, 8), (1,))
    assert not list(rule.match(matching))  # the weight has other sizes


def test_an_attribute_that_is_named() -> None:
    def before(x: Tensor, *, axis: int) -> Tensor:
        return torch.softmax(x, axis).log()

    rule = Subst.from_programs(before, lambda x, *, axis: torch.log_softmax(x, axis), x="a b c", name="log")
    for axis in (0, 1, 2):
        fires(rule, workload(functools.partial(before, axis=axis), (2, 3, 4)))


def test_a_literal_that_occurs_twice_is_the_same_one() -> None:
    def before(x: Tensor, *, c: float) -> Tensor:
        return (x * c).exp() * c

    rule = Subst.from_programs(before, lambda x, *, c: torch.exp(c * x) * c, name="twice")
    fires(rule, workload(lambda x: (x * 2.0).exp() * 2.0, (3,)))
    assert not list(rule.match(workload(lambda x: (x * 2.0).exp() * 3.0, (3,))))


def test_the_smaller_or_larger_of_two_literals() -> None:
    def both(x: Tensor, *, low: float, high: float, low2: float, high2: float) -> Tensor:
        return x.clamp(low, high).clamp(low2, high2)

    def one(x: Tensor, *, low: float, high: float, low2: float, high2: float) -> Tensor:
        return x.clamp(max(low, low2), min(high, high2))

    tried: dict[str, Any] = {"low": [-1.0, -2.0], "high": [1.0, 2.0], "low2": [-3.0, -0.5], "high2": [3.0, 0.5]}
    rule = Subst.from_programs(both, one, **tried)
    assert "clip(x0, a_min=max(%0.a_min, %1.a_min), a_max=min(%0.a_max, %1.a_max))" in str(rule)
    fires(rule, workload(lambda x: x.clamp(-3.0, 2.0).clamp(-1.0, 4.0), (3, 4)))


def test_what_a_literal_lacks_of_one() -> None:
    def average(x: Tensor, y: Tensor, *, share: float) -> Tensor:
        return x * share + y * (1 - share)

    rule = Subst.from_programs(average, lambda x, y, *, share: torch.lerp(y, x, share), x="*b", y="*b")
    fires(rule, workload(functools.partial(average, share=0.9), (2,), (2,)))
    assert not rule.explain(workload(lambda x, y: x * 0.9 + y * 0.2, (2,), (2,)))


def test_the_squeezed_axis_is_said() -> None:
    rule = Subst.from_programs(
        lambda x: F.max_pool1d(x, 3, 2), lambda x: F.max_pool2d(x[..., None], (3, 1), (2, 1)).squeeze(-1), x="b c n"
    )
    fires(rule, workload(lambda x: F.max_pool1d(x, 3, 2), (1, 3, 9)))


def test_a_product_in_another_dtype() -> None:
    out_dtype = torch.ops.higher_order.out_dtype
    rule = Subst.from_programs(
        lambda x, w: x.int() @ w.int(), lambda x, w: out_dtype(torch.ops.aten.mm.default, torch.int32, x, w),
        x="int8[n k]", w="int8[k m]",
    )  # fmt: skip
    tensors = torch.randint(-9, 9, (3, 4), dtype=torch.int8), torch.randint(-9, 9, (4, 5), dtype=torch.int8)

    class Product(nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return x.int() @ w.int()

    fires(rule, Workload.from_torch(Product(), tensors))


def test_values_to_try_are_given() -> None:
    def before(x: Tensor, *, padding: int) -> Tensor:
        return F.pad(x, (padding, padding)).relu()

    def after(x: Tensor, *, padding: int) -> Tensor:
        return F.pad(x.relu(), (padding, padding))

    rule = Subst.from_programs(before, after, x="a b c", padding=[1, 2, 4], name="pad")
    fires(rule, workload(lambda x: F.pad(x, (5, 5)).relu(), (2, 3, 4)))


# Conditions and patterns


def test_a_slice_that_tells_where_its_end_is() -> None:
    """The beginning of the second half tells half of the size, from which its end follows."""
    def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def other(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return torch.cat((-right, left), -1) * sin + x * cos

    rule = Subst.from_programs(rotated, other, x="*b n 2*d", cos="n 2*d", sin="n 2*d")
    fires(rule, workload(rotated, (2, 3, 4, 6), (4, 6), (4, 6)))
    shorter = workload(lambda x: x * x + torch.cat((-x[..., 2:3], x[..., :2]), -1) * x, (4, 3))
    assert not rule.explain(shorter)


def test_a_size_that_only_its_product_tells() -> None:
    def written_out(x: Tensor, *, groups: int, eps: float) -> Tensor:
        b, c, h, w = x.shape
        y = x.reshape(b, groups, -1)
        y = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, keepdim=True, unbiased=False) + eps)
        return y.reshape(b, c, h, w)

    def group_norm(x: Tensor, *, groups: int, eps: float) -> Tensor:
        return F.group_norm(x, groups, eps=eps)

    rule = Subst.from_programs(written_out, group_norm, x="b groups*c h w")
    old = workload(functools.partial(written_out, groups=2, eps=1e-5), (2, 4, 3, 3))
    assert fires(rule, old).op_counts() == {"nn.group_norm": 1}
    assert isinstance(rule.verify(max_examples=40), Supported)

    def in_halves(x: Tensor) -> Tensor:
        return x.view(-1, x.shape[1] // 2).relu().view(x.shape)

    halves = Subst.from_programs(lambda x: x.relu(), in_halves, x="b 2*d")
    assert halves(workload(torch.relu, (2, 3))).trace.count() == 0  # an odd number has no half


def test_kernels_are_smaller_than_what_they_move_over() -> None:
    """Sizes are tried of which earlier names have much larger ones; a literal may be a size."""
    def before(x: Tensor, w: Tensor, *, stride: int, dilation: int, groups: int) -> Tensor:
        return F.conv1d(x, w, None, stride, 0, dilation, groups)

    def after(x: Tensor, w: Tensor, *, stride: int, dilation: int, groups: int) -> Tensor:
        return F.conv2d(x[:, :, None], w[:, :, None], None, (1, stride), 0, (1, dilation), groups).squeeze(2)

    few = [1, 2, 3]
    rule = Subst.from_programs(before, after, x="b groups*c n", w="groups*o c k", stride=few, dilation=few, groups=few)
    fires(rule, Workload.from_torch(nn.Conv1d(4, 6, 5, 2, 0, 2, 2, bias=False), (torch.randn(2, 4, 19),)))


def test_a_condition_on_parameters() -> None:
    rule = Subst.from_programs(eager, fused, where=lambda q, scale: (q.shape[-1] <= 16) & (scale == 0.25), **SHAPES)
    assert len(list(rule.match(Workload.from_torch(Attention(), inputs())))) == 1
    wide = tuple(torch.cat([x, x], -1) if number < 2 else x for number, x in enumerate(inputs()))
    assert not list(rule.match(Workload.from_torch(Attention(), wide)))


def test_a_condition_on_the_match() -> None:
    rule = Subst.from_programs(tanh_gelu, gelu, where=lambda match: match.outputs[0].shape == (3,) or "other size")
    assert len(list(rule.match(workload(tanh_gelu, (3,))))) == 1
    assert "other size" in str(rule.explain(workload(tanh_gelu, (4,))))


def test_leaves_may_be_patterns() -> None:
    def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.linear(x, w) + b

    rule = Subst.from_programs(linear, lambda x, w, b: F.linear(x, w, b), x="*n d", w=(pat.Param(), "e d"),
                               b=(pat.Param(), "e"), name="linear")  # fmt: skip
    assert not list(rule.match(workload(linear, (2, 3), (4, 3), (4,))))

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return linear(x, self.w, self.b)

    assert len(list(rule.match(Workload.from_torch(Linear(), (torch.randn(2, 3),))))) == 1


def test_dtypes_in_shapes() -> None:
    def before(ids: Tensor, table: Tensor) -> Tensor:
        return torch.nn.functional.embedding(ids, table).relu()

    def after(ids: Tensor, table: Tensor) -> Tensor:
        return torch.nn.functional.embedding(ids, table.relu())

    rule = Subst.from_programs(before, after, ids="int64[*b]", table="v d", name="embedding")
    wl = Workload.from_torch(Of(before), (torch.arange(6).view(2, 3), torch.randn(6, 4)))
    fires(rule, wl)


def test_what_depends_on_the_dtype_is_for_the_one_that_was_traced() -> None:
    def before(x: Tensor) -> Tensor:
        return x.exp() if x.dtype == torch.float32 else x.sin()

    rule = Subst.from_programs(before, lambda x: before(x) + 0, name="single")
    assert "dtype=float32" in str(rule).replace("'", "")


def test_a_literal_that_depends_on_the_dtype_is_for_the_one_that_was_traced() -> None:
    def before(x: Tensor) -> Tensor:
        return torch.relu(x) + torch.finfo(x.dtype).min

    rule = Subst.from_programs(before, lambda x: torch.finfo(x.dtype).min + F.relu(x), name="lowest")
    fires(rule, workload(before, (3,)))
    assert not list(rule.match(Workload.from_torch(Of(before), (torch.randn(3).double(),))))


# Outputs, operators, frameworks


def test_two_outputs() -> None:
    def before(x: Tensor, w1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor]:
        return F.linear(x, w1), F.linear(x, w2)

    def after(x: Tensor, w1: Tensor, w2: Tensor) -> tuple[Tensor, ...]:
        return F.linear(x, torch.cat([w1, w2])).split([w1.shape[0], w2.shape[0]], -1)

    rule = Subst.from_programs(before, after, x="*b d", w1="e d", w2="f d", name="pair")
    new = fires(rule, workload(before, (2, 3), (4, 3), (5, 3)))
    assert new.op_counts()["nn.dense"] == 1


def test_a_source_in_the_form_in_which_other_rules_leave_it() -> None:
    def after(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, eps)

    plain, normal = (
        Subst.from_programs(rms, after, x="*b d", weight="d", name="norm", beside=beside) for beside in (None, NORMAL)
    )
    wl = workload(lambda x, weight: rms(x, weight, eps=1e-5).relu(), (2, 3, 4), (4,))
    decomposed = Workload.from_exported(wl.exported.run_decompositions())
    for other in wl, decomposed:
        assert not plain(NORMAL(other, iterative=True)).trace.count()
        fires(normal, NORMAL(other, iterative=True))
        assert (NORMAL + RuleSet([normal]))(other, iterative=True).trace.count("norm") == 1

    n = torch.export.Dim("n")
    before, target = (
        Workload.from_torch(Of(function), (torch.randn(3, 4),), dynamic_shapes=(({0: n},),))
        for function in (lambda x: torch.relu(x.pow(2).unsqueeze(0)), lambda x: torch.relu(x * x)[None])
    )
    finished = Subst.from_programs(before, target, name="finished", beside=NORMAL)
    fires(finished, NORMAL(workload(lambda x: torch.relu(x.pow(2).unsqueeze(0)), (5, 4))))


def test_swiglu() -> None:
    def before(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        return F.silu(F.linear(x, w1)) * F.linear(x, w2)

    def after(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        gate, up = F.linear(x, torch.cat([w1, w2])).chunk(2, -1)
        return F.silu(gate) * up

    rule = Subst.from_programs(before, after, x="*b d", w1="e d", w2="e d", name="swiglu")
    assert fires(rule, workload(before, (2, 6), (4, 6), (4, 6))).op_counts()["nn.dense"] == 1
    assert isinstance(rule.verify(max_examples=20), Supported)


def test_a_convolution_and_its_norm() -> None:
    def before(x: Tensor, w: Tensor, mean: Tensor, var: Tensor, g: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(F.conv2d(x, w, padding=1), mean, var, g, b, eps=1e-5)

    def after(x: Tensor, w: Tensor, mean: Tensor, var: Tensor, g: Tensor, b: Tensor) -> Tensor:
        factor = g * torch.rsqrt(var + 1e-5)
        return F.conv2d(x, w * factor.reshape(-1, 1, 1, 1), b - mean * factor, padding=1)

    rule = Subst.from_programs(before, after, x="n c h w", w="o c i j", mean="o", var="o", g="o", b="o", name="norm")
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)).eval()
    wl = Workload.from_torch(model, (torch.randn(2, 3, 8, 8),))
    assert "nn.batch_norm" not in fires(rule, wl).op_counts()
    model[0].stride = (2, 2)
    assert not list(rule.match(Workload.from_torch(model, (torch.randn(2, 3, 8, 8),))))


def test_what_a_function_changes_of_its_own_is_a_value() -> None:
    def before(x: Tensor) -> Tensor:
        y = x.exp()
        y *= 2
        return y

    rule = Subst.from_programs(before, lambda x: torch.exp(x) + torch.exp(x), name="own")
    fires(rule, workload(lambda x: 2 * x.exp(), (3,)))


def test_modules_are_programs() -> None:
    before = nn.Sequential(nn.Linear(4, 3), nn.Identity(), nn.ReLU())
    after = nn.Sequential(nn.Linear(4, 3), nn.ReLU6())
    rule = Subst.from_programs(before, after, input="*b d", **{"0.weight": "e d", "0.bias": "e"}, name="relu")
    assert set(rule.leaves) == {"input", "0.weight", "0.bias"}
    wl = Workload.from_torch(nn.Sequential(nn.Linear(5, 7), nn.ReLU()), (torch.randn(2, 5),))
    assert rule(wl).op_counts()["nn.relu6"] == 1
    own = Subst.from_programs(before, after, input="*b 4", name="relu")  # the weights are of the module's sizes
    assert not list(own.match(wl))


def test_operators_without_a_canonical_name_are_matched_natively() -> None:
    def before(x: Tensor) -> Tensor:
        return torch.special.erfcx(x) * torch.special.i0e(x)

    def after(x: Tensor) -> Tensor:
        return torch.special.i0e(x) * torch.special.erfcx(x)

    rule = Subst.from_programs(before, after, x="a b", name="native")
    fires(rule, workload(before, (3, 4)))
    fires(rule, Workload.from_fx(torch.fx.symbolic_trace(before), (torch.randn(3, 4),)))


@pytest.mark.relax
def test_functions_of_relax_are_programs() -> None:
    from tvm.script import relax as R

    @R.function
    def before(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):  # type: ignore[valid-type]
        with R.dataflow():
            y = R.multiply(x, R.sigmoid(x))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):  # type: ignore[valid-type]
        with R.dataflow():
            y = R.nn.silu(x)
            R.output(y)
        return y

    rule = Subst.from_programs(before, after, name="swish")
    assert rule.to_python() == (
        "x = pat.Wildcard(dtype='float32', ndim=2)\nsource = x * op.Sigmoid(x)\ntarget = op.SiLU(x)\n"
        "rule = Subst(source, target, name='swish')"
    )
    assert rule(Workload.from_expr(before)).op_counts() == {"silu": 1}
    assert fires(rule, workload(lambda x: x.sigmoid() * x, (3, 4))).op_counts() == {"silu": 1}


@pytest.mark.relax
def test_symbolic_sizes_of_relax_become_expressions() -> None:
    from tvm import relax, tirx

    from tests.front.relax.relax_helpers import function, tensor

    def program(body: Callable[[Any, Any], Any]) -> Any:
        n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
        return function([tensor("x", n, m)], lambda builder, x: builder.emit(body(x, (n * m,))))

    before = program(lambda x, shape: relax.op.reshape(relax.op.exp(x), shape))
    after = program(lambda x, shape: relax.op.exp(relax.op.reshape(x, shape)))
    rule = Subst.from_programs(before, after, name="later")
    assert "newshape=((x0.shape[0] * x0.shape[1]),)" in str(rule)
    fires(rule, workload(lambda x: x.exp().reshape(12), (3, 4)))


def test_exported_programs_are_programs() -> None:
    def program(function: Callable[..., Any]) -> Any:
        rows = torch.export.Dim("rows", min=2)
        return torch.export.export(Of(function), (torch.randn(3, 4),), dynamic_shapes={"inputs": ({0: rows},)})

    rule = Subst.from_programs(program(tanh_gelu), program(gelu), name="gelu")
    assert fires(rule, workload(tanh_gelu, (7, 4))).op_counts() == {"gelu": 1}
    assert not list(rule.match(workload(tanh_gelu, (7, 5))))  # that size is said
