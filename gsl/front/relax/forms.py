"""The forms of readings: how calls that differ in nothing but their arguments are read, found out once.

A reading depends on the operator, its attributes and the types; only for some operators on what computes the arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import ir

from gsl.front.relax import spellings
from gsl.front.relax.effects import effect_of
from gsl.front.relax.function import Function
from gsl.front.relax.handle import Leaf
from gsl.front.relax.objects import VARIABLES
from gsl.front.relax.scope import FunctionScope
from gsl.front.relax.trees import Constants, Tree
from gsl.graph import Effect, Node, Op, TensorType, Type

_key: Final[Any] = tvm_ffi.StructuralKey


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One node of a form."""

    op: Op
    operands: tuple[int, ...]
    """Arguments of the call by their positions; nodes of the same form by the complements of theirs."""
    attrs: Mapping[str, Any]
    type: Type | None
    name: str
    """What its name has behind that of the variable."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A reading of calls that differ in nothing but their arguments."""

    steps: tuple[Step, ...]
    """Its nodes, operands first."""
    single: Step | None
    """The one node, where there is one alone that has the arguments as its operands, in their order."""


class _Operator:
    """What is known of one operator."""

    __slots__ = ("effect", "looks_at", "name", "reads")

    def __init__(self, op: Any, binding: Any) -> None:
        self.name = op.name
        self.reads = self.name in spellings.READERS
        self.looks_at = spellings.LOOKS_AT.get(self.name)
        self.effect: Effect | None = effect_of(binding)
        """The effect of calls of plain arguments."""


class Forms:
    """The forms of the calls of one function."""

    def __init__(self, function: Function, scope: FunctionScope, constant: Constants) -> None:
        self.function = function
        self.scope = scope
        self.constant = constant
        self.aliases: set[Any] = set()
        """The variables that are bound to another variable or a constant, whose types need not be those of the nodes
        that they have in the view."""
        self._operators: dict[Any, _Operator] = {}
        self._forms: dict[Any, Form] = {}

    def _operator(self, number: int) -> _Operator | None:
        """What is known of the operator of a call of plain arguments."""
        op = self.function.ops[number]
        if op is None:
            return None
        known = self._operators.get(op)
        if known is None:
            known = self._operators[op] = _Operator(op, self.function.bindings[number])
        return known

    def effect(self, number: int) -> Effect | None:
        """The effect of a binding."""
        operator = self._operator(number)
        return effect_of(self.function.bindings[number]) if operator is None else operator.effect

    def key(self, number: int, views: Mapping[Any, Node]) -> tuple[Any, ...] | None:
        """What the reading of a call depends on, ``None`` where that is more than can be told here."""
        function = self.function
        operator = self._operator(number)
        args = function.args[number]
        if operator is None or args is None or not operator.reads or operator.effect is not None:
            return None
        key: list[Any] = [operator, id(self.scope.type_of(function.vars[number]))]
        for arg in args:
            view = views.get(arg)
            if view is None:
                view = self.constant(arg) if type(arg) is ir.GenericConst and arg.value.shape else None
            elif arg in self.aliases or not (operator.looks_at is None or self._is_plain(arg, operator.looks_at)):
                view = None
            if view is None or type(view.type) is not TensorType:
                return None
            key.append(id(view.type))
        if len(args) > 1 and len(set(args)) < len(args):
            key.append(tuple([args.index(arg) for arg in args]))
        attrs = function.values[number].attrs
        if attrs is not None:
            key.append(_key(attrs))
        return tuple(key)

    def _is_plain(self, var: Any, looks_at: frozenset[str]) -> bool:
        """True unless a variable is bound to something at which a reading may look."""
        place = self.function.place.get(var)
        if place is None:
            return True
        operator = self._operator(place)
        return operator is not None and operator.name not in looks_at

    def may_look(self, number: int) -> bool:
        """Whether readings of that operator look at what computes the arguments."""
        operator = self._operator(number)
        return operator is not None and operator.looks_at is not None

    def known(self, number: int, views: Mapping[Any, Node], but: Collection[Any]) -> Form | None:
        """The form of a call, if one was noted; ``None`` for those that are bound to some variables."""
        if self.function.ops[number] is None or (but and self.function.vars[number] in but):
            return None
        key = self.key(number, views)
        return None if key is None else self._forms.get(key)

    def note(self, key: Any, number: int, tree: Tree) -> None:
        """Remember the reading of a call under its key, if it is one of the call's arguments alone."""
        args = self.function.args[number]
        assert args is not None
        steps: list[Step] = []
        for node, sources in zip(tree.nodes, tree.sources):
            operands: list[int] = []
            for source in sources:
                expr = source.expr if isinstance(source, Leaf) and source.shape is None else source
                if isinstance(source, int):
                    operands.append(~source)
                elif type(expr) in VARIABLES or type(expr) is ir.GenericConst:
                    operands.append(args.index(expr))
                else:
                    return
            steps.append(Step(node.op, tuple(operands), node.attrs, node.type, node.name.removeprefix(tree.name)))
        first = steps[0]
        single = first if len(steps) == 1 and first.operands == tuple(range(len(args))) else None
        self._forms[key] = Form(tuple(steps), single)
