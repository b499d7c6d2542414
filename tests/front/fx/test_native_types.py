"""Native calls in targets have types, so that what replaces what is checked, and the next match sees them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from gsl import Subst, Workload, op, pat
from gsl.errors import RewriteError
from gsl.front.fx.fakes import Fakes, MetadataFields
from gsl.front.fx.values import Values

x, w, b = pat.Wildcard(), pat.Param(ndim=2), pat.Param(ndim=1)
BIASED = op.BiasAdd(op.Dense(x, w), b)
ROWS = {"input": {0: torch.export.Dim("rows", min=2, max=9)}}


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval()


def seen(wl: Workload, source: pat.Pattern, make: Any) -> list[Any]:
    """The shapes of ``x`` at each match of a rule, of which one target is the input of the next match."""
    shapes: list[Any] = []

    def target(match: Any) -> pat.Pattern:
        shapes.append(match[x].shape)
        made: pat.Pattern = make()
        return made

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Subst(source, target, name="native")(wl)
    return shapes


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs mkldnn")
def test_packed_weights() -> None:
    """What packs a weight has no form for tensors without data."""
    mkldnn = torch.ops.mkldnn

    def packed() -> pat.Pattern:
        weight = pat.Call(mkldnn._reorder_linear_weight.default, w)
        return pat.Call(mkldnn._linear_pointwise.default, x, weight, b, attr="none", scalars=(), algorithm="")

    wl = Workload.from_torch(layers(), (torch.randn(2, 8),))
    assert seen(wl, BIASED, packed) == [(2, 8), (2, 8)]


def test_symbolic_sizes() -> None:
    wl = Workload.from_torch(layers(), (torch.randn(3, 8),), dynamic_shapes=ROWS)
    aten = torch.ops.aten

    def own() -> pat.Pattern:
        return pat.Call(aten.linear.default, x, pat.Call(aten.cummax.default, w, dim=0)[0], b)

    found = seen(wl, BIASED, own)
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0][1] == 8


def test_another_type_is_refused() -> None:
    wl = Workload.from_torch(layers(), (torch.randn(3, 8),), dynamic_shapes=ROWS)
    rule = Subst(BIASED, pat.Call(torch.ops.aten.mv.default, x, b), name="vector")
    new = rule(wl)
    assert not new.trace.firings
    assert "but its replacement" in str(new.trace)


def test_a_new_call_is_run_once_for_its_type_and_its_layout() -> None:
    """Fake tensors are slow, and most of the time of the first run of a rule set."""
    runs: list[torch.Size] = []
    with torch.library._scoped_library("gsl_once", "DEF") as library:
        library.define("act(Tensor x) -> Tensor")

        def fake(x: torch.Tensor) -> torch.Tensor:
            runs.append(x.shape)
            return torch.empty_like(x)

        torch.library.register_fake("gsl_once::act", fake, lib=library)
        act = torch.ops.gsl_once.act.default
        wl = Workload.from_torch(nn.Sequential(nn.ReLU(), nn.Linear(8, 4), nn.ReLU()).eval(), (torch.randn(2, 8),))
        new = Subst(op.ReLU(x), pat.Call(act, x), name="once")(wl)
        values = [node.meta["val"] for node in new.exported.graph.nodes if node.target is act]
        assert [tuple(value.shape) for value in values] == [(2, 8), (2, 4)]
        assert runs == [(2, 8), (2, 4)]


def test_alike_calls_with_symbolic_sizes_are_run_once_in_a_program() -> None:
    """Each program has symbols of its own, of which another range may be known."""
    modes: list[Any] = []
    model = nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU(), nn.Linear(8, 4), nn.ReLU()).eval()
    with torch.library._scoped_library("gsl_symbolic", "DEF") as library:
        library.define("act(Tensor x) -> Tensor")

        def fake(x: torch.Tensor) -> torch.Tensor:
            modes.append(getattr(x, "fake_mode", None))
            return torch.empty_strided(x.shape, (1, x.shape[0]), dtype=x.dtype)

        torch.library.register_fake("gsl_symbolic::act", fake, lib=library)
        act = torch.ops.gsl_symbolic.act.default
        rule = Subst(op.ReLU(x), pat.Call(act, x), name="act")
        for _ in range(2):
            new = rule(Workload.from_torch(model, (torch.randn(3, 8),), dynamic_shapes=ROWS)).exported
            values = [node.meta["val"] for node in new.graph.nodes if node.target is act]
            rows = next(node.meta["val"] for node in new.graph.nodes if node.name == "input").shape[0]
            env = rows.node.shape_env
            assert [tuple(value.shape)[1] for value in values] == [8, 8, 8, 4]
            for value in values:
                assert value.shape[0].node.expr == value.stride(1).node.expr == rows.node.expr
                assert value.fake_mode.shape_env is value.shape[0].node.shape_env is env
            assert len({id(value) for value in values}) == 4
            # The first operand lies by rows, the next two as the results of such calls do.
            assert modes.count(values[0].fake_mode) == 3
            assert not env.guards


@pytest.mark.parametrize(("kind", "on_fakes"), [("makes", 0), ("places", 1), ("asks", 3)])
def test_an_operator_that_tells_on_meta_what_it_tells_on_fakes_is_not_run_on_these(kind: str, on_fakes: int) -> None:
    """One that does something with the device of its operands is run on fakes once, or always if it tells another
    thing then."""
    seen: list[type] = []

    def fake(x: torch.Tensor) -> torch.Tensor:
        seen.append(type(x))
        if kind == "makes":
            return torch.empty(x.shape, dtype=x.dtype)
        turned = kind == "asks" and x.device.type == "cpu"
        made = torch.empty(x.shape[::-1] if turned else x.shape, dtype=x.dtype, device=x.device)
        return made.t() if turned else made

    with torch.library._scoped_library("gsl_meta", "FRAGMENT") as library:
        name = f"act_{kind}"
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, torch.relu, "CPU")
        torch.library.register_fake(f"gsl_meta::{name}", fake, lib=library)
        rule = Subst(op.ReLU(x), pat.Call(getattr(torch.ops.gsl_meta, name).default, x), name="act")
        for rows in (3, 5, 7):
            exported = torch.export.export(nn.ReLU(), (torch.randn(rows, 4),))
            new = rule(Workload.from_exported(exported)).program.native.graph
            (call,) = [node for node in new.nodes if "gsl_meta" in str(node.target)]
            assert call.meta["val"].shape == (rows, 4)
            assert call.meta["val"].stride() == ((1, rows) if kind == "asks" else (4, 1))
    assert seen.count(FakeTensor) == on_fakes


class Turned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.t())


def test_how_a_result_lies_is_found_on_meta_for_operands_that_do_not_lie_by_rows() -> None:
    """The view knows their types only."""
    seen: list[type] = []

    def fake(x: torch.Tensor) -> torch.Tensor:
        seen.append(type(x))
        return torch.empty_like(x)

    with torch.library._scoped_library("gsl_turned", "DEF") as library:
        library.define("act(Tensor x) -> Tensor")
        torch.library.register_fake("gsl_turned::act", fake, lib=library)
        wl = Workload.from_exported(torch.export.export(Turned(), (torch.randn(3, 5),)))
        rule = Subst(op.ReLU(x), pat.Call(torch.ops.gsl_turned.act.default, x), name="act")
        (call,) = [node for node in rule(wl).program.native.graph.nodes if "gsl_turned" in str(node.target)]
        assert call.meta["val"].stride() == (1, 5)
        assert call.meta["tensor_meta"].stride == (1, 5)
    assert set(seen) == {torch.Tensor}


@pytest.mark.parametrize(
    "weight",
    [torch.rand(3, 2), torch.rand(2, 3).t(), torch.rand(6)[1:5], torch.rand(2, 2, requires_grad=True), torch.ones(0)],
)
def test_the_fake_of_a_weight_is_as_torch_makes_it(weight: torch.Tensor) -> None:
    mode = FakeTensorMode()
    graph = Fakes(Values(), Values(), MetadataFields("val", False, mode))
    (found, layout), expected = graph.of_tensor(weight), FakeTensorMode().from_tensor(weight, static_shapes=True)
    assert layout is None or layout.metadata == _extract_tensor_metadata(expected)
    for name in ("shape", "dtype", "device", "requires_grad"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.stride() == expected.stride()
    assert found.storage_offset() == expected.storage_offset()
    assert found.fake_mode is mode


# ---------------------------------------------------------------- attributes of the name of a part of a type


def grid(x: torch.Tensor, *, shape: tuple[int, ...]) -> torch.Tensor:
    return x.reshape(shape)


torch.fx.wrap("grid")


def test_a_leaf_has_the_dtype_of_a_native_call_that_takes_one() -> None:
    class Net(nn.Module):
        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return torch.rand_like(y, dtype=torch.float64) * 2.0

    z = pat.Wildcard()
    rule = Subst(z * 2.0, z + op.Full(1.0, shape=z.shape, dtype=z.dtype), where=z.dtype == "float64", name="dtype")
    for old in (
        Workload.from_torch(Net(), (torch.ones(3),)),
        Workload.from_fx(torch.fx.symbolic_trace(Net()), (torch.ones(3),)),
    ):
        new = rule(old)
        assert new.op_counts()["add"] == 1
        assert [node.dtype for node in new.graph.outputs] == ["float64"]


def test_a_leaf_has_the_shape_of_a_native_call_that_takes_one() -> None:
    class Net(nn.Module):
        def forward(self, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return grid(y, shape=(-1, 4)) - grid(z, shape=(-1, 4))

    old = Workload.from_fx(torch.fx.symbolic_trace(Net()), (torch.ones(8), torch.ones(4)))
    y, z = pat.Wildcard(), pat.Wildcard()
    equal = Subst(y - z, y + op.Negative(z), where=y.shape == z.shape, name="equal shapes")
    assert list(equal.match(old)) == []
    rows = Subst(y - z, y + op.Negative(z), where=y.shape[0] == 2, name="two rows")
    assert len(list(rows.match(old))) == 1


def test_a_type_that_memory_was_lacking_for_is_found_later() -> None:
    lacking = [True]

    @torch.library.custom_op("gsl_tests::lacking", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @double.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        if lacking:
            raise MemoryError
        return torch.empty_like(x)

    wl = Workload.from_torch(layers(), (torch.randn(2, 8),))
    rule = Subst(BIASED, pat.Call(torch.ops.gsl_tests.lacking.default, x), name="native")
    with pytest.raises(RewriteError, match="MemoryError"):
        rule(wl)
    lacking.clear()
    assert rule(wl).trace.count() == 2
