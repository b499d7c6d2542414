"""The graph view: nodes with canonical operators, and the graph that keeps their users and order.

A view belongs to one native graph. Each node remembers its *native handle*; untouched nodes are stored back by handle,
so the view need not understand them.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from typing import Any, NoReturn, Protocol

from gsl.graph.types import Dim, TensorType, Type

INPUT, PARAM, CONST, TUPLE, GETITEM = "input", "param", "const", "tuple", "getitem"
"""The values of ``Node.op`` that are not operators."""
LEAVES = frozenset((INPUT, PARAM, CONST))

FEW = 8
"""The largest number of users that a node keeps in a tuple, which takes a third of the memory of a dictionary."""

MANY = 32
"""The number of operands from which it pays to replace several of a node's operands at once."""

Op = Hashable
"""A canonical operator name, one of the kinds above, or a native target (of an opaque call)."""
Below = Mapping[Op, Set[Op]]
"""The operators that nodes may have, each with those that their operands may have."""


class Effect(enum.Enum):
    """The effect of a node besides computing its value."""

    RANDOM = "random"
    """Draws from a random generator: may not be duplicated, dropped or reordered."""
    MUTATES = "mutates"
    """Changes operands in place, and nothing else: no read of what may be their memory may be moved across it."""
    OBSERVES = "observes"
    """Looks at values and changes none, as an assertion or a print does: may not be dropped or reordered."""
    EXCHANGES = "exchanges"
    """Exchanges data with other processes, which wait for it: a rule may replace it, and nothing else drops or reorders
    it."""
    OTHER = "impure"
    """Anything else that must stay as it is."""


class UnreadWeight(Mapping[str, Any]):
    """The attributes of a weight whose numbers are read when its value is asked for. No other weight is one tensor
    with it."""

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read: Callable[[], Any] | None = read
        self._value: Any = None

    def __getitem__(self, name: str) -> Any:
        if name != "value":
            raise KeyError(name)
        read = self._read
        if read is not None:  # two threads that ask at once both read
            self._value = read()
            self._read = None
        return self._value

    def __iter__(self) -> Iterator[str]:
        return iter(("value",))

    def __len__(self) -> int:
        return 1


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
        """The object by which the front end stores the node as it was; ``None`` for a node made by a rewrite."""
        self.effect = effect
        self.deps = deps
        """Nodes that the native call refers to besides its operands: symbolic sizes."""
        self.users: tuple[Node, ...] | dict[Node, None] = ()
        """The nodes that have this one among their operands or deps, each once, in the order in which they were added:
        to be iterated, counted and asked with ``in``. Changed by :meth:`add_user` and :meth:`drop_user` only."""
        self.index = 0
        """A topological number: never greater than that of a user."""
        self.origin: Origin | None = None
        """The rule that made the node and the nodes that it replaces, for a node made by a rewrite."""
        self.redirects: dict[Node, Node] | None = None
        """For a node whose operands or deps were replaced: the present node for each one at loading."""

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
        """Use ``new`` wherever this node used ``old``, and remember it. The users of the two are not changed."""
        redirect_all((self,), old, new)

    def add_users(self, users: tuple[Node, ...]) -> None:
        """Note that other nodes, all different, have this one among their operands or deps."""
        known = self.users
        if isinstance(known, dict):
            known.update(dict.fromkeys(users))
        elif known:
            found = dict.fromkeys((*known, *users))
            self.users = tuple(found) if len(found) <= FEW else found
        else:  # as nearly always, which is 3 % of a rewrite
            self.users = users if len(users) <= FEW else dict.fromkeys(users)

    def add_user(self, user: Node) -> None:
        """Note that another node has this one among its operands or deps."""
        users = self.users
        if not users:
            self.users = (user,)
        elif isinstance(users, dict):
            users[user] = None
        elif user not in users:
            self.users = (*users, user) if len(users) < FEW else dict.fromkeys((*users, user))

    def drop_user(self, user: Node) -> None:
        """Note that a node does not have this one among its operands and deps any more."""
        users = self.users
        if isinstance(users, dict):
            users.pop(user, None)
        elif len(users) == 2:  # as where another node took the place of the user
            first, second = users
            self.users = (second,) if first is user else (first,) if second is user else users
        elif user in users:
            place = users.index(user)
            self.users = users[:place] + users[place + 1 :]

    def __deepcopy__(self, memo: Any) -> Node:
        return self  # as a node of one view, which is not copied with it

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"%{self.name} is a node of the view of one native graph and is not pickled: keep its name")

    def __repr__(self) -> str:
        return f"<{self.name or '?'}: {op_name(self.op)}>"


