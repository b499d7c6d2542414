"""The common parts of the front ends of TVM, and the choice between them: an ``IRModule`` may be of Relax or of
Relay."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from gsl.errors import FrontEndError, PicklingError, nearest
from gsl.front.base import Extended, Program, Unchangeable
from gsl.spec import DeclaredSpec

DIALECTS: Final = {"tvm.relax": "gsl.front.relax", "tvm.relay": "gsl.front.relay", "tvm.ir": "gsl.front.relax"}
"""The front end of each dialect of TVM, by the package in which the classes of its expressions are defined.

Relax shares calls and variables with the other languages of TVM.
"""


class TvmProgram(Extended, Unchangeable):
    """One function of an ``IRModule``; everything else in the module stays as it is."""

    casts_inputs = True
    example_inputs = None

    def __init__(self, module: Any) -> None:
        self._module = module

    @property
    def native(self) -> Any:
        return self._module

    @property
    def module(self) -> Any:
        """The ``IRModule``."""
        return self._module

    def __reduce__(self) -> tuple[Any, ...]:
        import tvm

        try:
            saved = tvm.ir.save_json(self._module)
        except Exception as error:
            raise PicklingError(f"TVM can't save the module: {error}") from error
        return _restored, (type(self), saved, self._arguments(), dict(self.operators))

    def _arguments(self) -> tuple[Any, ...]:
        """All but the module of which such a program is made, with weights as numpy arrays."""
        raise NotImplementedError


def _restored(
    kind: Callable[..., Extended], saved: str, arguments: Sequence[Any], operators: Mapping[str, DeclaredSpec]
) -> Extended:
    """The program that was pickled."""
    import tvm

    return kind(tvm.ir.load_json(saved), *arguments).with_operators(operators)


def program(source: Any, params: Any = None) -> Program:
    """The program of an ``IRModule`` or of a function of Relax or Relay, with the values of some of its parameters.

    FrontEndError for anything else.
    """
    functions = source.functions.values() if hasattr(source, "functions") else (source,)
    for function in functions:
        dialect = _dialect(function)
        if dialect is not None:
            return cast(Program, dialect.from_module(source, params))
    raise FrontEndError(
        f"expected an IRModule with a function of Relax or Relay, but got a {type(source).__name__} with none; "
        "the functions of TIR alone are not rewritten"
    )


def from_expr(expr: Any, inputs: Iterable[str] | None = None, *, seed: int = 0) -> Program:
    """The program of a function, or of an expression over variables of which ``inputs`` are fed.

    The other variables are weights with random values of this seed. FrontEndError for anything else.
    """
    dialect = _dialect(expr)
    if dialect is None:
        raise FrontEndError(f"expected an expression of Relax or Relay, but got a {type(expr).__name__}")
    return cast(Program, dialect.from_expr(expr, inputs, seed=seed))


def fed(names: Sequence[str], inputs: Iterable[str] | None) -> frozenset[str]:
    """The names of the variables of an expression that are fed: all without ``inputs``. FrontEndError for any other."""
    wanted = frozenset(names if inputs is None else [inputs] if isinstance(inputs, str) else inputs)
    for name in sorted(wanted.difference(names)):
        raise FrontEndError(f"the expression has no variable {name!r}; {nearest(name, names)}")
    return wanted


def operands_first(
    roots: Iterable[Any], below: Callable[[Any], Sequence[Any]], address: Callable[[Any], int]
) -> Iterator[Any]:
    """The expressions of which some are made, each once, after those that it is made of. They are told by their
    addresses: TVM would be called for each of their hashes."""
    done: set[int] = set()
    kept: list[Any] = []  # so that no other one gets their addresses
    for root in roots:
        if address(root) in done:
            continue
        stack = [(root, iter(below(root)))]
        while stack:
            expr, rest = stack[-1]
            for part in rest:
                if address(part) not in done:
                    stack.append((part, iter(below(part))))
                    break
            else:
                stack.pop()
                if address(expr) not in done:
                    done.add(address(expr))
                    kept.append(expr)
                    yield expr


def _dialect(expr: Any) -> Any:
    """The front end of an expression; ``None`` if it is none."""
    name = DIALECTS.get(".".join(type(expr).__module__.split(".")[:2]))
    return None if name is None else importlib.import_module(name)


__all__ = ["TvmProgram", "fed", "from_expr", "operands_first", "program"]
