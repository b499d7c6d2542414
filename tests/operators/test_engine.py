"""Fusions of a serving engine, on the graphs that inductor has at each of its points."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
import torch.distributed as dist
import torch.distributed._functional_collectives
import torch.nn.functional as F
from torch import Tensor, fx
from torch.testing._internal.distributed.fake_pg import FakeStore

import gsl
from gsl import RuleSet, Subst, Workload, op, pat
from gsl.fx import Pass, PassList
from gsl.rules import IDIOMS, NORMAL
from tests.operators.engine import (
    LIBRARY,
    attention_quant,
    fp8_quant,
    qk_norm_rope_rule,
    rms_norm,
    rms_norm_fp8_quant,
    rotary_embedding,
    rotary_rule,
    sequence_parallelism,
    silu_and_mul,
    silu_and_mul_quant,
)

OPS = torch.ops.gsl_engine
FP8 = torch.float8_e4m3fn
WRITTEN_OUT = [NORMAL["clip-clip"], NORMAL["reshape-reshape"], NORMAL["reshape-identity"], IDIOMS["silu-sigmoid"]]
"""The rules for what torch decomposes, and for views of views."""


@functools.cache
def rules() -> RuleSet:
    """The fusions, behind what makes a form of what torch decomposes."""
    return RuleSet([
        *WRITTEN_OUT, rms_norm.recognise(), fp8_quant.recognise(), rms_norm_fp8_quant.recognise(name="rms-norm-quant"),
        silu_and_mul.recognise(), silu_and_mul_quant.recognise(name="silu-quant"), attention_quant(),
        rotary_rule("rotary", query="t h*d", key="t g*d"), rotary_rule("rotary of heads", query="t h d", key="t g d"),
        qk_norm_rope_rule(),
    ])  # fmt: skip


# ---------------------------------------------------------------- the models, as calls and written out


def quantised(x: Tensor, scale: Tensor) -> Tensor:
    result = torch.empty_like(x, dtype=FP8)
    OPS.fp8_quant(result, x, scale)
    return result


def norm_called(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    normed = torch.empty_like(x)
    OPS.rms_norm(normed, x, weight, 1e-6)
    return quantised(normed, scale)


def norm_written(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return (normed / scale).clamp(-448.0, 448.0).to(FP8)


def silu_called(x: Tensor, scale: Tensor) -> Tensor:
    product = torch.empty(x.shape[0], x.shape[1] // 2)
    OPS.silu_and_mul(product, x)
    return quantised(product, scale)


def silu_written(x: Tensor, scale: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return (F.silu(x[..., :half]) * x[..., half:] / scale).clamp(-448.0, 448.0).to(FP8)


def attention_called(query: Tensor, key: Tensor, value: Tensor, scale: Tensor) -> Tensor:
    result = torch.empty_like(query)
    OPS.attention(query, key, value, result, "model.layers.0")
    return quantised(result.view(-1, query.shape[1] * query.shape[2]), scale)


def attention_written(query: Tensor, key: Tensor, value: Tensor, scale: Tensor) -> Tensor:
    """The quantisation written out; attention itself is always a call."""
    result = torch.empty_like(query)
    OPS.attention(query, key, value, result, "model.layers.0")
    return (result.view(-1, query.shape[1] * query.shape[2]) / scale).clamp(-448.0, 448.0).to(FP8)


def qk_called(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cache: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    query, key, value = qkv.split([32, 16, 16], -1)
    normed = []
    for part, weight in ((query, q_weight), (key, k_weight)):
        heads = part.view(part.shape[0], -1, 8)
        result = torch.empty_like(heads)
        OPS.rms_norm(result, heads, weight, 1e-6)
        normed.append(result.view(part.shape))
    OPS.rotary_embedding(places, *normed, 8, cache, True)
    return (*normed, value)


def qk_written(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cache: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    query, key, value = qkv.split([32, 16, 16], -1)
    norm: Callable[..., Tensor] = functools.partial(rms_norm.meaning.function, epsilon=1e-6)
    query, key = (
        norm(part.view(part.shape[0], -1, 8), weight).view(part.shape)
        for part, weight in ((query, q_weight), (key, k_weight))
    )
    turned = rotary_embedding.meaning.function(places, query, key, cache, head_size=8, is_neox=True)
    return (*turned, value)


def fed(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors, of which those with five rows have one for each token, and all other sizes are those of the model."""
    for tensor in tensors:
        for axis in range(tensor.shape[0] == 5, tensor.dim()):
            torch._dynamo.mark_static(tensor, axis)
    return tensors


