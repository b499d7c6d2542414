"""Python source of a search, line by line, and what is known of its variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gsl.attr.compile import Names, Uncovered
from gsl.pat import Alt, OpClass, Pattern, Use

MOST_LINES = 400
"""How many lines a function may have; alternatives write what follows them once for each choice."""
MOST_LOOPS = 12
"""How many loops may stand in each other; Python allows 20 blocks."""


class Bound:
    """What is bound at one place of the source: the same for every node with which a search comes there."""

    def __init__(self) -> None:
        self.nodes: dict[Pattern, str] = {}
        """The variable of each pattern, in the order in which they are bound."""
        self.taken: dict[Pattern, str] = {}
        """The variables of operators, by what tells operators apart."""
        self.operators: dict[OpClass, str] = {}
        """A variable whose node has the operator that a class stands for."""
        self.chosen: dict[Alt, int] = {}
        self.related: set[Use] = set()
        """The use relations that hold."""
        self.above: dict[str, frozenset[str]] = {}
        """For a variable, those whose nodes are made of its node."""

    def copy(self) -> Bound:
        """What is bound, to be extended for one choice."""
        new = Bound()
        for name, table in vars(self).items():
            setattr(new, name, table.copy())
        return new


class Writer:
    """A function in two parts: tests in a row, and from the first choice on a generator, in which choices are loops."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self.names = Names()
        self.is_generator = False
        self._lines = [f"def find({', '.join(parameters)}):"]
        self._variables = list(parameters)
        self._depth = 1
        self._number = 0

    def variable(self) -> str:
        """A new variable."""
        self._number += 1
        name = f"n{self._number}"
        if not self.is_generator:
            self._variables.append(name)
        return name

    def line(self, text: str) -> None:
        """Write a line. Uncovered if there are too many."""
        if len(self._lines) > MOST_LINES:
            raise Uncovered
        self._lines.append("    " * self._depth + text)

    def mark(self) -> int:
        """The place that is reached."""
        return len(self._lines)

    def back(self, mark: int) -> None:
        """Forget what was written since."""
        del self._lines[mark:]

    @property
    def miss(self) -> str:
        """What is done when a test fails."""
        return "return ()" if not self.is_generator else "return" if self._depth == 1 else "continue"

    def fail_if(self, condition: str) -> None:
        """Go on with the innermost choice if a condition holds."""
        self.line(f"if {condition}: {self.miss}")

    def attempt(self, *lines: str, errors: str) -> None:
        """Write lines; an error in them is a failed test."""
        self.line("try:")
        for text in lines:
            self.line(f"    {text}")
        self.line(f"except {errors}: {self.miss}")

    @contextmanager
    def loop(self, over: str, number: int = 1) -> Iterator[list[str]]:
        """A choice: a loop around what is written meanwhile. Gives its variables."""
        if not self.is_generator:
            self.line(f"return choices({', '.join(self._variables)})")
            self._lines += ["", f"def choices({', '.join(self._variables)}):"]
            self.is_generator = True
        if self._depth > MOST_LOOPS:
            raise Uncovered
        new = [self.variable() for _ in range(number)]
        self.line(f"for {', '.join(new)} in {over}:")
        self._depth += 1
        yield new
        self._depth -= 1

    def function(self) -> Any:
        """The function."""
        table = dict(self.names.table)
        exec(compile(self.text(), "<search>", "exec"), table)
        return table["find"]

    def text(self) -> str:
        """The source of the function."""
        return "\n".join(self._lines) + "\n"
