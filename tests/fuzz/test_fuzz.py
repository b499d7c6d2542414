"""Every fuzz target finds nothing, and finds a fault that is put in for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gsl import RuleSet, Subst, op, pat
from gsl.front.fx import write as writer
from gsl.front.fx.program import GraphModuleProgram
from gsl.graph import Graph
from gsl.graph.splice import Splicer
from gsl.match import Start
from gsl.rewrite import Trace, apply
from gsl.rewrite.check import Checker
from gsl.rulefile.reader import YamlReader
from tests.fuzz import on_files, on_groups, on_patterns, on_programs, on_views  # noqa: F401  (they hold the targets)
from tests.fuzz.__main__ import main
from tests.fuzz.programs import Program, workload
from tests.fuzz.target import TARGETS

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_finds_nothing(name: str) -> None:
    TARGETS[name].run()


X = pat.Wildcard()
WRONG = Subst(op.ReLU(X), op.Sigmoid(X), name="wrong")
OVER = Subst(X * pat.Wildcard(), lambda match: match[X], name="over")


def only(rule: Subst) -> Callable[[pytest.MonkeyPatch], None]:
    """One rule in the place of all laws."""

    def put(patch: pytest.MonkeyPatch) -> None:
        for module in (on_views, on_programs):
            patch.setattr(module, "LAWS", (rule,))
        patch.setattr(on_programs, "rules_of", lambda data, old: RuleSet([rule]))

    return put


def instead(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """A function of GSL that does something else."""
    return lambda patch: patch.setattr(owner, name, wrapped(getattr(owner, name)))


def forgets_a_user(finish: Any) -> Any:
    def broken(self: Splicer) -> None:
        finish(self)
        for node in self.graph.nodes:
            if node.users and node.origin is not None:
                node.users = ()

    return broken


def loses_an_operator(function: Any) -> Any:
    def broken(self: Start, number: int) -> Any:
        find = function(self, number)
        return lambda node, *rest: () if node.name.endswith("_1") else find(node, *rest)

    return broken


def changes_the_old_graph(copy: Any) -> Any:
    return lambda self: self


def updates_nothing(update: Any) -> Any:
    return lambda self, graph: None


def never_ends(solve: Any) -> Any:
    def broken(self: Any, goals: Any) -> Any:
        self.steps += 1_000_000
        yield from solve(self, goals)

    return broken


def stops_too_early(patch: pytest.MonkeyPatch) -> None:
    """Fields of new tuples hide from the next pass what they are."""
    named = {rule.name: rule for rule in on_programs.LAWS}
    patch.setattr(on_programs, "LAWS", (named["pieces"], named["relu"]))
    patch.setattr(on_programs, "RULES", {})
    patch.setattr(on_programs, "STEPS", ("joined", "relu"))
    patch.setattr(apply, "take_fields", lambda graph: None)


def crashes(function: Any) -> Any:
    def broken(*args: Any, **options: Any) -> Any:
        raise KeyError("a fault")

    return broken


def loses_a_firing(replay: Any) -> Any:
    def broken(self: Trace, subject: Any, *, steps: int | None = None) -> Any:
        return replay(self, subject, steps=max(len(self.firings) - 1, 0))

    return broken


def changes_places(write: Any) -> Any:
    def broken(*args: Any) -> Any:
        made = write(*args)
        return made[::-1] if isinstance(made, tuple) else made

    return broken


FAULTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a crash in the text of rules": ("patterns", instead(Subst, "__str__", crashes)),
    "a crash in a search": ("patterns", instead(Start, "matches", crashes)),
    "too many steps": ("patterns", instead(on_patterns.Steps, "solve", never_ends)),
    "a view that loses users": ("views", instead(Splicer, "finish", forgets_a_user)),
    "a wrong rule": ("views", only(WRONG)),
    "a rewrite that changes the old view": ("views", instead(Graph, "copy", changes_the_old_graph)),
    "a trace that lacks a step": ("views", instead(Trace, "replay", loses_a_firing)),
    "a wrong rule on torch": ("programs", only(WRONG)),
    "rules that fire once more": ("programs", stops_too_early),
    "an update that does nothing": ("programs", instead(GraphModuleProgram, "update", updates_nothing)),
    "results of a group that change places": ("groups", instead(writer, "write_group", changes_places)),
    "a wrong rule in Relax": ("relax", only(OVER)),
    "a wrong rule in ONNX": ("onnx", only(WRONG)),
    "a crash in the reader of files": ("rule-files", instead(YamlReader, "flag", crashes)),
    "a file that is written wrong": ("rule-files", instead(RuleSet, "to_yaml", lambda to: lambda self: "r: {}")),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_finds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, put = FAULTS[fault]
    put(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever the fault leads to)
        TARGETS[name].run(examples=200, shrink=False)


def test_by_hand(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.fuzz", "--seconds", "0.2", "--examples", "5", "views"])
    assert main() == 0
    assert "found nothing; next seed" in capsys.readouterr().out


def test_a_second_run_shows_that_an_output_has_become_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle of the programs: ``a.add_(b)`` is returned twice negated, and then itself."""
    program = Program([("add_", 1, 0, 0), ("negative", 0, 0, 0)], "one").eval()
    twice = Subst(op.Negative(op.Negative(X)), X, name="negative twice")
    old = workload(program, "traced")
    for check, agrees in ((Checker._outlives, True), (lambda self, replacement: None, False)):
        monkeypatch.setattr(Checker, "_outlives", check)
        pairs = zip(on_programs.run_twice(old, "traced"), on_programs.run_twice(twice(old), "traced"), strict=True)
        assert all(torch.equal(before, after) for before, after in pairs) == agrees


def test_a_run_with_one_tensor_shows_that_a_copy_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other oracle: ``-(b * 1.0)`` is returned, with ``a.add_(b)`` between."""
    program = Program([("scale", 0, 0, 2), ("add_", 2, 1, 0), ("negative", 1, 0, 1)], "one").eval()
    once, old = Subst(X * 1.0, X, name="once"), workload(program, "traced")
    for check, agrees in ((Checker._aliases, True), (lambda self, replacement, low: None, False)):
        monkeypatch.setattr(Checker, "_aliases", check)
        found = [on_programs.run_twice(wl, "traced", alike=True) for wl in (old, once(old))]
        assert all(torch.equal(before, after) for before, after in zip(*found, strict=True)) == agrees
        found = [on_programs.run_twice(wl, "traced") for wl in (old, once(old))]
        assert all(torch.equal(before, after) for before, after in zip(*found, strict=True))
