"""Rules of two functions of Relay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relay

from gsl import Subst, Workload


def function(body: Callable[[Any], Any]) -> Any:
    x = relay.var("x", shape=(3, 4), dtype="float32")
    return relay.Function([x], body(x))


def test_functions_of_relay_are_programs() -> None:
    rule = Subst.from_programs(
        function(lambda x: relay.maximum(relay.exp(x), relay.exp(x))), function(lambda x: relay.exp(x)), name="once"
    )
    assert rule.to_python().startswith("x = pat.Wildcard(shape=(3, 4), dtype='float32')")
    wl = Workload.from_expr(function(lambda x: relay.maximum(relay.exp(x), relay.exp(x))))
    new = rule(wl)
    assert new.op_counts() == {"exp": 1}
    wl.compare(new).check()
