"""The linear layer of gsl.kernels: right for every kind of operand, packed only while that is right."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from gsl.kernels import LINEAR
from gsl.kernels.operator import ACTIVATIONS, entries, packed
from tests.helpers.nets import OfOne

X, W, B, Y = torch.randn(3, 5, 32), torch.randn(48, 32) / 6, torch.randn(48), torch.randn(3, 5, 48)


def expected(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, addend: torch.Tensor | None, activation: str
) -> torch.Tensor:
    result = torch.einsum("...i,oi->...o", x, weight)
    for more in (bias, addend):
        result = result if more is None else result + more
    functions = {
        "none": lambda x: x, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
    }  # fmt: skip
    return functions.get(activation, getattr(F, activation, None))(result)  # type: ignore[no-any-return,misc]


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [B, None], ids=["bias", "no bias"])
@pytest.mark.parametrize("addend", [Y, None], ids=["addend", "no addend"])
def test_packed_and_not_packed(activation: str, bias: torch.Tensor | None, addend: torch.Tensor | None) -> None:
    weight = W.clone()
    for _ in range(3):  # the second call packs
        found = LINEAR(X, weight, bias, addend, activation=activation)
        assert_close(found, expected(X, weight, bias, addend, activation))
    assert len(entries()) == 1


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_steps_of_fused_optimisers_are_seen(part: str) -> None:
    parts = {"weight": torch.nn.Parameter(W.clone()), "bias": torch.nn.Parameter(B.clone())}
    optimiser = torch.optim.SGD([parts[part]], lr=1.0, fused=True)  # it writes past torch's version counters
    for _ in range(2):
        with torch.no_grad():
            for _ in range(3):
                assert_close(LINEAR(X, *parts.values(), None, activation="none"), F.linear(X, *parts.values()))
        parts[part].grad = torch.ones_like(parts[part])
        optimiser.step()
    with torch.no_grad():
        assert_close(LINEAR(X, *parts.values(), None, activation="none"), F.linear(X, *parts.values()))


@pytest.mark.parametrize("way", ["onednn", "mkl"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_way(way: str, activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.kernels.operator._fastest", lambda _, calls, seconds: way if way in calls else "plain")
    weight = W.clone()
    for x in (X, X, X[:, :2], X[0], X.transpose(0, 1), X[0, :1], X[:1, :1]):
        for bias in (B, None):
            LINEAR(x, weight, bias, activation=activation)
            found = LINEAR(x, weight, bias, activation=activation)
            assert_close(found, expected(x, weight, bias, None, activation))


def test_the_comparison_can_fail() -> None:
    with pytest.raises(AssertionError):
        assert_close(LINEAR(X, W, B, activation="gelu"), expected(X, W, B, None, "gelu_tanh"))


OPERANDS = {
    "one row": (X[0, :1], W),
    "a vector": (X[0, 0], W),
    "no rows": (X[:0], W),
    "no columns": (X[..., :0], W[:, :0]),
    "operands apart in memory": (X.transpose(0, 1), W.t().contiguous().t()),
    "doubles": (X.double(), W.double()),
    "halves": (X.bfloat16(), W.bfloat16()),
    "a vector for a weight": (X, W[0]),
}


@pytest.mark.parametrize("kind", OPERANDS)
def test_operands_of_other_kinds(kind: str) -> None:
    x, weight = OPERANDS[kind]
    for _ in range(3):
        torch.testing.assert_close(LINEAR(x, weight), F.linear(x, weight))


def test_an_addend_is_broadcast_and_not_changed() -> None:
    addend = torch.randn(2, 1, 5, 48)
    before = addend.clone()
    for _ in range(3):
        assert_close(LINEAR(X, W, B, addend), F.linear(X, W, B) + addend)
    assert torch.equal(addend, before)


def test_a_weight_that_changes_is_packed_anew() -> None:
    weight, bias = W.clone(), B.clone()
    for change in (weight.mul_, bias.add_, weight.copy_):
        for _ in range(3):
            assert_close(LINEAR(X, weight, bias), F.linear(X, weight, bias))
        change(torch.tensor(2.0))
    assert_close(LINEAR(X, weight, bias), F.linear(X, weight, bias))
    assert len(entries()) == 1


def test_int8_sees_a_bias_that_changes() -> None:
    bias = B.clone()
    for _ in range(3):
        LINEAR(X, W, bias, precision="int8")
    bias.add_(100)
    for _ in range(3):
        assert (LINEAR(X, W, bias, precision="int8") - F.linear(X, W, bias)).abs().max() < 1


def test_the_packed_form_lives_as_long_as_the_weight() -> None:
    weight = torch.nn.Parameter(W.clone())
    view = weight.detach()[:]
    for _ in range(2):
        LINEAR(X, weight)
        LINEAR(X, view)
    assert len(entries()) == 1  # one memory, one packed form
    del weight
    gc.collect(1)
    assert len(entries()) == 1
    del view
    gc.collect(1)
    assert not entries()


@pytest.mark.parametrize("change", ["in place", "by a fused optimiser"])
def test_what_a_cuda_graph_reads_lives_as_long_as_the_weight(change: str) -> None:
    """A graph reads the memory that it has captured, also when the weight is packed anew."""
    weight = torch.nn.Parameter(W.clone())
    pack = partial(packed, weight, None, "for a graph", lambda: torch.zeros(3))
    assert pack(captures=True) is None
    assert pack(captures=True) is None, "it would be made within the graph"
    read = weakref.ref(pack())
    for _ in range(2):
        assert pack(captures=True) is read()
    if change == "in place":
        with torch.no_grad():
            weight.mul_(2)
    else:
        weight.grad = torch.ones_like(weight)
        torch.optim.SGD([weight], lr=1.0, fused=True).step()
    assert pack() is None
    second = weakref.ref(pack())
    assert second() is not read()
    assert read() is not None
    with torch.no_grad():
        weight.mul_(2)
    assert pack() is None
    assert second() is None, "no graph has read it"
    del weight, pack
    gc.collect(1)
    assert read() is None
    assert not entries()


def test_a_single_row_has_a_way_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a decoder, which reads many tokens first, and one at a time then."""
    monkeypatch.setattr(
        "gsl.kernels.operator._fastest", lambda _, calls, seconds: "int8 x86" if "int8 x86" in calls else "plain"
    )
    exact, rough = F.linear(X[0, :1], W), F.linear(X, W)
    for _ in range(3):
        LINEAR(X, W)
        LINEAR(X[0, :1], W, precision="int8")
    assert len(entries()) == 2
    assert torch.equal(LINEAR(X, W), rough)
    assert 0 < (LINEAR(X[0, :1], W, precision="int8") - exact).abs().max() < 0.05
    for _ in range(3):
        LINEAR(X[:2, 0], W, precision="int8")
    assert len(entries()) == 3


