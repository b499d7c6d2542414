"""Calls that are alike are loaded once: what makes them differ is part of the key."""

from __future__ import annotations

import pytest
from tvm import relay

from gsl.front.relay.load import RelaySignatures
from gsl.front.relay.recipes import key_of
from gsl.front.relay.types import infer_local
from gsl.graph import Node, TensorType
from tests.front.relay.helpers import loaded, module_of, var
from tests.front.relay.test_models import MODELS, model


def batch_norm(x: relay.Expr, epsilon: float) -> relay.Expr:
    return relay.nn.batch_norm(x, *[var(name, 3) for name in "abcd"], epsilon=epsilon)[0]


def test_epsilons_that_tvm_takes_for_equal_stay() -> None:
    x = var("x", 2, 3)
    wl = loaded(module_of(relay.Tuple([batch_norm(x, 1e-10), batch_norm(x, 1.5e-10)])))
    assert [node.attrs["epsilon"] for node in wl.graph.by_op()["nn.batch_norm"]] == [1e-10, 1.5e-10]


def test_equal_and_different_operands() -> None:
    x, y = var("x", 2, 3), var("y", 2, 3)
    wl = loaded(module_of(relay.Tuple([x + x, x + y, y + y])))
    assert [[operand.name for operand in node.operands] for node in wl.graph.by_op()["add"]] == [
        ["x", "x"], ["x", "y"], ["y", "y"],
    ]  # fmt: skip


def test_a_sum_of_a_product_is_a_bias() -> None:
    x, w, b, y = var("x", 2, 3), var("w", 3, 3), var("b", 3), var("y", 2, 3)
    wl = loaded(module_of(relay.Tuple([y + b, relay.nn.dense(x, w) + b, relay.exp(y) + b])))
    assert {name: len(nodes) for name, nodes in wl.graph.by_op().items() if name in ("add", "nn.bias_add")} == {
        "add": 2, "nn.bias_add": 1,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in MODELS if name in ("resnet", "lstm")])
def test_models_are_loaded_as_call_by_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = str(model(name).graph)
    monkeypatch.setattr(RelaySignatures, "known", lambda self, key: None)
    assert shown == str(model(name).graph)


def test_calls_of_one_tensor_and_of_two_are_written_apart() -> None:
    a, b = var("a", 2, 3), var("b", 2, 3)
    for expr in (a, b):
        infer_local(expr)
    views = [Node("input", type=TensorType((2, 3), "float32"), name=name) for name in "xy"]
    node = Node("add", tuple(views))
    assert key_of(node, [a, b]) == key_of(node, [b, a]) != key_of(node, [a, a])
