"""Python source of a search, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gsl.attr.compile import Names, NotCompiled
from gsl.graph import Op
from gsl.match.instances import Keys, Own
from gsl.pat import Repeat, Variadic

MOST_LINES = 400
"""The largest number of lines of a function. Alternatives write the lines that follow them once for each choice."""
MOST_LOOPS = 12
"""The largest number of loops inside each other; Python allows 20 blocks."""


@dataclass(frozen=True, slots=True)
class Many:
    """The instances of a chain or of a variadic: the variable of a list, of a tuple of nodes for each instance."""

    pattern: Repeat | Variadic
    var: str
    keys: Keys
    """The keys of its bindings. Instances before the first of these have variables of their own."""
    own: Own
    """The nodes of operators."""
    ops: frozenset[Op] | None
    """The operators that these may have, ``None`` where they can't be enumerated."""
    place: int
    """The number of patterns that were bound before."""

    @property
    def length(self) -> str:
        """The number of all instances."""
        return f"(len({self.var}) + {self.keys.first})" if self.keys.first else f"len({self.var})"


class SearchWriter:
    """A function in two parts: tests in a row, and from the first choice on a generator, in which choices are loops."""

    def __init__(self, parameters: Sequence[str], name: str = "find", names: Names | None = None) -> None:
        self.names = Names() if names is None else names
        self.name = name
        self.is_generator = False
        self._lines = [f"def {name}({', '.join(parameters)}):"]
        self._others: list[SearchWriter] = []
        self._variables = list(parameters)
        self._depth = 1
        """The number of loops around a line, and the function."""
        self._inside = 0
        """The number of other blocks around it."""
        self._number = 0

    def other(self, parameters: Sequence[str]) -> SearchWriter:
        """A function beside this one."""
        other = SearchWriter(parameters, f"{self.name}_{len(self._others)}", self.names)
        other._number = self._number
        self._others.append(other)
        return other

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
            raise NotCompiled
        self._lines.append("    " * (self._depth + self._inside) + text)

    def mark(self) -> int:
        """The place that is reached."""
        return len(self._lines)

    def back(self, mark: int) -> None:
        """Forget the lines that were written since."""
        del self._lines[mark:]

    @property
    def miss(self) -> str:
        """The statement for a test that fails."""
        return "return ()" if not self.is_generator else "return" if self._depth == 1 else "continue"

    def fail_if(self, condition: str, word: str = "if") -> None:
        """Go on with the innermost choice if a condition holds."""
        self.line(f"{word} {condition}: {self.miss}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Put the lines that are written meanwhile below a head; the block is no choice."""
        self.line(head)
        self._inside += 1
        yield
        self._inside -= 1

    def result(self, value: str) -> None:
        """Give a value, and go on with the innermost choice, if there is one."""
        self.line(f"yield {value}" if self.is_generator else f"return ({value},)")

    def attempt(self, *lines: str, errors: str) -> None:
        """Write lines; an error in them is a failed test."""
        self.line("try:")
        for text in lines:
            self.line(f"    {text}")
        self.line(f"except {errors}: {self.miss}")

    @contextmanager
    def loop(self, over: str, number: int = 1) -> Iterator[list[str]]:
        """A choice: a loop around the lines that are written meanwhile. Gives its variables."""
        if not self.is_generator:
            rest = f"{self.name}_choices({', '.join(self._variables)})"
            self.line(f"return {rest}")
            self._lines += ["", f"def {rest}:"]
            self.is_generator = True
        if self._depth > MOST_LOOPS:
            raise NotCompiled
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
        """The source of the function, and of those beside it."""
        return "\n".join(self._lines) + "\n" + "".join(f"\n{other.text()}" for other in self._others)
