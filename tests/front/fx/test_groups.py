"""Outlined groups in torch: submodules of traced graphs, subgraphs of exported programs."""

from __future__ import annotations

import copy
import io
import operator
import re
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from gsl import Subst, Workload, op, pat
from gsl.errors import WorkloadError
from gsl.graph import SymDim
from tests.front.fx.fx_helpers import differences

X, W, B = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
DENSE = op.Dense(X, W)
RELU = op.ReLU(op.BiasAdd(DENSE, B))
FUSE = Subst(RELU, pat.Fused("lin-relu", units=DENSE.units, heuristic="FAST", sizes=(1, 2)), name="fuse")
PAIR = Subst([RELU, op.Exp(op.BiasAdd(op.Dense(X, pat.Wildcard()), pat.Wildcard()))], pat.Fused("pair"), name="pair")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(self.a(x)) + 1, self.b(x).exp()


def exported() -> Workload:
    torch.manual_seed(0)
    return Workload.from_torch(Net().eval(), (torch.randn(3, 4),))


def traced() -> Workload:
    torch.manual_seed(0)
    return Workload.from_fx(fx.symbolic_trace(Net().eval()), (torch.randn(3, 4),))


def decomposed() -> Workload:
    return Workload(exported().exported.run_decompositions())


def saved(workload: Workload) -> Workload:
    """The workload after its program went through a file."""
    file = io.BytesIO()
    torch.export.save(workload.exported, file)
    file.seek(0)
    return Workload(torch.export.load(file))


@pytest.mark.parametrize("make", [exported, traced])
@pytest.mark.parametrize(("rule", "name"), [(FUSE, "lin-relu"), (PAIR, "pair")])
def test_a_group_runs_and_comes_back(make: Any, rule: Subst, name: str) -> None:
    before = make()
    after = rule(before)
    before.compare(after).check()
    (group,) = after.groups().values()
    assert group.name == name
    assert set(after.op_counts()).isdisjoint({"nn.relu"})
    assert not before.groups()
    assert not differences(after.native, after.program.store(after.graph.copy()).native)
    again = after.inline()
    before.compare(again).check()
    assert again.op_counts() == before.op_counts()
    assert not again.groups()


@pytest.mark.parametrize("make", [exported, traced])
def test_a_group_keeps_its_attributes(make: Any) -> None:
    after = FUSE(make())
    (group,) = after.groups().values()
    assert dict(group.attrs) == {"units": 4, "heuristic": "FAST", "sizes": (1, 2)}
    assert "lin-relu(%x, %a.weight, %a.bias, units=4, heuristic='FAST', sizes=(1, 2))" in after.text()


def test_a_traced_group_is_a_submodule() -> None:
    after = FUSE(traced())
    module = after.mod.lin_relu
    assert [node.op for node in module.graph.nodes] == ["placeholder"] * 3 + ["call_function"] * 2 + ["output"]
    assert set(dict(after.mod.named_parameters())) == {"a.weight", "a.bias", "b.weight", "b.bias"}
    twin = Workload.from_fx(copy.deepcopy(after.mod), after.example_inputs)
    assert str(twin) == str(after)


def test_an_exported_group_survives_a_file_and_a_decomposition() -> None:
    after = FUSE(exported())
    again = saved(after)
    assert [(name, dict(group.attrs)) for name, group in again.groups().items()] == [
        (name, dict(group.attrs)) for name, group in after.groups().items()
    ]
    after.compare(again).check()
    after.compare(Workload(after.exported.run_decompositions())).check()


def test_other_rules_go_on_around_a_group() -> None:
    before = FUSE(exported())
    x = pat.Wildcard()
    after = Subst(op.Exp(x), op.Expm1(x) + 1.0, name="exp")(before)
    before.compare(after).check()
    assert list(after.groups()) == list(before.groups())
    twice = Subst(op.Exp(op.BiasAdd(DENSE, B)), pat.Fused("lin-relu"), name="again")(before)
    assert [group.name for group in twice.groups().values()] == ["lin-relu", "lin-relu"]
    before.compare(twice).check()


def test_one_of_two_groups_is_put_back() -> None:
    both = Subst(op.Exp(op.BiasAdd(DENSE, B)), pat.Fused("lin-exp"), name="again")(FUSE(exported()))
    assert [group.name for group in both.inline("lin-exp").groups().values()] == ["lin-relu"]
    first = next(iter(both.groups()))
    assert [group.name for group in both.inline(first).groups().values()] == ["lin-exp"]
    with pytest.raises(WorkloadError, match=r"has no group 'lin-tanh'; its groups are: .*\(lin-relu\), .*\(lin-exp\)"):
        both.inline("lin-tanh")


def test_a_group_prints() -> None:
    (group,) = FUSE(exported()).groups().values()
    assert str(group) == """\
group lin-relu, units=4, heuristic='FAST', sizes=(1, 2)
  %x: float32[3, 4] = input
  %a_weight: float32[4, 4] = input
  %a_bias: float32[4] = input
  %linear_nobias: float32[3, 4] = nn.dense(%x, %a_weight)
  %linear: float32[3, 4] = nn.bias_add(%linear_nobias, %a_bias)
  %relu: float32[3, 4] = nn.relu(%linear)
  return %relu"""


