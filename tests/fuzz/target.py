"""What a fuzz target is, and how it is run: always the same examples in the tests, new ones by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Check = Callable[[st.DataObject], None]
TARGETS: dict[str, Target] = {}
"""All targets by name."""


@dataclass(frozen=True)
class Target:
    """A check of something drawn at random; it fails by any exception."""

    name: str
    check: Check
    examples: int
    """How many examples the tests run."""

    def run(self, number: int | None = None, examples: int | None = None, *, shrink: bool = True) -> None:
        """Check examples: without a number always the same ones, else those that the number leads to."""
        profile = settings(
            max_examples=examples or self.examples, deadline=None, database=None, derandomize=number is None,
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
            phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
        )  # fmt: skip

        def check(data: st.DataObject) -> None:
            self.check(data)

        # The examples follow from the name of the test.
        check.__qualname__ = f"fuzz {self.name}"
        wrapped = profile(given(st.data())(check))
        (wrapped if number is None else seed(number)(wrapped))()


def target(name: str, examples: int) -> Callable[[Check], Check]:
    """Make a function a fuzz target."""

    def register(check: Check) -> Check:
        TARGETS[name] = Target(name, check, examples)
        return check

    return register