class Behind(Node):
    """A node of many operands, of which some have been replaced since they were last looked at.

    To replace one operand takes a new tuple of all. Where each of a thousand branches is rewritten in turn, the node
    that joins them would get a thousand such tuples, and none would be used. So the replacements are kept beside the
    operands, and made when the operands are asked for: the node is an ordinary one again then.
    """

    __slots__ = ()

    @property
    def operands(self) -> tuple[Node, ...]:  # type: ignore[override]
        return self._caught_up().operands

    @property
    def deps(self) -> tuple[Node, ...]:  # type: ignore[override]
        return self._caught_up().deps

    @property
    def redirects(self) -> dict[Node, Node] | None:  # type: ignore[override]
        return self._caught_up().redirects

    def _caught_up(self) -> Node:
        operands, moves = _OPERANDS.__get__(self)
        node: Any = self
        node.__class__ = Node
        last: dict[Node, Node] = {}
        for old, new in reversed(moves):  # what each one has become after all of them
            last[old] = last.get(new, new)
        node.operands = tuple([last.get(operand, operand) for operand in operands])
        node.deps = tuple([last.get(dep, dep) for dep in node.deps])
        moved = node.redirects = {key: last.get(value, value) for key, value in (node.redirects or {}).items()}
        for old, _ in moves:
            moved.setdefault(old, last[old])
        return self


_OPERANDS: Any = Node.__dict__["operands"]


def redirect_all(nodes: Iterable[Node], old: Node, new: Node) -> None:
    """Let nodes use ``new`` wherever they used ``old``, and remember it. The users of the two are not changed."""
    for node in nodes:
        if node.__class__ is Behind:
            _OPERANDS.__get__(node)[1].append((old, new))
            continue
        operands = node.operands
        if len(operands) == 2:  # as most have
            first, second = operands
            node.operands = new if first is old else first, new if second is old else second
        elif len(operands) == 1:
            node.operands = (new,) if operands[0] is old else operands
        elif len(operands) > MANY:
            _OPERANDS.__set__(node, (operands, [(old, new)]))  # for when it is asked for its operands
            node.__class__ = Behind
            continue
        else:
            node.operands = tuple([new if operand is old else operand for operand in operands])
        if node.deps:
            node.deps = tuple([new if dep is old else dep for dep in node.deps])
        moved = node.redirects
        if moved is None:
            node.redirects = {old: new}
        else:
            for key, value in moved.items():
                if value is old:
                    moved[key] = new
            moved.setdefault(old, new)


class Origin:
    """The origin of a node made by a rewrite."""

    __slots__ = ("replaced", "rule")

    def __init__(self, rule: str, replaced: tuple[Node, ...]) -> None:
        self.rule = rule
        self.replaced = replaced
        """The nodes of the match, whose source locations the new node inherits."""


def is_call(node: Node) -> bool:
    """True for a node that computes: no leaf, no tuple and no field of one."""
    return node.op not in LEAVES and node.op not in (TUPLE, GETITEM)


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


def short_name(op: Op) -> str:
    """The last part of the name of an operator, after which nodes are called."""
    return op_name(op).rpartition(".")[2].rpartition("::")[2]


def _tvm_name(op: Any) -> str:
    """The name of an operator or function of TVM, whose text would be a whole description of it."""
    names = [getattr(op, attribute, None) for attribute in ("name", "name_hint", "global_symbol")]
    attrs = getattr(op, "attrs", None)
    names += [attrs["global_symbol"]] if attrs is not None and "global_symbol" in attrs else []
    return next((str(name) for name in names if isinstance(name, str)), None) or type(op).__name__


