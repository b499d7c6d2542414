"""Front ends: chosen by the object handed in, and loaded only then."""

from __future__ import annotations

import importlib
from typing import Any, cast

from gsl.errors import FrontEndError
from gsl.front.base import Program

FRONT_ENDS = {"torch": "gsl.front.fx", "tvm": "gsl.front.tvm"}
"""The module of each front end, by the package in which the class of a native graph is defined."""


def program(source: Any) -> Program:
    """The program of a native graph, by the front end that understands it. FrontEndError if there is none."""
    for cls in type(source).__mro__:
        name = FRONT_ENDS.get(cls.__module__.partition(".")[0])
        if name is not None:
            return cast(Program, importlib.import_module(name).program(source))
    raise FrontEndError(
        f"no front end understands a {type(source).__module__}.{type(source).__qualname__}; "
        f"known are graphs of {', '.join(sorted(FRONT_ENDS))}"
    )


__all__ = ["Program", "program"]
