"""Calls written in Relay, read back, typed and run, by the spelling table alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from gsl.front.relay.spellings import read, read_field, write
from gsl.front.tree import Canon, LiteralOperand, type_of_reading
from gsl.graph import TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.meaning import infer
from tests.hurry import QUICKLY
from tests.spec.test_meaning import type_of


class Types:
    """What is known of expressions: the types of variables and constants, and those that Relay inferred."""

    def type_of(self, expr: Any) -> Type | None:
        if isinstance(expr, relay.Var):
            return converted(expr.type_annotation)
        if isinstance(expr, relay.Constant):
            return TensorType(tuple(map(int, expr.data.shape)), str(expr.data.dtype))
        try:
            return converted(expr.checked_type)
        except ValueError:
            return None


TYPES = Types()


def converted(found: Any) -> Type:
    if isinstance(found, relay.TupleType):
        return TupleType(tuple(map(converted, found.fields)))
    return TensorType(tuple(map(int, found.shape)), str(found.dtype))


class Written:
    """A call in Relay over variables of its own, with the values of these."""

    def __init__(
        self, op: str, operands: Sequence[Any], attrs: Mapping[str, Any], prefix: str = "x"
    ) -> None:
        self.op, self.attrs = op, attrs
        self.variables: list[Any] = []
        self.values: list[Any] = []
        self.operands = [self._operand(value, f"{prefix}{i}") for i, value in enumerate(operands)]
        self.types = [type_of(value) for value in operands]
        self.expr = write(self.op, self.attrs, self.operands, TYPES)

    def _operand(self, value: Any, name: str) -> Any:
        if isinstance(value, tuple):
            return tuple(self._operand(part, f"{name}_{i}") for i, part in enumerate(value))
        if not isinstance(value, torch.Tensor):
            return value
        array = value.contiguous().numpy()
        self.variables.append(relay.var(name, shape=array.shape, dtype=str(array.dtype)))
        self.values.append(array)
        return self.variables[-1]

    def text(self) -> str:
        """The canonical call that was written."""
        return show(Canon(self.op, tuple(map(_tupled, self.operands)), self.attrs))

    def read_back(self) -> str:
        """The canonical calls as which the expression is read."""
        return show(canonical(typed(self.expr, self.variables)))

    def inferred(self) -> Type | None:
        return infer(TABLE[self.op], self.types, self.attrs)


def _tupled(operand: Any) -> Any:
    return Canon("tuple", operand) if isinstance(operand, tuple) else operand


def typed(expr: Any, variables: Sequence[Any] | None = None) -> Any:
    """An expression with types."""
    variables = relay.analysis.free_vars(expr) if variables is None else list(variables)
    module = tvm.IRModule.from_expr(relay.Function(variables, expr))
    return relay.transform.InferType()(module)["main"].body


def canonical(expr: Any) -> Any:
    """The reading of an expression, the leaves of its own reading read in turn; what has none is ``?op(...)``."""
    if isinstance(expr, relay.Tuple):
        return Canon("tuple", tuple(map(canonical, expr.fields)))
    found: Canon | None = None
    operands: Sequence[Any] = ()
    if isinstance(expr, relay.TupleGetItem):
        found = read_field(expr.tuple_value, expr.index, TYPES) if isinstance(expr.tuple_value, relay.Call) else None
        operands = [expr.tuple_value]
    elif isinstance(expr, relay.Call):
        found, operands = read(expr, TYPES), expr.args
    else:
        return expr
    if found is None:
        return Canon(f"?{expr.op.name}" if isinstance(expr, relay.Call) else "?field", tuple(map(canonical, operands)))
    return _inside(found)


def _inside(tree: Any) -> Any:
    if not isinstance(tree, Canon):
        return canonical(tree) if isinstance(tree, relay.Expr) else tree
    operands = tuple(map(_inside, tree.operands))
    if tree.op not in TABLE:
        return Canon(tree.op, operands, tree.attrs)
    types = tuple([_known(type_of_reading(part, TYPES.type_of)) for part in tree.operands])
    return Canon(tree.op, operands, TABLE[tree.op].complete(tree.attrs, types))


def _known(found: Any) -> Any:
    return None if isinstance(found, (bool, int, float)) else found


def show(tree: Any) -> str:
    """A reading as text: attributes that are not the default ones, derived ones left out."""
    match tree:
        case LiteralOperand():
            return repr(tree.value)
        case Canon(op="tuple"):
            return f"({', '.join(map(show, tree.operands))})"
        case Canon():
            attrs = tree.attrs
            if tree.op in TABLE:
                attrs = _shown(tree)
            words = [*map(show, tree.operands), *[f"{name}={value!r}" for name, value in attrs.items()]]
            return f"{tree.op}({', '.join(words)})"
        case relay.Var():
            return str(tree.name_hint)
        case relay.Constant():
            return f"const({tree.data.dtype}, {tuple(map(int, tree.data.shape))})"
        case relay.Tuple():
            return f"({', '.join(map(show, tree.fields))})"
    return repr(tree)


def _shown(tree: Canon) -> dict[str, Any]:
    spec = TABLE[tree.op]
    types = tuple([_known(_type(part)) for part in tree.operands])
    own = {name: value for name, value in tree.attrs.items() if spec.attrs[name].derive is None}
    full = spec.complete(own, types)
    return {
        name: value
        for name, value in full.items()
        if spec.attrs[name].derive is None and repr(value) != repr(spec.attrs[name].default)
    }


def _type(part: Any) -> Any:
    """The type of an operand, where it can be told without reading."""
    if isinstance(part, Canon):
        if part.op == "tuple":
            return TupleType(tuple(map(_type, part.operands)))
        types = [_type(each) for each in part.operands]
        return infer(TABLE[part.op], types, part.attrs) if part.op in TABLE else None
    if isinstance(part, LiteralOperand):
        return part.value
    return TYPES.type_of(part) if isinstance(part, relay.Expr) else part


def compiled(body: Any, variables: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The value of an expression, or of the fields of a tuple, tuples among them taken apart."""
    module = tvm.IRModule.from_expr(relay.Function(list(variables), body))
    with tvm.transform.PassContext(opt_level=0):
        library = relay.build(module, target=tvm.target.Target(QUICKLY))
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for variable, value in zip(variables, values, strict=True):
        executor.set_input(variable.name_hint, value)
    executor.run()
    return [np.array(executor.get_output(i).numpy()) for i in range(executor.get_num_outputs())]


def run(calls: Sequence[Written]) -> Iterator[list[Any]]:
    """The values of the calls, which are compiled together."""
    variables = [variable for call in calls for variable in call.variables]
    values = [value for call in calls for value in call.values]
    outputs = iter(compiled(relay.Tuple([call.expr for call in calls]), variables, values))
    for call in calls:
        found = call.inferred()
        yield [next(outputs) for _ in range(len(found.fields) if isinstance(found, TupleType) else 1)]
