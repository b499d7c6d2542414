"""The rules that are made from the contents of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gsl.errors import Location, PatternError, nearest
from gsl.graph import GETITEM, Node
from gsl.match import Match
from gsl.pat import Alt, Call, Fused, GetItem, Leaf, Pattern, Repeat, Use, Variadic, Wildcard, walk
from gsl.rewrite.check import Refusal
from gsl.rewrite.subst import Subst
from gsl.rulefile.forms import Entry, FileOperator, OpType, PatternForm, forms
from gsl.rulefile.names import BIAS, Heads, OneNode, OperatorSelection, lookup
from gsl.spec import LISTS

Heuristic = Callable[["FusionMatch"], Any]
"""A function that decides what a match becomes. It returns patterns or nodes as of a target, ``None`` for the group, or
the reason for a refusal."""


class FusionMatch:
    """A match of a rule of a file, by the names of its operators.

    ``match["relu0"]`` is the node of an operator, the last one where it has several; ``match.covered("lin1")`` are all
    of them. ``match.match`` is the match of the patterns, ``match.rule`` the rule.
    """

    def __init__(self, match: Match, rule: FusionRule) -> None:
        self.match = match
        self.rule = rule

    def __repr__(self) -> str:
        return f"<{self.rule.name} at {', '.join('%' + node.name for node in self.outputs)}>"

    def __contains__(self, name: object) -> bool:
        return name in self.rule.parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.rule.parts)

    def __getitem__(self, name: str) -> Node:
        return self.match[self._part(name).pattern]

    def _part(self, name: str) -> PatternPart:
        try:
            return self.rule.parts[name]
        except KeyError:
            raise KeyError(f"{self.rule.name} has no operator {name!r}: {nearest(name, self.rule.parts)}") from None

    def get(self, name: str, default: Any = None) -> Any:
        """The node of an operator, or a default where the operator is absent. KeyError for a name that the rule of the
        file has nowhere."""
        known = {operator.name for each in self.rule.entry.patterns for operator in each.operators}
        if name not in known:
            raise KeyError(f"{self.rule.name} has no operator {name!r}: {nearest(name, known)}")
        part = self.rule.parts.get(name)
        return default if part is None else self.match[part.pattern]

    def covered(self, name: str) -> tuple[Node, ...]:
        """All nodes of an operator: a product and the addition of its bias, the nodes of a sequence."""
        keys = {pattern for pattern in walk(self._part(name).pattern) if not isinstance(pattern, Leaf)}
        nodes = self.match.bindings.nodes.items()
        found = {node for key, node in nodes if (key[0] if isinstance(key, tuple) else key) in keys}
        return tuple(sorted(found.intersection(self.match.inner), key=lambda node: node.index))

    @property
    def outputs(self) -> tuple[Node, ...]:
        """The nodes that are replaced: those of the operators without children."""
        return self.match.outputs

    @property
    def inner(self) -> tuple[Node, ...]:
        """All nodes that the match covers."""
        return self.match.inner


class FusionRule(Subst):
    """One form of a rule of a file, as a substitution by a group that carries its name, priority and heuristic."""

    def __init__(self, entry: Entry, form: PatternForm, heuristic: Heuristic | None = None) -> None:
        self.entry = entry
        self.parts: Mapping[str, PatternPart] = MappingProxyType(_parts(form))
        """The operators of this form by name, also by the names of entries that stand for them."""
        carried = {} if entry.heuristic is None else {"heuristic": entry.heuristic}
        group = Fused(entry.name, priority=entry.priority, **carried)
        super().__init__(
            [self.parts[name].pattern for name in form.sinks],
            group if heuristic is None else lambda match: _decide(heuristic, FusionMatch(match, self), group),
            where=[*_uses(form, self.parts), self._with_its_bias],
            name=form.name,
            priority=entry.priority,
            extern_use=False,
        )
        self.location = Location(entry.place.file, entry.place.line)

    def _with_its_bias(self, match: Match) -> bool | str:
        """True if no layer is matched without its bias; the reason if one is."""
        for part in self.parts.values():
            if part.whole:
                pattern = part.pattern
                for node in match.chain(pattern) if isinstance(pattern, Repeat) else (match[pattern],):
                    for user in node.users:
                        if user.op == BIAS and user.operands[0] is node and user not in match.inner:
                            return f"%{user.name} is the bias of %{node.name} and is not part of the match"
        return True


def rules_of(entries: Sequence[Entry], heuristics: Mapping[str, Heuristic] | None = None) -> list[FusionRule]:
    """The rules of a file. PatternError for a heuristic that no rule of the file has."""
    if not isinstance(heuristics, Mapping | None):
        raise PatternError(f"heuristics= is a mapping from names to functions of the match, got {heuristics!r}")
    chosen = dict(heuristics or {})
    known = {entry.heuristic for entry in entries if entry.heuristic is not None}
    for name, function in chosen.items():
        if name not in known:
            raise PatternError(f"heuristics={{{name!r}: …}}: no rule has this heuristic: {nearest(name, known)}")
        if not callable(function):
            raise PatternError(f"heuristics={{{name!r}: …}} takes a function of the match, got {function!r}")
    return [
        FusionRule(entry, form, chosen.get(entry.heuristic) if entry.heuristic is not None else None)
        for entry in entries
        for form in forms(entry)
    ]


def _decide(heuristic: Heuristic, match: FusionMatch, group: Fused) -> Any:
    made = heuristic(match)
    if isinstance(made, str):
        raise Refusal(made)
    return group if made is None else made


# ---------------------------------------------------------------- patterns


@dataclass(frozen=True)
class PatternPart:
    """The pattern of one operator of the file."""

    pattern: Pattern
    has_fields: bool
    """True if its result may be a tuple, of which users take a field."""
    whole: bool
    """True if a layer must not be matched without its bias."""


def _parts(form: PatternForm) -> dict[str, PatternPart]:
    selections = {operator.name: selection(operator.op_type) for operator in form.operators}
    parts = {
        operator.name: _part(operator, selections[operator.name], [selections[c] for c in form.children[operator.name]])
        for operator in form.operators
    }
    return parts | {name: parts[operator] for name, operator in form.stands.items()}


def selection(op_type: OpType) -> OperatorSelection:
    """The operators that the names of a file stand for."""
    kinds = tuple(kind for word in op_type.names if (kind := lookup(word.text)) is not None)
    names = ", ".join(word.text for word in op_type.names)
    label = "any" if op_type.is_any else f"other than {names}" if op_type.inverted else names
    return OperatorSelection(label, kinds, op_type.inverted)


def _part(operator: FileOperator, own: OperatorSelection, children: Sequence[OperatorSelection]) -> PatternPart:
    location = Location(operator.place.file, operator.place.line)
    repeated = own
    for child in children:
        repeated = repeated.without(child)
    # As few as needed: a sequence stops before what may be its child. Where all may be, one is enough.
    is_chain = operator.multiple and (repeated.inverted or bool(repeated.kinds))
    wanted = repeated if is_chain else own
    pattern = _alternatives(wanted)
    if is_chain:
        pattern = Repeat(pattern, greedy=False, sole=False)
    for part in walk(pattern):
        object.__setattr__(part, "location", location)  # where the file says so, not where it is read
    return PatternPart(pattern, wanted.has_fields, wanted.whole)


def _alternatives(wanted: OperatorSelection) -> Pattern:
    """The forms of the operators in a graph: with the addition of a bias, with a list of operands, one node."""

    def call(heads: Heads, *, inverted: bool = False) -> Call:
        return Call._free(OneNode(wanted.label, heads, inverted=inverted))

    found: list[Pattern] = []
    heads = wanted.heads
    if wanted.inverted:
        lists = LISTS - heads.canonical
        found += [_joined(call(heads, inverted=True), BIAS)]
        found += [call(heads | Heads(LISTS | {BIAS}), inverted=True)]
    else:
        for kind in wanted.kinds:
            canonical = Heads(kind.heads.ops & kind.heads.canonical)
            found += [_joined(call(canonical), op) for op in kind.joined if canonical]
        heads = replace(wanted, kinds=tuple(kind for kind in wanted.kinds if kind.alone)).heads
        lists, single = heads.canonical & LISTS, Heads(heads.ops - LISTS - {GETITEM}, heads.names)
        found += [call(single)] if single.ops or single.names else []
        found += [GetItem(Wildcard())] if GETITEM in heads.ops else []
    found += [_of_list(call(Heads(lists)))] if lists else []
    return found[0] if len(found) == 1 else Alt(*found)


def _joined(product: Call, op: str) -> Pattern:
    """A product and the addition behind it; of a bias the product is the first operand."""
    return product.only_used_by(Call._free(op), index=0 if op == BIAS else None)


def _of_list(call: Call) -> Pattern:
    """A call with the tuple of its operands, which stands for it where it uses something."""
    field = Wildcard()
    return Variadic(field, templates=[field]).only_used_by(call)


def _uses(form: PatternForm, parts: Mapping[str, PatternPart]) -> Iterator[Use]:
    for name, children in form.children.items():
        part = parts[name]
        for child in children:
            # Every user may take a field of its own.
            operand = Alt(part.pattern, GetItem(part.pattern)) if part.has_fields else part.pattern
            yield Use(operand, parts[child].pattern)
