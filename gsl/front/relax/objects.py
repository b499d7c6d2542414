"""What is asked of TVM's objects for every binding of a function, without the Python code around it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

import tvm_ffi
from tvm import relax

_get: Final[Any] = tvm_ffi.get_global_func("ffi.ArrayGetItem")
_size: Final[Any] = tvm_ffi.get_global_func("ffi.ArraySize")
_call: Final[Any] = tvm_ffi.get_global_func("ir.Call")
variable: Final[Any] = tvm_ffi.get_global_func("ir.Var")
"""Makes a variable of a name, a type and a span."""
dataflow_variable: Final[Any] = tvm_ffi.get_global_func("relax.DataflowVar")
"""Makes a variable of a dataflow block in the same way."""
bound: Final[Any] = tvm_ffi.get_global_func("relax.VarBinding")
"""Makes a binding of a variable, an expression and a span."""

VARIABLES: Final = frozenset((relax.Var, relax.DataflowVar))
"""The classes of variables, for a test by ``type``: ``isinstance`` of TVM's classes runs Python code."""


def items(array: Any) -> list[Any]:
    """The items of an array of TVM."""
    return list(map(_get, repeat(array), range(_size(array))))


def call(op: Any, args: Sequence[Any], attrs: Any, ty_args: Any, type: Any, span: Any) -> Any:
    """A call with a type."""
    return _call(type, op, args, attrs, ty_args, span)


def has_types(value: Any) -> bool:
    """Whether a call is given types besides its arguments, which may mention variables."""
    return bool(_size(value.ty_args))
