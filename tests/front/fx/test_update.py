"""Rewritten views written into the module from which they were loaded, in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import FrontEndError
from gsl.rewrite.apply import apply
from gsl.rules import FAMILIES

x = pat.Wildcard()
Value = torch.Tensor


def rewrite(module: fx.GraphModule, *rules: Subst, inputs: Any = None) -> Any:
    """Apply rules and write the view into the module; the program."""
    program = Workload.from_fx(module, inputs).program
    view = program.load()
    for rule in rules:
        view = rule.apply(view)[0]
    program.update(view)
    module.graph.lint()
    module.recompile()
    return program


def text(module: fx.GraphModule) -> list[str]:
    """The nodes of a graph, one in a line, in short."""
    return [f"{node.name} = {getattr(node.target, '__name__', node.target)}{node.args}" for node in module.graph.nodes]


def snapshot(module: fx.GraphModule) -> Any:
    """All of a module that a rewrite could change."""
    nodes = [(node, node.name, node.target, node.args, node.kwargs, dict(node.meta)) for node in module.graph.nodes]
    users = [list(node.users) for node in module.graph.nodes]
    return nodes, users, list(module.state_dict()), [name for name, _ in module.named_modules()], module.code


def check(function: Callable[..., Any], rule: Subst, expected: list[str], *inputs: Value) -> fx.GraphModule:
    """Rewrite a function traced with fakes; its text, and its numbers."""
    module = make_fx(function, tracing_mode="fake")(*inputs)
    rewrite(module, rule)
    assert text(module) == expected
    torch.testing.assert_close(module(*inputs), function(*inputs))
    return module


SILU = Subst(x * op.Sigmoid(x), op.SiLU(x), name="silu")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nn.relu", ["a = a()", "b = b()", "sigmoid = sigmoid(a,)", "tanh = tanh(b,)", "add = add(sigmoid, tanh)"]),
        ("tanh", ["a = a()", "relu = relu(a,)", "b = b()", "sigmoid = sigmoid(b,)", "add = add(relu, sigmoid)"]),
    ],
)
def test_an_input_behind_a_call(name: str, expected: list[str]) -> None:
    graph, inputs = fx.Graph(), (torch.randn(3), torch.randn(3))
    first = graph.call_function(torch.relu, (graph.placeholder("a"),))
    second = graph.call_function(torch.tanh, (graph.placeholder("b"),))
    graph.output(graph.call_function(torch.add, (first, second)))
    module = fx.GraphModule(nn.Module(), graph)
    rewrite(module, Subst(pat.Call(name, x), op.Sigmoid(x)), inputs=inputs)
    assert text(module)[:-1] == expected
    sides = [torch.sigmoid(value) if each == name else getattr(torch, each.rpartition(".")[2])(value)
             for each, value in zip(("nn.relu", "tanh"), inputs)]  # fmt: skip
    torch.testing.assert_close(module(*inputs), sides[0] + sides[1])


def test_only_what_changed_is_touched() -> None:
    def function(a: Value) -> Value:
        return torch.relu(a * a.sigmoid() + 1)

    module = make_fx(function, tracing_mode="fake")(torch.randn(3))
    before = {node.name: (node, node.meta) for node in module.graph.nodes}
    rewrite(module, SILU)
    assert text(module) == [
        "a_1 = a_1()", "silu = silu.default(a_1,)", "add = add.Tensor(silu, 1)", "relu = relu.default(add,)",
        "output = output(relu,)",
    ]  # fmt: skip
    for node in module.graph.nodes:
        if node.name != "silu":
            assert node is before[node.name][0]
            assert node.meta is before[node.name][1]


def test_several_outputs_and_fields() -> None:
    def function(a: Value) -> tuple[Value, ...]:
        left, right = torch.split(a * a.sigmoid(), 2, dim=0)
        values, indices = torch.topk(left * left.sigmoid(), 1)
        return right, values * values.sigmoid(), indices

    expected = [
        "a_1 = a_1()",
        "silu = silu.default(a_1,)",
        "split = split.Tensor(silu, 2)",
        "getitem = getitem(split, 0)",
        "getitem_1 = getitem(split, 1)",
        "silu_1 = silu.default(getitem,)",
        "topk = topk.default(silu_1, 1)",
        "getitem_2 = getitem(topk, 0)",
        "getitem_3 = getitem(topk, 1)",
        "silu_2 = silu.default(getitem_2,)",
        "output = output((getitem_1, silu_2, getitem_3),)",
    ]
    check(function, SILU, expected, torch.randn(4, 3))


def test_calls_that_have_to_move() -> None:
    """Two products become one, which needs both weights: the user of the first moves behind the second weight."""

    def function(a: Value, u: Value, v: Value) -> tuple[Value, Value]:
        first = torch.mm(a, u).relu()
        second = torch.mm(a, v.neg())
        return first, second

    left, right = pat.Wildcard(), pat.Wildcard()
    product = x @ op.Concatenate([left, right], axis=1)
    fields = op.Split(product, indices_or_sections=2, axis=1)
    both = Subst([x @ left, x @ right], [fields[0], fields[1]], name="both")
    module = make_fx(function, tracing_mode="fake")(*(torch.randn(2, 2) for _ in range(3)))
    inputs = tuple(torch.randn(2, 2) for _ in range(3))
    expected = function(*inputs)
    rewrite(module, both)
    names = [node.name for node in module.graph.nodes]
    assert "mm" not in names
    assert names.index("neg") < names.index("relu")
    torch.testing.assert_close(module(*inputs), expected)


def test_effects_keep_their_place() -> None:
    def function(a: Value) -> tuple[Value, Value]:
        kept = a.clone()
        kept.add_(1)
        noise = torch.rand_like(a) * 0
        return kept * kept.sigmoid(), noise

    module = fx.symbolic_trace(function)
    rewrite(module, SILU)
    names = [node.name for node in module.graph.nodes]
    assert names == ["a", "clone", "add_", "rand_like", "mul", "silu", "output"]
    value = torch.randn(3)
    torch.testing.assert_close(module(value), function(value))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 1)
        self.bn = nn.BatchNorm2d(4)
        self.scale = nn.Parameter(torch.full((4, 1, 1), 2.0))

    def forward(self, a: Value) -> Value:
        return torch.relu(self.bn(self.conv(a)) * self.scale)


def test_parameters_and_submodules() -> None:
    """A normalisation is folded into the convolution: new weights come in, those without a use go."""
    model = Small().eval()
    model.bn.running_mean.add_(0.5)
    image = torch.randn(1, 2, 3, 3)
    expected = model(image)
    module = fx.symbolic_trace(model)
    workload = Workload.from_fx(module, (image,))
    stored = RuleSet(FAMILIES["fold"])(workload)
    program = workload.program
    view, trace = apply(FAMILIES["fold"], program.load(), evaluate=program.evaluate)
    assert trace.firings
    program.update(view)
    module.recompile()
    torch.testing.assert_close(module(image), expected)
    torch.testing.assert_close(module(image), stored.mod(image))
    assert not any(name.startswith("bn.") for name in module.state_dict())
    # The modules of the user's own model are as they were.
    assert list(model.state_dict()) == list(Small().state_dict())


def test_a_group_in_place() -> None:
    module = make_fx(lambda a: torch.relu(a * a.sigmoid()), tracing_mode="fake")(torch.randn(3))
    value = torch.randn(3)
    expected = module(value)
    product = x * op.Sigmoid(x)
    rewrite(module, Subst(product, pat.Fused("swish"), name="swish"))
    assert [name for name, _ in module.named_children()] == ["swish"]
    torch.testing.assert_close(module(value), expected)


def test_metadata_of_new_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.fx.config, "do_not_emit_stack_traces", False)

    class Model(nn.Module):
        def forward(self, a: Value) -> Value:
            return a * a.sigmoid()

    module = torch.export.export(Model(), (torch.randn(2, 3),)).module(check_guards=False)
    old = next(node for node in module.graph.nodes if "mul" in str(node.target))
    kept = {key: old.meta[key] for key in ("nn_module_stack", "stack_trace")}
    rewrite(module, SILU)
    new = next(node for node in module.graph.nodes if "silu" in str(node.target))
    assert {key: new.meta[key] for key in kept} == kept
    assert new.meta["val"].shape == (2, 3)
    assert new.meta["gsl"]["rule"] == "silu"


def test_alike_new_calls_have_values_of_their_own() -> None:
    def function(a: Value) -> Value:
        for _ in range(3):
            a = a * a.sigmoid()
        return a

    module = make_fx(function, tracing_mode="fake")(torch.randn(2, 3))
    rewrite(module, SILU)
    values = [node.meta["val"] for node in module.graph.nodes if "silu" in str(node.target)]
    assert len({value.untyped_storage()._cdata for value in values}) == len(values) == 3
    assert {(value.shape, value.stride(), value.device, value.fake_mode) for value in values} == {
        ((2, 3), (3, 1), torch.device("cpu"), values[0].fake_mode)
    }


def test_an_unchanged_view_changes_nothing() -> None:
    module = fx.symbolic_trace(Small().eval())
    before = snapshot(module)
    program = Workload.from_fx(module).program
    program.update(program.load())
    assert snapshot(module) == before


def test_a_failure_leaves_the_module_alone() -> None:
    """The first firing is written before the second one fails: what it did is taken back, too."""

    def function(a: Value) -> Value:
        both = a * a.sigmoid()
        return both.neg() + both.relu()

    module = fx.symbolic_trace(function)
    module.graph.inserting_before(next(iter(module.graph.nodes)))
    before = snapshot(module)
    program = Workload.from_fx(module).program
    view = SILU.apply(program.load())[0]
    layer = Subst(op.ReLU(x), pat.Call(nn.Linear, x, in_features=3, out_features=3), name="layer")
    view = layer.apply(view)[0]
    with pytest.raises(FrontEndError, match="weights that nobody set"):
        program.update(view)
    assert snapshot(module) == before
    # The program can still be loaded and changed.
    program.update(SILU.apply(program.load())[0])
    module.recompile()
    assert "silu" in str(module.graph)


def test_the_point_of_insertion_stays() -> None:
    module = fx.symbolic_trace(lambda a: a * a.sigmoid() + 1)
    last = next(node for node in module.graph.nodes if node.target is operator.add)
    with module.graph.inserting_before(last):
        rewrite(module, SILU)
        new = module.graph.call_function(torch.neg, (last.args[0],))
    assert new.next is last


def test_a_graph_with_hooks() -> None:
    """The observers of a module hear of every node that comes and goes."""
    module = fx.symbolic_trace(lambda a: a * a.sigmoid() + 1)
    heard: list[str] = []
    module._register_create_node_hook(lambda node: heard.append(f"+{node.name}"))
    module._register_erase_node_hook(lambda node: heard.append(f"-{node.name}"))
    module._register_replace_node_hook(lambda old, new, user: heard.append(f"{user.name}: {old.name} -> {new}"))
    rewrite(module, SILU)
    assert heard == ["+silu", "add: mul -> silu", "-mul", "-sigmoid"]


def test_what_cannot_be_changed_in_place() -> None:
    class Model(nn.Module):
        def forward(self, a: Value) -> Value:
            return a * a.sigmoid()

    program = Workload.from_torch(Model(), (torch.randn(3),)).program
    with pytest.raises(FrontEndError, match="ExportedProgram can't be changed in place"):
        program.update(program.load())


def test_views_of_another_program_are_refused() -> None:
    first, second = (Workload.from_fx(fx.symbolic_trace(lambda a: a * a.sigmoid())).program for _ in range(2))
    with pytest.raises(FrontEndError, match="was not loaded from this program"):
        first.update(second.load())


def test_a_workload_of_a_graph_that_was_changed_since_tells_so() -> None:
    module = fx.symbolic_trace(lambda a: (a * a.sigmoid()).relu())
    workload = Workload.from_fx(module)
    assert workload.graph.nodes
    rewrite(module, SILU)
    with pytest.raises(FrontEndError, match="or the program was changed since:"):
        Subst(op.ReLU(x), op.Abs(x), name="abs")(workload)


def test_a_program_is_loaded_and_changed_again() -> None:
    module = fx.symbolic_trace(lambda a: (a * a.sigmoid()).relu())
    program = rewrite(module, SILU)
    program.update(Subst(op.ReLU(op.SiLU(x)), op.SiLU(op.ReLU(x)), name="swap").apply(program.load())[0])
    module.recompile()
    assert [getattr(node.target, "__name__", node.target) for node in module.graph.nodes] == [
        "a", "relu", "silu", "output",
    ]  # fmt: skip
