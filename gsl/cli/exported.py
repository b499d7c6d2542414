"""Programs of torch in files, loaded without running code in them.

``torch.export.load`` unpickles what is no tensor, and evaluates sizes and guards that are written as Python code. So a
file is looked at before it is loaded.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gsl.cli import files
from gsl.cli.command import UsageError
from gsl.workload import Workload

# ---------------------------------------------------------------- expressions


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
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        texts = [each for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if texts and name not in ("Symbol", "Dummy", "Float"):
            return f"a text in a call of {name}"
        if name in POWERS and len(node.args) == 2:
            return _power(*node.args)
        return None
    return None if isinstance(node, (*_PLAIN, ast.Constant, ast.Name, ast.keyword)) else _kind(node)


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


# ---------------------------------------------------------------- programs


KIND: Final = "an archive that torch.export.save wrote"
OBJECTS: Final = ("opaque_obj_", "custom_obj_")
"""The first characters of the names of records that hold pickled objects."""
CONFIGS: Final = ("_weights_config.json", "_constants_config.json")
"""The last characters of the names of records that tell where tensors are."""
NAMED: Final = ("target", "fqn", "user_input")
"""The keys under which a program has names, beside keys that have ``name`` in them. Names may become part of Python
code."""
PLAIN: Final = re.compile(r"[\w.-]*")
"""The form of a name that is harmless there."""
FACTORIES: Final = ("builtins", "collections")
"""The modules from which a program may take a function that makes default values."""
LOGGERS: Final = ("torch.export", "torch.export.pt2_archive._package", "torch._export.serde.serialize")
"""The loggers to which torch writes while it loads a program."""
STRUCTURE: Final = re.compile(r"Deserializing ([\w.]+) in pytree")
"""Torch's message about a structure of arguments that is known only when the module that defines it is imported."""
OPERATOR: Final = re.compile(r"Node\(target='torch\.ops\.(\w+)\.(\w+)")
"""Torch's message about a call of an operator that is known only when the module that defines it is imported."""
SHOWN: Final = 80
"""The number of characters of a refused text that are shown."""


def read(path: Path, values: Mapping[str, Any] | None) -> Workload:
    """The workload of a program in a file. UsageError if the file has code that would be run."""
    import torch

    import gsl.kernels  # noqa: F401  programs may call them

    if values is not None:
        raise UsageError(f"{path} has its weights, so it takes no --params")
    check(path)
    with _tensors_only() as hidden:
        try:
            program = torch.export.load(path)
        except Exception as error:
            cause = hidden[0] if hidden else error
            known = STRUCTURE.search(str(cause))
            if known is not None:
                module = known[1].rpartition(".")[0]
                raise UsageError(f"{path} needs the class {known[1]}: give --import {module}") from None
            missing = OPERATOR.search(str(cause))
            if missing is not None and getattr(getattr(torch.ops, missing[1]), missing[2], None) is None:
                operator = f"{missing[1]}::{missing[2]}"
                raise UsageError(
                    f"{path} needs the operator {operator}: give --import with the module that defines it"
                ) from None
            raise cause from None
        return Workload.from_exported(program, name=path.stem)


def write(workload: Workload, path: Path, with_values: bool) -> list[Path]:
    """Write the program of a workload."""
    import torch

    try:
        torch.export.save(workload.exported, path)
    except RuntimeError as error:
        if "PytorchStreamWriter" not in str(error):
            raise
        raise OSError(f"torch could not write the whole file: {files.first_line(error)}") from error
    return [path]


def check(path: Path) -> None:
    """Raise UsageError for a file that is no program, or has code in it that loading would run."""
    with files.checked_archive(path, KIND) as opened:
        _check_records(path, opened)
        names = [name.partition("/")[2] or name for name in opened.namelist()]
        programs = [name for name in opened.namelist() if _is_program(name)]
        if not programs:
            raise UsageError(f"{path} is not {KIND}: there is no program in it{_mend(names)}")
        for name in opened.namelist():
            if name.rpartition("/")[2].lower().startswith(OBJECTS):
                raise _pickled(path, name)
            if name.endswith(CONFIGS):
                _check_config(path, _parsed(path, name, opened.read(name)), opened.namelist())
        for name in programs:
            _check_program(path, name, _parsed(path, name, opened.read(name)))


