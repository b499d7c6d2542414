"""The benchmarks run at their smallest size, and their check finds a wrong rewrite."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import Different, calls, check, expected_seconds, measure, report
from benchmarks.cases import Case, cases
from benchmarks.systems import SYSTEMS, Job


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_smallest_size(case: Case) -> None:
    row = measure(case, case.sizes[0], SYSTEMS)
    assert row.after < row.before
    assert all(row.seconds[name] for name in SYSTEMS)
    assert f"| {case.name} | {row.before} | {row.after} |" in report([row])


def test_a_system_that_does_nothing_is_found() -> None:
    case = cases()[0]
    with pytest.raises(Different, match="idle: the calls are"):
        measure(case, case.sizes[0], {"idle": lambda case, module: Job(lambda: module)})


def test_wrong_numbers_are_found() -> None:
    case = cases()[0]
    module, inputs = case.build(case.sizes[0])
    check("right", module, calls(module), inputs, module(*inputs))

    values = module(*inputs)
    product = next(node for node in module.graph.nodes if node.op == "call_function")
    product.args = (product.args[0], product.args[0])
    module.recompile()
    with pytest.raises(Different, match="the results differ"):
        check("wrong", module, calls(module), inputs, values)


def test_a_system_that_would_take_too_long_is_left_out() -> None:
    case = cases()[0]
    rows = [measure(case, size, {"FX by hand": SYSTEMS["FX by hand"]}) for size in (30, 60)]
    assert expected_seconds(rows, "GSL", 10_000) == 0.0
    assert expected_seconds(rows, "FX by hand", 120) >= 2 * (rows[-1].seconds["FX by hand"] or 0) * 0.99
