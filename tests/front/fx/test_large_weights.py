"""Weights that lie on disk stay there: no page of a mapped weight is read by what does not need its values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import fx, nn

from gsl import RuleSet, Subst, Workload, pat
from gsl.fx import Pass
from gsl.rules import BOOK, IDIOMS, NORMAL

SMAPS = Path("/proc/self/smaps")
pytestmark = pytest.mark.skipif(not SMAPS.exists(), reason="the system does not tell which pages are in memory")
LAYERS = 10


def resident(folder: Path) -> int:
    """The bytes of mapped files of a folder that are in memory."""
    total, inside = 0, False
    for line in SMAPS.read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            inside = str(folder) in line
        elif inside and first == "Rss:":
            total += int(line.split()[1]) * 1024
    return total


def mapped(folder: Path, rows: int, columns: int) -> nn.Parameter:
    """A weight in a sparse file, which is mapped as ``torch.load(mmap=True)`` maps one."""
    path = folder / f"{len(list(folder.iterdir()))}.bin"
    with open(path, "wb") as file:
        file.truncate(rows * columns * 4)
    tensor = torch.from_file(str(path), shared=False, size=rows * columns, dtype=torch.float32)
    return nn.Parameter(tensor.view(rows, columns), requires_grad=False)


class Stack(nn.Module):
    """Linear layers with large weights, each with two small scales behind it, and one with a batch norm."""

    def __init__(self, folder: Path, size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(LAYERS):
            layer = nn.Linear(1, 1, bias=False)
            layer.weight = mapped(folder, size, size)
            self.layers.append(layer)
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(size)) for _ in range(2 * LAYERS)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = (layer(x) * self.scales[2 * number]) * self.scales[2 * number + 1]
            x = torch.relu(torch.relu(x)).pow(2)
        return x


x, a, b = pat.Wildcard(), pat.Variable(), pat.Variable()
SCALES = Subst((x * a) * b, x * (a * b), name="scales", where=a.ndim == 1)
"""The one rule that needs values: those of small weights."""


@pytest.fixture(params=[512, pytest.param(22_400, marks=pytest.mark.long)])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Stack, Path]:
    """A model of 10 MB, or of 20 GB, of weights in sparse files."""
    return Stack(tmp_path, request.param).eval(), tmp_path


def test_rules_leave_large_weights_on_disk(model: tuple[Stack, Path]) -> None:
    stack, folder = model
    rules = RuleSet(dict.fromkeys((*NORMAL, *IDIOMS, *BOOK, SCALES)))
    assert len(rules) > 30
    size = stack.layers[0].weight.shape[0]
    exported = torch.export.export(stack, (torch.empty(1, size),))
    before = Workload.from_exported(exported)
    new = rules(before, iterative=True)
    assert new.trace.count("scales") == LAYERS
    assert new.trace.folded == LAYERS
    assert len(new.mod.graph.nodes)
    for number in range(LAYERS):
        assert new.params[f"layers.{number}.weight"] is before.params[f"layers.{number}.weight"]
    _ = str(new), new.trace.text(), new.op_counts(), new.unread()
    assert resident(folder) == 0


def test_a_pass_in_place_leaves_large_weights_on_disk(model: tuple[Stack, Path]) -> None:
    stack, folder = model
    module = fx.symbolic_trace(stack)
    Pass(RuleSet([*BOOK, SCALES]), iterative=True)(module)
    assert "_add" not in module.code
    assert "scales_0_multiply" in module.code
    assert resident(folder) == 0


def test_only_weights_whose_values_are_needed_are_read(tmp_path: Path) -> None:
    """So the number of resident bytes tells what was read."""
    stack = Stack(tmp_path, 512)
    stack.scales[3] = mapped(tmp_path, 1, 512)[0]
    stack.scales[5] = mapped(tmp_path, 1, 512)[0]
    new = SCALES(Workload.from_torch(stack, (torch.empty(1, 512),)))
    assert new.trace.folded == LAYERS
    assert 0 < resident(tmp_path) <= 1 << 16


def test_weights_without_values_are_rewritten() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(100_000, 100_000)
            self.left, self.right = nn.Parameter(torch.empty(100_000)), nn.Parameter(torch.empty(100_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.left * self.right

    with torch.device("meta"):
        workload = Workload.from_torch(Scaled(), (torch.empty(1, 100_000),))
    new = RuleSet([*BOOK, SCALES])(workload, iterative=True)
    assert new.trace.folded == 1
    assert {value.device.type for value in new.params.values()} == {"meta"}