def _check_records(path: Path, opened: zipfile.ZipFile) -> None:
    """UsageError if torch finds other records in an archive than those that are looked at here."""
    import torch

    names = opened.namelist()
    found = {name.partition("/")[2]: name for name in names}
    same = len({name.lower() for name in names}) == len(names)
    try:
        reader = torch._C.PyTorchFileReader(str(path))
    except RuntimeError:
        reader = None  # then torch.export.load opens it as it is opened here
    if reader is not None:
        same = same and sorted(reader.get_all_records()) == sorted(found)
        same = same and all(
            reader.get_record(short) == opened.read(name) for short, name in found.items() if short.endswith(".json")
        )
    if not same:
        raise UsageError(f"{path} is not {KIND}: its records can be read in two ways")


def _is_program(name: str) -> bool:
    """True if a record is a program, in the present form or in that of torch up to 2.7."""
    return (name.endswith(".json") and "models/" in name) or name == "serialized_exported_program.json"


def _mend(names: list[str]) -> str:
    """A hint at what an archive without a program may be."""
    if any(name in ("data.pkl", "constants.pkl") for name in names):
        return "; weights or modules that torch.save or torch.jit.save wrote can't be rewritten: export the model"
    if any("aotinductor" in name for name in names):
        return "; what is compiled can't be rewritten: give the file that torch.export.save wrote"
    return ""


def _parsed(path: Path, name: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not {KIND}: {name}: {files.first_line(error)}") from error


def _pickled(path: Path, name: str) -> UsageError:
    return UsageError(f"{path} has pickled objects ({name}), which are not loaded, because they may run code")


def _check_config(path: Path, config: Any, names: list[str]) -> None:
    """Look at where tensors are: UsageError for objects, and for a tensor that is said to be where nothing is."""
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict):
        raise UsageError(f"{path} is not {KIND}: the list of its tensors can't be read")
    records = {name.rpartition("/")[2] for name in names}
    for entry in entries.values():
        record = str(entry.get("path_name")) if isinstance(entry, dict) else ""
        if record.startswith(OBJECTS):
            raise _pickled(path, record)
        if record not in records:
            raise UsageError(f"{path} is not {KIND}, or only a part of one: there is no tensor {record}")


def _check_program(path: Path, name: str, program: Any) -> None:
    """Look at every text in a program that torch evaluates. UsageError for a text that is more than arithmetic."""
    for key, text in _texts(program):
        wrong = None
        if key in ("expr_str", "guards_code"):
            wrong = complaint(text, key)
        elif key in ("in_spec", "out_spec"):
            wrong = None if _is_plain(text) else "more than names"
        elif "name" in key or key in NAMED:
            wrong = None if PLAIN.fullmatch(text) else "more than a name"
        if wrong is not None:
            shown = text if len(text) < SHOWN else text[: SHOWN - 1] + "…"
            raise UsageError(f"{path} has code in {name}, which is not run: {wrong} in {shown!r}")


def _texts(program: Any) -> Iterator[tuple[str, str]]:
    """All texts of a parsed JSON file, each with the key under which it stands."""
    stack: list[tuple[str, Any]] = [("", program)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, str):
            yield key, item
        elif isinstance(item, dict):
            stack.extend(item.items())
        elif isinstance(item, list):
            stack.extend((key, part) for part in item)


def _is_plain(spec: str) -> bool:
    """True if a structure of arguments names nothing that would be evaluated or imported."""
    try:
        parsed = json.loads(spec) if spec else []
    except (ValueError, RecursionError):
        return False
    for key, text in _texts(parsed):
        if key == "default_factory_module" and text not in FACTORIES:
            return False
        if key == "context" and text.startswith(("[", "{", '"')):
            if not _is_plain(text):
                return False
        elif any(sign in text for sign in "\"'\\()\n"):
            return False
    return True


@contextmanager
def _tensors_only() -> Iterator[list[BaseException]]:
    """A context in which torch loads no pickles but those of tensors, and does not print.

    Gives the exceptions that torch would have logged, and not raised.
    """
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    hidden: list[BaseException] = []

    def hide(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            hidden.append(record.exc_info[1])
        return False

    loggers = [logging.getLogger(logger) for logger in LOGGERS]
    for logger in loggers:
        logger.addFilter(hide)
    os.environ[name] = "1"
    try:
        yield hidden
    finally:
        for logger in loggers:
            logger.removeFilter(hide)
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
