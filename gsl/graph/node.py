"""The graph view: nodes with canonical operators, and the graph that keeps their users and order.

A view belongs to one native graph. Each node remembers its *native handle*; what was not touched is stored back by
handle, so the view need not understand it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from gsl.graph.dim import Dim
from gsl.graph.types import TensorType, Type

INPUT, PARAM, CONST, TUPLE, GETITEM = "input", "param", "const", "tuple", "getitem"
"""The values of ``Node.op`` that are not operators."""
LEAVES = frozenset((INPUT, PARAM, CONST))

Op = Hashable
"""A canonical operator name, one of the kinds above, or a native target (of an opaque call)."""


class Effect(enum.Enum):
    """What a node does besides computing its value."""

    RANDOM = "random"
    """Draws from a random generator: may not be duplicated, dropped or reordered."""
    MUTATES = "mutates"
    """Changes a tensor in place: no read of any tensor may be moved across it."""
    OBSERVES = "observes"
    """Looks at values and changes none, as an assertion or a print does: may not be dropped or reordered."""
    OTHER = "impure"
    """Anything else that must stay as it is."""


class Node:
    """One value of the graph.

    ``op`` is a kind (``"input"``, ``"param"``, ``"const"``, ``"tuple"``, ``"getitem"``), the canonical name of an
    operator, or, for an opaque call, the native target itself. ``attrs`` is ``{"value": …}`` for a param or a const
    (a Python scalar or a native tensor), ``{"index": i}`` for a getitem.
    """

    __slots__ = (
        "attrs", "deps", "effect", "index", "name", "native", "op", "operands", "origin", "redirects", "type", "users",
    )  # fmt: skip

    def __init__(
        self,
        op: Op,
        operands: tuple[Node, ...] = (),
        attrs: Mapping[str, Any] | None = None,
        type: Type | None = None,
        *,
        name: str = "",
        native: Any = None,
        effect: Effect | None = None,
        deps: tuple[Node, ...] = (),
    ) -> None:
        self.op = op
        self.operands = operands
        self.attrs: Mapping[str, Any] = {} if attrs is None else attrs
        self.type = type
        self.name = name
        self.native = native
        """What the front end needs to store the node as it was; ``None`` for a node made by a rewrite."""
        self.effect = effect
        self.deps = deps
        """Nodes that the native call refers to besides its operands: symbolic sizes."""
        self.users: dict[Node, None] = {}
        """The nodes that have this one among their operands or deps, in the order in which they were added."""
        self.index = 0
        """A topological number: never greater than that of a user."""
        self.origin: Origin | None = None
        """For a node made by a rewrite: by which rule and instead of what."""
        self.redirects: dict[Node, Node] | None = None
        """For a node whose operands or deps were replaced: what each one at loading has become."""

    @property
    def opaque(self) -> bool:
        """True for a call without a canonical operator."""
        return not isinstance(self.op, str)

    @property
    def args(self) -> tuple[Node, ...]:
        """The operands, under the name by which targets made by a callable know them."""
        return self.operands

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The shape, ``None`` where the type is not known or not a tensor's."""
        return self.type.shape if isinstance(self.type, TensorType) else None

    @property
    def dtype(self) -> str | None:
        """The dtype, ``None`` where the type is not known or not a tensor's."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def ndim(self) -> int | None:
        """The number of dimensions, ``None`` where the type is not known or not a tensor's."""
        return self.type.ndim if isinstance(self.type, TensorType) else None

    def redirect(self, old: Node, new: Node) -> None:
        """Use ``new`` wherever this node used ``old``, and remember it."""
        self.operands = tuple([new if operand is old else operand for operand in self.operands])
        if self.deps:
            self.deps = tuple([new if dep is old else dep for dep in self.deps])
        moved = self.redirects = {} if self.redirects is None else self.redirects
        for key, value in moved.items():
            if value is old:
                moved[key] = new
        moved.setdefault(old, new)
        del old.users[self]
        new.users[self] = None

    def __repr__(self) -> str:
        return f"<{self.name or '?'}: {op_name(self.op)}>"


class Origin:
    """Where a node made by a rewrite comes from."""

    __slots__ = ("replaced", "rule")

    def __init__(self, rule: str, replaced: tuple[Node, ...]) -> None:
        self.rule = rule
        self.replaced = replaced
        """The nodes of the match, whose source locations the new node inherits."""


def op_name(op: Op) -> str:
    """The name of an operator as it is printed: a native target by its qualified name."""
    if isinstance(op, str):
        return op
    if type(op).__module__.startswith("tvm."):
        return _tvm_name(op)
    text = str(op)
    if text.startswith("<"):
        name = getattr(op, "__qualname__", None) or repr(op)
        text = f"{getattr(op, '__module__', None) or ''}.{name}".lstrip(".")
    return text


def _tvm_name(op: Any) -> str:
    """The name of an operator or function of TVM, whose text would be a whole description of it."""
    names = (getattr(op, attribute, None) for attribute in ("name", "name_hint", "global_symbol"))
    return next((str(name) for name in names if isinstance(name, str)), None) or type(op).__name__


class Inference(Protocol):
    """Computes the type of a new call from its operands, or ``None`` when they have no known types.

    Raises ValueError (with the framework's reason) when the call is ill-typed.
    """

    def __call__(self, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None: ...


class Graph:
    """A DAG of nodes in topological order, with its outputs."""

    def __init__(
        self,
        nodes: Iterable[Node],
        outputs: Iterable[Node],
        infer: Inference,
        canonical: Callable[[Op, int | None, Mapping[str, Any]], str | None] | None = None,
        written: Mapping[Node, int | None] | None = None,
        *,
        typed: bool = True,
    ) -> None:
        self.nodes = list(nodes)
        self.outputs = list(outputs)
        self.infer = infer
        self.canonical = canonical
        """How a graph shows the call of a native target with so many operands and these attributes, if it shows it by
        canonical operators: as text, for messages."""
        self.typed = typed
        """Whether nodes of this kind of graph have types at all; where they have none, none are missed."""
        self.written: Mapping[Node, int | None] = dict(written or {})
        """The inputs whose memory is overwritten after the last node, each with the number of the output that is
        written to it; ``None`` if that output is written to other memory which the input shares."""
        for index, node in enumerate(self.nodes):
            node.index = index
            for operand in node.operands:
                operand.users[node] = None
            for dep in node.deps:
                dep.users[node] = None

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        from gsl.graph.text import text

        return text(self)

    def by_op(self) -> dict[Op, list[Node]]:
        """The nodes of each operator, in graph order."""
        table: dict[Op, list[Node]] = {}
        for node in self.nodes:
            table.setdefault(node.op, []).append(node)
        return table

    def copy(self) -> Graph:
        """A copy that shares types, attributes and native handles, and nothing else."""
        new: dict[Node, Node] = {}
        for old in self.nodes:
            node = Node(
                old.op,
                tuple([new[operand] for operand in old.operands]),
                old.attrs,
                old.type,
                name=old.name,
                native=old.native,
                effect=old.effect,
                deps=tuple([new[dep] for dep in old.deps]) if old.deps else (),
            )
            node.origin = old.origin
            new[old] = node
        written = {new[node]: output for node, output in self.written.items()}
        outputs = [new[node] for node in self.outputs]
        return Graph(new.values(), outputs, self.infer, self.canonical, written, typed=self.typed)
