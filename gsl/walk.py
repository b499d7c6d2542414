"""Walks over what is made of other things: nodes, patterns, terms. None is recursive, so depth does not matter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reached(roots: Iterable[T], beside: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """The roots, and all that a way leads to over what is ``beside`` each, once; the last of several first."""
    found = set[T]()
    work = list(roots)
    while work:
        item = work.pop()
        if item not in found:
            found.add(item)
            yield item
            work.extend(beside(item))


def postorder(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """The roots, and all that they are made of by what is ``below`` each, once; what is below comes before it."""
    done = set[T]()
    for root in roots:
        if root in done:
            continue
        done.add(root)
        stack = [(root, iter(below(root)))]
        while stack:
            item, rest = stack[-1]
            for other in rest:
                if other not in done:
                    done.add(other)
                    stack.append((other, iter(below(other))))
                    break
            else:
                stack.pop()
                yield item
