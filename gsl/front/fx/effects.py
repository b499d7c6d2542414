"""Effects of native calls besides computing a value, and the memory that they share."""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.ao.quantization.stubs import DeQuantStub, QuantStub
from torch.fx.node import _side_effectful_functions

from gsl.front.fx import spellings
from gsl.front.fx.bodies import BodyCall, body_call
from gsl.front.fx.custom import FUNCTIONALIZED
from gsl.front.fx.handle import FxLeaves, nodes_in
from gsl.front.fx.reader import CALLS, LOOKING_AROUND, PLACING, FxReader
from gsl.front.fx.signatures import FxCallSignature, NoKeyError, Role, key_of_call
from gsl.front.fx.spellings import effects
from gsl.front.fx.values import Values, keeps_elements
from gsl.front.tree import Canon
from gsl.graph import Effect
from gsl.spec import TABLE, Trait
from gsl.spec.meaning import has_symbols
from gsl.spec.natives import overloads, schema_of

_SHARED: Final[dict[int, dict[Any, FxCallSignature]]] = {}
"""The forms of calls of operators by their keys, all by how many functions torch was told to have side effects: more
of them may be made known at any time."""

_MOST_SHARED: Final = 8192

_MAY_RETURN_AN_OPERAND: Final = frozenset(
    ("broadcast_to", "cast", "getitem", "nn.dropout", "split", "strided_slice", "take", "tuple")
)
"""Canonical operators that torch may carry out without copying, besides those that only move elements."""

_PURE_PACKAGES: Final = ("torch", "_operator", "operator", "math", "builtins", "einops")
_IMPURE_BUILTINS: Final = frozenset((print, setattr, delattr, input, exec, eval, open, next))


@dataclass(frozen=True, slots=True)
class BodyEffects:
    """The effects of a call that runs graphs, by these."""

    effect: Effect | None
    """The effect besides computing its value and changing its operands."""
    changed: tuple[fx.Node, ...]
    """The operands that the graphs change in place."""
    shared: tuple[fx.Node, ...]
    """The operands with which a result may share memory."""


