"""The errors of GSL, and where in the user's code a pattern or a rule was written.

Every message says what was expected, what was found, where it was written and how to mend it. Errors that
replace a built-in one are subclasses of it too, so that ``except TypeError`` keeps working.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from types import FunctionType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_RULES = os.path.join(_PACKAGE, "rules", "")
"""The rule book, whose rules are written where they stand, as a user's are."""
_LISTED = 24
"""The most names that a message lists."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source: file and line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def caller() -> Location:
    """The nearest line of a caller that is not part of GSL, or is one of its rule book."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def _is_inside(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_RULES)


def located(message: str) -> str:
    """A message with the place in the user's code before it."""
    return f"{caller()}: {message}"


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest valid ones, or all of them if they are few."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5) if isinstance(name, str) else []
    close = [other for other in names if isinstance(name, str) and other.lower() == name.lower()] or close
    if close:
        return "did you mean " + " or ".join(repr(n) for n in close) + "?"
    if not names:
        return "there are none"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"known are {', '.join(names[:_LISTED])}{more}"


E = TypeVar("E", bound="GSLError")


class GSLError(Exception):
    """The base of all errors of GSL."""

    @classmethod
    def here(cls: type[E], message: str) -> E:
        """The error with the place in the user's code before its message."""
        return cls(located(message))


class PatternError(GSLError, ValueError):
    """A pattern, an attribute expression or a rule is ill-formed; raised when it is built."""


class PatternTypeError(PatternError, TypeError):
    """A pattern or expression is used where Python would do something else than the user meant."""


class UnknownAttributeError(PatternError, AttributeError):
    """An operator has no attribute of that name."""


class PicklingError(GSLError, pickle.PicklingError):
    """A rule holds a function that can't be pickled, or a workload what its framework does not save."""


class EvaluationError(GSLError):
    """An attribute expression has no value for this match; as a guard it does not match."""


class UndecidableError(EvaluationError):
    """A comparison of symbolic dimensions that holds for some sizes and not for others."""


class RewriteError(GSLError):
    """A rule is wrong for a graph on which it fired; the workload stays as it was."""


class FixpointError(GSLError):
    """Iterative rewriting did not come to an end within its steps."""


class ReplayError(RewriteError):
    """A recorded rewrite does not apply to the graph on which it is to be repeated."""


class FrontEndError(GSLError):
    """A native graph can't be read, or a rewritten one can't be written back."""


class MissingPackageError(FrontEndError, ImportError):
    """A package that is needed, a framework or what draws, is not installed."""


PACKAGES = {
    "torch": "pip install torch, in the build that you want",
    "tvm": "pip install 'gsl[tvm]'", "tvm_ffi": "pip install 'gsl[tvm]'", "tvm.relax": "pip install 'gsl[tvm]'",
    "onnx": "pip install 'gsl[onnx]'", "onnx_ir": "pip install 'gsl[onnx]'", "yaml": "pip install 'gsl[yaml]'",
}  # fmt: skip
"""The packages that parts of GSL need, by the names under which they are imported, and how each is installed."""


def require(package: str) -> None:
    """Import one of ``PACKAGES``. MissingPackageError, with how to install it, where that is not possible."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise missing_package(error) from error


def missing_package(error: ModuleNotFoundError) -> ImportError:
    """The error that a package of ``PACKAGES`` is missing; of another module, the error itself."""
    if error.name not in PACKAGES:
        return error
    return MissingPackageError(f"this needs the package {error.name}, which is not installed: {PACKAGES[error.name]}")


def is_exhaustion(error: BaseException) -> bool:
    """True for an error for want of memory or stack, which tells nothing of what was asked for."""
    return isinstance(error, (MemoryError, RecursionError)) or bool(_EXHAUSTED.search(str(error)))


_EXHAUSTED = re.compile(r"out of memory|not enough memory|allocate memory|bad_alloc|recursion depth")
"""What torch, TVM and onnxruntime say of it in errors of other classes."""


class ExchangeError(GSLError, ValueError):
    """A file of rules of another system can't be read."""


class RuleFileError(GSLError, ValueError):
    """A file of fusion rules is ill-formed, or a rule can't be written to one."""


