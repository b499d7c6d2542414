"""What calls cost: counted, measured, and as the user says."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gsl import Workload
from gsl.cost import Measured, Store, model_of
from gsl.cost.machine import machine
from gsl.cost.regions import regions
from gsl.cost.work import ExampleSizes, work
from gsl.errors import WorkloadError
from gsl.front.base import Stepped
from gsl.graph import Node
from tests.helpers.nets import Of


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.body(x)).reshape(-1)


def net(rows: int = 32) -> Workload:
    torch.manual_seed(0)
    return Workload.from_torch(Net().eval(), (torch.randn(rows, 64),))


def traced(fn: Callable[..., torch.Tensor], *args: torch.Tensor) -> Workload:
    return Workload.from_torch(Of(fn), args)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


WORK = {
    "matmul": (lambda a, b: a @ b, [(4, 8), (8, 16)], 2 * 4 * 8 * 16, 4 * (4 * 8 + 8 * 16 + 4 * 16)),
    "linear": (lambda a, w: F.linear(a, w), [(4, 8), (16, 8)], 2 * 4 * 8 * 16, 4 * (4 * 8 + 8 * 16 + 4 * 16)),
    "convolution": (lambda a, w: F.conv2d(a, w), [(1, 3, 8, 8), (5, 3, 3, 3)], 2 * 5 * 36 * 27, 4 * (192 + 135 + 180)),
    "groups": (lambda a, w: F.conv2d(a, w, groups=4), [(1, 4, 5, 5), (4, 1, 3, 3)], 2 * 4 * 9 * 9, 4 * (100 + 36 + 36)),
    "transposed": (
        lambda a, w: F.conv_transpose2d(a, w), [(1, 3, 4, 4), (3, 5, 3, 3)], 2 * 48 * 45, 4 * (48 + 135 + 180),
    ),
    "attention": (
        F.scaled_dot_product_attention, [(1, 2, 6, 8), (1, 2, 7, 8), (1, 2, 7, 8)],
        2 * 2 * 6 * 7 * 16, 4 * (96 + 112 + 112 + 96),
    ),
    "sum": (lambda a: a.sum(1), [(4, 8)], 32, 4 * (32 + 4)),
    "add": (lambda a, b: a + b, [(4, 8), (8,)], 32, 4 * (32 + 8 + 32)),
    "view": (lambda a: a.transpose(0, 1), [(4, 8)], 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_work_is_counted(name: str) -> None:
    fn, shapes, operations, moved = WORK[name]
    graph = traced(fn, *[randn(*shape) for shape in shapes]).graph
    (call,) = [node for node in graph if node.operands]
    found = work(call, ExampleSizes({}))
    assert (found.operations, found.moved) == (operations, moved)


def test_a_reshape_of_what_is_transposed_moves_data() -> None:
    graph = traced(lambda a: a.transpose(0, 1).reshape(-1), randn(4, 8)).graph
    assert [work(node, ExampleSizes({})).moved for node in graph if node.operands] == [0, 2 * 4 * 32]


def test_a_bias_is_added_on_the_way() -> None:
    (dense, bias) = [node for node in traced(F.linear, randn(2, 4), randn(3, 4), randn(3)).graph if node.operands]
    assert work(dense, ExampleSizes({})).operations > 0 == work(bias, ExampleSizes({})).moved


def test_sizes_are_those_of_the_example() -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    wl = Workload.from_torch(Of(torch.relu), (randn(5, 3),), dynamic_shapes={"inputs": ({0: batch},)})
    (call,) = [node for node in wl.graph if node.operands]
    assert work(call, ExampleSizes.of(wl)).moved == 2 * 4 * 15
    assert wl.cost().total > 0
    with pytest.raises(WorkloadError, match="load the program with example inputs"):
        work(call, ExampleSizes(dict.fromkeys(ExampleSizes.of(wl).known)))


def test_a_size_that_a_run_tells_is_estimated() -> None:
    wl = traced(lambda a: torch.nonzero(a).float() * 2, randn(4))
    costs = wl.cost()
    assert any(call.estimated for call in costs)
    assert "could not be run alone" in str(costs)


def test_a_call_for_which_memory_was_lacking_is_measured_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(call: Callable[[], object]) -> float:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    wl = traced(torch.asinh, randn(3, 7))
    with monkeypatch.context() as patched:
        patched.setattr("gsl.cost.model.timed", lacking)
        assert [call.estimated for call in wl.cost()] == [True]
    assert [call.estimated for call in wl.cost()] == [False]


# ------------------------------------------------------------ tables


def ones(node: Node) -> float:
    return 2.0 if node.op == "nn.dense" else 0.5


def test_a_function_of_a_node_is_a_model() -> None:
    costs = net().cost(ones)
    assert costs.total == 2 * 2.0 + 0.5 * 6
    rows = costs.by("operator")
    assert (rows[0].name, rows[0].calls, rows[0].value) == ("nn.dense", 2, 4.0)
    assert [row.name for row in costs.by("module", depth=1)] == ["body", "(none)", "norm"]
    assert str(costs).splitlines()[2].split() == ["nn.dense", "2", "4", "57.1%"]
    assert sum(row.value for row in costs.by("call")) == costs.total
    assert json.loads(json.dumps(costs.as_json()))["calls"][0]["operator"] == "nn.dense"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("mesured", "did you mean 'measured'"),
        (3, "or a function from a node to a number, got 3"),
        (lambda node: -1.0, "a number that is not negative, got -1.0"),
        (lambda node: "much", "got 'much'"),
        (lambda: 1.0, r"is not known, because the function cost= failed: TypeError: .*takes 0 positional arguments"),
        (lambda node: 1 / 0, r"%\w+ \(nn.dense\) is not known, .*: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_model_is_an_error(wanted: object, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        net().cost(wanted)  # type: ignore[arg-type]


def test_prices_may_be_numbers_of_numpy() -> None:
    assert net().cost(lambda node: np.float32(2.0)).total == 2 * net().cost(lambda node: 1).total


def test_tables_by_what_there_is_not_are_errors() -> None:
    costs = net().cost(ones)
    with pytest.raises(WorkloadError, match="did you mean 'operator'"):
        costs.by("operators")  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="by value, calls or name"):
        costs.by(order="size")
    with pytest.raises(WorkloadError, match="depth= is the number of names of modules, 0 or more, got -1"):
        costs.by("module", depth=-1)
    with pytest.raises(WorkloadError, match="limit= is the number of rows, 0 or more, got -1"):
        costs.table("call", limit=-1)


# ------------------------------------------------------------ measured


def test_what_is_measured_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    wl = net(512)
    first = Measured(1, Store(path))
    costs = first.costs(wl)
    assert first.measured == 6  # two products, GELU, the sum, the normalisation, the view of it
    assert costs.by()[0].name == "nn.dense"
    assert costs.by("module", depth=1)[0].name == "body"
    again = Measured(1, Store(path))
    assert (again.costs(wl).total, again.measured) == (costs.total, 0)
    other = Measured(2, Store(path))
    other.costs(net(512))
    assert other.measured == 6, "another number of threads"
    assert not any(call.estimated for call in costs)


@pytest.mark.parametrize("value", ['"text"', "{}", "[1.0]", "NaN"])
def test_what_is_kept_in_another_form_is_measured_again(value: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    Measured(1, Store(path)).costs(net(16))
    with sqlite3.connect(path) as file:
        file.execute("UPDATE known SET value = ?", (value,))
    again = Measured(1, Store(path))
    assert again.costs(net(16)).total > 0
    assert again.measured == 6


class Counting(nn.Module):
    """Changes a buffer by a call, and others by a module."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=0.5)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)  # type: ignore[operator]
        return self.norm(x) + self.count.sum()  # type: ignore[operator]


