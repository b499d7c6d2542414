"""Rules that are true: laws of algebra, and parts of a graph as rules that build the same again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from gsl import Subst, op, pat
from gsl.errors import PatternError
from gsl.graph import CONST, GETITEM, LEAVES, TUPLE, Graph, Node
from gsl.pat import Pattern
from gsl.spec import TABLE

x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
halves = op.Split(x, indices_or_sections=2, axis=1)
pieces = op.Split(op.Concatenate([x, y], axis=1), indices_or_sections=2, axis=1)
products = op.Concatenate([x, x], axis=0) * op.Concatenate([y, z], axis=0)
parts = op.Split(products, indices_or_sections=x.shape[:1], axis=0)
activated = pat.Alt(op.ReLU(op.ReLU(x)), op.Abs(op.ReLU(x)))
tanh = op.Tanh(x)

LAWS = (
    Subst(x + y, y + x, name="swap"),
    Subst((x + y) + z, x + (y + z), name="associate"),
    Subst(op.Negative(op.Negative(x)), x, name="negative twice"),
    Subst(x - y, x + op.Negative(y), name="subtract"),
    Subst(activated, pat.Match(activated, [op.ReLU(x), op.ReLU(x)]), name="relu"),
    Subst(op.Maximum(x, x), x, name="maximum of one"),
    Subst(x * op.Sigmoid(x), op.SiLU(x), name="silu"),
    Subst(x * 2.0, x + x, name="double"),
    Subst(x * 0.5, x / 2.0, name="half"),
    Subst(op.Concatenate([halves[0], halves[1]], axis=1), x, name="halves"),
    Subst(pieces, pat.Tuple(x, y), name="pieces", where=x.shape == y.shape),
    Subst([x * y, x * z], [parts[0], parts[1]], name="both", where=[y.shape == x.shape, z.shape == x.shape]),
    Subst([op.Tanh(x), op.Sigmoid(x)], [op.Tanh(x), op.Divide(1.0, op.Exp(-x) + 1.0)], name="sigmoid by exp"),
    Subst(op.ReLU(x), op.Maximum(x, 0.0), name="relu by maximum", where=x.dtype == "float64"),
    Subst(tanh + y, y + op.Tanh(x), name="used here alone", where=[tanh.extern_use(False)]),
    Subst(op.ReLU(x) + y, lambda match: y + op.ReLU(match[x]), name="function"),
    Subst(
        op.Reshape(op.Reshape(x)), lambda match: op.Reshape(x, newshape=match.outputs[0].attrs["newshape"]),
        name="reshape",
        where=lambda match: all(isinstance(size, int) and size > 0 for size in match.outputs[0].attrs["newshape"]),
    ),
)  # fmt: skip
"""Whatever the tensors are, as far as the checks of a rewrite admit the match; some undo each other."""


class Abstraction:
    """Makes a source of a part of a graph, and a target that computes the same."""

    def __init__(self, data: st.DataObject, graph: Graph) -> None:
        self.data = data
        self.graph = graph
        self.patterns: dict[Node, Pattern] = {}
        self.inside: dict[Node, int] = {}

    def of(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def rule(self, name: str) -> Subst | None:
        """A rule that matches at some calls of the graph; ``None`` where the graph has none."""
        calls = [node for node in self.graph if is_canonical(node)]
        if not calls:
            return None
        first = self.of(*calls)
        roots = [first]
        near = [user for operand in first.operands for user in operand.users if user in calls and user is not first]
        if near and self.of(False, False, True):
            roots.append(self.of(*near))
        sources = [self.pattern(root, self.of(1, 2, 3)) for root in roots]
        if sources[0] is sources[-1] and len(sources) > 1:
            sources = sources[:1]
            roots = roots[:1]
        made: dict[Node, Pattern] = {}
        targets = [self.target(root, made) for root in roots]
        options: dict[str, Any] = {}
        if self.of(False, False, False, True):
            options["extern_use"] = False
        return Subst(sources if len(sources) > 1 else sources[0], targets if len(targets) > 1 else targets[0],
                     name=name, priority=self.of(0, 0, 1), **options)  # fmt: skip

    def pattern(self, node: Node, depth: int) -> Pattern:
        """The pattern of a node: what it is, down to some depth, and from there on anything."""
        known = self.patterns.get(node)
        if known is None:
            known = self.patterns[node] = self._pattern(node, depth)
        return known

    def _pattern(self, node: Node, depth: int) -> Pattern:
        if node.op == CONST and isinstance(node.attrs["value"], (int, float)) and not math.isnan(node.attrs["value"]):
            literal: Pattern = self.of(pat.Wildcard(), pat.Const(node.attrs["value"]))
            return literal
        if depth == 0 or not (is_canonical(node) or node.op in (TUPLE, GETITEM)):
            typed = pat.Wildcard(dtype=node.dtype) if node.dtype else pat.Wildcard()
            leaf: Pattern = self.of(pat.Wildcard(), pat.Wildcard(), typed)
            return leaf
        self.inside[node] = depth
        if node.op == TUPLE:
            return pat.Tuple(*[self.pattern(operand, depth) for operand in node.operands])
        if node.op == GETITEM:
            return pat.GetItem(self.pattern(node.operands[0], depth), node.attrs["index"])
        operands = [self.pattern(operand, depth - 1 if operand.op != TUPLE else depth) for operand in node.operands]
        given = {} if self.of(True, False) else self.literals(node)
        name = node.op if self.of(True, True, False) else pat.OneOf(node.op, "nn.relu", "tanh")
        call = pat.Call(name, *operands, **(given if isinstance(name, str) else {}))
        made: Pattern = self.of(call, call, call, pat.Alt(call, op.Erf(pat.Wildcard())), call & pat.Wildcard())
        return made

    def literals(self, node: Node) -> Mapping[str, Any]:
        """The attributes that a pattern can spell out."""
        spec = TABLE[str(node.op)]
        plain = (bool, int, float, str, tuple, type(None))
        return {
            key: value for key, value in node.attrs.items()
            if spec.attrs[key].derive is None and isinstance(value, plain) and "SymDim" not in repr(value)
            and (not isinstance(value, tuple) or all(isinstance(item, (int, float)) for item in value))
        }  # fmt: skip

    def target(self, node: Node, made: dict[Node, Pattern]) -> Pattern:
        """What computes the same as a node: new calls, sometimes with a law put on top."""
        if node not in self.inside:
            return self.patterns[node]
        if node in made:
            return made[node]
        operands = [self.target(operand, made) for operand in node.operands]
        new: Pattern
        if node.op == TUPLE:
            new = pat.Tuple(*operands)
        elif node.op == GETITEM:
            new = pat.GetItem(operands[0], node.attrs["index"])
        else:
            new = self.patterns[node].like(*operands)
            if node.dtype == "float64":
                new = self.of(*SAME)(new)
        made[node] = new
        return new


def made_of_parts(count: int, make: Callable[[str], Subst | None]) -> Iterator[Subst]:
    """So many rules by their names, but for those that can't be made, as of two parts that are not connected."""
    for number in range(count):
        with warnings.catch_warnings(), suppress(PatternError):
            warnings.simplefilter("ignore")
            if (rule := make(f"own {number}")) is not None:
                yield rule


def unchanged(new: Pattern) -> Pattern:
    return new


SAME: tuple[Callable[[Pattern], Pattern], ...] = (
    unchanged, unchanged, unchanged, unchanged, lambda new: op.Negative(-new), lambda new: op.Maximum(new, new),
    lambda new: new * 1.0,
)  # fmt: skip


def is_canonical(node: Node) -> bool:
    """Whether a node is a call of a declared operator that a rule can build again."""
    return isinstance(node.op, str) and node.op in TABLE and node.op not in LEAVES and node.effect is None
