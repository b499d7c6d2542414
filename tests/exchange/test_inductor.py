"""Rules of inductor's pattern matcher: they find what inductor finds, in graphs that are traced as inductor does."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import fuse_attention
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.fx_passes.post_grad import remove_noop_ops
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    PatternMatcherPass,
    fwd_only,
    joint_fwd_bwd,
    register_graph_pattern,
    register_lowering_pattern,
    register_replacement,
)
from torch._subclasses.fake_tensor import FakeTensorMode

from gsl import Subst, Workload
from gsl.errors import ExchangeError
from gsl.exchange import ImportedRules, from_inductor, from_inductor_pass


@functools.cache
def patterns() -> dict[str, dict[str, Any]]:
    """The attention patterns that inductor registers for inference, by name, with what it registers them with."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = list(fuse_attention._get_sfdp_patterns(torch.device("cpu")))
    return {name.removesuffix("_inference"): kwargs for name, kwargs in found if name.endswith("_inference")}


def taken_over(name: str) -> Subst:
    """The rule of an attention pattern."""
    given = patterns()[name]
    return from_inductor(
        given["search_fn"], given["replace_fn"], given["example_inputs"],
        scalar_workaround=given["scalar_workaround"], extra_check=given["extra_check"], name=name,
    )  # fmt: skip


def graph(search: Callable[..., Any], examples: Sequence[Any], scalars: Mapping[str, Any]) -> torch.fx.GraphModule:
    """The graph that inductor makes of a pattern function; tensors without dimensions are the numbers that the checks
    of the patterns ask for."""
    given = iter(0.7 if isinstance(each, Tensor) and not each.ndim else each for each in examples)
    values = [scalars[name] if name in scalars else next(given) for name in inspect.signature(search).parameters]
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        tensors = [torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
                   for value in values if isinstance(value, Tensor)]  # fmt: skip

    def call(*tensors: Tensor) -> Any:
        left = iter(tensors)
        return search(*(next(left) if isinstance(value, Tensor) else value for value in values))

    with mode:
        return fwd_only(call, tensors)


def found_by_inductor(given: dict[str, Any], module: torch.fx.GraphModule) -> int:
    """The number of matches that inductor replaces."""
    own = PatternMatcherPass()
    register_replacement(**{**given, "pass_dicts": own, "skip_duplicates": False})
    return int(own.apply(module.graph))


def count(name: str) -> tuple[int, int]:
    """The numbers of matches that inductor and GSL replace in the graph of an attention pattern."""
    given = patterns()[name]
    made = functools.partial(graph, given["search_fn"], given["example_inputs"], given["scalar_workaround"])
    wl = Workload.from_fx(made())
    return found_by_inductor(given, made()), taken_over(name)(wl).trace.count(name)


def test_there_are_thirty_attention_patterns() -> None:
    numbers = {name.removeprefix("_sfdp_pattern_").split("_")[0] for name in patterns()}
    assert numbers == set(map(str, range(1, 31)))