class Inference(Protocol):
    """Computes the type of a new call from its operands, or ``None`` when they have no known types.

    For a canonical operator nothing counts but the types of the operands, or their values where they are numbers.
    Raises ValueError (with the framework's reason) when the call is ill-typed.
    """

    def __call__(self, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None: ...


class Replaced(Protocol):
    """Nodes of a graph, and the new ones that are to stand for them; see :class:`gsl.graph.splice.Replacement`."""

    @property
    def old(self) -> tuple[Node, ...]: ...

    @property
    def new(self) -> tuple[Node, ...]: ...

    @property
    def created(self) -> tuple[Node, ...]: ...


class Writable(Protocol):
    """Tells whether the framework of a graph can express a new call.

    Raises ValueError, or FrontEndError, with the reason if it can't. Nothing counts but what counts for
    :class:`Inference`.
    """

    def __call__(self, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None: ...


def by_operator(nodes: Iterable[Node]) -> dict[Op, list[Node]]:
    """The nodes of each operator, in the order in which they are given."""
    table: defaultdict[Op, list[Node]] = defaultdict(list)
    for node in nodes:
        table[node.op].append(node)
    return dict(table)


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
        writable: Writable | None = None,
        admits: Callable[[Replaced], None] | None = None,
        exchanges: Callable[[Op], bool] | None = None,
        shares_bodies: bool = False,
        shares: Callable[[Node, Node], bool] | None = None,
        gives_view: Callable[[Node], bool] | None = None,
        targets: Callable[[Node], Iterable[Any]] | None = None,
        held: Iterable[Node] = (),
    ) -> None:
        self.nodes = list(nodes)
        self.outputs = list(outputs)
        self.infer = infer
        self.canonical = canonical
        """A function that returns, as text for messages, the canonical operators that show the call of a native target
        with so many operands and these attributes. It returns ``None`` if no canonical operators show the call."""
        self.writable = writable
        """Tells of each new call whether the framework can express it, where that is not sure."""
        self.admits = admits
        """Raises FrontEndError for new nodes that can't stand in the places of old ones, for reasons that types do not
        tell: devices, and how tensors lie in memory. ``None`` where that can't happen."""
        self.exchanges = exchanges
        """True for the operator of a call that exchanges data with other processes. ``None`` where there are none."""
        self.shares_bodies = shares_bodies
        """True if groups that compute the same may have one body, whatever native calls their nodes came from."""
        self.shares = shares
        """Tells if a node may have memory in common with its operand, as far as values tell that. Given where who gets
        an output may change it in place: then none may come to share the memory of an input, a weight or another
        output."""
        self.gives_view = gives_view
        """Tells if what a call gives may be memory of its operands, however these lie."""
        self.targets = targets
        """The functions of the framework whose calls a node stands for. ``None`` where none is known by itself."""
        self.typed = typed
        """True if nodes of this kind of graph have types; where they have none, none are missed."""
        self.written: Mapping[Node, int | None] = dict(written or {})
        """The inputs whose memory is overwritten after the last node, each with the number of the output that is
        written to it; ``None`` if that output is written to other memory which the input shares."""
        self.held = frozenset(held)
        """The nodes that stay though no node uses them: native calls without a node check their values."""
        for index, node in enumerate(self.nodes):
            node.index = index
            for operand in node.operands:
                users = operand.users
                if not users:
                    operand.users = (node,)
                elif isinstance(users, dict):  # as in add_user, of which there are very many calls
                    users[node] = None
                else:
                    operand.add_user(node)
            for dep in node.deps:
                dep.add_user(node)
        self.formed: dict[Any, Any] = {}
        """The attributes and types of new calls while rules work on the graph, by the parts from which these calls are
        made."""
        self.touched: dict[Node, None] | None = None
        """The nodes that got other operands or more users, new ones, and what was matched and stays, while somebody
        wants to know; else ``None``."""
        self.less_used: dict[Node, None] | None = None
        """The nodes that lost users, while somebody wants to know; else ``None``."""
        self._by_op: dict[Op, list[Node]] | None = None

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        from gsl.graph.text import text

        return text(self)

    def by_op(self) -> Mapping[Op, list[Node]]:
        """The nodes of each operator, in graph order. Kept, so not to be changed."""
        if self._by_op is None:
            self._by_op = by_operator(self.nodes)
        return self._by_op

    def ends(self) -> frozenset[Node]:
        """The outputs as a set."""
        return frozenset(self.outputs)

    def reorder(self, nodes: list[Node]) -> None:
        """Let these be the nodes, in topological order."""
        self.nodes = nodes
        self._by_op = None
        for index, node in enumerate(nodes):
            node.index = index

    def release(self) -> None:
        """Let the nodes be freed at once, when nothing refers to them any more.

        Operands and users refer to each other, so that otherwise the garbage collector has to find all of them.
        """
        for node in self.nodes:
            node.users = ()

    def __copy__(self) -> Graph:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Graph:
        # The handles are those of one native graph, which is not copied.
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a view belongs to one native graph and is not pickled: store it, and save the native graph")

    def copy(self) -> Graph:
        """A copy that shares types, attributes and native handles, and nothing else."""
        new: dict[Node, Node] = {}
        for old in self.nodes:
            operands = old.operands
            if operands:
                operands = (new[operands[0]],) if len(operands) == 1 else tuple([new[operand] for operand in operands])
            node = new[old] = Node(old.op, operands, old.attrs, old.type, old.name, old.native, old.effect)
            node.origin = old.origin
            if old.deps:
                node.deps = tuple([new[dep] for dep in old.deps])
            if old.redirects is not None:
                node.redirects = {new.get(key, key): new[value] for key, value in old.redirects.items()}
        written = {new[node]: output for node, output in self.written.items()}
        outputs = [new[node] for node in self.outputs]
        return Graph(
            new.values(), outputs, self.infer, self.canonical, written,
            typed=self.typed, writable=self.writable, admits=self.admits, exchanges=self.exchanges,
            shares_bodies=self.shares_bodies, shares=self.shares, gives_view=self.gives_view, targets=self.targets,
            held=[new[node] for node in self.held],
        )  # fmt: skip
