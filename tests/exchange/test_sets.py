"""The published sets: what is imported, that it fires and is right, and that docs/exchange.md tells what is false.

Where the files are kept is told by GSL_RULES; without them, only what needs no files is tested.
"""

from __future__ import annotations

import os
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from gsl import rules_from_taso, rules_from_tensat
from gsl.exchange import ImportedRules
from gsl.exchange.taso import read_taso
from gsl.exchange.tensat import read_tensat
from gsl.exchange.terms import RuleTerm, TermRule
from gsl.verify import Refuted, Supported
from tests.exchange.graphs import left_side, name_of, results
from tests.exchange.oracle import Reading, instance, judge, variables

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("GSL_RULES", ROOT.parent / "shared" / "data"))
TASO = DATA / "taso" / "graph_subst.pb"
TENSAT = (DATA / "tensat" / "single_output.txt", DATA / "tensat" / "two_output.txt")
PAGE = ROOT / "docs" / "exchange.md"
READINGS = [Reading(groups, broadcasting) for groups in (False, True) for broadcasting in (False, True)]
with_files = pytest.mark.skipif(not TASO.exists(), reason="the files of rules are not here")

Values = Mapping[RuleTerm, torch.Tensor]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def terms() -> dict[str, TermRule]:
    """The rules of both sets as they were read, by name."""
    return {rule.name: rule for rule in (*read_taso(TASO), *(rule for path in TENSAT for rule in read_tensat(path)[0]))}


def quiet(function: Callable[..., ImportedRules], *args: Any, **choices: Any) -> ImportedRules:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **choices)


@cache
def taso(reading: Reading = READINGS[0]) -> ImportedRules:
    return quiet(rules_from_taso, TASO, groups=reading.groups, broadcasting=reading.broadcasting)


@cache
def tensat() -> tuple[ImportedRules, ...]:
    return tuple(quiet(rules_from_tensat, path) for path in TENSAT)


_SAMPLES: dict[tuple[TermRule, Reading], tuple[random.Random, list[Values]]] = {}


def sample(rule: TermRule, reading: Reading, count: int) -> Iterator[Values]:
    """So many instances of a rule, always the same ones."""
    rng, known = _SAMPLES.setdefault((rule, reading), (random.Random(f"{rule.name} {reading}"), []))
    for number in range(count):
        if number == len(known):
            found = instance(rule, reading, rng)
            assert found is not None, f"{rule.name} has no instance"
            known.append(found)
        yield known[number]


def shapes(values: Values) -> dict[str, tuple[int, ...]]:
    return {name_of(variable): tuple(value.shape) for variable, value in values.items()}


# The tables of the page


@dataclass(frozen=True)
class Row:
    """A line of a table: the rules' names, and the other cells."""

    taso: str
    tensat: str
    algebra: str
    cells: tuple[str, ...]

    def values(self) -> Values:
        """The instance that the line tells, with numbers that differ."""
        wanted = {name: eval(shape) for name, shape in re.findall(r"x(\d+) (\([\d, ]+\))", self.cells[-2])}
        values, first = {}, 1
        for variable in variables(terms()[self.taso]):
            shape = wanted[name_of(variable).removeprefix("input_")]
            last = first + torch.Size(shape).numel()
            values[variable] = torch.arange(first, last, dtype=torch.float64).reshape(shape)
            first = last
        return values

    def condition(self, variables: Mapping[str, Any]) -> Any:
        """The value of the condition for what stands for the variables: tensors, or patterns."""
        return eval(self.cells[-1].strip("`"), {f"x{name.removeprefix('input_')}": v for name, v in variables.items()})


def table(title: str) -> dict[str, Row]:
    """The lines of the table under a title, by TASO's name."""
    text = PAGE.read_text().split(f"### {title}\n")[1].split("\n#")[0]
    rows = {}
    for line in re.findall(r"^\| (\d.*) \|$", text, re.MULTILINE):
        number, lines, algebra, *cells = line.split(" | ")
        rows[f"taso-{number}"] = Row(f"taso-{number}", f"tensat-{lines}", algebra, tuple(cells))
    return rows


