"""A Relax function as a table: its bindings in order, the variables that each of them refers to, and the value of each
variable."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final

import tvm_ffi
from tvm import ir, relax
from tvm.ir import Call, Op
from tvm.relax import VarBinding
from tvm.tirx import IntImm

from gsl.errors import FrontEndError
from gsl.graph import Effect
from gsl.walk import reached

# ---------------------------------------------------------------- queries to TVM's objects


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


# ---------------------------------------------------------------- functions


_SPAN: Final = attrgetter("span")


class RelaxFunction:
    """The bindings of a function's body. Nested bodies (branches, closures) are part of the binding they stand in.

    Every variable has one Python object here, so that a dictionary finds it without asking TVM whether two are the
    same.
    """

    def __init__(self, native: Any) -> None:
        self.native = native
        body = native.body
        is_sequence = isinstance(body, relax.SeqExpr)
        self.blocks: list[Any] = items(body.blocks) if is_sequence else []
        self.bindings: list[Any] = []
        self.vars: list[Any] = []
        """The variable of each binding."""
        self.values: list[Any] = []
        """The expression of each binding."""
        self.args: list[tuple[Any, ...] | None] = []
        """The arguments of each binding of a call of nothing but variables, constants and shapes that are numbers;
        ``None`` for all others."""
        self.ops: list[Any] = []
        """The operator of each of these calls."""
        self.ends: list[int] = []
        """The number of the first binding behind each block."""
        self.names: list[str] = []
        """The name of the variable of each binding."""
        self.params: list[Any] = items(native.params)
        self._parameters = frozenset(self.params)
        self._plain = {var.__chandle__(): var for var in self.params}
        """The object of each variable and constant, by the address of the value that it stands for."""
        self._one: dict[int, Any] = {}
        """The object of each operator, and of all else, in the same way."""
        for block in self.blocks:
            self._read(items(block.bindings))
            self.ends.append(len(self.bindings))
        self.place = dict(zip(self.vars, range(len(self.vars))))
        """The number of the binding of each variable."""
        self.result: Any = self.own(body.body if is_sequence else body)
        self._uses: dict[int, tuple[Any, ...]] = {}

    def _read(self, bindings: list[Any]) -> None:
        """Add bindings to the table. This is done for every binding of a function, and each look at TVM takes time."""
        first = len(self.bindings)
        variables, values = [binding.var for binding in bindings], [binding.value for binding in bindings]
        self._plain.update({var.__chandle__(): var for var in variables})
        self.bindings += bindings
        self.vars += variables
        self.values += values
        # TVM's own strings hold on to objects of TVM.
        self.names += [str(var.name) for var in variables]
        self.args += [None] * len(bindings)
        self.ops += [None] * len(bindings)
        places = [
            place for place, (binding, value) in enumerate(zip(bindings, values), first)
            if type(value) is Call and type(binding) is VarBinding
        ]  # fmt: skip
        self._read_calls(places, [self.values[place] for place in places])

    def _read_calls(self, places: Sequence[int], calls: Sequence[Any]) -> None:
        """Read the operators and arguments of calls that are bound at these places."""
        one, plain = self._one.setdefault, self._plain
        ops, arrays = [value.op for value in calls], [value.args for value in calls]
        for place, value, op, array, count in zip(places, calls, ops, arrays, map(size, arrays)):
            # The types that some calls are given besides their arguments may mention variables.
            if type(op) is not Op or size(value.ty_args):
                continue
            try:
                if count == 1:
                    args: tuple[Any, ...] | None = (plain[item(array, 0).__chandle__()],)
                else:
                    args = tuple([plain[item(array, number).__chandle__()] for number in range(count)])
            except KeyError:
                args = self._arguments(items(array))
            if args is not None:
                self.args[place], self.ops[place] = args, one(op.__chandle__(), op)

    def _arguments(self, args: list[Any]) -> tuple[Any, ...] | None:
        """The objects of the arguments of a call; ``None`` if they are more than variables, constants and shapes that
        are numbers."""
        if not all(type(arg) in VARIABLES or type(arg) is ir.GenericConst or sizes_of(arg) is not None for arg in args):
            return None
        return tuple([self._plain.setdefault(arg.__chandle__(), arg) for arg in args])

    def own(self, expr: Any) -> Any:
        """The one object of an expression."""
        address = expr.__chandle__()
        found = self._plain.get(address)
        return self._one.setdefault(address, expr) if found is None else found

    def block_of(self, place: int) -> int:
        """The number of the block in which a binding stands."""
        return bisect_right(self.ends, place)

    def uses(self, place: int) -> tuple[Any, ...]:
        """The variables of the function to which a binding refers."""
        found = self._uses.get(place)
        if found is None:
            args = self.args[place]
            found = self._uses[place] = self._used(self.values[place]) if args is None else self._among(args)
        return found

    @cached_property
    def users(self) -> Mapping[Any, list[int]]:
        """The numbers of the bindings that refer to each variable."""
        found: dict[Any, list[int]] = {}
        for number in range(len(self.bindings)):
            for var in self.uses(number):
                found.setdefault(var, []).append(number)
        return found

    def unused(self, variables: Iterable[Any]) -> set[Any]:
        """The variables among these to which no binding refers."""
        found = set(variables)
        found.difference_update(chain.from_iterable(filter(None, self.args)))
        for number, args in enumerate(self.args):
            if args is None:
                found.difference_update(self.uses(number))
        return found

    def has(self, var: Any) -> bool:
        """True if a variable belongs to the function."""
        return var in self.place or var in self._parameters

    @cached_property
    def called(self) -> Sequence[Any]:
        """The functions of the module to which the function refers."""
        # The calls of operators that are read have none, nor have variables.
        others = [value for value, args in zip(self.values, self.args) if args is None]
        is_plain = {type(self.result), *map(type, others)} <= VARIABLES
        return () if is_plain else relax.analysis.all_global_vars(self.native)

    @cached_property
    def all_names(self) -> frozenset[str]:
        """The names of the variables."""
        return frozenset([*[str(var.name) for var in self.params], *self.names])

    def _among(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The variables of the function among the arguments of a call."""
        return tuple([var for var in (args if len(args) == 1 else dict.fromkeys(args)) if self.has(var)])

    def _used(self, expr: Any) -> tuple[Any, ...]:
        return self._among([self.own(var) for var in free_variables(expr)])

    def lookup(self, var: Any) -> Any:
        """The expression that is bound to a variable; ``None`` for a parameter, and for a value that is checked at run
        time."""
        place = self.place.get(var)
        if place is None or not isinstance(self.bindings[place], relax.VarBinding):
            return None
        return self.values[place]

    @cached_property
    def used_by_result(self) -> tuple[Any, ...]:
        """The variables to which the result refers."""
        return self._used(self.result)

    @cached_property
    def has_spans(self) -> bool:
        """True if any binding has a source location."""
        return any(map(_SPAN, self.bindings)) or any(map(_SPAN, self.values))

    def with_args(self, place: int, instead: Mapping[Any, Any]) -> Any:
        """The expression of a binding with other expressions for some of its variables."""
        value, args = self.values[place], self.args[place]
        if args is None:
            return replaced(value, instead)
        return call(value.ty, value.op, [instead.get(arg, arg) for arg in args], value.attrs, value.ty_args, value.span)


