"""Expressions that a saved program holds as Python code, and torch evaluates: whether they are arithmetic on sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

LONGEST: Final = 20_000
"""The largest number of characters of an expression."""
EXPONENT: Final = 64
"""The largest exponent: a number has to stay small enough to be computed."""
NAME: Final = re.compile(r"[\w .+-]*")
"""The form of a text in an expression: a name, or a number."""
POWERS: Final = ("Pow", "PowByNatural", "FloatPow", "LShift")
UNSAFE: Final = ("S", "N", "Lambda", "Subs", "Function")
"""The names that sympy writes with a capital letter, and that are not numbers."""
FUNCTIONS: Final = ("max", "min", "len", "int", "float", "bool", "abs", "round")
METHODS: Final = ("size", "stride", "storage_offset", "dim", "ndimension", "numel", "item", "is_contiguous")
MATH: Final = ("floor", "ceil", "trunc", "sqrt", "log", "log2", "exp", "pow", "isnan", "inf", "nan")
ATTRIBUTES: Final = ("shape", "dtype", "ndim", "layout", "device", "requires_grad", "is_sparse")
DTYPES: Final = re.compile(r"(u?int|float|bfloat|complex|bool|qu?int|strided)\w*|sym_\w+")
_PLAIN: Final = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Tuple, ast.List, ast.Load,
    ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip


def complaint(text: str, key: str) -> str | None:
    """The fault in the text of an expression under a key of a saved program; ``None`` if there is none.

    Under ``expr_str`` stands a size, as sympy writes it (``Max(Integer(1), Symbol('s0'))``); under ``guards_code`` a
    condition on the inputs (``L['x'].size()[0] >= 2``).
    """
    if len(text) > LONGEST:
        return f"an expression of {len(text)} characters"
    if not text.isascii():
        return "a letter that is not ASCII"
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "no expression"
    check = _in_size if key == "expr_str" else _in_guard
    return next((wrong for node in ast.walk(tree) if (wrong := _in_any(node) or check(node))), None)


def _in_any(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        value = node.value
        plain = isinstance(value, (int, float, bool, type(None))) or (isinstance(value, str) and NAME.fullmatch(value))
        return None if plain else f"the text {value!r}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return _power(node.left, node.right)
    return None


def _in_size(node: ast.AST) -> str | None:
    """The first thing in a part of a size that is not allowed. Functions start with a capital letter, as classes of
    sympy do."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if not (name[0].isupper() and name.isidentifier()) or name in UNSAFE:
            return f"a call of {name}"
        if any(isinstance(part, str) for part in _constants(node)) and name not in ("Symbol", "Dummy", "Float"):
            return f"a text in a call of {name}"
        if name in POWERS and len(node.args) == 2:
            return _power(*node.args)
        return None
    return None if isinstance(node, (*_PLAIN, ast.Constant, ast.Name, ast.keyword)) else _kind(node)


def _constants(call: ast.Call) -> Iterator[Any]:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return (argument.value for argument in arguments if isinstance(argument, ast.Constant))


def _power(base: ast.expr, exponent: ast.expr) -> str | None:
    """The fault of a power: a number that is too large to be computed."""
    for node in (*ast.walk(base), *ast.walk(exponent)):
        if isinstance(node, (ast.Pow, ast.LShift)) or (isinstance(node, ast.Name) and node.id in POWERS):
            return "a power of a power"
    numbers = [node.value for node in ast.walk(exponent) if isinstance(node, ast.Constant)]
    if any(isinstance(number, (int, float)) and abs(number) > EXPONENT for number in numbers):
        return "a large exponent"
    return None


def _in_guard(node: ast.AST) -> str | None:
    """The thing in a part of a guard that is not allowed. A guard asks the inputs, which are ``L``, for sizes and the
    like."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return None  # which is looked at by itself
        name = ast.unparse(node.func)
        return None if name in FUNCTIONS or (name[0].isupper() and name.isidentifier()) else f"a call of {name}"
    if isinstance(node, ast.Attribute):
        return None if _known(node, (*METHODS, *ATTRIBUTES)) else f"the attribute {node.attr}"
    if isinstance(node, (*_PLAIN, ast.Constant, ast.Name, ast.Subscript)):
        return None
    return _kind(node)


def _known(node: ast.Attribute, names: tuple[str, ...]) -> bool:
    """True if an attribute is one of these names on a value, a function of math, or a dtype of torch."""
    if isinstance(node.value, ast.Name) and node.value.id == "math":
        return node.attr in MATH
    if isinstance(node.value, ast.Name) and node.value.id == "torch":
        return DTYPES.fullmatch(node.attr) is not None
    return node.attr in names


def _kind(node: ast.AST) -> str:
    return f"code ({type(node).__name__})"

