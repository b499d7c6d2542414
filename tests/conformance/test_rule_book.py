"""The rule book on every front end: rules fire on the loaded view with the same golden text, and nowhere else."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest

from gsl import Workload
from gsl.errors import FrontEndError
from gsl.graph import INPUT, Node, SymDim
from gsl.rules import RULES
from tests.conformance.front_ends import AVAILABLE, FrontEnd
from tests.conformance.programs import ordered, plain, program_of, single, write
from tests.rules.harness import Build, Fires, Refuses, View, build, shown
from tests.rules.test_book import VIEWS
from tests.rules.test_rules import FIRES, REFUSES

EACH = pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)


def biased_sum(b: Build) -> Node:
    """A bias is a part of a layer to most frameworks, and not an operator of its own."""
    x, y = b.input("x", 2, 3, 5, 5), b.input("y", 2, 3, 5, 5)
    terms = [b.call("nn.conv2d", data, b.param(w, 4, 3, 3, 3)) for data, w in ((x, "v"), (y, "w"))]
    return b.call("add", b.bias(terms[0], "b"), b.bias(terms[1], "c"))


MORE = [Fires("bias-add-add", "of two layers", biased_sum)]
CASES = [*FIRES, *MORE]


def label(case: Fires | Refuses) -> str:
    return f"{case.rule}: {case.label}"


def applies(case: Fires | Refuses, front_end: FrontEnd) -> bool:
    """Whether the front end can have such a view at all."""
    if front_end.few or label(case) in front_end.listed("unwritten"):
        return False
    fed = inputs_of(case.view)
    if any(node.type is None for node in fed):
        return front_end.untyped
    return front_end.symbolic or not any(isinstance(size, SymDim) for node in fed for size in node.shape or ())


@functools.cache
def inputs_of(view: View) -> list[Node]:
    return [node for node in build(view).nodes if node.op == INPUT]


def each(cases: Iterable[Fires | Refuses]) -> list[object]:
    """Every case on every front end that can have it."""
    pairs = [(case, front_end) for front_end in AVAILABLE for case in cases]
    return [pytest.param(c, f, id=f"{label(c)}-{f.name}") for c, f in pairs if applies(c, f)]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("case", "front_end"), each(CASES))
def test_fires(case: Fires, front_end: FrontEnd) -> None:
    program, view = write(build(case.view), front_end)
    loaded, rule = program.load(), RULES[case.rule]
    respelled = label(case) in front_end.listed("respelled")
    assert (plain(loaded) != plain(view)) == respelled
    after = rule(loaded)
    fires = label(case) not in front_end.silent
    assert (plain(after) != plain(loaded)) == fires
    if fires and not respelled:
        assert plain(after) == (ordered(case.golden) if case.golden else plain(rule(view)))
    if fires:
        again = program.store(after).load()
        assert (plain(again) != plain(after)) == (label(case) in front_end.listed("rewritten")), shown(again)


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("case", "front_end"), each(REFUSES))
def test_does_not_fire(case: Refuses, front_end: FrontEnd) -> None:
    program = program_of(build(case.view), front_end)
    loaded = program.load()
    after = RULES[case.rule](loaded)
    fired = shown(after) != shown(loaded)
    assert fired == (label(case) in front_end.listed("admitted")), shown(after)
    if fired:
        Workload(program).compare(Workload(program.store(after)), rtol=1e-10).check()


RUN = [case for case in CASES if case.golden is not None or case in MORE]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("case", "front_end"), each(RUN))
def test_computes_the_same(case: Fires, front_end: FrontEnd) -> None:
    """The result, with what depends on weights only computed, has the same outputs."""
    view, rtol = build(case.view), 1e-10
    if label(case) in front_end.listed("single"):
        view, rtol = single(view), 1e-5
    before = Workload(program_of(view, front_end))
    after = RULES[case.rule](before)
    assert bool(after.trace.firings) == (label(case) not in front_end.silent)
    before.compare(after, rtol=rtol).check()


@pytest.mark.parametrize(
    ("case", "front_end", "reason"),
    [
        pytest.param(case, front_end, reason, id=f"{label(case)}-{front_end.name}")
        for front_end in AVAILABLE
        for reason, cases in front_end.unwritten.items()
        for case in (*CASES, *REFUSES)
        if label(case) in cases
    ],
)
def test_cannot_be_written(case: Fires | Refuses, front_end: FrontEnd, reason: str) -> None:
    with pytest.raises(FrontEndError) as caught:
        program_of(build(case.view), front_end)
    assert reason in str(caught.value)


@EACH
def test_the_lists_name_cases(front_end: FrontEnd) -> None:
    fires, refuses = ({label(case) for case in cases} for cases in (CASES, REFUSES))
    assert front_end.listed("unwritten") <= fires | refuses
    assert front_end.silent <= front_end.listed("respelled") <= fires
    assert front_end.listed("rewritten") <= fires
    assert front_end.listed("admitted") <= refuses


@pytest.mark.parametrize(
    ("name", "front_end", "reason"),
    [(name, f, reason) for f in AVAILABLE for reason, names in f.single.items() for name in names],
    ids=lambda value: getattr(value, "name", value),
)
def test_cannot_be_compiled_in_float64(name: str, front_end: FrontEnd, reason: str) -> None:
    (view,) = [case.view for case in CASES if label(case) == name] or [VIEWS[name]]
    with pytest.raises(FrontEndError) as caught:
        program_of(build(view), front_end).build()
    assert front_end.word in str(caught.value) or "TVM" in str(caught.value)
    assert reason in str(caught.value)


@EACH
def test_every_rule_fires_somewhere(front_end: FrontEnd) -> None:
    if front_end.few:
        pytest.skip("rules write any operator")
    firing = {case.rule for case in CASES if applies(case, front_end) and label(case) not in front_end.silent}
    assert set(RULES) - firing == set(front_end.never)
