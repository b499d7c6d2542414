"""What the front ends of TVM share, and the choice between them: one ``IRModule`` serves Relax and Relay alike."""

from __future__ import annotations

import importlib
from typing import Any, Final, cast

from gsl.errors import FrontEndError
from gsl.front.base import Program

DIALECTS: Final = {"tvm.relax": "gsl.front.relax", "tvm.relay": "gsl.front.relay"}
"""The front end of each dialect of TVM, by the package in which the classes of its expressions are defined."""


def program(source: Any) -> Program:
    """The program of an ``IRModule`` or of a function of Relax or Relay. FrontEndError for anything else."""
    functions = source.functions.values() if hasattr(source, "functions") else (source,)
    for function in functions:
        name = DIALECTS.get(".".join(type(function).__module__.split(".")[:2]))
        if name is not None:
            return cast(Program, importlib.import_module(name).program(source))
    raise FrontEndError(
        f"expected an IRModule with a function of Relax or Relay, but got a {type(source).__name__} with none; "
        "the functions of TIR alone are not rewritten"
    )


__all__ = ["program"]
