"""The smallest instance on which a rule fails, found by hypothesis from one on which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from gsl.errors import GSLError
from gsl.graph import Graph, TensorType
from gsl.verify.choices import Choices, Dead, Drawn
from gsl.verify.search import Outcome

MOST_TRIED = 600
"""The largest number of instances that are tried."""


class MissingHypothesisError(GSLError, ImportError):
    """Verification shrinks counterexamples with hypothesis, which is not installed."""


def hypothesis() -> Any:
    """The package. MissingHypothesisError where it is not installed."""
    try:
        import hypothesis as package
        import hypothesis.database
        import hypothesis.reporting
        import hypothesis.strategies
    except ImportError as error:
        raise MissingHypothesisError(
            "verify needs the Python package hypothesis: pip install 'gsl[verify]'"
        ) from error
    return package


def smallest(
    tape: Sequence[int], generate: Callable[[Choices], Graph], attempt: Callable[[Graph], Outcome], first: Outcome
) -> Outcome:
    """The smallest failing instance that is found by making the decisions on a tape simpler.

    Hypothesis takes the tape for an example that it remembers, and shrinks it.
    """
    package = hypothesis()
    best, tried = first, 0

    def fails(draw: Any) -> bool:
        nonlocal best, tried
        tried += 1
        if tried > MOST_TRIED:
            return False
        try:
            found = attempt(generate(Drawn(lambda most: int(draw(_integers(most))))))
        except Dead:
            return False
        if found.status == "different" and size_of(found) < size_of(best):
            best = found
        return found.status == "different"

    def test(fails: bool) -> None:
        if fails:
            raise _Found

    settings = package.settings(
        database=_remembers(tape),
        phases=(package.Phase.reuse, package.Phase.shrink),
        deadline=None,
        derandomize=False,  # the seed is given
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(package.HealthCheck),
        max_examples=MOST_TRIED,
    )
    # Seeding forgets a database, so the settings come after it.
    run = settings(package.seed(0)(package.given(package.strategies.composite(fails)())(test)))
    try:
        with package.reporting.with_reporter(lambda _: None):
            run()
    except (_Found, package.errors.Flaky):
        pass  # the best one is known
    return best


class _Found(Exception):
    """An instance fails."""


def _remembers(tape: Sequence[int]) -> Any:
    """A database of hypothesis that remembers one failing example, which may be a large one."""
    database = hypothesis().database

    class Remembers(database.ExampleDatabase):  # type: ignore[misc, name-defined]
        def fetch(self, key: bytes) -> Iterator[bytes]:
            # What is saved under the plain key counts as the smallest already.
            if key.endswith(b".secondary"):
                yield database.choices_to_bytes(tape)

        def save(self, key: bytes, value: bytes) -> None:
            pass

        def delete(self, key: bytes, value: bytes) -> None:
            pass

    return Remembers()


@cache
def _integers(most: int) -> Any:
    return hypothesis().strategies.integers(0, most)


def size_of(outcome: Outcome) -> tuple[int, int, int, str]:
    """The size of an instance: its nodes, then its elements, then the text that stands for both sides."""
    nodes = outcome.before.nodes
    elements = 0
    for node in nodes:
        if isinstance(node.type, TensorType):
            count = 1
            for dim in node.type.shape:
                count *= dim  # type: ignore[assignment]
            elements += count
    text = str(outcome.before)
    return len(nodes), elements, len(text), text
