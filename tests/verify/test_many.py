"""Rules verified in other processes: the verdicts are those that are found here."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from gsl import Proved, Refuted, RuleSet, Subst, Unchecked, op, pat
from gsl.errors import PatternError
from gsl.rules import RULES
from gsl.verify import Evidence, Verdict, verify
from gsl.verify.many import verdicts
from tests.verify.wrong import WRONG

x = pat.Wildcard()


class Inline(Executor):
    """Does the work at once. What is sent and comes back goes through pickle, as between machines."""

    def __init__(self) -> None:
        self.sent = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sent += 1
        function, args, kwargs = pickle.loads(pickle.dumps((function, args, kwargs)))
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(function(*args, **kwargs))))
        return future


def some() -> RuleSet:
    local = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), where=lambda match: True, name="with a function of its own")
    return RuleSet([RULES["copy-identity"], WRONG["exchanged operands"].make(), local])


def test_an_executor_gives_the_same_verdicts() -> None:
    rules, executor = some(), Inline()
    here, there = rules.verify(max_examples=25), rules.verify(max_examples=25, executor=executor)
    assert executor.sent == 2, "a function that has no name can't be sent"
    assert {name: str(verdict) for name, verdict in there.items()} == {name: str(v) for name, v in here.items()}
    wrong = there[rules.rules[1].name]
    assert isinstance(wrong, Refuted)
    assert wrong.counterexample.visualize().svg
    with pytest.raises(AssertionError):
        exec(wrong.counterexample.code, {"print": lambda *_, **__: None})


def test_dask_gives_the_same_verdicts() -> None:
    distributed = pytest.importorskip("distributed")
    rules = some()
    here = rules.verify(max_examples=20)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        there = rules.verify(max_examples=20, executor=client.get_executor())
    assert {name: str(verdict) for name, verdict in there.items()} == {name: str(v) for name, v in here.items()}


def test_processes_give_the_same_verdicts() -> None:
    rules = some()
    here, there = rules.verify(max_examples=20), rules.verify(max_examples=20, jobs=2)
    assert {name: str(verdict) for name, verdict in there.items()} == {name: str(v) for name, v in here.items()}


@pytest.mark.parametrize("executor", [None, Inline()])
def test_a_rule_on_which_verification_fails_stops_no_other(
    executor: Executor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(rule: Subst, **options: Any) -> Verdict:
        if rule.name == "first":
            raise RuntimeError("not in torch")
        return verify(rule, **options)

    monkeypatch.setattr("gsl.verify.many.verify", failing)
    rules = RuleSet([Subst(op.ReLU(x), op.ReLU(op.ReLU(x)), name=name) for name in ("first", "second")])
    first, second = rules.verify(max_examples=20, executor=executor).values()
    assert isinstance(first, Unchecked)
    assert first.reason == "a mistake in GSL, please report it: RuntimeError: not in torch"
    assert second


def test_memory_that_is_lacking_makes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(rule: Subst, **options: Any) -> Verdict:
        raise MemoryError

    rules = RuleSet([Subst(op.ReLU(x), op.ReLU(op.ReLU(x)), name="first")])
    with monkeypatch.context() as lacking:
        lacking.setattr("gsl.verify.many.verify", failing)
        with pytest.raises(MemoryError):
            rules.verify(max_examples=20, keep=tmp_path / "kept")
    assert rules.verify(max_examples=20, keep=tmp_path / "kept")["first"]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the processes see what is replaced")
def test_rules_are_not_waited_for_that_nobody_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an interrupt ends the work."""

    def noted(rule: Subst, **options: Any) -> Verdict:
        (tmp_path / rule.name).touch()
        return verify(rule, **options)

    monkeypatch.setattr("gsl.verify.many.verify", noted)
    rules = [Subst(op.ReLU(x), op.ReLU(op.ReLU(x)), name=f"rule_{number}") for number in range(30)]
    found = cast(Generator[Verdict], verdicts(rules, max_examples=20, jobs=2))
    assert next(found)
    found.close()
    assert len(list(tmp_path.iterdir())) < 15


