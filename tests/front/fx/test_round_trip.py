"""Loading and storing graphs without a change, and what the view says of single calls."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch
from fx_helpers import Attention, ConvNet, Stateful, differences, module_differences
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import Graph as NativeGraph
from torch.fx import GraphModule, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

from gsl import Subst, Workload, front, op, pat
from gsl.errors import FrontEndError, PicklingError
from gsl.front import fx
from gsl.front.base import Program
from gsl.graph import INPUT, PARAM, Effect, Graph, TensorType, TupleType, op_name
from gsl.rules import RULES
from tests.helpers.compiled import Recorder
from tests.helpers.nets import OfOne

F = nn.functional
IMAGE = torch.randn(2, 3, 8, 8)


def round_trip(program: Program) -> Graph:
    """The view; the native graph is checked to come back as it was."""
    view = program.load()
    stored = program.store(view.copy())
    if isinstance(program.native, ExportedProgram):
        check_module(program.native.module(), program.module)
        check_module(program.native.module(), stored.module)
    assert differences(program.native, stored.native) == []
    assert str(stored.load()) == str(view)
    return view


def check_module(torchs: GraphModule, module: GraphModule) -> None:
    """That a module is the one that torch makes of an exported program, with its checks of inputs."""
    assert module_differences(torchs, module) == []
    assert vars(torchs).keys() == vars(module).keys()
    assert (str(torchs), str(torchs.graph)) == (str(module), str(module.graph))
    assert type(module.graph) is NativeGraph
    module.graph.lint()
    if hasattr(torchs, "_guards_fn"):
        checks, theirs = module._guards_fn.forward.__code__, torchs._guards_fn.forward.__code__
        assert (checks.co_code, checks.co_consts) == (theirs.co_code, theirs.co_consts)
    assert module.state_dict().keys() == torchs.state_dict().keys()
    for ours, node in zip(module.graph.nodes, torchs.graph.nodes):
        assert ours.meta.keys() == node.meta.keys()
        assert origins(ours) == origins(node)


def origins(node: torch.fx.Node) -> str:
    """What torch tells of where a node came from, without the numbers of graphs."""
    return re.sub(r"graph_id=\d+", "", str(node.meta.get("from_node")))


def ops(view: Graph) -> list[str]:
    return [op_name(node.op) for node in view.nodes if node.op not in ("input", "param", "const")]


def effects(view: Graph) -> dict[str, Effect]:
    return {node.name: node.effect for node in view.nodes if node.effect is not None}


def traced(function: Any, *values: torch.Tensor) -> Program:
    module = function if isinstance(function, nn.Module) else OfOne(function)
    return fx.from_graph_module(symbolic_trace(module), values or None)


def exported(function: Any, *values: torch.Tensor, **options: Any) -> Program:
    module = function if isinstance(function, nn.Module) else OfOne(function).eval()
    return fx.from_model(module, values, **options)


# ---------------------------------------------------------------- ways into the front end


@pytest.mark.sweep(3)
@pytest.mark.parametrize("model", [ConvNet, Attention, Stateful])
def test_dynamic_shapes(model: Any) -> None:
    value = {ConvNet: IMAGE, Attention: torch.randn(2, 6, 8), Stateful: torch.arange(6)}[model]
    sizes = {0: Dim("b")} if model is ConvNet else {0: Dim("b", min=2), **({1: Dim("s")} if model is Attention else {})}
    program = exported(model().eval(), value, dynamic_shapes=(sizes,))
    view = round_trip(program)
    (shape,) = [type.shape for type in program.inputs.values()]  # type: ignore[union-attr]
    assert not isinstance(shape[0], int)
    round_trip(fx.from_exported(program.native.run_decompositions()))
    assert view.outputs[0].type is not None


def test_graph_of_torch_compile() -> None:
    """What torch.compile hands to a back end has types without example inputs; sizes may be symbolic."""
    recorder = Recorder()
    torch._dynamo.reset()
    value = torch.randn(2, 6, 8)
    torch._dynamo.mark_dynamic(value, 1)
    torch.compile(Attention().eval(), backend=recorder)(value)
    (module,) = recorder.graphs
    view = round_trip(fx.from_graph_module(module))
    assert {"nn.layer_norm", "nn.dense", "nn.attention", "split"} <= set(ops(view))
    assert all(node.type is not None for node in view.nodes if isinstance(node.op, str) and node.op != INPUT)
    assert any(not isinstance(size, int) for size in view.outputs[0].type.shape)  # type: ignore[union-attr]


def test_graph_of_make_fx() -> None:
    module = make_fx(ConvNet().eval())(IMAGE)
    view = round_trip(fx.from_graph_module(module))
    assert {"nn.conv2d", "nn.batch_norm", "nn.relu"} <= set(ops(view))
    assert all(node.type is not None for node in view.nodes)


def test_structured_inputs_and_outputs() -> None:
    class Model(nn.Module):
        def forward(self, pair: tuple[torch.Tensor, torch.Tensor], *, scale: torch.Tensor, factor: int = 2) -> Any:
            return {"sum": (pair[0] + pair[1]) * scale, "same": pair[0], "factor": factor, "none": None}

    a, b, c = (torch.randn(3) for _ in range(3))
    program = fx.from_model(Model(), ((a, b),), {"scale": c})
    round_trip(program)
    assert list(program.inputs) == ["pair_0", "pair_1", "scale"]
    torch.testing.assert_close(program.build()(a, b, c)["sum"], (a + b) * c)
    assert all(x is y for x, y in zip(program.example_inputs or (), (a, b, c)))
    unlifted = fx.from_graph_module(program.native.module(check_guards=False), [a, b, c])
    round_trip(unlifted)
    torch.testing.assert_close(unlifted.build()(a, b, c)["sum"], (a + b) * c)


def test_one_tensor_for_several_inputs() -> None:
    """torch.export takes equal tensors for one input, and a weight that is an input for the weight."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))

        def forward(self, x: torch.Tensor, y: torch.Tensor, *, z: torch.Tensor) -> torch.Tensor:
            return (x - self.weight) * y - 3 * z

    model, a = Model(), torch.randn(3)
    values = [torch.randn(3) for _ in range(3)]
    expected = model(values[0], values[1], z=values[2])
    for x, y, z in ((a, a, a), (model.weight, a, a), (a, model.weight, model.weight)):
        program = fx.from_model(model, (x, y), {"z": z})
        torch.testing.assert_close(program.build()(*values), expected)
        assert (program.example_inputs or ())[0].requires_grad == x.requires_grad