class WorkloadError(GSLError, ValueError):
    """A workload is called, compared or built with something that does not fit."""


def check_number(
    name: str, value: object, what: str, least: int | None = None, *, whole: bool = True,
    error: type[GSLError] = PatternError,
) -> None:  # fmt: skip
    """Raise ``error`` unless an argument is a number, a whole one unless told otherwise, from ``least`` on."""
    fits = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if not fits or not (least is None or value >= least):  # type: ignore[operator]
        raise error(located(f"{name}= is {what}{'' if least is None else f', {least} or more'}, got {value!r}"))


Checked = TypeVar("Checked", bound=Callable[..., Any])


def checked(error: type[GSLError]) -> Callable[[Checked], Checked]:
    """A decorator of a function, or of a class with its public methods: where one fails with an error of Python, and an
    argument has a name that is not known, or is not what its annotation says, ``error`` is raised, which tells the
    argument."""

    def of(target: Any) -> Any:
        if not isinstance(target, type):
            return _with_checks(target, error)
        for name, member in list(vars(target).items()):
            function = member.__func__ if isinstance(member, classmethod) else member
            if isinstance(function, FunctionType) and (name in ("__init__", "__call__") or name[0] != "_"):
                made = _with_checks(function, error)
                setattr(target, name, made if function is member else classmethod(made))
        return target

    return of


def _with_checks(function: FunctionType, error: type[GSLError]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except GSLError:
            raise
        except Exception as failure:
            wrong = _misfit(function, args, kwargs)
            if wrong is None:
                raise
            raise error(located(wrong)) from failure

    return call


def _misfit(function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The first argument that is not known, or not what its annotation says, in words; ``None`` if there is none."""
    signature = inspect.signature(function)
    owner = function.__qualname__.removesuffix(".__init__")
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        names = [name for name in signature.parameters if name not in ("self", "cls")]
        unknown = [name for name in kwargs if name not in names]
        return f"{owner} has no argument {unknown[0]!r}: {nearest(unknown[0], names)}" if unknown else None
    for name, value in given.items():
        parameter = signature.parameters[name]
        if parameter.annotation is parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
            continue
        own = SimpleNamespace(__annotations__={name: parameter.annotation})
        with suppress(NameError, AttributeError):  # the name of a package that is loaded late
            kind = get_type_hints(own, function.__globals__, {"torch": sys.modules.get("torch")})[name]
            for wrong in value if parameter.kind is parameter.VAR_POSITIONAL else [value]:
                if not _fits(wrong, kind):
                    known = get_args(kind) if get_origin(kind) is Literal else ()
                    expected = f"one of {', '.join(map(repr, known))}" if known else parameter.annotation
                    found = f"{wrong!r:.60} of type {type(wrong).__name__}"
                    return f"{name}= of {owner} is {expected}, got {found}"
    return None


def _fits(value: Any, kind: Any) -> bool:
    """True if a value is what an annotation says, as far as that can be told without using it up."""
    origin, inside = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inside)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in inside)
    if origin in (int, float):
        return isinstance(value, Integral if origin is int else Real) and not isinstance(value, bool)
    if kind is Any or not isinstance(origin, type) or getattr(origin, "_is_protocol", False):
        return True
    fits = isinstance(value, origin) and not (isinstance(value, (str, bytes)) and origin in (Sequence, Iterable))
    if isinstance(value, Mapping) and len(inside) == 2:
        return fits and all(_fits(name, inside[0]) and _fits(each, inside[1]) for name, each in value.items())
    is_row = isinstance(value, (list, tuple)) and len(inside) == 1
    return fits and (not is_row or all(_fits(each, inside[0]) for each in value))


class DroppedAttributeWarning(UserWarning):
    """A rule's target rebuilds an operator without an attribute that its source leaves free."""


class RefusedRulesWarning(UserWarning):
    """Some rules of a file of another system can't be expressed, and are left out."""


class NotRewrittenWarning(UserWarning):
    """A graph is compiled without the rules, because it can't be read or written."""


class UntypedWarning(UserWarning):
    """A rewrite could not be checked for equal types, because a type is not known."""