class EffectReader(FxReader):
    """The readings of the calls of one native graph, and their effects; alike calls have one form that tells both."""

    def __init__(self, leaves: FxLeaves, values: Values) -> None:
        super().__init__(leaves, values)
        self.forms: dict[fx.Node, FxCallSignature | None] = {}
        """The forms of calls that were found so far."""
        self.operands: dict[fx.Node, tuple[fx.Node, ...]] = {}
        """The native operands of the calls that have one."""
        self._by_key: dict[Any, FxCallSignature] = {}
        """The forms that hold for this graph only."""
        self._shared = _shared_forms()
        self._effects: dict[int, Effect | None] = {}
        """The effects of the operators that never draw, by their addresses."""
        self._within: dict[fx.Node, BodyEffects | None] = {}

    def survey(self, nodes: Sequence[fx.Node]) -> bool:
        """Find the forms of all calls among the nodes of a graph. False if none of them changes anything in place."""
        self.values.types.find_all(nodes)
        for node in nodes:
            if node.op in CALLS:
                self.forms[node] = self._find_form(node)
        return any(form is None or form.mutated or form.unknown for form in set(self.forms.values()))

    def form(self, node: fx.Node) -> FxCallSignature | None:
        """The form of a call; ``None`` for one that is looked at by itself."""
        try:
            return self.forms[node]
        except KeyError:
            found = self.forms[node] = self._find_form(node)
            return found

    def _find_form(self, node: fx.Node) -> FxCallSignature | None:
        target = node.target
        is_overload = target.__class__ is OpOverload  # quick to tell, as that it is no HigherOrderOperator is not
        looks_around = (id(target) if is_overload else target) in LOOKING_AROUND
        if node.op == "call_module" or (not is_overload and isinstance(target, HigherOrderOperator)):
            return None
        if looks_around and self.is_elsewhere(node):
            return None
        try:
            own, self.operands[node] = key_of_call(node, self.values)
        except NoKeyError:
            return None
        if looks_around and self.adds_bias(node):
            own = (*own, "bias")
        elif looks_around and self.detaches_literal(node):
            own = (*own, "literal")
        elif looks_around and keeps_elements(node, self.values.value):
            own = (*own, "elements")
        return self._shared.get(own) or self._by_key.get(own) or self._new_form(node, own)

    def _new_form(self, node: fx.Node, own: tuple[Any, ...]) -> FxCallSignature:
        target = node.target
        types = tuple([self.values.type(each) for each in (node, *node.all_input_nodes)])
        # Operators are the same in all graphs, whereas functions may do something else at any time.
        is_shared = isinstance(target, OpOverload) and not (self.values.types.symbolic and has_symbols(types))
        canon = self.read(node)
        form = FxCallSignature(
            op=None if canon is None else canon.op,
            mutated=effects.mutated(target, node.args, node.kwargs),
            unknown=_is_foreign(node),
            effect=self._call_effect(node),
            role=_role(target, canon),
            stays=canon is not None and target not in PLACING,
            by_strides=effects.is_by_strides(node) and canon is None,
            is_shared=is_shared,
            named=(target, *types),
        )
        known = self._shared if is_shared else self._by_key
        if is_shared and len(known) >= _MOST_SHARED:
            known.clear()
        known[own] = form
        return form

    def read_op(self, node: fx.Node) -> str | None:
        form = self.form(node)
        return super().read_op(node) if form is None else form.op

    def mutated(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """The native operands that a call changes in place."""
        if node.op == "call_module":
            inplace = any(getattr(part, "inplace", False) is True for part in self.module(node).modules())
            return tuple(node.all_input_nodes[:1]) if inplace and not self._keeps_values(node) else ()
        if node.op not in CALLS:
            return ()
        if (within := self.within(node)) is not None:
            return within.changed
        form = self.form(node)
        positions = effects.mutated(node.target, node.args, node.kwargs) if form is None else form.mutated
        if not positions or self._keeps_values(node):
            return ()
        values = (*node.args, *node.kwargs.values())
        return tuple(nodes_in([values[position] for position in positions]))

    def mutated_weights(self, node: fx.Node) -> Iterator[torch.Tensor]:
        """The tensors of a called module that the call may change."""
        if node.op == "call_module":
            module = self.module(node)
            if self.is_unknown(node):
                yield from module.parameters()
                yield from module.buffers()
            yield from effects.mutated_weights(module)

    def is_unknown(self, node: fx.Node) -> bool:
        """True for a call of foreign code, which may change everything that it can reach."""
        if node.op == "call_module":
            return self.read(node) is None and not all(map(_is_understood, self.module(node).modules()))
        form = self.form(node)
        return _is_foreign(node) if form is None else form.unknown

    def _keeps_values(self, node: fx.Node) -> bool:
        """True for a call that has nothing to do in place: a dropout that is switched off, a literal that is
        detached."""
        return self.read_op(node) == "nn.dropout" or self.detaches_literal(node)

    @staticmethod
    def checks_sizes(node: fx.Node) -> bool:
        """True for a call that stops the program where a size, or another number, is not as it should be. What it reads
        stays, so that it does."""
        return node.target in _CHECKS_OF_SIZES

    @staticmethod
    def hinders_nothing(node: fx.Node) -> bool:
        """True for a call that only makes sure of sizes or metadata, as ``torch.export`` adds them, or that only tells
        torch's log that a module was made, as dynamo captures it where one is made in ``forward``.

        It has no view node: it stays where it is as long as its operands exist, and hinders no rewrite.
        """
        return not node.users and (node.target in _HINDER_NOTHING or _checks_inputs(node))

    def effect(self, node: fx.Node) -> Effect | None:
        """The effect of a call besides computing its value and changing its operands."""
        if node.op == "call_module":
            return self._module_effect(node)
        form = self.form(node)
        return self._call_effect(node) if form is None else form.effect

    def _call_effect(self, node: fx.Node) -> Effect | None:
        target = node.target
        if isinstance(target, OpOverload) and not effects.may_draw(target):
            # The same for all calls, and there are fewer operators than forms.
            if id(target) not in self._effects:
                self._effects[id(target)] = _effect(node)
            return self._effects[id(target)]
        if self._sets_mode(node):
            return Effect.OTHER
        within = self.within(node)
        return _effect(node) if within is None else within.effect

    def within(self, node: fx.Node) -> BodyEffects | None:
        """The effects of the graphs that a call runs; ``None`` for a call that runs none, as far as is known."""
        if not isinstance(node.target, HigherOrderOperator):
            return None
        if node not in self._within:
            call = body_call(node, self.root)
            self._within[node] = None if call is None else _body_effects(call, call.graphs(self.root).values())
        return self._within[node]

    def _sets_mode(self, node: fx.Node) -> bool:
        """True for the call of a function that gives no tensor and is given none, but what such a call gives: it is
        made for what it does, as those that enter and leave modes. What torch has as an operator, too, gives a tensor
        also where no type is known."""
        calls = (node, *node.all_input_nodes)
        untyped = all(_is_function(call) and self.values.type(call) is None for call in calls)
        return untyped and not any(operand.all_input_nodes for operand in node.all_input_nodes) and not any(
            overloads(call.target) for call in calls
        )

    def _module_effect(self, node: fx.Node) -> Effect | None:
        module = self.module(node)
        if self.is_unknown(node):
            return Effect.OTHER
        is_random, mutates = effects.is_random_module(module), effects.mutates_module(module)
        if is_random:
            return Effect.OTHER if mutates else Effect.RANDOM
        if self.read(node) is not None:
            return None
        if mutates:
            return Effect.OTHER if self.changes_more(node) else Effect.MUTATES
        return Effect.OTHER if node.is_impure() else None

    def changes_more(self, node: fx.Node) -> bool:
        """True for a call that may change other memory than that of its operands, as the statistics of its module."""
        if self.is_unknown(node) or any(True for _ in self.mutated_weights(node)):
            return True
        within = self.within(node)
        return within is not None and within.effect is Effect.OTHER

    def aliases(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """The native operands with which a call's result may share memory."""
        if node.op not in CALLS or self.is_fresh(node):
            return ()
        if (mutated := self.mutated(node)) and self.read_op(node) is not None:
            return mutated
        if isinstance(node.target, OpOverload) and not effects.is_view(node.target):
            return ()
        if (within := self.within(node)) is not None:
            return within.shared
        found = tuple(node.all_input_nodes)
        canon = self.read(node) if len(found) > 1 else None
        # What only gives a shape or a type, as in ``expand_as``, is no operand of the reading.
        return found if canon is None else tuple([each for each in found if each in _sources(canon)])

    def roots(self, nodes: Iterable[fx.Node]) -> dict[fx.Node, frozenset[Hashable]]:
        """The memory in which the value of each node of the graph may lie: nodes that make new memory, and that of
        weights."""
        roots: dict[fx.Node, frozenset[Hashable]] = {}
        for node in nodes:
            if node.op in ("placeholder", "get_attr"):
                roots[node] = frozenset((self.leaves.memory(node),))
            else:
                roots[node] = frozenset((node,)).union(*[roots[operand] for operand in self.aliases(node)])
        return roots

    def is_fresh(self, node: fx.Node) -> bool:
        """True if a call is certain to return new memory."""
        if node.op not in CALLS or self.mutated(node):
            return False
        if node.target in FUNCTIONALIZED:
            return True
        op = self.read_op(node)
        if op is None:
            return _is_new_field(node) or (isinstance(node.target, OpOverload) and not effects.is_view(node.target))
        if op in _MAY_RETURN_AN_OPERAND or op not in TABLE:
            return False
        if op == "copy" and node.op == "call_module":
            return False
        if op == "einsum":
            return len(node.all_input_nodes) > 1  # of one tensor it may be a view
        spec = TABLE[op]
        if Trait.LAYOUT in spec.traits or spec.fields:
            return False
        return node.op == "call_module" or not effects.is_view(node.target)


def _body_effects(call: BodyCall, graphs: Iterable[fx.GraphModule]) -> BodyEffects:
    found: set[Effect | None] = set()
    changed: dict[fx.Node, None] = {}
    shared: dict[fx.Node, None] = {}
    for graph in graphs:
        nodes = list(graph.graph.nodes)
        reader = EffectReader(FxLeaves(graph), Values())
        roots = reader.roots(nodes)
        fed: dict[Hashable, Any] = dict(zip(graph.graph.find_nodes(op="placeholder"), call.fed))
        for node in nodes:
            if node.op == "output":
                shared.update(_fed_with(fed, [roots[each] for each in node.all_input_nodes]))
            elif node.op in CALLS and not reader.hinders_nothing(node):
                written = reader.mutated(node)
                changed.update(_fed_with(fed, [roots[each] for each in written]))
                own = any(not isinstance(root, fx.Node) for each in written for root in roots[each])
                found.add(Effect.OTHER if own else _effect_besides(reader, node, written))
    found.discard(None)
    effect = found.pop() if len(found) == 1 else Effect.OTHER if found else None
    return BodyEffects(effect, tuple(changed), tuple(shared))


def _effect_besides(reader: EffectReader, node: fx.Node, written: Sequence[fx.Node]) -> Effect | None:
    """The effect of a call besides computing its value and changing these operands."""
    if reader.changes_more(node):
        return Effect.OTHER
    effect = reader.effect(node)
    is_told = bool(written) and reader.within(node) is None and effect in (Effect.MUTATES, Effect.OTHER)
    return None if is_told else effect


def _fed_with(fed: Mapping[Hashable, Any], memory: Iterable[frozenset[Hashable]]) -> dict[fx.Node, None]:
    """The values with which those inputs of a graph are fed that may lie in some memory."""
    return {value: None for root in frozenset().union(*memory) if isinstance(value := fed.get(root), fx.Node)}


def _shared_forms() -> dict[Any, FxCallSignature]:
    """The forms that hold for all graphs."""
    count = len(_side_effectful_functions)
    if count not in _SHARED:
        _SHARED.clear()
    return _SHARED.setdefault(count, {})


_NOT_ALONE: Final = frozenset(
    (
        operator.getitem, torch.ops.higher_order.invoke_subgraph, torch.ops.aten.mm.default,
        torch.ops.aten.addmm.default, torch.ops.aten.detach_.default,
    )
)  # fmt: skip
"""The roles of calls that are read together with others, or have no reading: see
:class:`gsl.front.fx.signatures.Role`."""


def _role(target: Any, canon: Canon | None) -> Role:
    """The role of a call among others; ``canon`` is its reading."""
    if target in _HINDER_NOTHING:
        return Role.CHECK
    if target in _NOT_ALONE or _region_step(target) or spellings.has_fields(target):
        return Role.OTHER
    return Role.FACTOR if canon is not None and canon.op == "transpose" else Role.ALONE


def _sources(canon: Canon) -> Iterator[Any]:
    """The native values that a reading uses."""
    for operand in canon.operands:
        if isinstance(operand, Canon):
            yield from _sources(operand)
        elif isinstance(operand, (tuple, list)):
            yield from operand
        else:
            yield operand


def _is_new_field(node: fx.Node) -> bool:
    """True for the only ``getitem`` of its field of a call that returns several new tensors."""
    call = node.args[0] if node.target is operator.getitem else None
    if not isinstance(call, fx.Node):
        return False
    if call.target not in FUNCTIONALIZED:
        if not isinstance(call.target, OpOverload) or effects.is_view(call.target):
            return False
        if len(call.target._schema.returns) < 2:
            return False
    numbers = [user.args[1] for user in call.users if user.target is operator.getitem]
    is_told = len(numbers) == len(call.users) and all(isinstance(each, int) and each >= 0 for each in numbers)
    return is_told and numbers.count(node.args[1]) == 1


_NAMES: Final = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
_CHECKS_OF_SIZES: Final = frozenset(
    target
    for target in (
        *(getattr(torch.ops.aten, name).default for name in _NAMES),
        *(getattr(torch, name, None) for name in (*_NAMES, "_constrain_as_size")),
        *(getattr(torch, f"_check{name}", None) for name in ("", "_index", "_is_size", "_type", "_value", "_with")),
    )
    if target is not None
)
_HINDER_NOTHING: Final = _CHECKS_OF_SIZES | {
    torch.ops.aten._assert_tensor_metadata.default, torch._C._log_api_usage_once,
}  # fmt: skip


_OBSERVERS: Final = frozenset((
    torch._assert, torch._assert_async, torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg,
    torch._check_tensor_all, torch._check_tensor_all_with,
))  # fmt: skip
"""Calls that look at values, and stop the program or do nothing."""


def _checks_inputs(node: fx.Node) -> bool:
    """True for the call of the module of checks that ``ExportedProgram.module()`` adds, which torch tells by its name,
    too."""
    return node.op == "call_module" and node.target == "_guards_fn"


_SIDE_EFFECTS: Final = frozenset(_side_effectful_functions) | _IMPURE_BUILTINS


def _is_check(target: Any) -> bool:
    """True for an overload that returns nothing: it is called for its effect."""
    return isinstance(target, OpOverload) and not target._schema.returns


def _is_foreign(node: fx.Node) -> bool:
    """True for the call of a function that is none of torch's or Python's own."""
    return _is_function(node) and not _known_pure(node.target) and node.target not in _SIDE_EFFECTS


def exchanges(target: Any) -> bool:
    """True for a function that exchanges data with other processes: torch's collectives and their waits, and operators
    that take the name of a group of processes."""
    if isinstance(target, OpOverloadPacket):
        names = target.overloads()  # type: ignore[no-untyped-call]
        return any(exchanges(getattr(target, name)) for name in names)
    return isinstance(target, OpOverload) and _exchanges(target)


@functools.cache
def _exchanges(target: OpOverload) -> bool:
    return target.namespace == "_c10d_functional" or any(p.name == "group_name" for p in schema_of(target))


_FUNCTIONAL_FORMS: Final = frozenset[Any](
    getattr(torch.ops.higher_order, name) for name in ("auto_functionalized", "auto_functionalized_v2", "out_dtype")
)
"""Calls of an operator, which is their first argument, as functions: what it writes, they return."""


def _effect(node: fx.Node) -> Effect | None:
    """The effect of a call of a function or method, besides computing its value and changing its operands."""
    target: Any = node.target
    if target in _FUNCTIONAL_FORMS and node.args:
        called = node.args[0]
        is_other = isinstance(called, HigherOrderOperator) or called in _SIDE_EFFECTS
        return Effect.EXCHANGES if exchanges(called) else Effect.OTHER if is_other else None
    if exchanges(target):
        return Effect.EXCHANGES
    if effects.is_random(target, node.args, node.kwargs):
        return Effect.RANDOM
    if node.op == "call_method":
        return None
    if target in _OBSERVERS:
        return Effect.OBSERVES
    if isinstance(target, HigherOrderOperator) or target in _SIDE_EFFECTS:
        return Effect.OTHER
    if isinstance(target, OpOverload | OpOverloadPacket):
        return Effect.OTHER if _is_check(target) or node.is_impure(impure_random=False) else None
    return Effect.OTHER if not _known_pure(target) or node.is_impure(impure_random=False) else None


def opens_region(node: fx.Node) -> int:
    """1 for a call that enters a region of autocast or of a transform of ``torch.func``, -1 for one that leaves it.

    Within one, calls have other types than their operators say, or values of another kind, so the view leaves them as
    they are.
    """
    return _region_step(node.target)


def _region_step(target: Any) -> int:
    if target is torch.amp.autocast_mode._enter_autocast:
        return 1
    if target is torch.amp.autocast_mode._exit_autocast:
        return -1
    name = getattr(target, "__name__", "")
    return name.endswith("_increment_nesting") - name.endswith("_decrement_nesting")


def _is_understood(module: torch.nn.Module) -> bool:
    """True for a module of torch's own, and for a graph of calls without effects; others may do anything."""
    if type(module) in (QuantStub, DeQuantStub):
        # They mark places; what observers do there is done by hooks.
        return spellings.is_plain(module)
    if not isinstance(module, fx.GraphModule):
        return type(module).__module__.startswith("torch.nn.modules.")
    reader = EffectReader(FxLeaves(module), Values())
    calls = [node for node in module.graph.nodes if node.op in CALLS]
    return not any(reader.mutated(node) or reader.effect(node) for node in calls)


def _is_function(node: fx.Node) -> bool:
    """True for the call of a function that is no operator."""
    return node.op == "call_function" and not isinstance(
        node.target, OpOverload | OpOverloadPacket | HigherOrderOperator
    )


def _known_pure(target: Any) -> bool:
    """True for functions of packages whose functions have no effects that torch does not tell."""
    module = getattr(target, "__module__", None) or type(target).__module__
    return module.partition(".")[0] in _PURE_PACKAGES