def test_default_arguments() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            return x * scale

    program = fx.from_graph_module(symbolic_trace(Model()), [IMAGE])
    view = round_trip(program)
    # The scale is not known when the graph is read, so that the product is not one with a literal.
    assert view.outputs[0].opaque
    assert program.build()(IMAGE).shape == IMAGE.shape


def test_unused_things_stay() -> None:
    graph = NativeGraph()
    x, unused = graph.placeholder("x"), graph.placeholder("unused")
    weight = graph.get_attr("weight")
    graph.get_attr("weight").name = "again"
    graph.call_function(torch.sin, (x,))
    graph.output((graph.call_function(torch.add, (x, weight)), None, 3, [x, x]))
    root = nn.Module()
    root.weight = nn.Parameter(torch.ones(8))
    root.idle = nn.Linear(2, 2)
    module = GraphModule(root, graph, "Odd")
    module.idle = root.idle
    module.note = {"kept": True}
    module.meta["where"] = "here"
    program = fx.from_graph_module(module, [IMAGE, IMAGE])
    view = round_trip(program)
    assert len([node for node in view.nodes if node.op == PARAM]) == 1
    stored = program.store(view.copy())
    assert unused.name in stored.inputs
    assert stored.native.note is module.note
    assert stored.native.meta == {"where": "here"}
    assert type(stored.native).__name__ == "Odd"


def test_tied_weights_are_one_param() -> None:
    program = fx.from_graph_module(symbolic_trace(Tied()), [torch.randn(2, 4)])
    view = round_trip(program)
    assert [node.name for node in view.nodes if node.op == PARAM] == ["first.weight"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) @ self.first.weight