def test_a_weight_that_is_new_at_each_call_is_not_packed() -> None:
    for _ in range(3):
        LINEAR(X, W * 2)
    assert not entries()


def test_gradients() -> None:
    def gradients(packed: bool) -> list[torch.Tensor]:
        leaves = [t.clone().requires_grad_() for t in (X, W, B, Y)]
        with torch.enable_grad():
            result = LINEAR(*leaves, activation="gelu") if packed else expected(*leaves, "gelu")
            result.square().sum().backward()
        return [leaf.grad for leaf in leaves]  # type: ignore[misc]

    for found, wanted in zip(gradients(True), gradients(False)):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_inference_mode() -> None:
    with torch.inference_mode():
        weight = W.clone()  # has no version: changes would not be seen
        for _ in range(3):
            assert_close(LINEAR(X, weight, B), F.linear(X, weight, B))
            weight.mul_(2)
        assert not entries()
        for _ in range(3):
            assert_close(LINEAR(X, W, B), F.linear(X, W, B))
        assert len(entries()) == 1


def test_threads() -> None:
    weights = [W.clone() for _ in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                for place, weight in enumerate(weights):
                    if not torch.allclose(LINEAR(X * number, weight, B), F.linear(X * number, weight, B), atol=1e-4):
                        wrong.append(place)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(entries()) == 4


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_torch_knows_the_operator(activation: str) -> None:
    kwargs = {"activation": activation}
    torch.library.opcheck(LINEAR, (X, W, B, Y), kwargs)
    with torch.enable_grad():
        torch.library.opcheck(LINEAR, (X, W.clone().requires_grad_(), None, None), kwargs)


def test_it_is_one_call_for_a_compiler() -> None:
    def layer(x: torch.Tensor) -> torch.Tensor:
        return LINEAR(x, W, B, activation="relu").sin()

    traced = torch.export.export(OfOne(layer), (X,)).run_decompositions()
    assert next(node.target for node in traced.graph.nodes if node.op == "call_function") is LINEAR
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        assert_close(compiled(X), layer(X))


@pytest.mark.long
def test_a_saved_program_needs_one_import(tmp_path: Path) -> None:
    path = tmp_path / "layer.pt2"
    layer = OfOne(lambda x: LINEAR(x, torch.ones(4, 32)))
    torch.export.save(torch.export.export(layer, (X,)), path)
    script = f"""
import torch

def load():
    return torch.export.load({str(path)!r}).module()(torch.ones(3, 5, 32)).sum().item()

try:
    load()
except RuntimeError:
    import gsl.kernels
    print(load())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1920.0"
    assert "gsl.linear" in done.stderr or "gsl::linear" in done.stderr  # torch says what is missing
