"""The names of operators in rule files, and their meaning in a graph.

A name is that of a function of torch, or the canonical one. One call of torch may be two nodes in a graph: a layer with
a bias is a product and the addition of the bias, and is one operator of a rule file.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, cast

from gsl.graph import Op
from gsl.graph.node import CONST, GETITEM, INPUT, PARAM, TUPLE
from gsl.graph.subgraph import Subgraph
from gsl.pat import OpClass
from gsl.spec import TABLE, find
from gsl.spec.conv import CONVOLUTIONS
from gsl.spec.natives import overloads, same_function

BIAS: Final = "nn.bias_add"

SEVERAL_RESULTS: Final = frozenset((
    "max", "min", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "native_dropout", "native_group_norm", "native_layer_norm", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    *(f"adaptive_max_pool{n}d" for n in (1, 2, 3)), *(f"max_pool{n}d_with_indices" for n in (1, 2, 3)),
))  # fmt: skip
"""The names of torch's functions that may have several results where the canonical operator has one."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Operators of the first nodes of calls.

    Torch's functions, for calls that have no canonical form, are looked up when they are needed: so a file is read
    without torch.
    """

    ops: frozenset[Op] = frozenset()
    names: frozenset[str] = frozenset()
    """The names of functions of torch that belong to them. The tables here know these names, and no function has two of
    them."""

    def __bool__(self) -> bool:
        return bool(self.ops) or any(map(_natives, self.names))

    def __or__(self, other: Heads) -> Heads:
        return Heads(self.ops | other.ops, self.names | other.names)

    def __sub__(self, other: Heads) -> Heads:
        if self.are_named and other.are_named:
            return Heads(self.ops - other.ops, self.names - other.names)
        return Heads(self.all() - other.all())

    def __and__(self, other: Heads) -> Heads:
        if self.are_named and other.are_named:
            return Heads(self.ops & other.ops, self.names & other.names)
        return Heads(self.all() & other.all())

    @property
    def canonical(self) -> frozenset[str]:
        """The canonical operators."""
        return frozenset(op for op in self.ops if isinstance(op, str))

    @property
    def are_named(self) -> bool:
        """True if all functions of torch among them are known by name."""
        return len(self.canonical) == len(self.ops)

    def all(self) -> frozenset[Op]:
        """The operators, with torch's functions."""
        return self.ops.union(*map(_natives, self.names))


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """The meaning of one name."""

    heads: Heads
    """The operators of its first node, of which there is only one where nothing is joined."""
    joined: tuple[str, ...] = ()
    """The operators of the node that may follow."""
    alone: bool = True
    """True if the first node alone is one too."""
    whole: bool = True
    """True if the bias of a layer belongs to it; canonical names mean one node."""

    @property
    def has_fields(self) -> bool:
        """True if its result may be a tuple. Of functions without a canonical form, this is not known."""
        canonical = self.heads.canonical
        specs = [TABLE[head] for head in canonical if head in TABLE]
        schemas = [head._schema for head in self.heads.ops if hasattr(head, "_schema")]
        return (
            any(spec.fields for spec in specs)
            or not SEVERAL_RESULTS.isdisjoint(self.heads.names)
            or any(len(schema.returns) > 1 for schema in schemas)
            or (not specs and GETITEM not in canonical)
        )


def _kind(*ops: str, joined: tuple[str, ...] = (), alone: bool = True, whole: bool = True) -> OperatorKind:
    return OperatorKind(Heads(frozenset(ops)), joined, alone, whole)


_JOINED: Final[dict[str, OperatorKind]] = {
    **{name.removeprefix("nn."): _kind(name, joined=(BIAS,)) for name in ("nn.dense", *CONVOLUTIONS)},
    **{f"conv_transpose{n}d": _kind(f"nn.conv{n}d_transpose", joined=(BIAS,)) for n in (1, 2, 3)},
    "linear": _kind("nn.dense", joined=(BIAS,)),
    "convolution": _kind(*CONVOLUTIONS, joined=(BIAS,)),
    # A linear layer of a decomposed program is an addmm with a transposed weight.
    "addmm": _kind("matmul", "nn.dense", joined=(BIAS, "add"), alone=False),
    **{name: _kind("matmul", joined=(BIAS, "add"), alone=False) for name in ("addmv", "baddbmm")},
}

def _by_name() -> dict[str, frozenset[str]]:
    """The operators by the names of torch's functions that their declarations give."""
    found: dict[str, set[str]] = {}
    for spec in TABLE.values():
        for word in spec.torch_names.split():
            found.setdefault(word, set()).add(spec.name)
    return {word: frozenset(names) for word, names in found.items()}


_BY_NAME: Final = MappingProxyType(_by_name())