def attention_inputs() -> tuple[Tensor, ...]:
    return fed(torch.randn(5, 4, 16), torch.randn(5, 4, 16), torch.randn(5, 4, 16), torch.rand(1))


def norm_inputs() -> tuple[Tensor, ...]:
    return fed(torch.randn(5, 8), torch.rand(8), torch.rand(1))


def silu_inputs() -> tuple[Tensor, ...]:
    return fed(torch.randn(5, 16), torch.rand(1))


def qk_inputs() -> tuple[Tensor, ...]:
    return fed(torch.randn(5, 64), torch.rand(8), torch.rand(8), torch.randn(10, 8), torch.arange(5))


POINTS = ("pre_grad_custom_pass", "joint_custom_post_pass", "post_grad_custom_post_pass")


class _Captured(Exception):
    """Ends a compilation as soon as there is a graph."""


def captured(
    function: Callable[..., Any], inputs: Sequence[Tensor], point: str, *, dynamic: bool = False, version: int = 1
) -> fx.GraphModule:
    """The graph that inductor has at a point, with mutable calls in one of the two functional forms that torch has."""
    found: list[fx.GraphModule] = []

    def take(graph: fx.Graph) -> None:
        own: Any = graph if isinstance(graph, fx.GraphModule) else graph.owning_module
        found.append(copy.deepcopy(own))  # torch clears its own when a compilation fails
        raise _Captured

    torch._dynamo.reset()
    settings = {point: take, "enable_auto_functionalized_v2": version == 2, "fx_graph_cache": False}
    with pytest.raises(Exception, match="_Captured"), torch.no_grad(), inductor.patch(settings):
        torch.compile(function, dynamic=dynamic)(*inputs)
    return found[0]


