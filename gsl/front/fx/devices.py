"""The devices of new tensors, and the refusal of rewrites whose devices, gradients or memory layouts torch can't have.

Rules know nothing of devices. A tensor that they make without operands, by a literal tensor or an operator that fills a
new one, is put on the device of the calls that it replaces.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from gsl.errors import FrontEndError
from gsl.front.core.handle import handle_of, is_literal, origins
from gsl.front.fx.handle import RULE, UNTOLD, FxLeaf, native_of
from gsl.front.fx.signatures import FxCallSignature
from gsl.front.fx.spellings.effects import ATTENTION, DENSE, ROWS, is_by_strides, makes_lazy, mask_of
from gsl.front.fx.values import (
    Values,
    device_of,
    devices_of,
    is_elsewhere,
    is_strided,
    keeps_elements,
    lies_by_rows,
    lies_densely,
    tensors,
    value_of,
)
from gsl.graph import CONST, TUPLE, Node, op_name
from gsl.graph.node import Replaced

_CREATORS: Final = frozenset(("arange", "full", "ones", "zeros"))


def is_created(node: Node) -> bool:
    """True for a call that makes a tensor out of attributes and numbers."""
    return node.op in _CREATORS and all(map(is_literal, node.operands))


def is_placed(node: Node) -> bool:
    """False for a literal tensor that no native node reads: it comes from a rule, or stands for what a call leaves
    out."""
    return node.op != CONST or isinstance(node.native, FxLeaf) or not hasattr(node.attrs["value"], "shape")


class Devices:
    """The devices of the tensors of a native graph, as far as its values or its weights tell."""

    def __init__(self, graph: fx.Graph, values: Values, weights: Callable[[], Iterable[Any]]) -> None:
        self.graph = graph
        self.values = values
        self.weights = weights

    def of(self, node: Node) -> torch.device | None:
        """The device for a literal or a creating call; ``None`` if nothing tells.

        FrontEndError for one that takes the place of calls on several devices.
        """
        found = self._around(node)
        if len(found) > 1:
            rule = "" if node.origin is None else f"{node.origin.rule}: "
            raise FrontEndError(
                f"{rule}%{node.name}: a new tensor takes the place of calls on {_listed(found)}, so there is no one "
                "device for it; let the rule match on one device, or make the tensor like an operand (op.ZerosLike, …)"
            )
        return found[0] if found else self._only

    def place(self, value: torch.Tensor, node: Node) -> torch.Tensor:
        """The value of such a node where it belongs."""
        device = self.of(node)
        return value if device is None or value.device == device else value.to(device)

    def _around(self, node: Node) -> list[torch.device]:
        """The devices of the native calls for which a view node stands, or whose place it takes."""
        return list(dict.fromkeys([device for part in origins(node) for device in self._at(part)]))

    def _at(self, part: Node) -> Iterator[torch.device]:
        value = self.values.value(part.native.reading.native)
        yield from devices(value)
        if not any(True for _ in tensors(value)):
            for operand in part.operands:
                if isinstance(operand.native, FxLeaf):
                    yield from devices(operand.native.value)

    @functools.cached_property
    def _only(self) -> torch.device | None:
        """The device of all that the graph has, if there is but one."""
        values = [self.values.value(node) for node in self.graph.nodes]
        found = {device for value in (*values, *self.weights()) for device in devices(value)}
        return found.pop() if len(found) == 1 else None


def devices(value: Any) -> Iterator[torch.device]:
    """The devices of a tensor, or of those of a tuple. Tensors without axes count as numbers, which lie anywhere."""
    return (device for item in tensors(value) if item.ndim and (device := device_of(item)) is not None)


def check_same(node: fx.Node, before: Any, after: Any) -> None:
    """Raise FrontEndError if an operand of a call, or an output, would lie on another device than it did."""
    old, new = device_of(before), device_of(after)
    if old is not None and new is not None and old != new:
        raise FrontEndError(
            f"{node.format_node()}: an argument was on {old}, and is on {new} after the rewrite; "
            "rules that take away what moves a tensor to another device can't be applied"
        )


def check_joint(node: fx.Node, operands: Iterable[Any], error: Exception) -> None:
    """Raise FrontEndError if a new call failed on fake tensors because they lie on several devices."""
    found = {device_of(item): None for operand in operands for item in tensors(operand)}
    if len(found) > 1 and "device" in str(error):
        rule = f"{node.meta[RULE]['rule']}: " if RULE in node.meta else ""
        raise FrontEndError(
            f"{rule}{node.format_node()}: a new call takes tensors on {_listed(found)}, which torch does not compute "
            "with at once; let the rule match on one device"
        ) from error


def _listed(found: Iterable[torch.device | None]) -> str:
    return " and ".join(map(str, found))


# ---------------------------------------------------------------- what is refused before anything is changed


_PRODUCTS: Final = frozenset(("matmul", "nn.dense", "nn.batch_matmul"))
"""Calls whose results lie alike in memory however their operands do."""


_ATTENTION_IDS: Final = frozenset(map(id, ATTENTION))
"""The addresses of the calls of attention: torch's operators are slow to hash."""