@pytest.mark.parametrize("wl", [
    net(), Workload.from_torch(Counting(), (torch.randn(2, 4),)),
    Workload.from_fx(torch.fx.symbolic_trace(Counting()), (torch.randn(2, 4),)),
])  # fmt: skip
def test_measuring_leaves_threads_and_weights_as_they_are(wl: Workload) -> None:
    before, threads = [weight.clone() for weight in wl.params.values()], torch.get_num_threads()
    assert wl.cost(threads=1).threads == 1
    assert torch.get_num_threads() == threads
    assert all(torch.equal(a, b) for a, b in zip(before, wl.params.values()))


@pytest.mark.parametrize("threads", [0, -1, True, 2.0, "2", 2_000_000_000])
def test_a_number_of_threads_that_torch_can_not_have(threads: object) -> None:
    with pytest.raises(WorkloadError, match=r"threads= is a whole number from 1 to 1024, got"):
        model_of("analytic", threads=threads)  # type: ignore[arg-type]


def names(wl: Workload, *, fuses: bool = False) -> list[str]:
    program = wl.program
    assert isinstance(program, Stepped)
    found = regions(program.steps(wl.graph), fuses=fuses)
    return [" ".join(str(unit.op) for unit in region.units) for region in found]


def test_calls_that_follow_each_other_element_by_element_are_timed_together() -> None:
    wl = traced(lambda a, b: torch.relu(torch.exp(a @ b) * 2).sum(0), randn(4, 4), randn(4, 4))
    assert names(wl) == ["matmul", "exp multiply nn.relu", "sum"]
    assert names(wl, fuses=True) == ["matmul exp multiply nn.relu", "sum"]