def test_kept_verdicts_are_those_that_were_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, rules = tmp_path / "kept", some()
    first = rules.verify(max_examples=20, keep=file, mutate=True)
    assert file.is_file()
    done: list[str] = []

    def counted(rule: Subst, **options: Any) -> Verdict:
        done.append(rule.name)
        return verify(rule, **options)

    monkeypatch.setattr("gsl.verify.many.verify", counted)
    again = rules.verify(max_examples=20, keep=file, mutate=True)
    wrong = rules.rules[1].name
    assert done == [wrong], "all but the refuted rule are known"
    assert {name: str(verdict) for name, verdict in again.items()} == {name: str(v) for name, v in first.items()}
    assert type(again["copy-identity"].evidence) is Evidence
    rules.verify(max_examples=21, keep=file, mutate=True)
    assert len(done) == 4, "another option is another verdict"
    changed = RuleSet([Subst(op.Copy(x), x, where=x.ndim < 4, name="copy-identity")])
    changed.verify(max_examples=20, keep=file, mutate=True)
    assert done[-1] == "copy-identity", "a rule of the same name that has changed is verified"


def test_a_damaged_file_of_verdicts_is_begun_anew(tmp_path: Path) -> None:
    file, rules = tmp_path / "kept", RuleSet([RULES["copy-identity"]])
    file.write_bytes(b"SQLite format 3\0" + b"no verdicts" * 1000)
    for _ in range(2):
        assert rules.verify(max_examples=20, keep=file)["copy-identity"]


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text("from gsl import *")
    with pytest.raises(PatternError, match=r"keep: expected the name of a file of verdicts, .*py is another file"):
        RuleSet([RULES["copy-identity"]]).verify(max_examples=20, keep=file)
    assert file.read_text() == "from gsl import *"
    with pytest.raises(PatternError, match=r"keep: .* is a folder$"):
        RuleSet([RULES["copy-identity"]]).verify(max_examples=20, keep=tmp_path)


HOSTILE = (
    "Supported", "('Refuted', {})", "('Supported', 1)", "('Supported', {'rule': 'copy-identity', 'evidence': None})",
    "__import__('os').abort()", "(" * 5000, "('Unchecked', {'rule': 'copy-identity', 'evidence': {}, 'reason': ''})",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_verdict_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    rules = RuleSet([RULES["copy-identity"]])
    monkeypatch.setattr("gsl.verify.many.Store.get", lambda self, *key: text)
    assert rules.verify(max_examples=20, keep=tmp_path / "kept")["copy-identity"].title == "supported by 20 instances"


@pytest.mark.parametrize("change", [{"rule": "another"}, {"evidence": {"seed": 1}}, {"evidence": {"evaluated": 3}}])
def test_a_verdict_on_something_else_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    rules = RuleSet([RULES["copy-identity"]])
    fields = asdict(rules.verify(max_examples=20)["copy-identity"])
    wrong = {**fields, **change, "evidence": {**fields["evidence"], **change.get("evidence", {})}}
    monkeypatch.setattr("gsl.verify.many.Store.get", lambda self, *key: repr(("Supported", wrong)))
    found = rules.verify(max_examples=20, keep=tmp_path / "kept")["copy-identity"]
    assert (found.rule, found.evidence.seed, found.evidence.evaluated) == ("copy-identity", 0, 20)


def test_kept_proofs(tmp_path: Path) -> None:
    pytest.importorskip("z3")
    rules = RuleSet([RULES["copy-identity"]])
    first, again = (rules.verify(max_examples=20, keep=tmp_path / "kept", prove=True) for _ in range(2))
    assert isinstance(again["copy-identity"], Proved)
    assert str(again["copy-identity"]) == str(first["copy-identity"])


def test_a_number_of_jobs_is_positive() -> None:
    with pytest.raises(PatternError, match="jobs: expected a positive number, found 0"):
        some().verify(jobs=0)