def in_order(module: fx.GraphModule, inputs: Sequence[Tensor]) -> list[Any]:
    """The inputs in the order in which a graph takes them, as far as types tell it, and the sizes among them."""

    def number(size: Any) -> int:
        return size if isinstance(size, int) else size.node.hint

    def found(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return number(value)
        form = [number(size) for size in value.shape], value.dtype
        return next(x for x in inputs if ([*x.shape], x.dtype) == form)

    placeholders = module.graph.find_nodes(op="placeholder")
    return [found(node.meta.get("val", node.meta.get("example_value"))) for node in placeholders]


def results(module: fx.GraphModule, inputs: Sequence[Tensor]) -> list[Tensor]:
    with torch.no_grad():
        found = module(*[each.clone() if isinstance(each, Tensor) else each for each in in_order(module, inputs)])
    return [each.float() for each in (found if isinstance(found, (tuple, list)) else [found])]


CASES = {
    "rms-norm-quant": (norm_called, norm_written, norm_inputs),
    "silu-quant": (silu_called, silu_written, silu_inputs),
    "attention-quant": (attention_called, attention_written, attention_inputs),
    "qk-norm-rope": (qk_called, qk_written, qk_inputs),
}


@pytest.mark.sweep(4)
@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("point", "dynamic"),
    [
        pytest.param(point, is_open, marks=() if is_open == place % 2 else pytest.mark.long)
        for place, point in enumerate(POINTS) for is_open in (False, True)
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["called", "written"])
@pytest.mark.parametrize("name", CASES)
def test_one_rule_finds_calls_and_what_is_written_out(name: str, form: str, point: str, dynamic: bool) -> None:
    called, written, make = CASES[name]
    inputs = make()
    module = captured(called if form == "called" else written, inputs, point, dynamic=dynamic)
    before = fx.GraphModule(module, copy.deepcopy(module.graph))
    fuse = Pass(rules(), iterative=True)
    fuse(module)
    is_mutable = point.startswith("pre_grad") and (form == "called" or name == "attention-quant")
    assert fuse.traces[0].count(name) == (0 if is_mutable else 1), "what writes is no function there yet"
    for mine, theirs in zip(results(module, inputs), results(before, inputs)):
        torch.testing.assert_close(mine, theirs, rtol=0.13, atol=1e-5)


def test_what_writes_before_autograd_is_explained() -> None:
    module = captured(norm_called, norm_inputs(), "pre_grad_custom_pass")
    fuse = Pass(rules(), keep_graphs=True)
    fuse(module)
    found = fuse.explain()[0]["rms-norm-quant"]
    assert "is a call of gsl_engine::rms_norm that writes to its operands" in found.hint
    assert "joint_custom_pre_pass" in found.hint


@pytest.mark.parametrize("name", ["rms-norm-quant", "silu-quant", "attention-quant"])
def test_both_functional_forms_are_read(name: str) -> None:
    called, _, make = CASES[name]
    module = captured(called, make(), "post_grad_custom_pre_pass", version=2)
    fuse = Pass(rules(), iterative=True)
    fuse(module)
    assert fuse.traces[0].count(name) == 1


# ---------------------------------------------------------------- collectives

EXCHANGES = torch.ops._c10d_functional


@pytest.fixture(scope="module")
def group() -> Iterator[str]:
    """A group of two processes, of which this is the only one that exists."""
    dist.init_process_group(backend="fake", rank=0, world_size=2, store=FakeStore())
    yield dist.group.WORLD.group_name  # type: ignore[union-attr]
    dist.destroy_process_group()


def total(x: Tensor, group: str) -> Tensor:
    return EXCHANGES.wait_tensor(EXCHANGES.all_reduce(x, "sum", group))


def norm_in_place(x: Tensor, weight: Tensor) -> Tensor:
    result = torch.empty_like(x)
    OPS.rms_norm(result, x, weight, 1e-6)
    return result


NORMS = {"called": norm_in_place, "written": functools.partial(rms_norm.meaning.function, epsilon=1e-6)}


def layers(x: Tensor, w: Tensor, matrix: Tensor, *, group: str, form: str) -> tuple[Tensor, Tensor]:
    """Three sums over processes, each followed by an addition but the first, and a norm."""
    norm = NORMS[form]
    residual = total(x, group)
    hidden = norm(residual, w)
    for _ in range(2):
        residual = total(hidden @ matrix, group) + residual
        hidden = norm(residual, w)
    return hidden, residual


def on_two(module: fx.GraphModule, inputs: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, ...]]:
    """The outputs of a graph on two processes: each value is one for either of them."""
    values: dict[fx.Node, tuple[Any, ...]] = {}
    rest = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(rest)
            continue
        args = [
            fx.node.map_arg((node.args, node.kwargs), lambda each, rank=rank: values[each][rank]) for rank in (0, 1)
        ]
        name = str(node.target).split(".")[1] if "_c10d_functional" in str(node.target) else ""
        sent = [own[0][0] for own in args]
        match name:
            case "all_reduce":
                values[node] = (sent[0] + sent[1],) * 2
            case "reduce_scatter_tensor":
                values[node] = (sent[0] + sent[1]).chunk(2)
            case "all_gather_into_tensor":
                values[node] = (torch.cat(sent),) * 2
            case "wait_tensor":
                values[node] = tuple(sent)
            case _ if node.op == "output":
                return [tuple(pair) for pair in zip(*sent)]
            case _ if node.op == "call_method":
                values[node] = tuple(getattr(own[0], node.target)(*own[1:], **named) for own, named in args)
            case _:
                values[node] = tuple(node.target(*own, **named) for own, named in args)
    raise AssertionError("a graph has outputs")


def names_of(module: fx.GraphModule) -> list[str]:
    return [str(node.target).split(".")[1] for node in module.graph.nodes if "_c10d_functional" in str(node.target)]