def dynamic() -> Workload:
    batch = torch.export.Dim("batch", min=2)
    return Workload.from_torch(Net().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: batch},))


def test_dynamic_sizes() -> None:
    before = dynamic()
    after = FUSE(before)
    assert after.groups()
    before.compare(after, inputs=(torch.randn(7, 4),)).check()


@pytest.mark.filterwarnings("ignore::gsl.errors.UntypedWarning")
def test_the_values_of_a_group_without_types_are_its_fields() -> None:
    torch.manual_seed(0)
    before = Workload.from_fx(fx.symbolic_trace(Net().eval()))
    after = PAIR(before)
    assert "%add = add(%pair[0], 1)" in str(after)
    assert not any(node.op is operator.getitem for node in after.graph)
    again = after.inline()
    assert str(again) == str(before)
    assert "getitem" not in again.mod.code
    before.compare(again, inputs=(torch.randn(3, 4),)).check()


@pytest.mark.parametrize("make", [exported, traced])
@pytest.mark.parametrize("name", ["class", "None", "self", "é", "a b", "forward", "0", "lin.weight"])
def test_a_group_of_any_name_runs(name: str, make: Any) -> None:
    before = make()
    after = Subst(DENSE, pat.Fused(name), name="fuse")(before)
    assert [group.name for group in after.groups().values()] == [name, name]
    before.compare(after).check()


class Named(nn.Module):
    """Two calls that may be a group, with weights and values of many names."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = torch.chunk(x @ self.g, 2, -1)
        return torch.relu(low).tanh() * 2 + torch.relu(high).tanh() - x.amax()


@pytest.mark.parametrize("name", ["getitem", "mul", "x", "g", "p_g", "self", "_out_spec", "_guards_fn"])
def test_a_group_of_any_name_is_saved(name: str) -> None:
    x = torch.randn(3, 4)
    before = Workload.from_torch(Named(), (x,))
    after = Subst(op.Tanh(op.ReLU(X)), pat.Fused(name))(before)
    found = saved(after)
    assert [group.name for group in found.groups().values()] == [name, name]
    before.compare(found).check()
    with torch.no_grad():
        assert torch.equal(found.exported.module()(x), before(x))


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = torch.split(x.exp(), 2, 1)
        return left.relu(), right


HALVES = op.Split(op.Exp(X))


@pytest.mark.parametrize("form", ["exported", "decomposed", "made", "traced"])
@pytest.mark.parametrize(("source", "reason"), [
    (HALVES, ""),
    (op.ReLU(X[0]), "takes tensors, and %split\\w* is a tuple"),
    ([HALVES, HALVES.operands[0]], "returns tensors, and %split\\w* is a tuple among them"),
], ids=["split", "field", "both"])  # fmt: skip
def test_tuples_of_groups(source: Any, reason: str, form: str) -> None:
    """Torch's operator for groups takes and returns tensors."""
    example = (torch.randn(3, 4),)
    old = Workload.from_torch(Halves(), example)
    if form == "decomposed":
        old = Workload(old.exported.run_decompositions())
    elif form != "exported":
        made = make_fx(Halves())(*example) if form == "made" else fx.symbolic_trace(Halves())
        old = Workload.from_fx(made, example)
    new = Subst(source, pat.Fused("halves"), name="halves")(old)
    if reason and form != "traced":
        (refused,) = new.trace.refused
        assert re.search(reason, refused.reason)
        return
    for made in (new, new.inline(), *([saved(new), saved(new).inline()] if form in ("exported", "decomposed") else [])):
        assert len(made.groups()) == 1 or "halves" not in str(made)
        old.compare(made, inputs=example).check()


class TwoSizes(nn.Module):
    """A relu of a tensor with a symbolic size, and one of a tensor without."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.tanh().relu(), y.tanh().relu()


@pytest.mark.parametrize("attribute", [X.shape, X.shape[0], X.shape[0] * 2])
def test_a_group_with_a_symbolic_attribute_is_refused_and_the_others_are_made(attribute: Any) -> None:
    inputs = torch.randn(3, 4), torch.randn(3, 4)
    sizes = ({0: torch.export.Dim("n", min=2, max=9)}, None)
    before = Workload.from_exported(torch.export.export(TwoSizes(), inputs, dynamic_shapes=sizes))
    after = Subst(op.ReLU(X), pat.Fused("f", n=attribute), name="sized")(before)
    (group,) = after.groups().values()
    assert not isinstance(group.attrs["n"], SymDim)
    assert len(after.trace.refused) == 1
    assert re.search(
        r"the new f can't be written: f: the attribute n=.*s\d.* of a group must be made of numbers",
        after.trace.refused[0].reason,
    )
    before.compare(after).check()


def test_a_group_is_compiled() -> None:
    seen: list[Any] = []

    def backend(module: fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        after = FUSE(Workload.from_fx(module, inputs))
        seen.extend(after.groups())
        return after.mod

    net, x = Net().eval(), torch.randn(3, 4)
    torch._dynamo.reset()
    with torch.no_grad():
        for expected, found in zip(net(x), torch.compile(net, backend=backend)(x)):
            torch.testing.assert_close(found, expected)
    assert seen