@pytest.mark.parametrize("length", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_deep_chain(length: int) -> None:
    graph = NativeGraph()
    node = graph.placeholder("x")
    for index in range(length):
        node = graph.call_function(torch.relu if index % 2 else torch.sigmoid, (node,))
    graph.output(node)
    program = fx.from_graph_module(GraphModule(nn.Module(), graph), [torch.randn(2)])
    assert len(round_trip(program).nodes) == length + 1


def test_the_oracle_can_fail() -> None:
    """A changed argument, name, order, weight, piece of metadata or module is found."""
    program = traced(ConvNet().eval())
    changes = {
        "argument": lambda m: m.graph.output_node().update_arg(0, ()),
        "name": lambda m: setattr(next(iter(m.graph.nodes)), "name", "other"),
        "meta": lambda m: next(iter(m.graph.nodes)).meta.update(new=1),
        "weight": lambda m: setattr(m.conv, "weight", nn.Parameter(m.conv.weight + 1)),
        "module": lambda m: m.add_module("more", nn.ReLU()),
        "dead": lambda m: m.graph.call_function(torch.sin, (next(iter(m.graph.nodes)),)),
    }
    for what, change in changes.items():
        stored = program.store(program.load().copy()).native
        weight = stored.conv.weight
        assert differences(program.native, stored) == []
        change(stored)
        if what == "weight":
            # The module is shared, so the change shows in both: compare with the tensor of before.
            assert program.native.conv.weight is not weight
            continue
        assert differences(program.native, stored) != [], what


# ---------------------------------------------------------------- what the view says


@pytest.mark.parametrize("make", [traced, exported])
def test_scalars_are_consts(make: Any) -> None:
    view = round_trip(make(lambda x: x * 2 + 1.5, IMAGE))
    consts = [(node.attrs["value"], node.type) for node in view.nodes if node.op == "const"]
    assert consts == [(2, TensorType((), "int64")), (1.5, TensorType((), "float32"))]


def test_types_of_multiple_results() -> None:
    view = round_trip(exported(lambda x: x.split(1, dim=1)[1] + torch.kthvalue(x, 2)[0][:, :1, :, None], IMAGE))
    split = next(node for node in view.nodes if node.op == "split")
    assert split.type == TupleType((TensorType((2, 1, 8, 8), "float32"),) * 3)
    opaque = next(node for node in view.nodes if "kthvalue" in op_name(node.op))
    assert opaque.attrs == {"k": 2}
    assert isinstance(opaque.type, TupleType)


def test_opaque_calls() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        index = torch.tensor([1, 0])
        return torch.ops.aten.index_put.default(torch.fft.fft(x, dim=1).abs(), [index, None, index], x[0, 0, 0, 0])

    view = round_trip(exported(function, IMAGE))
    index = next(node for node in view.nodes if "index_put" in op_name(node.op))
    assert len(index.operands) == 4
    assert repr(index.attrs["indices"]) == "($1, None, $2)"
    method = round_trip(traced(lambda x: x.logcumsumexp(dim=1)))
    assert method.nodes[-1].op is torch.Tensor.logcumsumexp
    assert method.nodes[-1].attrs == {"dim": 1}


def test_opaque_modules() -> None:
    lstm = nn.Sequential(nn.PixelShuffle(2), nn.Softsign())
    view = round_trip(fx.from_graph_module(symbolic_trace(lstm.eval())))
    assert [node.op for node in view.nodes[1:]] == [nn.PixelShuffle, nn.Softsign]
    assert view.nodes[1].attrs == {"upscale_factor": 2}
    assert effects(view) == {}


# ---------------------------------------------------------------- effects


def test_hidden_mutation_is_functional() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = F.relu(x + 1, inplace=True)
        return F.relu(y * 2, inplace=True).mul_(3)

    for make in (traced, exported):
        view = round_trip(make(function, IMAGE))
        assert ops(view) == ["add", "nn.relu", "multiply", "nn.relu", "multiply"]
        assert effects(view) == {}


def test_hidden_mutation_of_a_view_is_functional() -> None:
    """Nobody reads what it is a view of, either."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x + 1)[:, 1:].transpose(2, 3)
        y *= 2
        return y.exp()

    for make in (traced, exported):
        view = round_trip(make(function, IMAGE))
        assert ops(view) == ["add", "strided_slice", "transpose", "multiply", "exp"]
        assert effects(view) == {}


VISIBLE = {
    "input": lambda x: F.relu(x, inplace=True) + 1,
    "broadcast": lambda x: (x + 1).sum(1, keepdim=True).expand(2, 3, 8, 8).masked_fill_(x > 0, 1.0),
    "view times its memory": lambda x: ((y := x + 1), y.reshape(2, 3, 8, 8).mul_(y))[-1],
    "memory of the view": lambda x: ((y := x + 1), y[:, 1:].mul_(2), y * 2)[-1],
    "two views": lambda x: ((y := x + 1), (z := y[0]), z.relu_(), y * 2)[-1],
    "view of an input": lambda x: x.reshape(-1).mul_(2),
    "live view": lambda x: ((y := x + 1), (z := y.view(-1)), y.relu_().sum() + z)[-1],
    "dropout shares": lambda x: ((y := x + 1), (z := F.dropout(y, training=False)), y.relu_().sum() + z)[-1],
}


@pytest.mark.parametrize("make", [traced, exported])
@pytest.mark.parametrize("case", VISIBLE)
def test_visible_mutation_is_opaque(case: str, make: Any) -> None:
    program = make(VISIBLE[case], IMAGE.clone())
    view = round_trip(program)
    assert list(effects(view).values()) == [Effect.MUTATES]
    (call,) = [node for node in view.nodes if node.effect]
    assert call.opaque
    # Whatever is changed is not read as a pure value either.
    assert call.operands[0].opaque or call.operands[0].op == INPUT


@pytest.mark.parametrize("make", [traced, exported])
def test_mutation_of_what_was_overwritten_before(make: Any) -> None:
    """The first in-place call would be hidden, if not for the second one on a view of its result."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = F.relu(x + 1, inplace=True)
        y.view(-1).mul_(2)
        return y.exp()

    view = round_trip(make(function, IMAGE))
    assert list(effects(view).values()) == [Effect.MUTATES, Effect.MUTATES]
    assert [node.op for node in view.nodes if not node.opaque] == [INPUT, "exp"]


def test_updated_buffers_are_inputs() -> None:
    program = exported(Stateful().eval(), torch.arange(6))
    kinds = {node.name: node.op for node in round_trip(program).nodes}
    assert kinds["b_steps"] == INPUT
    assert kinds["scale"] == PARAM
    assert list(program.inputs) == ["x"]
    decomposed = fx.from_exported(program.native.run_decompositions())
    kinds = {node.name: node.op for node in round_trip(decomposed).nodes}
    assert kinds["b_steps"] == INPUT
    unlifted = fx.from_graph_module(program.native.module(check_guards=False))
    kinds = {node.name: node.op for node in round_trip(unlifted).nodes}
    assert kinds["steps"] == INPUT


def test_training() -> None:
    """A normalisation that updates its statistics, and a dropout that draws, are not pure."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    view = round_trip(fx.from_graph_module(symbolic_trace(model), [IMAGE]))
    assert [node.effect for node in view.nodes if node.opaque] == [Effect.OTHER, Effect.RANDOM]
    view = round_trip(exported(model, IMAGE))
    assert Effect.RANDOM in effects(view).values()
    assert any(node.op == INPUT and "running_mean" in node.name for node in view.nodes)
    assert "nn.conv2d" in ops(view)


@torch.fx.wrap
def shout(x: torch.Tensor) -> torch.Tensor:
    print("!")
    return x


def test_unknown_functions_have_effects() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._assert(x.shape[0] == 2, "two")
        return shout(x)

    view = round_trip(traced(function))
    assert effects(view) == {"_assert": Effect.OBSERVES, "shout": Effect.OTHER}


def test_control_flow() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))

    program = exported(function, IMAGE)
    view = round_trip(program)
    cond = next(node for node in view.nodes if op_name(node.op) == "cond")
    assert cond.effect is None
    assert len(cond.deps) == 2


# ---------------------------------------------------------------- programs


def test_the_front_end_is_chosen_by_the_object() -> None:
    module = symbolic_trace(ConvNet().eval())
    assert front.program(module).native is module
    exported_program = torch.export.export(ConvNet().eval(), (IMAGE,))
    assert front.program(exported_program).native is exported_program
    with pytest.raises(FrontEndError, match="no front end understands a builtins"):
        front.program(3)
    with pytest.raises(FrontEndError, match="export a module with"):
        front.program(nn.ReLU())


def test_wrong_number_of_example_inputs() -> None:
    with pytest.raises(FrontEndError, match=r"expected 1 example inputs \(x\), but 2 were given"):
        fx.from_graph_module(symbolic_trace(ConvNet()), [IMAGE, IMAGE])


@pytest.mark.parametrize("make", [traced, exported])
def test_evaluate_and_infer(make: Any) -> None:
    """Every call of a view has the value and the type that the program gives it."""
    program = make(ConvNet().eval(), IMAGE)
    view = program.load()
    values: dict[Any, Any] = {}
    for node in view.nodes:
        if node.op == INPUT:
            values[node] = IMAGE
        elif node.op in ("param", "const"):
            values[node] = node.attrs["value"]
        else:
            values[node] = program.evaluate(node, [values[operand] for operand in node.operands])
            assert view.infer(node.op, node.operands, node.attrs) == node.type
            assert node.type == TensorType(tuple(values[node].shape), str(values[node].dtype)[6:])
    expected = torch.utils._pytree.tree_leaves(program.build()(IMAGE))
    for node, value in zip(view.outputs, [value for value in expected if value is not None], strict=True):
        torch.testing.assert_close(values[node], value)


def test_build_with_a_back_end() -> None:
    program = exported(Attention().eval(), torch.randn(2, 6, 8))
    value = torch.randn(2, 6, 8)
    torch._dynamo.reset()
    torch.testing.assert_close(program.build(backend="eager")(value), program.build()(value))


# ---------------------------------------------------------------- copies and pickles of workloads


def workloads() -> dict[str, Workload]:
    """An exported and a traced net, as they are and rewritten; its input is called ``input``, as a function is."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    made = {
        "exported": Workload.from_torch(net, (IMAGE,), dynamic_shapes=({0: Dim("batch")},)),
        "traced": Workload.from_fx(symbolic_trace(net), (IMAGE,), name="net"),
    }
    rule = RULES["conv-batch-norm"]
    return {**made, **{f"rewritten {name}": rule(workload) for name, workload in made.items()}}


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
@pytest.mark.parametrize("kind", ["exported", "traced", "rewritten exported", "rewritten traced"])
def test_a_copy_is_a_workload_of_its_own(kind: str, way: str) -> None:
    workload = workloads()[kind]
    new: Workload = copy.deepcopy(workload) if way == "deepcopy" else pickle.loads(pickle.dumps(workload))
    assert new.name == workload.name
    if (kind, way) != ("rewritten traced", "pickle"):  # torch names the calls anew
        assert str(new.graph) == str(workload.graph)
    assert new.op_counts() == workload.op_counts()
    assert torch.equal((new.example_inputs or ())[0], IMAGE)
    expected = workload(IMAGE)
    assert torch.equal(new(IMAGE), expected)
    for weight in new.params.values():
        weight.data.zero_()
    assert torch.equal(workload(IMAGE), expected)
    assert not torch.equal(new(IMAGE), expected)
    if "rewritten" in kind:
        assert str(new.trace) == str(workload.trace)
    else:
        assert len(RULES["conv-batch-norm"](new).trace.firings) == 1