FALSE = table("Rules that are false")
PARTIAL = table("Rules whose target is not always defined")
REFUSED = table("Rules that are not imported")
ALLOWS = {"always": READINGS[0], "groups": Reading(groups=True), "broadcasting": Reading(broadcasting=True)}


def holds(row: Row, values: Values) -> bool:
    return bool(row.condition({name_of(variable): value for variable, value in values.items()}))


def expected(reading: Reading) -> set[str]:
    """The rules that the page calls false in a reading."""
    allowed = {"always", *(["groups"] if reading.groups else []), *(["broadcasting"] if reading.broadcasting else [])}
    return {name for name, row in FALSE.items() if row.cells[0] in allowed}


# What needs no files


def test_the_tables_are_read() -> None:
    assert (len(FALSE), len(PARTIAL), len(REFUSED)) == (15, 21, 8)
    assert {row.cells[0] for row in FALSE.values()} == set(ALLOWS)


@pytest.mark.parametrize(("text", "verdict"), [
    ("(ewadd ?x ?y)=>(ewadd ?y ?x)", "equal"),
    ("(ewadd ?x ?y)=>(ewmul ?y ?x)", "value"),
    ("(matmul 0 ?x (matmul 0 ?x ?y))=>(matmul 0 (matmul 0 ?x ?y) ?x)", "value"),
    ("(matmul 0 ?x ?y)=>(matmul 0 ?y ?x)", "undefined"),
    ("(concat 0 2 ?x ?y)=>(concat 1 2 ?x ?y)", "shape"),
    ("(concat 1 2 ?x ?y)=>(concat 1 2 ?y ?x)", "value"),
    ("(concat 1 2 ?x ?y)=>(concat 1 3 ?x ?y)", "undefined"),
    ("(relu ?x)=>(split_0 (split 0 ?x))", "undefined"),
])  # fmt: skip
def test_the_oracle_tells_what_is_wrong(tmp_path: Path, text: str, verdict: str) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(text)
    ((rule,), _) = read_tensat(path)
    assert verdict in {judge(rule, values, READINGS[0]) for values in sample(rule, READINGS[0], 30)}


# What the files hold


@with_files
def test_all_rules_are_imported_but_those_of_the_table() -> None:
    assert len(taso()) == 125
    assert [len(rules) for rules in tensat()] == [118, 7]
    assert set(taso().refused) == set(REFUSED)
    assert {name for rules in tensat() for name in rules.refused} == {row.tensat for row in REFUSED.values()}
    for name, row in REFUSED.items():
        assert row.cells[0] in taso().refused[name]


@with_files
def test_import_is_fast() -> None:
    quiet(rules_from_taso, TASO)
    start = time.process_time()
    quiet(rules_from_taso, TASO)
    for path in TENSAT:
        quiet(rules_from_tensat, path)
    assert time.process_time() - start < 4


def _algebra(name: str) -> str:
    return str(terms()[name]).replace("?input_", "x").replace("\n", "; ")


@with_files
def test_both_sets_are_the_same_rules() -> None:
    sides = [sorted(str(rule) for name, rule in terms().items() if name.startswith(s)) for s in ("taso", "tensat")]
    assert sides[0] == sides[1]
    for row in (*FALSE.values(), *PARTIAL.values(), *REFUSED.values()):
        algebra = _algebra(row.taso)
        assert row.algebra.replace("`", "") == algebra
        assert _algebra(row.tensat) == algebra


def fires(rules: ImportedRules, rule: TermRule, values: Values) -> tuple[bool, bool]:
    """Whether a rule fires on its left side, and whether the result has the same types and values."""
    view = left_side(rule, values)
    new, trace = rules[rule.name].apply(view)
    assert [node.type for node in new.outputs] == [node.type for node in view.outputs]
    equal = all(torch.equal(a, b) for a, b in zip(results(view, values), results(new, values), strict=True))
    return trace.count() > 0, equal


