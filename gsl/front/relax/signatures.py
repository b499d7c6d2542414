"""The forms of calls: how calls that differ in nothing but their arguments are read, found out once.

A reading depends on the operator, its attributes and the types; only for some operators on what computes the arguments.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import tvm_ffi
from tvm import ir, relax

from gsl.front.core.handle import Source
from gsl.front.core.load import Expansion, Rows, recorded
from gsl.front.relax import spellings
from gsl.front.relax.function import VARIABLES, RelaxFunction, computed, effect_of, is_of_operator, sizes_of, writes
from gsl.front.relax.handle import RelaxLeaf
from gsl.front.relax.types import FunctionScope, is_number, is_tensors
from gsl.graph import CONST, Effect, Node, TensorType, Type

_StructuralKey: Final[Any] = tvm_ffi.StructuralKey


class RelaxForm(NamedTuple):
    """The reading of calls that differ in nothing but their inputs."""

    rows: Rows
    through: tuple[int, ...]
    """The numbers of the arguments whose calls the reading sees through. Where there are any, the inputs of the rows
    are the arguments, and then those of all calls that compute them."""


class _Operator:
    """The known facts about one operator."""

    __slots__ = ("effect", "forms", "looks_at", "name", "reads")

    def __init__(self, op: Any, binding: Any) -> None:
        self.name = op.name
        self.reads = self.name in spellings.READERS
        self.looks_at = spellings.LOOKS_AT.get(self.name)
        self.effect: Effect | None = effect_of(binding)
        """The effect of calls of plain arguments."""
        self.forms: dict[tuple[Any, ...], RelaxForm] = {}
        """The forms of its calls of shared types, by the facts on which their readings depend."""


class RelaxSignatures:
    """The forms of the calls of one function. Those of shared types are known in all functions."""

    def __init__(self, function: RelaxFunction, scope: FunctionScope, module: Any) -> None:
        self.function = function
        self.scope = scope
        self.module = module
        self.aliases: set[Any] = set()
        """The variables that are bound to another variable or a constant, whose types need not be those of the nodes
        that they have in the view."""
        self.key: tuple[Any, ...] | None = None
        """A key of everything that the reading of the last call depends on, besides the operator; ``None`` where there
        is no such key."""
        self._types: list[Type | None] = []
        """The types on which that reading depends."""
        self.inputs: Sequence[Any] = ()
        """The arguments of the last call, and, where its reading may look at the calls that compute them, theirs."""
        self._literals: dict[Any, Node | None] = {}
        """The nodes that stand for literals, by these; ``None`` for what is none."""
        self._by_value: dict[Hashable, Node] = {}
        """The same by their values."""
        self._effects: dict[Any, Effect | None] = {}
        """The effects of calls of functions that are given tensors alone, by these functions."""
        self._operators: dict[Any, _Operator] = {}
        self.plain: dict[tuple[Any, ...], RelaxForm] = {}
        """The forms of calls of one operand without attributes, as far as they were asked for: by the operator, the
        types of the call and of the operand, as addresses, and ``None``."""
        self._own: dict[tuple[Any, ...], RelaxForm] = {}
        """The forms of calls of other types, by their operators and the same facts."""

    def _operator(self, number: int) -> _Operator:
        """The facts about the operator of a call of plain arguments."""
        op = self.function.ops[number]
        known = self._operators.get(op)
        if known is None:
            shared = self.scope.shared.operators
            known = shared.get(op) or shared.setdefault(op, _Operator(op, self.function.bindings[number]))
            self._operators[op] = known
        return known

    def effect(self, number: int) -> Effect | None:
        """The effect of a binding."""
        if self.function.ops[number] is not None:
            return self._operator(number).effect
        binding, value = self.function.bindings[number], self.function.values[number]
        callee = value.op if type(value) is ir.Call and type(binding) is relax.VarBinding else None
        if callee in self._effects:
            return self._effects[callee]
        effect = effect_of(binding)
        if effect is None and not is_of_operator(value) and any(map(writes, computed(value, self._function_of))):
            effect = Effect.MUTATES
        if type(callee) is ir.GlobalVar and self._takes_tensors(callee):
            self._effects[callee] = effect
        return effect

    def _takes_tensors(self, callee: Any) -> bool:
        """True for a function that is given tensors alone, so that all calls of it have one effect."""
        function = self._function_of(callee)
        return isinstance(function, relax.Function) and all(is_tensors(param.ty) for param in function.params)

    def _function_of(self, expr: Any) -> Any:
        """The function, or the call that makes it, for a variable that stands for one; ``None`` for anything else."""
        found = None
        if isinstance(expr, ir.GlobalVar):
            found = None if self.module is None else self.module.functions.get(expr)
        elif type(expr) in VARIABLES and not is_tensors(expr.ty):
            found = self.function.lookup(self.function.own(expr))
        return found if isinstance(found, (ir.Call, relax.Function)) else None

    def known(
        self, number: int, op: Any, type: Type | None, args: Sequence[Any], operands: Sequence[Node]
    ) -> RelaxForm | None:
        """The form of a call of plain arguments with these view nodes, if one was noted. ``key`` is then its key."""
        operator = self._operators.get(op) or self._operator(number)
        inputs = args if operator.looks_at is None else self._inputs(args, operator.looks_at)
        if not operator.reads or inputs is None or (self.aliases and not self.aliases.isdisjoint(inputs)):
            self.key = None
            return None
        # Types are told apart by their addresses: they stay as long as the view's nodes do.
        if len(operands) == 1:
            key: tuple[Any, ...] = (id(type), id(operands[0].type))
        else:
            key = (id(type), *[id(operand.type) for operand in operands])
            if len(set(args)) < len(args):
                key += (tuple([args.index(arg) for arg in args]),)
        attrs = self.function.values[number].attrs
        self.key = key = key if attrs is None else (*key, _StructuralKey(attrs))
        self.inputs = inputs
        if inputs is not args:
            self.key = key = (*key, self._producers(args, inputs))
        form = operator.forms.get(key)
        if form is None:
            form = self._own.get((operator, key))
        if form is None:
            self._types = [type, *[operand.type for operand in operands], *map(self.scope.type_of, inputs[len(args) :])]
        elif form.rows[0].is_whole and len(operands) == 1 and attrs is None and operator.looks_at is None:
            self.plain[op, id(type), id(operands[0].type), attrs] = form
        return form

    def literal(self, expr: Any) -> Node | None:
        """A node that stands for a constant without axes, or for a shape that is numbers, where calls are told apart;
        ``None`` for anything else.

        It is no node of the view. Its type is one object for equal values, and for no others, at which readings may
        look.
        """
        if expr not in self._literals:
            value: Hashable = sizes_of(expr)
            if value is None and is_number(expr):
                value = (str(expr.value.dtype), expr.value.numpy().tobytes())
            new = Node(CONST, type=TensorType((), "int64"))
            self._literals[expr] = None if value is None else self._by_value.setdefault(value, new)
        return self._literals[expr]

    def _inputs(self, args: Sequence[Any], looks_at: frozenset[str]) -> Sequence[Any] | None:
        """The arguments of a call, and those of the calls that compute them, if it has one of these operators among
        these calls; ``None`` if an argument is bound to something else than a call."""
        place_of, ops = self.function.place.get, self.function.ops
        places, is_looked_at = list[int](), False
        for arg in args:
            place = place_of(arg)
            if place is not None:
                if ops[place] is None:
                    return None
                places.append(place)
                is_looked_at = is_looked_at or self._operator(place).name in looks_at
        return (*args, *chain.from_iterable(map(self._args, places))) if is_looked_at else args

    def _args(self, place: int) -> tuple[Any, ...]:
        args = self.function.args[place]
        assert args is not None
        return args

    def _producers(self, args: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        """A key of all that a reading may see of the calls that compute its arguments, and of which inputs are one."""
        places = map(self.function.place.get, args)
        producers = tuple([None if place is None else self._producer(place) for place in places])
        return producers, tuple(map(inputs.index, inputs)) if len(set(inputs)) < len(inputs) else None

    def _producer(self, place: int) -> tuple[Any, ...]:
        """A key of a call: its operator, its attributes, and the types of its arguments."""
        attrs = self.function.values[place].attrs
        own = None if attrs is None else _StructuralKey(attrs)
        return id(self._operator(place)), own, *map(self._type_key, self._args(place))

    def _type_key(self, each: Any) -> Any:
        """A key of the type of an input, and of its value if that is a literal."""
        if self.function.has(each):
            return id(self.scope.type_of(each))
        literal = self.literal(each)
        return self.scope.type_of(each) if literal is None else id(literal.type)

    def may_look(self, number: int, looked_up: Sequence[Any]) -> bool:
        """True if the key of a call covers what its reading has looked at, the bindings of these variables."""
        args = self.function.args[number]
        if args is None or self._operator(number).looks_at is None:
            return False
        return all(var in args for var in looked_up)

    def note(self, key: tuple[Any, ...], number: int, tree: Expansion, through: Sequence[int]) -> None:
        """Remember the reading of a call under its key, if it is one of its inputs alone.

        ``through`` are the bindings that it sees through.
        """
        args = self.function.args[number]
        assert args is not None
        producers = {self.function.place.get(arg): place for place, arg in reversed([*enumerate(args)])}
        inputs = self.inputs if through else args
        sources = [list(map(_input_of, own)) for own in tree.sources]
        used = {source for own in sources for source in own if source.__class__ is not int}
        if used.issubset(inputs) and producers.keys() >= set(through):
            seen = tuple([producers[place] for place in through])
            form, shared = RelaxForm(recorded(tree.nodes, sources, tree.name, inputs), seen), self.scope.shared
            if all(map(shared.has, self._types)):
                self._operator(number).forms[key] = form
                shared.count += 1
            else:
                self._own[self._operator(number), key] = form


def _input_of(source: Source) -> Any:
    """The input of a call from which an operand of its reading came; a number, or a constant that is seen with another
    shape, as it is."""
    is_whole = isinstance(source, RelaxLeaf) and source.shape is None and not is_number(source.expr)
    return source.expr if is_whole else source