def known_names() -> Collection[str]:
    """The names to which a mistyped one may be near."""
    aliases = (alias for spec in TABLE.values() for alias in spec.aliases)
    return {*_JOINED, *_BY_NAME, *TABLE, *(name.removeprefix("nn.") for name in TABLE), *aliases, "getitem"}


@functools.cache
def lookup(name: str) -> OperatorKind | None:
    """The meaning of a name; ``None`` if it is not known.

    A name with ``nn.`` is the canonical operator alone. In-place functions are known by their names with and without
    the underscore.
    """
    if name in TABLE and name.startswith("nn."):
        return _kind(name, whole=False)
    if name == "getitem":
        return _kind(GETITEM, whole=False)
    plain = name if name in _BY_NAME or not name.endswith("_") else name.removesuffix("_")
    native = Heads(names=frozenset((name,)))
    joined = _JOINED.get(plain)
    if joined is not None:
        return replace(joined, heads=joined.heads | native) if joined.alone else joined
    spec = find(plain)
    canonical = frozenset((*_BY_NAME.get(plain, ()), *(() if spec is None else (spec.name,))))
    if canonical:
        return OperatorKind(Heads(canonical) | native)
    found = _natives(name)
    return OperatorKind(Heads(found)) if found else None


def _natives(name: str) -> frozenset[Op]:
    """Torch's functions of that name, for calls that have no canonical form; none without torch."""
    try:
        import torch
    except ImportError:
        return frozenset()
    functional: Any = torch.nn.functional
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if isinstance(packet, torch._ops.OpOverloadPacket):
        spaces: tuple[Any, ...] = (torch, functional, torch.special, torch.linalg, torch.fft)
        found = [function for space in spaces if callable(function := getattr(space, name, None))]
        found += [getattr(packet, cast("Any", packet).overloads()[0])]
    else:
        function = getattr(functional, name, None)
        found = [function] if inspect.isfunction(function) and function.__module__ == functional.__name__ else []
    targets: set[Op] = {target for function in found for target in same_function(function)}
    return frozenset(targets.union(*(overloads(function) for function in found)))


@dataclass(frozen=True, slots=True)
class OperatorSelection:
    """The operators that a node of a rule file may have: those of some kinds, or, ``inverted``, all others."""

    label: str
    """As the file calls them."""
    kinds: tuple[OperatorKind, ...]
    inverted: bool = False

    @property
    def heads(self) -> Heads:
        """The operators of the first nodes of the kinds."""
        return functools.reduce(Heads.__or__, (kind.heads for kind in self.kinds), Heads())

    @property
    def has_fields(self) -> bool:
        """True if a result may be a tuple, of which users take a field."""
        return self.inverted or any(kind.has_fields for kind in self.kinds)

    @property
    def whole(self) -> bool:
        """True if the bias of a layer belongs to it."""
        return self.inverted or any(kind.whole for kind in self.kinds)

    def without(self, other: OperatorSelection) -> OperatorSelection:
        """The operators that belong to this selection and not to the other one."""
        if self.inverted and not other.inverted:
            return OperatorSelection(f"{self.label} but {other.label}", (*self.kinds, *other.kinds), inverted=True)
        if self.inverted:  # what the other one leaves out, and this one does not
            kept = [(kind, kind.heads - self.heads) for kind in other.kinds]
        elif other.inverted:
            kept = [(kind, kind.heads & other.heads) for kind in self.kinds]
        else:
            kept = [(kind, kind.heads - other.heads) for kind in self.kinds]
        return OperatorSelection(self.label, tuple(replace(kind, heads=heads) for kind, heads in kept if heads))


_NOT_CALLS: Final = frozenset((CONST, GETITEM, INPUT, PARAM, TUPLE))


class OneNode(OpClass):
    """Some operators, or all but some, of which each node has its own; groups that were fused are none of them."""

    __slots__ = ("found", "heads", "inverted")

    def __init__(self, label: str, heads: Heads, *, inverted: bool = False) -> None:
        super().__init__(label, None, joint=False)
        self.heads = heads
        self.inverted = inverted
        self.found: frozenset[Op] | None = None
        """The operators with torch's functions, once they have been needed."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "found": None}

    @property
    def members(self) -> frozenset[Op] | None:
        return None if self.inverted else self._all()

    @property
    def canonical(self) -> frozenset[str]:
        return frozenset() if self.inverted else self.heads.canonical

    def attributes(self) -> frozenset[str] | None:
        return None if self.inverted or self.heads.names else super().attributes()

    def accepts(self, op: Op) -> bool:
        if not self.inverted:
            return op in self._all()
        return op not in self._all() and op not in _NOT_CALLS and not isinstance(op, Subgraph)

    def _all(self) -> frozenset[Op]:
        if self.found is None:
            self.found = self.heads.all()
        return self.found