QUICK = ("_sfdp_pattern_5", "_sfdp_pattern_14", "_sfdp_pattern_28")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", QUICK)
def test_a_rule_finds_what_inductor_finds(name: str) -> None:
    assert count(name) == (1, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", [f"_sfdp_pattern_{number}" for number in range(1, 31)])
def test_each_attention_pattern_finds_what_inductor_finds(name: str) -> None:
    assert count(name) == (1, 1)


def test_the_page_lists_the_patterns_that_come_in() -> None:
    page = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text(encoding="utf-8")
    listed = re.search(r"in the graphs that inductor makes of them:\n([\d, ]+)\.", page)
    assert listed is not None
    assert listed[1].split(", ") == [str(number) for number in range(1, 31)]


@pytest.mark.long
@pytest.mark.slow
def test_the_layers_of_a_model_are_found() -> None:
    import transformers as hf
    from functorch.compile import make_boxed_func

    rule = taken_over("_sfdp_pattern_28")
    found: list[tuple[int, int]] = []

    def passes(module: torch.fx.GraphModule, inputs: Any) -> Any:
        own = copy.deepcopy(module)
        remove_noop_ops(own.graph)  # as inductor does before it looks for patterns
        own.graph.eliminate_dead_code()
        own.recompile()
        ours = rule(Workload.from_fx(own)).trace.count(rule.name)
        counters.clear()
        joint_graph_passes(module)
        found.append((int(counters["inductor"]["fuse_attention"]), ours))
        return make_boxed_func(module.forward)

    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    model = hf.BertModel(hf.BertConfig(**small, vocab_size=40, attn_implementation="eager")).eval()
    backend = aot_autograd(fw_compiler=passes, inference_compiler=passes, decompositions=select_decomp_table())
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(torch.arange(1, 17).view(2, 8))
    assert found == [(2, 2)]


# One rule


def scaled(x: Tensor, y: Tensor, scale: Any) -> Tensor:
    return torch.relu(x + y).mul(scale)


def clamped(x: Tensor, y: Tensor, scale: Any) -> Tensor:
    return torch.clamp(x + y, min=0) * scale


EXAMPLES = (torch.empty(2, 4), torch.empty(1, 4))


def small(**options: Any) -> Subst:
    return from_inductor(scaled, clamped, EXAMPLES, scalar_workaround={"scale": 0.3}, name="small", **options)


def test_a_rule_prints() -> None:
    assert small().to_python("small") == """\
x = pat.Wildcard(ndim=2)
y = pat.Wildcard(ndim=2)
scale = pat.Const(ndim=0)
source = op.ReLU(x + y) * scale
target = op.Clip(x + y, a_min=0.0) * scale
small = Subst(
    source,
    target,
    where=[
        (y.shape[0] == x.shape[0]) | (y.shape[0] == 1),
        (y.shape[1] == x.shape[1]) | (y.shape[1] == 1),
    ],
    name='small',
)"""


def applied(rule: Subst, *shapes: tuple[int, ...], scale: float = 2.0) -> Workload:
    module = graph(scaled, [torch.empty(shape) for shape in shapes], {"scale": scale})
    return rule(Workload.from_fx(module))


@pytest.mark.parametrize("shapes", [((2, 4), (1, 4)), ((3, 5), (3, 5)), ((3, 5), (1, 1))])
def test_a_rule_is_not_bound_to_its_examples(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert applied(small(), *shapes).trace.count("small") == 1


def test_a_check_sees_the_match() -> None:
    seen: list[Any] = []

    def check(match: Any) -> bool:
        (relu,) = [node for node in match.nodes if node.target is torch.ops.aten.relu.default]
        seen.append((match.kwargs["x"].meta["val"].shape, match.kwargs["scale"], relu.meta["val"].dtype))
        assert match.output_node().args == (relu, match.kwargs["scale"])
        assert match.output_nodes() == [match.output_node()]
        return bool(match.kwargs["scale"] > 1)

    rule = small(extra_check=check)
    assert applied(rule, (6, 7), (6, 7)).trace.count("small") == 1
    assert applied(rule, (6, 7), (6, 7), scale=0.5).trace.count("small") == 0
    assert set(seen) == {((6, 7), 2.0, torch.float32), ((6, 7), 0.5, torch.float32)}


def test_a_check_that_reads_more_refuses_with_the_reason() -> None:
    rule = small(extra_check=lambda match: match.ctx.graph)
    wl = applied(rule, (6, 7), (6, 7))
    assert wl.trace.count("small") == 0
    assert "extra_check reads what a match does not have here: AttributeError" in str(wl.trace)


def test_a_replacement_of_another_dtype_is_cast() -> None:
    def halved(x: Tensor) -> Tensor:
        return x.exp().to(torch.float16)

    def kept(x: Tensor) -> Tensor:
        return x.exp2()

    rule = from_inductor(halved, kept, [torch.empty(3)])
    assert "cast(%2, dtype='float16')" in str(rule)


# Errors


def test_what_can_not_be_taken_over() -> None:
    def drops(x: Tensor, p: float) -> Tensor:
        return F.dropout(x.exp(), p)

    with pytest.raises(ExchangeError, match=r"random numbers, .* give both functions with a dropout of 0.0"):
        from_inductor(drops, drops, [torch.empty(3)], scalar_workaround={"p": 0.113377})
    with pytest.raises(ExchangeError, match=r"expected an example for each of \(x, y, scale\), got 2"):
        from_inductor(scaled, clamped, EXAMPLES)
    with pytest.raises(ExchangeError, match="expected two functions and a list of example inputs, got 3, "):
        from_inductor(3, clamped, EXAMPLES)  # type: ignore[arg-type]
    with pytest.raises(ExchangeError, match="the example of x is a list"):
        from_inductor(lambda x: x[0].relu(), lambda x: x[0], [[torch.empty(3)]])
    with pytest.raises(ExchangeError, match="scalar_workaround has z, which are no parameters"):
        from_inductor(scaled, clamped, EXAMPLES, scalar_workaround={"scale": 1.0, "z": 2.0})
    with pytest.raises(ExchangeError, match=r"can't be taken over: search_fn .*looks at the value of a tensor"):
        from_inductor(lambda x: x * x.sum().item(), lambda x: x, [torch.empty(3)])


# Operators that write into their arguments


@functools.cache
def written() -> torch.library.Library:
    """Operators of which each writes into its first argument."""
    library = torch.library.Library("gsl_exchange", "FRAGMENT")
    functions: dict[str, Callable[..., Any]] = {
        "scaled": lambda out, x, by: out.copy_(x * by),
        "rounded": lambda out, x: out.copy_(x.round()),
        "scaled_rounded": lambda out, x, by: out.copy_((x * by).round()),
    }
    for name, function in functions.items():
        by = "" if name == "rounded" else ", float by"
        library.define(f"{name}(Tensor(a!) out, Tensor x{by}) -> ()")
        library.impl(name, lambda *given, function=function: (function(*given), None)[1], "CompositeExplicitAutograd")
    return library


def test_calls_through_auto_functionalized_come_over() -> None:
    written()
    ops, call = torch.ops.gsl_exchange, torch.ops.higher_order.auto_functionalized

    def two(x: Tensor) -> Tensor:
        first = call(ops.scaled.default, out=torch.empty_like(x), x=x, by=0.5)[1]
        result: Tensor = call(ops.rounded.default, out=torch.empty(x.shape, dtype=torch.int8), x=first)[1]
        return result

    def one(x: Tensor) -> Tensor:
        new = torch.empty(x.shape, dtype=torch.int8)
        result: Tensor = call(ops.scaled_rounded.default, out=new, x=x, by=0.5)[1]
        return result

    rule = from_inductor(two, one, [torch.empty(5, 4)])
    example = (8 * torch.randn(6, 3),)
    old = Workload.from_fx(fwd_only(two, example), example)
    new = rule(old)
    assert new.op_counts()["auto_functionalized"] == old.op_counts()["auto_functionalized"] - 1 == 1
    old.compare(new).check()


# Whatever a pass holds


def product(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(x @ w + b)


def fused_product(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x, w).clamp(min=0)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.aten.rms_norm(x, [x.shape[-1]], weight, 1e-6)


@functools.cache
def rules_held() -> ImportedRules:
    """What comes over of that pass."""
    return from_inductor_pass(held())


def held() -> PatternMatcherPass:
    """A pass with two patterns that come over, and three that do not."""
    own = PatternMatcherPass()
    with FakeTensorMode():
        register_replacement(product, fused_product, [torch.empty(4, 5), torch.empty(5, 3), torch.empty(3)],
                             fwd_only, own)  # fmt: skip
        register_replacement(rms, rms_norm, [torch.empty(2, 3, 4), torch.empty(4)], fwd_only, own)
    aten = torch.ops.aten
    register_graph_pattern(CallFunction(aten.relu.default, KeywordArg("x")), pass_dict=own)(erases)
    register_lowering_pattern(CallFunction(aten.exp.default, KeywordArg("x")), pass_dict=own)(lowers)
    register_replacement(sigmoid, sigmoid, [torch.empty(4, requires_grad=True)], joint_fwd_bwd, own)
    return own


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def erases(match: Any, x: Any) -> None:
    match.output_node().replace_all_uses_with(x)


def lowers(match: Any, x: Any) -> None:
    raise NotImplementedError


def test_what_a_pass_holds_comes_over() -> None:
    rules = rules_held()
    assert [rule.name for rule in rules] == [
        "product[2, 2, 2]", "product[2, 2, 1]", "rms[1, 1]", "rms[2, 1]", "rms[3, 1]", "rms[4, 1]",
    ]  # fmt: skip
    assert {name: reason.partition(": ")[2][:40] for name, reason in rules.refused.items()} == {
        "erases": "its handler changes the graph itself, an",
        "lowers": "its handler makes inductor's own code of",
        "sigmoid": "it is a pattern of a graph with gradient",
    }


def test_a_rule_of_a_pass_finds_what_the_pass_finds() -> None:
    for search, shapes in ((rms, ((6, 7, 8), (8,))), (product, ((6, 7), (7, 8), (8,)))):
        made = functools.partial(graph, search, [torch.empty(shape) for shape in shapes], {})
        new = rules_held()(Workload.from_fx(made()))
        assert len(new.trace.firings) == held().apply(made().graph) == 1


def test_a_pass_without_example_inputs_asks_for_them() -> None:
    def folded(x: Tensor) -> Tensor:
        return x.view(3, 7, 5).relu()

    def same(x: Tensor) -> Tensor:
        return x.relu().view(3, 7, 5)

    own = PatternMatcherPass()
    with FakeTensorMode():
        register_replacement(folded, same, [torch.empty(21, 5)], fwd_only, own)
    assert "give them as example_inputs={'folded': […]}" in from_inductor_pass(own).refused["folded"]
    rules = from_inductor_pass(own, example_inputs={"folded": [torch.empty(21, 5)]})
    assert [rule.name for rule in rules] == ["folded"]
    with pytest.raises(ExchangeError, match="names 'fold', no entry of the pass: did you mean 'folded'"):
        from_inductor_pass(own, example_inputs={"fold": [torch.empty(21, 5)]})
    with pytest.raises(ExchangeError, match="expected a PatternMatcherPass, got 3"):
        from_inductor_pass(3)