class Admits:
    """Refuses new nodes in the places of old ones for reasons that types do not tell: devices, gradients, and how
    tensors lie in memory."""

    def __init__(
        self, native: fx.Graph, values: Values, places: Devices, forms: Mapping[fx.Node, FxCallSignature | None]
    ) -> None:
        self.native = native
        self.values = values
        self.places = places
        self.forms = forms
        self.viewed: Collection[fx.Node] = ()
        """The native results of which torch makes views after a run, for which it knows how they lie in memory."""
        self.alone: Collection[fx.Node] = ()
        """The native results that no call may come to use."""

    @functools.cached_property
    def one_device(self) -> bool:
        """True if all tensors whose device is known lie on one device."""
        telling = [node for node in self.native.nodes if node not in self.forms]
        telling += self._calls(lambda form: not form.stays)
        known = self.values.known
        values = [value_of(node, known) for node in telling]
        return len(devices_of((*values, *self.places.weights()))) <= 1

    def _calls(self, is_wanted: Callable[[FxCallSignature], bool]) -> list[fx.Node]:
        """The calls of wanted forms, and those without a form. Each form is asked once: there are far fewer than calls.
        """
        wanted = {form for form in set(self.forms.values()) if form is None or is_wanted(form)}
        return [node for node, form in self.forms.items() if form in wanted] if wanted else []

    @functools.cached_property
    def strided(self) -> frozenset[fx.Node]:
        """The native calls that read their operands by strides."""
        value = self.values.value
        calls = self._calls(attrgetter("by_strides"))
        return frozenset(node for node in calls if is_by_strides(node) and not keeps_elements(node, value))

    @functools.cached_property
    def masks(self) -> frozenset[fx.Node]:
        """The masks of attention on an accelerator that lie row by row."""
        calls = self._calls(lambda form: id(form.named[0]) in _ATTENTION_IDS)
        masks = [mask_of(node) for node in calls if id(node.target) in _ATTENTION_IDS]
        values = {mask: self.values.value(mask) for mask in masks if isinstance(mask, fx.Node)}
        return frozenset(mask for mask, value in values.items() if is_elsewhere(value) and lies_by_rows(value))

    @functools.cached_property
    def laid(self) -> dict[fx.Node, Callable[[Any], bool]]:
        """The operands that kernels want to lie in memory in some way, each with the test of that."""
        calls = self._calls(lambda form: form.named[0] in DENSE or form.named[0] in ROWS)
        found: dict[Any, Callable[[Any], bool]] = {}
        for node in calls:
            found.update(dict.fromkeys(node.args[: ROWS.get(node.target, 0)], lies_by_rows))
            found.update({node.args[at]: lies_densely for at in DENSE.get(node.target, ()) if at < len(node.args)})
        return {node: lies for node, lies in found.items() if isinstance(node, fx.Node)}

    @functools.cached_property
    def steady(self) -> frozenset[str]:
        """The operators whose results are known to lie alike however their operands do: none where torch has made the
        values of the graph apart, so that it does not compute with several."""
        values = map(self.values.value, self.native.nodes)
        modes = {item.fake_mode for value in values for item in tensors(value) if isinstance(item, FakeTensor)}
        return _PRODUCTS if len(modes) <= 1 else frozenset()

    @functools.cached_property
    def lazy(self) -> frozenset[fx.Node]:
        """The native tensors that may leave a conjugation, or a change of sign, to their readers."""
        found: set[fx.Node] = set()
        for node in self.native.nodes:
            if node in self.forms:
                is_lazy = makes_lazy(node, found)
            else:
                is_lazy = any(item.is_conj() or item.is_neg() for item in tensors(self.values.value(node)))
            if is_lazy:
                found.add(node)
        return frozenset(found)

    @functools.cached_property
    def constant(self) -> frozenset[fx.Node]:
        """The calls that torch computes without gradients, in a graph in which it computes others with them."""
        by_grad: dict[bool, set[fx.Node]] = {True: set(), False: set()}
        for node in self.forms:
            by_grad[self._has_gradient(node)].add(node)
        return frozenset(by_grad[False] if by_grad[True] else ())

    def _has_gradient(self, node: fx.Node) -> bool:
        value = self.values.value(node)
        if value.__class__ is FakeTensor:  # as nearly always
            return bool(value.requires_grad)
        return any(isinstance(item, FakeTensor) and item.requires_grad for item in tensors(value))

    def __call__(self, replaced: Replaced) -> None:
        self._check_lazy(replaced)
        if self.constant:
            self._check_gradients(replaced)
        if self.strided or self.viewed:
            for old, new in zip(replaced.old, replaced.new):
                if new is not old:
                    self._check_strides(old)
        if self.alone:
            self._check_alone(replaced)
        if self.masks:
            self._check_masks(replaced)
        if self.laid:
            self._check_laid(replaced)
        if not self.one_device:
            self._check_devices(replaced)

    def _check_lazy(self, replaced: Replaced) -> None:
        """Refuse to take away what lets a tensor be in memory as it reads: not all calls take another one."""
        for old, new in zip(replaced.old, replaced.new):
            after = None if new.native is None else self._native(new)
            if after is not None and after in self.lazy and self._native(old) not in self.lazy:
                raise FrontEndError(
                    f"%{new.name} may leave a conjugation to its readers, which not all calls carry out; %{old.name} "
                    "has carried it out"
                )

    def _check_gradients(self, replaced: Replaced) -> None:
        """Refuse to let a tensor with gradients stand for one that was computed where none are wanted."""
        for old, new in zip(replaced.old, replaced.new):
            after = None if new.native is None or new is old else self._native(new)
            if after is not None and self._native(old) in self.constant and self._has_gradient(after):
                raise FrontEndError(
                    f"%{old.name} is computed without gradients, as under torch.no_grad(), and %{new.name} has them"
                )

    def _native(self, node: Node) -> fx.Node | None:
        """The native node of a node; ``None`` for a new one."""
        if isinstance(node.native, FxLeaf):
            return next(iter(node.native.reads), None)
        return None if handle_of(node) is None else native_of(node)

    def _check_strides(self, old: Node) -> None:
        """Refuse to replace what is read by strides further down."""
        found, work = {old}, [old]
        while work:
            node = work.pop()
            if self.viewed and native_of(node) in self.viewed:
                raise FrontEndError(
                    f"%{node.name} is returned, and torch makes views of it for autograd by its strides, which may not "
                    f"be the same when %{old.name} is replaced"
                )
            for user in node.users:
                native = native_of(user) if handle_of(user) is not None else None
                if native in self.strided:
                    raise FrontEndError(
                        f"%{user.name} reads its operand by strides, which may not be the same when %{old.name} is "
                        "replaced"
                    )
                if user not in found and user.op not in self.steady:
                    found.add(user)
                    work.append(user)

    def _check_alone(self, replaced: Replaced) -> None:
        """Refuse to return a tensor of the old graph that other calls use."""
        for old, new in zip(replaced.old, replaced.new):
            is_result = new is not old and new.native is not None and self._native(old) in self.alone
            user = next((each for each in new.users if each is not old), None) if is_result else None
            if user is not None:
                raise FrontEndError(
                    f"%{old.name} is a result of a scan, which torch wants for itself, and %{user.name} uses "
                    f"%{new.name}, too"
                )

    def _check_laid(self, replaced: Replaced) -> None:
        """Refuse to take away a copy that would be made again."""
        for old, new in zip(replaced.old, replaced.new):
            before, after = (native_of(node) if handle_of(node) is not None else None for node in (old, new))
            if old.op == "copy" and before in self.laid and after is not None:
                value = self.values.value(after)
                if UNTOLD in after.meta or (is_strided(value) and not self.laid[before](value)):
                    raise FrontEndError(f"%{old.name} lies in memory as a kernel wants it, and %{new.name} may not")

    def _check_masks(self, replaced: Replaced) -> None:
        """Refuse to take away what lets a mask lie row by row."""
        for old, new in zip(replaced.old, replaced.new):
            before, after = (native_of(node) if handle_of(node) is not None else None for node in (old, new))
            value = None if after is None else self.values.value(after)
            if before in self.masks and is_elsewhere(value) and not lies_by_rows(value):
                raise FrontEndError(
                    f"%{old.name} lies row by row, as fast kernels of attention want their masks, and %{new.name} does "
                    "not"
                )

    def _check_devices(self, replaced: Replaced) -> None:
        known: dict[Node, torch.device | None] = {}
        for node in replaced.created:
            known[node] = self._joint(node, known)
        for old, new in zip(replaced.old, replaced.new):
            if new is old:
                continue
            before, after = self._of(old, known), self._of(new, known)
            if before is not None and after is not None and before != after:
                raise FrontEndError(
                    f"%{old.name} is on {before}, and its replacement on {after}; rules that take away what moves a "
                    "tensor to another device can't be applied"
                )

    def _joint(self, node: Node, known: Mapping[Node, torch.device | None]) -> torch.device | None:
        """The device of a new node. FrontEndError if it has operands on several, but for numbers in tensors."""
        if is_created(node):
            return self.places.of(node)
        if node.op == "take":  # which takes indices of the CPU for a tensor elsewhere
            return self._of(node.operands[0], known)
        numbers, found = dict[torch.device, None](), dict[torch.device, None]()
        for operand in node.operands:
            device = self._of(operand, known)
            if device is not None:
                (found if operand.ndim else numbers)[device] = None
        if len(found) > 1 and node.op != TUPLE:
            raise FrontEndError(
                f"the new {op_name(node.op)} takes tensors on {_listed(found)}, which torch does not compute with at "
                "once; let the rule match on one device"
            )
        return next(iter(found or numbers), None)

    def _of(self, node: Node, known: Mapping[Node, torch.device | None]) -> torch.device | None:
        """The device of a node; ``None`` where it has none of its own, or it is not known."""
        if node in known:
            return known[node]
        native = native_of(node) if handle_of(node) is not None else None
        if isinstance(node.native, FxLeaf):
            value = node.native.value
        elif native is not None:
            value = self.values.value(native)
        else:
            return None
        return next(map(device_of, tensors(value)), None)
