"""Networks of ``relay.testing``, and of torch by Relay's front end: whole rule books on real models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relay
from tvm.relay import testing

from benchmarks.peers.tvm_relay import runs
from gsl import RuleSet, Workload
from gsl.graph import Node
from tests.front.relay.helpers import FAST, exprs, loaded, random
from tests.helpers.book import EVERY_RULE

MODELS: dict[str, Callable[[], Any]] = {
    "resnet": lambda: testing.resnet.get_workload(num_classes=10, num_layers=18, image_shape=(3, 32, 32)),
    "inception": lambda: testing.inception_v3.get_workload(num_classes=10),
    "mobilenet": lambda: testing.mobilenet.get_workload(num_classes=10, image_shape=(3, 32, 32)),
    "densenet": lambda: testing.densenet.get_workload(classes=10, batch_size=1),
    "lstm": lambda: testing.lstm.get_workload(iterations=2, num_hidden=8),
}


def model(name: str) -> Workload:
    """A network with random weights: those it comes with make every batch norm the identity."""
    module, params = MODELS[name]()
    weights = {key: weight(key, value, seed) for seed, (key, value) in enumerate(params.items())}
    return Workload(module, weights, name=name)


def weight(name: str, like: Any, seed: int) -> Any:
    value = random(*like.shape, seed=seed)
    if name.endswith(("gamma", "var")):
        return np.abs(value) + np.float32(0.5)
    return value / np.float32(np.sqrt(max(1, np.prod(like.shape[1:]))))


def rewritten(wl: Workload) -> Workload:
    return RuleSet(EVERY_RULE)(wl, iterative=True)


def changes(wl: Workload, new: Workload) -> dict[str, tuple[int, int]]:
    """How often each operator was called before and after, where that differs."""
    before, after = wl.op_counts(), new.op_counts()
    return {name: (before[name], after[name]) for name in before | after if before[name] != after[name]}


def parallel(wl: Workload) -> list[list[Node]]:
    """The groups of convolutions that could be one: of the same operand, with equal attributes and kernels."""
    groups: dict[Any, list[Node]] = {}
    for node in wl.graph.by_op().get("nn.conv2d", ()):
        key = (node.operands[0], *(value for name, value in node.attrs.items() if name != "channels"))
        groups.setdefault(key, []).append(node)
    return [group for group in groups.values() if len(group) > 1]


@pytest.mark.parametrize("name", MODELS)
def test_a_network_comes_back_as_it_was(name: str):
    module, params = MODELS[name]()
    wl = loaded(module, params)
    assert wl.replace(wl.graph.copy()).mod.same_as(module)


@pytest.mark.parametrize(
    "case",
    {
        "dense 3 parallel_dense_variadic": True, "dense 4 parallel_two_dense": True, "blocks 2 parallel_two_conv": True,
        "convs 3 parallel_two_conv": False, "convs 3 parallel_conv_variadic": False, "chain 8 matching": True,
        "chain 8 absent": False, "turns 20 nested": False,
    }.items(),
    ids=lambda case: case[0],
)  # fmt: skip
def test_cases_of_the_benchmarks(case: tuple[str, bool]):
    name, changes = case
    answer = next(runs(name))
    assert answer["changed"] is changes
    assert answer["seconds"] > 0


CHANGED = {
    "resnet": {
        "nn.conv2d": (21, 17), "nn.batch_norm": (18, 0), "add": (8, 17), "multiply": (0, 9), "nn.bias_add": (1, 10),
        "split": (0, 4),
    },
    "mobilenet": {"nn.batch_norm": (27, 0), "nn.bias_add": (1, 28)},
    "lstm": {},
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_the_rule_book_on_a_network(name: str):
    wl = model(name)
    new = rewritten(wl)
    assert changes(wl, new) == CHANGED[name]
    relay.transform.InferType()(new.mod)


def test_a_rewritten_network_computes_the_same():
    wl = model("lstm")
    assert wl.compare(rewritten(wl))


@pytest.mark.long
@pytest.mark.parametrize("name", ["resnet", "mobilenet", "inception"])
def test_a_rewritten_network_of_convolutions_computes_the_same(name: str):
    """What takes long is to compile its convolutions; inception has 165."""
    wl = model(name)
    new = rewritten(wl)
    wl.build(**FAST)
    new.build(**FAST)
    assert wl.compare(new)


def test_the_rule_book_on_densenet():
    wl = model("densenet")
    assert changes(wl, rewritten(wl)) == {
        "nn.batch_norm": (121, 0), "add": (0, 62), "multiply": (0, 62), "nn.bias_add": (1, 60)
    }  # fmt: skip


def test_inception():
    """All batch norms are folded into convolutions, and all parallel convolutions are merged."""
    wl = model("inception")
    assert [len(group) for group in parallel(wl)] == [3, 3, 3, 3, 3, 3, 3, 2, 3, 3]
    new = rewritten(wl)
    assert parallel(new) == []
    counts = new.op_counts()
    assert counts["nn.batch_norm"] == counts["multiply"] == 0
    # Four pairs of kernels of 1 by 3 and 3 by 1 become one kernel of 3 by 3 each.
    assert (wl.op_counts()["nn.conv2d"], counts["nn.conv2d"]) == (94, 71)


class Block(nn.Module):
    """Two paths of convolutions, a pool, a dense layer and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.narrow = nn.Conv2d(3, 4, 1)
        self.dense, self.layer_norm = nn.Linear(4, 5), nn.LayerNorm(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.wide(x))) + self.narrow(x)
        y = nn.functional.adaptive_avg_pool2d(y, 1).flatten(1)
        return self.layer_norm(nn.functional.gelu(self.dense(y)))


def test_a_model_of_torch():
    torch.manual_seed(0)
    block, x = Block().eval(), torch.randn(2, 3, 8, 8)
    for buffer in (block.norm.running_mean, block.norm.running_var):
        nn.init.uniform_(buffer, 0.5, 1.5)
    with torch.no_grad():
        expected = block(x)
        module, params = relay.frontend.from_pytorch(torch.jit.trace(block, x), [("x", tuple(x.shape))])
    wl = Workload(module, params)
    new = rewritten(wl)
    assert "nn.batch_norm" not in new.op_counts()
    assert new.op_counts()["nn.conv2d"] == 1
    for each in (wl, new):
        each.build(**FAST)
        assert np.allclose(each(x), expected, atol=1e-5)
    assert wl.compare(new)
    by_torch = Workload.from_torch(block, (x,))
    assert by_torch.compare(new)


def test_passes_of_relay_run_on_what_was_rewritten():
    new = rewritten(model("resnet"))
    passes = [relay.transform.SimplifyInference(), relay.transform.FoldConstant(), relay.transform.FuseOps(2)]
    with tvm.transform.PassContext(opt_level=3):
        fused = tvm.transform.Sequential(passes)(new.mod)
    kinds = Counter(type(expr).__name__ for expr in exprs(fused["main"].body))
    assert kinds["Function"] > 0
    again = loaded(fused, new.params)
    assert again.replace(again.graph.copy()).mod.same_as(fused)
