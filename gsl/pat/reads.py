"""What an expression reads: the patterns, and the lengths of chains."""

from __future__ import annotations

from collections.abc import Iterator

from gsl.attr import ast
from gsl.attr.ast import Ast
from gsl.pat.base import Pattern
from gsl.pat.variadic import Instance, Repeat


def references(node: Ast) -> Iterator[Pattern]:
    """The patterns whose attributes an expression reads."""
    for part in parts(node):
        if isinstance(part, ast.Attribute):
            yield part.pattern
            if isinstance(part.pattern, Instance):
                yield part.pattern.variadic
        elif isinstance(part, ast.Chosen):
            yield part.alternative


def counts(node: Ast, chain: Pattern) -> bool:
    """True if an expression reads the number of nodes of a chain, which is known when all of them are bound."""
    if not isinstance(chain, Repeat):
        return False
    lengths = (part.pattern for part in parts(node) if isinstance(part, ast.Attribute) and part.name == "length")
    return any(pattern is chain for pattern in lengths)


def parts(node: Ast) -> Iterator[Ast]:
    """The parts of an expression, also those of the numbers of instances."""
    stack, done = [node], set()
    while stack:
        part = stack.pop()
        if id(part) not in done:
            done.add(id(part))
            yield part
            if isinstance(part, ast.Attribute) and isinstance(part.pattern, Instance):
                stack.append(part.pattern.number)
            stack.extend(part.children())