def test_no_new_sum_over_processes_is_dropped(group: str) -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    summed = pat.Call(EXCHANGES.all_reduce.default, x, reduce_op="sum", group_name=group)
    rules = RuleSet([Subst(op.Tanh(x), summed, name="sum"), Subst(op.Multiply(x, y), y, name="second")])
    module = fx.symbolic_trace(lambda a, b: [torch.tanh(a) * b for _ in range(40)])
    for node in module.graph.find_nodes(op="placeholder"):
        node.meta["val"] = torch.empty(4, device="meta")
    new = rules(Workload.from_fx(module), iterative=True)
    assert new.trace.summary() == {"sum": 40, "second": 40}
    assert names_of(new.mod) == ["all_reduce"] * 40


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("point", "form"), [(point, form) for point in POINTS for form in NORMS if (point, form) != (POINTS[0], "called")]
)
def test_sums_over_processes_and_norms_become_parallel_in_the_sequence(point: str, form: str, group: str) -> None:
    x, weight, matrix = torch.randn(6, 8), torch.rand(8), torch.randn(8, 8)
    module = captured(functools.partial(layers, group=group, form=form), (x, weight, matrix), point)
    before = fx.GraphModule(module, copy.deepcopy(module.graph))
    fuse = Pass([rms_norm.recognise(), *sequence_parallelism(group, 2)], iterative=True)
    fuse(module)
    fired = Counter(fuse.traces[0].summary())
    assert fired.pop("recognise rms_norm", 0) == (3 if form == "written" else 0)
    assert fired == Counter({"scatter": 3, "add-gathered": 2, "norm-gathered": 3})
    assert names_of(module).count("reduce_scatter_tensor") == 3
    assert names_of(module).count("all_gather_into_tensor") == 4, "one behind each norm, and one for the residual"
    assert "all_reduce" not in names_of(module)
    pairs = [(each, torch.randn(6, 8) if each is x else each) for each in in_order(module, (x, weight, matrix))]
    for mine, theirs in zip(on_two(module, pairs), on_two(before, pairs)):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


PROCESS = """
import sys
import torch, torch.distributed as dist
from gsl.fx import Pass, PassList
from tests.operators import test_engine as engine
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
group = dist.group.WORLD.group_name
torch.manual_seed(0)
weight, matrix, x = torch.rand(8), torch.randn(8, 8), torch.randn(2, 6, 8)[rank]
rules = [engine.rms_norm.recognise(), *engine.sequence_parallelism(group, 2)]
passes = PassList({"parallel in the sequence": Pass(rules, iterative=True)})
model = engine.functools.partial(engine.layers, group=group, form="written")
with torch.no_grad(), engine.inductor.patch(post_grad_custom_post_pass=passes, fx_graph_cache=False):
    found = torch.compile(model)(x, weight, matrix)
assert passes.records[0].trace.summary()["scatter"] == 3
for mine, theirs in zip(found, model(x, weight, matrix)):
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
dist.destroy_process_group()
print(engine.key(engine=Pass(engine.rules(), iterative=True)))
"""


@pytest.mark.long
def test_two_processes_compile_and_exchange(tmp_path: Path) -> None:
    """Real processes, with gloo, run what inductor makes of the rewritten graph; the key of a list is one in all."""
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    commands = [[sys.executable, "-c", PROCESS, str(rank), str(tmp_path / "store")] for rank in (0, 1)]
    processes = [subprocess.Popen(command, **piped) for command in commands]
    try:
        for process in processes:
            printed, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
            assert printed.split()[-1] == key(engine=Pass(rules(), iterative=True))
    finally:
        for process in processes:
            process.kill()  # one waits for the other