def test_a_shallow_copy_shares_the_weights() -> None:
    workload = workloads()["exported"]
    assert all(x is y for x, y in zip(copy.copy(workload).params.values(), workload.params.values()))


def test_what_torch_does_not_pickle() -> None:
    class Annotated(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # whose annotations are texts in this file
            return x.relu()

    with pytest.raises(PicklingError, match="torch can't save the Annotated"):
        pickle.dumps(Workload.from_fx(symbolic_trace(Annotated())))
    module = make_fx(nn.ReLU())(IMAGE)
    with pytest.raises(PicklingError, match="make the workload with example inputs"):
        pickle.dumps(Workload.from_fx(module))
    assert pickle.loads(pickle.dumps(Workload.from_fx(module, (IMAGE,)))).op_counts() == {"nn.relu": 1}
    assert copy.deepcopy(Workload.from_fx(module)).op_counts() == {"nn.relu": 1}
    x = pat.Wildcard()
    grouped = Subst(op.ReLU(x), pat.Fused("g"))(Workload.from_fx(module, (IMAGE,)))
    with pytest.raises(PicklingError, match=r"because it calls invoke_subgraph .*write groups as their calls before"):
        pickle.dumps(grouped)
    assert pickle.loads(pickle.dumps(grouped.inline())).op_counts() == {"nn.relu": 1}
