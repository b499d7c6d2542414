"""A canonical reading as view nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from gsl.front.core.handle import Source
from gsl.front.fx import spellings
from gsl.front.fx.tree import Weight
from gsl.front.fx.values import is_scalar, scalar_type, type_of_value
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import CONST, TUPLE, Node, TupleType
from gsl.spec import TABLE

if TYPE_CHECKING:
    from gsl.front.fx.load import FxLoader


class Expansion:
    """The view nodes of one canonical reading, operands first."""

    def __init__(self, loader: FxLoader, origin: fx.Node, name: str) -> None:
        self.loader = loader
        self.origin = origin
        self.name = name
        self.nodes: list[Node] = []
        self.sources: list[tuple[Source, ...]] = []
        self._slots: dict[int, int] = {}
        """The numbers of the canonical calls that were added as operands: one that stands in the tree twice is one."""

    def add(self, canon: Canon, type: Any = None) -> int:
        """Add a canonical call with all its operands; its number. ValueError if its attributes are ill-formed."""
        operands: list[Node] = []
        sources: list[Source] = []
        for position, operand in enumerate(canon.operands):
            # A bias does not change the type.
            own = type if canon.op == "nn.bias_add" and position == 0 else None
            view, source = self._operand(operand, own)
            operands.append(view)
            sources.append(source)
        attrs = self._attributes(canon, operands)
        if type is None:
            type = self._type(canon.op, tuple(operands), attrs)
        suffix = "nobias" if canon.op in spellings.BIASED else own_name(canon.op)
        return self._append(Node(canon.op, tuple(operands), attrs, type, name=f"{self.name}_{suffix}"), tuple(sources))

    def _append(self, node: Node, sources: tuple[Source, ...]) -> int:
        self.nodes.append(node)
        self.sources.append(sources)
        return len(self.nodes) - 1

    def _operand(self, operand: Any, type: Any) -> tuple[Node, Source]:
        match operand:
            case Canon():
                slot = self._slots.get(id(operand))
                if slot is None:
                    slot = self._slots[id(operand)] = self.add(operand, type)
                return self.nodes[slot], slot
            case fx.Node():
                return self.loader.views[operand], operand
            case Weight():
                return self.loader.weight_view(self.origin, operand)
        value = operand.value if isinstance(operand, LiteralOperand) else operand
        type = scalar_type(value) if is_scalar(value) else type_of_value(value)
        slot = self._append(Node(CONST, attrs={"value": value}, type=type, name=f"{self.name}_const"), ())
        return self.nodes[slot], slot

    def _attributes(self, canon: Canon, operands: list[Node]) -> dict[str, Any]:
        if canon.op not in TABLE:
            return dict(canon.attrs)
        return TABLE[canon.op].complete(canon.attrs, tuple([operand.type for operand in operands]))

    def _type(self, op: str, operands: tuple[Node, ...], attrs: dict[str, Any]) -> Any:
        if any(operand.type is None for operand in operands):
            return None
        return self.loader.infer(op, operands, attrs)


def own_name(op: str) -> str:
    """The last part of a canonical name."""
    return op.rpartition(".")[2]


def is_tuple(view: Node) -> bool:
    """True if a view node is known to have a tuple for its value."""
    if isinstance(view.type, TupleType) or view.op == TUPLE:
        return True
    return isinstance(view.op, str) and view.op in TABLE and TABLE[view.op].fields