def sizes_of(expr: Any) -> tuple[int, ...] | None:
    """The sizes of a shape that is written out in numbers; ``None`` for anything else."""
    if type(expr) is not relax.ShapeExpr:
        return None
    sizes = items(expr.values)
    return tuple([int(size.value) for size in sizes]) if all(type(size) is IntImm for size in sizes) else None


def free_variables(expr: Any) -> Sequence[Any]:
    """The variables that occur in an expression and are not bound in it."""
    return (expr,) if type(expr) in VARIABLES else items(relax.analysis.free_vars(expr))


def with_value(binding: Any, value: Any, var: Any = None) -> Any:
    """A binding with another expression (and another variable), and the same source location."""
    var = binding.var if var is None else var
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, value, binding.ty, binding.span)
    return relax.VarBinding(var, value, binding.span)


def replaced(expr: Any, instead: Mapping[Any, Any]) -> Any:
    """An expression with other expressions for some of its variables; the same object where none of them occurs."""
    if not instead:
        return expr
    if isinstance(expr, relax.Var):
        return instead.get(expr, expr)
    return tvm_ffi.structural_map(expr, (ir.Var, lambda var: instead.get(var, var)), order="post")


# ---------------------------------------------------------------- effects


_EFFECTS: Final = {
    # Relax counts these as pure: whoever calls them asserts that nothing else reads what they overwrite.
    "relax.call_tir_inplace": Effect.MUTATES, "relax.call_inplace_packed": Effect.MUTATES,
    # And this, but each call makes memory of its own that others write to.
    "relax.builtin.alloc_tensor": Effect.OTHER,
    "relax.assert_op": Effect.OBSERVES, "relax.print": Effect.OBSERVES,
}  # fmt: skip
_PLANNED: Final = frozenset((
    "relax.memory.alloc_storage", "relax.memory.alloc_tensor", "relax.vm.alloc_storage", "relax.vm.alloc_tensor",
))  # fmt: skip
"""The calls that passes for memory planning make: several tensors may lie in one storage."""


def _name(value: Any) -> str:
    """The name of the operator that an expression calls; nothing if it calls none."""
    return str(value.op.name) if type(value) is Call and type(value.op) is Op else ""


def effect_of(binding: Any) -> Effect | None:
    """The effect of a binding, ``None`` for a pure one. FrontEndError where it takes part in planned memory."""
    if isinstance(binding, relax.MatchCast) or ir.is_prim_expr(binding.var):
        # Sizes may be told by it, wherever they stand.
        return Effect.OBSERVES
    value = binding.value
    name = _name(value)
    if name in _PLANNED:
        raise FrontEndError(
            f"{binding.var.name}: {name} belongs to planned memory, where tensors share storages; apply rules before "
            "StaticPlanBlockMemory"
        )
    if name in _EFFECTS:
        return _EFFECTS[name]
    if isinstance(value, relax.Function):
        return None
    return Effect.OTHER if relax.analysis.contains_impure_call(value) else None


_OF_CLOSURES: Final = frozenset(("relax.make_closure", "relax.invoke_pure_closure"))
"""The operators that call functions of Relax."""


def computed(value: Any, function_of: Callable[[Any], Any]) -> Iterator[Any]:
    """An expression, the calls in its branches, and the functions that it is given or calls, with the calls in these.

    ``function_of`` gives the function that a variable stands for, or the call that makes it; ``None`` for others.
    """

    def within(expr: Any) -> list[Any]:
        if type(expr) is Call:
            called = () if is_of_operator(expr) else (expr.op, *items(expr.args))
            return [found for found in map(function_of, called) if found is not None]
        calls: list[Any] = []
        if type(expr) in (relax.If, relax.Function):
            tvm_ffi.structural_walk(expr, (Call, calls.append))
        return calls

    return reached([value], within)


def is_of_operator(expr: Any) -> bool:
    """True for a call that calls no function of Relax."""
    return type(expr) is Call and type(expr.op) is Op and expr.op.name not in _OF_CLOSURES


def writes(expr: Any) -> bool:
    """True for a call that changes memory and counts as pure."""
    return _EFFECTS.get(_name(expr)) is Effect.MUTATES
