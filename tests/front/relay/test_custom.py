"""Operators of users in Relay: composite functions, written and read back."""

from __future__ import annotations

from tvm import relay

from gsl import Workload
from tests.front.relay.helpers import var


def test_a_call_is_a_composite_function_and_is_read_back() -> None:
    from tests.operators.declared import rms_norm  # it is declared by a run of its meaning

    x, w = var("x", 3, 8), var("w", 8)
    a = relay.nn.relu(x)
    mean = relay.mean(relay.power(a, relay.const(2.0)), axis=-1, keepdims=True)
    root = relay.rsqrt(relay.add(mean, relay.const(1e-5)))
    wl = Workload.from_expr(relay.multiply(relay.multiply(a, root), w), ["x", "w"])
    new = rms_norm.recognise()(wl)
    assert 'Composite="gsl_tests::rms_norm"' in str(new.mod)
    wl.compare(new).check()
    again = Workload.from_relay(new.mod)
    assert all(node.op != "gsl_tests::rms_norm" for node in again.graph)  # a group
    assert any(node.op == "gsl_tests::rms_norm" for node in again.with_operators(rms_norm).graph)
    back = rms_norm.lower()(again)
    assert [node.op for node in back.graph] == [node.op for node in wl.graph]
