"""The queries to TVM's objects for every binding of a function, without the Python code around them."""

from __future__ import annotations

from itertools import repeat
from typing import Any, Final

import tvm_ffi
from tvm import relax

item: Final[Any] = tvm_ffi.get_global_func("ffi.ArrayGetItem")
"""One item of an array of TVM, by its position."""
size: Final[Any] = tvm_ffi.get_global_func("ffi.ArraySize")
"""The number of the items of an array of TVM."""
call: Final[Any] = tvm_ffi.get_global_func("ir.Call")
"""Makes a call of a type, an operator, arguments, attributes, types as further arguments, and a span."""
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
    count = size(array)
    if count == 2:
        # So many arguments have most calls that have more than one.
        return [item(array, 0), item(array, 1)]
    return list(map(item, repeat(array), range(count)))
