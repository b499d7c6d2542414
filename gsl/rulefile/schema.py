"""The contents of a file of fusion rules: rules, patterns, operators, each with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gsl.errors import RuleFileError


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place in a file; lines and columns are counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def error(self, problem: str) -> RuleFileError:
        """The error of a problem at this place."""
        return RuleFileError(f"{self}: {problem}")


@dataclass(frozen=True, slots=True)
class Word:
    """A name in the file; words are equal if they read the same."""

    text: str
    place: FilePlace = field(compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class OpType:
    """The operators that a node may have: those of the names, or, ``inverted``, all others."""

    names: tuple[Word, ...]
    inverted: bool = False

    @property
    def is_any(self) -> bool:
        """True if every operator will do, which is written as a dot."""
        return self.inverted and not self.names


ANY: Final = OpType((), inverted=True)


@dataclass(frozen=True, slots=True)
class FileOperator:
    """One operator of a pattern, and its users."""

    name: str
    op_type: OpType
    children: tuple[tuple[Word, ...], ...] = ()
    """The users. Of each the names of its options, of which there is one where the file gives no choice."""
    required: bool = True
    multiple: bool = False
    place: FilePlace = field(compare=False, kw_only=True)

    @property
    def choices(self) -> tuple[tuple[Word, ...], ...]:
        """All that it names: of each the options."""
        return self.children


@dataclass(frozen=True, slots=True)
class OptionalOperators:
    """An entry without an operator of its own, which stands for the first of its options that leads to a match."""

    name: str
    options: tuple[Word, ...]
    children: tuple[tuple[Word, ...], ...] = ()
    """The users of the option, besides its own."""
    required: bool = True
    place: FilePlace = field(compare=False, kw_only=True)

    @property
    def choices(self) -> tuple[tuple[Word, ...], ...]:
        """All that it names: its options, then of each child the options."""
        return (self.options, *self.children)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One pattern of a rule: its operators, in the order of the file. The first one need not be the root."""

    key: str
    """Under which key it stands: ``pattern``, ``pattern1``, …"""
    operators: tuple[FileOperator | OptionalOperators, ...]
    place: FilePlace = field(compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule of a file."""

    name: str
    patterns: tuple[Alternative, ...]
    priority: int = 0
    heuristic: str | None = None
    place: FilePlace = field(compare=False, kw_only=True)