def test_what_others_use_too_ends_a_region() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        b = torch.exp(a)
        return torch.relu(b) + b

    assert names(traced(fn, randn(4))) == ["exp", "nn.relu", "add"]


@pytest.mark.parametrize(
    "wl",
    [
        traced(lambda a: a.split(2, 1)[1] + 1, randn(4, 4)),
        traced(lambda a: torch.max(a, 1).values, randn(4, 4)),
        traced(lambda a, i: F.embedding(i, a), randn(4, 4), torch.tensor([1, 3])),
        traced(lambda a, m: a.masked_fill(m, 0.0), randn(4, 4), torch.ones(4, 4, dtype=torch.bool)),
        traced(lambda a: a.t().expand(3, 4, 4) * 2, randn(4, 4)),
        traced(lambda a: torch.view_as_real(a.to(torch.complex64)), randn(4)),
        Workload.from_torch(nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), (randn(1, 3, 8, 8),)),
        Workload.from_torch(nn.Linear(4, 4), (randn(2, 4),)).exported.run_decompositions(),
        Workload.from_fx(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), (randn(2, 4),)),
    ],
    ids=["split", "fields", "indices", "mask", "strides", "complex", "channels-last", "decomposed", "modules"],
)
def test_each_call_can_be_run_alone(wl: Workload) -> None:
    costs = Workload(wl).cost()
    assert len(costs) > 0
    assert not [call.name for call in costs if call.estimated]


def test_layouts_tell_calls_apart() -> None:
    def keys(model: nn.Module) -> list[str]:
        wl = Workload.from_torch(model, (randn(1, 3, 8, 8),))
        return [call.key for call in wl.cost()]

    plain, last = keys(nn.Conv2d(3, 4, 3)), keys(nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last))
    assert plain != last
    assert plain == keys(nn.Conv2d(3, 4, 3))


def test_the_analytic_model_tells_large_from_small() -> None:
    small, large = net(32).cost("analytic"), net(3200).cost("analytic")
    assert large.total > 5 * small.total
    assert large.by()[0].name == "nn.dense"


def test_graphs_of_other_things_are_counted_by_a_function() -> None:
    wl = Workload.from_nodes([[1, [2]]], operands=lambda obj: obj[1:])
    with pytest.raises(WorkloadError, match="'analytic', or a function of a node"):
        wl.cost()
    assert wl.cost(lambda node: 1.0).total >= 1.0


# ------------------------------------------------------------ the store


def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    path.write_bytes(b"no database at all, but long enough to be read as one" * 100)
    store = Store(path)
    store.put(1.5, "a", 1)
    assert Store(path).get("a", 1) == 1.5


def test_a_file_that_is_damaged_later_on_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    first = Store(path)
    for number in range(200):
        first.put(number, number)
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))  # its beginning tells that all is well
    damaged = Store(path)
    assert None in [damaged.get(number) for number in range(200)]
    damaged.put("kept", "here")
    assert damaged.get("here") == "kept"
    Store(path).put("kept", "again")
    assert Store(path).get("again") == "kept"


def test_a_value_is_kept_without_waiting_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    Store(tmp_path / "costs.sqlite")
    assert [file.execute("PRAGMA synchronous").fetchone() for file in opened] == [(0,)]


def test_without_a_place_to_write_values_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "costs.sqlite")
    store.put([1, "x"], "key")
    assert store.get("key") == [1, "x"]
    assert store.get("another key") is None


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "costs.sqlite"), Store(tmp_path / "costs.sqlite")
    one.put(1, "a")
    other.put(2, "b")
    assert (one.get("b"), other.get("a")) == (2, 1)


def test_the_machine_has_a_name() -> None:
    assert f"torch {torch.__version__}" in machine()
    assert "cores" in machine()


def test_models_by_name() -> None:
    names = ["measured", "compiled", "kernels", "analytic"]
    assert [model_of(name).name for name in names] == names


def test_kernels_are_those_of_a_gpu() -> None:
    with pytest.raises(WorkloadError, match="'kernels' is for programs on a GPU of CUDA, and Net lies on the CPU"):
        net(8).cost("kernels")


def test_kernels_are_those_of_the_current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.cost.model._accelerator_of", lambda workload: torch.device("cuda", 1))
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    with pytest.raises(WorkloadError, match=r"Net lies on cuda:1: call torch.cuda.set_device\(1\) before"):
        net(8).cost("kernels")
