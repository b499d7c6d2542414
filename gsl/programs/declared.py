"""Declared shapes: named sizes as in jaxtyping (``"b h n d"``, ``"*b n m"``), as text or as an annotation."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from gsl.errors import PatternError, located
from gsl.spec.normalise import DTYPES

_NAMES: Final = tuple(sorted(DTYPES))
_FLOATS: Final = tuple(name for name in _NAMES if "float" in name)
_SIGNED: Final = tuple(name for name in _NAMES if name.startswith("int"))
_UNSIGNED: Final = tuple(name for name in _NAMES if name.startswith("uint"))
_COMPLEX: Final = tuple(name for name in _NAMES if name.startswith("complex"))
_KINDS: Final = MappingProxyType({
    "Float": _FLOATS, "Int": _SIGNED, "UInt": _UNSIGNED, "Integer": _SIGNED + _UNSIGNED, "Complex": _COMPLEX,
    "Inexact": _FLOATS + _COMPLEX, "Real": _FLOATS + _SIGNED + _UNSIGNED,
    "Num": _FLOATS + _SIGNED + _UNSIGNED + _COMPLEX, "Shaped": (),
})  # fmt: skip
"""The dtypes of jaxtyping's names that are none of a dtype; none for any."""
_ANNOTATION: Final = re.compile(r"(?:\w+\.)*(\w+)\[[^,\[\]]*(?:\[[^\]]*\])?\s*,\s*(['\"])(.*?)\2\s*\]")
_TYPED: Final = re.compile(r"(\w+)\[(.*)\]")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a declared shape, whose size is a number times named sizes; or any number of axes, with one name."""

    factor: int = 1
    names: tuple[str, ...] = ()
    variadic: bool = False
    broadcast: bool = False
    """True for an axis of the named size, or of size 1."""

    @property
    def name(self) -> str | None:
        """The name of a size that is named itself; ``None`` for numbers and products, and where it may be 1 instead."""
        return self.names[0] if len(self.names) == 1 and self.factor == 1 and not self.broadcast else None


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """The axes and the dtypes of a tensor, as far as they are said."""

    axes: tuple[Axis, ...] | None = None
    """``None`` for a shape of which nothing is said."""
    dtypes: tuple[str, ...] = ()
    """The dtypes that it may have; none for any."""
    text: str = ""

    @property
    def variadic(self) -> int | None:
        """The place of the axis that stands for any number of them."""
        return next((place for place, axis in enumerate(self.axes or ()) if axis.variadic), None)


def declared(parameter: str, text: str) -> DeclaredType:
    """The type of a text: sizes with spaces between, a dtype before them in ``bool[b n]``. PatternError with the mend.

    A size is a name, a number, a product ``h*d``, ``#b`` for the size ``b`` or 1, ``_`` for any size, ``*b`` for any
    number of sizes, or ``...`` for any number of any sizes.
    """
    typed = _TYPED.fullmatch(text.strip())
    dtype, sizes = typed.groups() if typed else ("", text)
    if dtype and dtype not in DTYPES:
        raise PatternError(located(f"{parameter}={text!r}: {dtype} is no dtype"))
    axes = tuple(_axis(parameter, text, place, word) for place, word in enumerate(sizes.replace(",", " ").split()))
    if sum(axis.variadic for axis in axes) > 1:
        raise PatternError(located(f"{parameter}={text!r}: one axis of a shape stands for any number of them, not two"))
    return DeclaredType(axes, (dtype,) if dtype else (), text)


def _axis(parameter: str, text: str, place: int, word: str) -> Axis:
    own = f"_{parameter}_{place}"
    word = word.partition("=")[2] or word
    if word in ("...", "*_"):
        return Axis(names=(own,), variadic=True)
    if word == "_":
        return Axis(names=(own,))
    if word.startswith("*") and word[1:].isidentifier():
        return Axis(names=(word,), variadic=True)
    if word.startswith("#") and word[1:].isidentifier():
        return Axis(names=(word[1:],), broadcast=True)
    factor, names = 1, []
    for part in word.split("*"):
        if part.isdigit():
            factor *= int(part)
        elif part.isidentifier():
            names.append(part)
        else:
            raise PatternError(
                located(
                    f"{parameter}={text!r}: {word!r} is no size: expected a name, a number, a product such as h*d, #b "
                    "for the size b or 1, _ for any size, or *b for any number of them, with spaces between"
                )
            )
    return Axis(factor, tuple(names))


def annotated(parameter: str, annotation: Any) -> DeclaredType | None:
    """The type that an annotation of jaxtyping says, also one that is text; ``None`` for any other annotation."""
    if isinstance(annotation, str):
        text = annotation.strip()
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
        found = _ANNOTATION.fullmatch(text[1:-1] if quoted else text)
        if found is None:
            return None
        kind, _, sizes = found.groups()
        dtypes = _KINDS.get(kind, (kind.lower(),) if kind.lower() in DTYPES else None)
        return None if dtypes is None else _with(declared(parameter, sizes), dtypes)
    sizes, dtypes = getattr(annotation, "dim_str", None), getattr(annotation, "dtypes", ())
    if not isinstance(sizes, str):
        return None
    known = dtypes if isinstance(dtypes, (list, tuple)) else ()
    return _with(declared(parameter, sizes), tuple(name for name in _NAMES if name in known))


def hints_of(function: Any) -> dict[str, Any]:
    """The annotations of a function; as text where they have names that are not there at run time."""
    try:
        return typing.get_type_hints(function)
    except Exception:
        return dict(getattr(function, "__annotations__", {}))


def _with(shape: DeclaredType, dtypes: tuple[str, ...]) -> DeclaredType:
    return DeclaredType(shape.axes, shape.dtypes or dtypes, shape.text)


def sized(parameter: str, sizes: Iterable[int | str | None], dtype: str | None) -> DeclaredType:
    """The type of a tensor with these sizes: numbers, names, or ``None`` for any size."""
    axes = tuple(
        Axis(size) if isinstance(size, int) else Axis(names=(size or f"_{parameter}_{place}",))
        for place, size in enumerate(sizes)
    )
    return DeclaredType(axes, (dtype,) if dtype else (), " ".join(axis.name or str(axis.factor) for axis in axes))