@pytest.mark.long
@with_files
def test_every_rule_fires_on_its_own_left_side() -> None:
    for rules in (*(taso(reading) for reading in READINGS), *tensat()):
        reading = next((each for each in READINGS if rules is taso(each)), READINGS[0])
        silent = []
        for each in rules:
            rule = terms()[each.name]
            defined = (v for v in sample(rule, reading, 60) if judge(rule, v, reading) == "equal")
            values = next(defined, None)
            if values is None or fires(rules, rule, values) != (True, True):
                silent.append(each.name)
        assert not silent


@pytest.mark.sweep(4)
@with_files
@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_rule_fires_where_its_target_is_defined(reading: Reading) -> None:
    for each in taso(reading):
        rule = terms()[each.name]
        for values in sample(rule, reading, 5):
            verdict = judge(rule, values, reading)
            fired, equal = fires(taso(reading), rule, values)
            # What is not defined as it is written may be so with the operands of a sum or a product exchanged.
            assert fired == (verdict in ("equal", "value")) or (fired and equal), (each.name, shapes(values))
            assert equal is (verdict != "value"), (each.name, shapes(values))


# What is false


@pytest.mark.sweep(6)
@with_files
@pytest.mark.parametrize("name", FALSE)
def test_a_counterexample_is_one_and_its_condition_excludes_it(name: str) -> None:
    row, rule = FALSE[name], terms()[name]
    reading, values = ALLOWS[row.cells[0]], FALSE[name].values()
    assert judge(rule, values, reading) == "value"
    assert fires(taso(reading), rule, values) == (True, False)
    assert not holds(row, values)
    guarded = quiet(rules_from_taso, TASO, groups=reading.groups, broadcasting=reading.broadcasting,
                    where={name: row.condition})  # fmt: skip
    assert fires(guarded, rule, values) == (False, True)
    good = next(values for values in sample(rule, reading, 60) if holds(row, values))
    assert fires(guarded, rule, good) == (True, True)


@with_files
def test_the_verifier_agrees() -> None:
    name = "taso-61"
    row = FALSE[name]
    assert isinstance(taso(ALLOWS[row.cells[0]])[name].verify(max_examples=60), Refuted)
    guarded = quiet(rules_from_taso, TASO, broadcasting=True, where={name: row.condition})
    assert isinstance(guarded[name].verify(max_examples=60), Supported)


@pytest.mark.sweep(2)
@with_files
@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_no_other_rule_is_false(reading: Reading) -> None:
    for name in (rule.name for rule in taso(reading)):
        verdicts = {judge(terms()[name], values, reading) for values in sample(terms()[name], reading, 15)}
        assert "value" not in verdicts or name in expected(reading)


@with_files
def test_the_conditions_separate_what_is_equal() -> None:
    for name, row in FALSE.items():
        reading = ALLOWS[row.cells[0]] if row.cells[0] != "always" else Reading(groups=True)
        verdicts = [(holds(row, values), judge(terms()[name], values, reading))
                    for values in sample(terms()[name], reading, 60)]  # fmt: skip
        assert {verdict for held, verdict in verdicts if held} == {"equal"}, name


@with_files
@pytest.mark.parametrize("name", PARTIAL)
def test_a_target_is_defined_just_where_its_condition_holds(name: str) -> None:
    row, rule, reading = PARTIAL[name], terms()[name], READINGS[0]
    assert judge(rule, row.values(), reading) == "undefined"
    assert not holds(row, row.values())
    assert fires(taso(), rule, row.values()) == (False, True)
    for values in sample(rule, reading, 30):
        assert judge(rule, values, reading) == ("equal" if holds(row, values) else "undefined"), shapes(values)


@with_files
def test_all_other_targets_are_defined() -> None:
    for name in (rule.name for rule in taso()):
        if name not in PARTIAL and name not in FALSE:
            verdicts = {judge(terms()[name], values, READINGS[0]) for values in sample(terms()[name], READINGS[0], 15)}
            assert verdicts == {"equal"}, name
