"""Front ends: chosen by the object handed in, and loaded only then."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from gsl.errors import FrontEndError
from gsl.front.base import Program

FRONT_ENDS = {
    "torch": "gsl.front.fx", "tvm": "gsl.front.tvm", "onnx_ir": "gsl.front.onnx", "onnx": "gsl.front.onnx",
}  # fmt: skip
"""The module of each front end, by the package in which the class of a native graph is defined."""


def program(source: Any, params: Mapping[str, Any] | None = None) -> Program:
    """The program of a native graph, by the front end that understands it. FrontEndError if there is none.

    ``params`` are the weights of a graph that does not hold its own.
    """
    for cls in type(source).__mro__:
        name = FRONT_ENDS.get(cls.__module__.partition(".")[0])
        if name is not None:
            front_end = importlib.import_module(name)
            if params is None:
                return cast(Program, front_end.program(source))
            if name != FRONT_ENDS["tvm"]:
                raise FrontEndError(f"a {type(source).__name__} holds its own weights, so it takes no params")
            return cast(Program, front_end.program(source, params))
    raise FrontEndError(
        f"no front end understands a {type(source).__module__}.{type(source).__qualname__}; "
        f"known are graphs of {', '.join(sorted(FRONT_ENDS))}; load a file first: torch.export.load, onnx.load"
    )


__all__ = ["Program", "program"]