def test_exchanges_keep_their_order_and_number(group: str) -> None:
    x, y, weight = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    left, right = op.Dense(x, weight), op.Dense(y, weight)
    both = op.Concatenate([x, y], axis=0)
    halves = op.Split(left.like(both, weight), indices_or_sections=2, axis=0)
    merge = Subst((left, right), (halves[0], halves[1]), where=x.shape == y.shape, name="merge")

    def function(a: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        first = total(F.linear(a, w), group)
        return first, total(F.linear(total(b, group), w), group)

    module = captured(function, (torch.randn(4, 8), torch.randn(4, 8), torch.randn(8, 8)), "pre_grad_custom_pass")
    fuse = Pass(merge)
    fuse(module)
    assert "has an effect (exchanges) and stands between the matched nodes" in str(fuse.traces[0])
    assert names_of(module) == ["all_reduce", "wait_tensor"] * 3

    nothing = Subst(op.ReLU(x) * 0.0, op.ZerosLike(x), name="nothing")
    module = captured(lambda a: torch.relu(total(a, group)) * 0.0, (torch.randn(4, 8),), "pre_grad_custom_pass")
    Pass(nothing)(module)
    assert names_of(module) == ["all_reduce", "wait_tensor"], "no rule names them, so they stay"


# ---------------------------------------------------------------- lists of passes


def test_a_list_of_passes_tells_what_each_did_and_how_long_it_took(tmp_path: Path) -> None:
    whole = pat.Wildcard()
    careless = Subst(fp8_quant(whole, pat.Wildcard()), whole, name="careless")
    passes = PassList(
        {"written out": RuleSet(WRITTEN_OUT), "engine": Pass(rules(), iterative=True), "wrong type": careless},
        keep_graphs=True, dump=tmp_path,
    )  # fmt: skip
    for function, inputs in ((silu_written, silu_inputs()), (silu_called, silu_inputs())):
        passes(captured(function, inputs, "post_grad_custom_pre_pass").graph, True)
    assert [(record.graph, record.name) for record in passes.records] == [
        (number, name) for number in (0, 1) for name in ("written out", "engine", "wrong type")
    ]
    assert all(record.seconds > 0 for record in passes.records)
    assert passes.records[0].trace.summary() == {"clip-clip": 1, "silu-sigmoid": 1}
    text = str(passes.records)
    assert "silu-quant" in text
    assert "no rule fired" in text
    assert [path.name for path in sorted(tmp_path.glob("graph_0/*"))] == [
        "0_before.py", "1_written_out.py", "2_engine.py",
    ]  # fmt: skip
    assert "silu_and_mul_quant" in (tmp_path / "graph_0" / "2_engine.py").read_text()
    told = passes["wrong type"].explain()
    assert "the graph has no call of gsl_engine::fp8_quant" in str(told[0])
    with pytest.raises(KeyError, match="no pass is named 'engin': did you mean 'engine'"):
        passes["engin"]


def test_refused_matches_are_in_the_table() -> None:
    whole, scale = pat.Wildcard(), pat.Wildcard()
    passes = PassList({"types": Subst(fp8_quant(whole, scale), whole, name="careless")})
    passes(captured(norm_called, norm_inputs(), "post_grad_custom_pre_pass"))
    (record,) = passes.records
    assert "careless  refused" in str(passes.records)
    assert "float8_e4m3fn" in record.trace.refused[0].reason


def key(**passes: Any) -> str | None:
    return PassList(passes).uuid()


def test_the_key_of_a_list_is_that_of_its_rules_and_names() -> None:
    """In every process, as the test with two of them tells."""
    own = key(engine=Pass(rules(), iterative=True))
    assert own is not None
    others = [key(engine=rules()), key(other=Pass(rules(), iterative=True)), key(engine=RuleSet(WRITTEN_OUT))]
    assert len({own, *others}) == 4
    for node in (captured(norm_called, norm_inputs(), "post_grad_custom_pre_pass"),):
        Pass(rules(), iterative=True)(node)
    assert key(engine=Pass(rules(), iterative=True)) == own, "use changes nothing"


# ---------------------------------------------------------------- operators without kernels


def test_meanings_need_no_kernels() -> None:
    LIBRARY.define("bare(Tensor! result, Tensor input) -> ()")

    @gsl.operator("gsl_engine::bare")
    def bare(input: Tensor) -> Tensor:
        return input + 1

    torch.testing.assert_close(bare.spec.meaning(torch, torch.zeros(2)), torch.ones(2))
    with pytest.raises(NotImplementedError):
        bare(torch.zeros(2))
