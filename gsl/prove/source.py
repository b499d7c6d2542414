"""The source of a rule in one case: its nodes as expressions of indices, and what the match tells of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from gsl import pat
from gsl.attr.ast import Ast, Attribute, Binary, Function, Literal, Symbol, conjuncts
from gsl.attr.evaluate import same
from gsl.errors import EvaluationError, UndecidableError
from gsl.graph import CONST, GETITEM, PARAM, TUPLE
from gsl.match.bindings import MatchScope
from gsl.pat import Pattern
from gsl.pat.typed import Domain
from gsl.pat.variadic import references
from gsl.prove.attributes import RANKS, demanded, derived, free, jointly, type_of
from gsl.prove.matched import Matched, any_rank, asked, fits, guarded, tensor_of
from gsl.prove.meanings import call, known
from gsl.prove.normal import TermAlgebra
from gsl.prove.path import Path
from gsl.prove.poly import (
    DTYPES,
    EACH,
    MEMBER,
    NUMBER,
    SIZE,
    Impossible,
    IntAtom,
    Poly,
    Unproved,
    Whole,
    difference,
    number,
    operation,
)
from gsl.prove.tensor import Calculation, Family, FamilyBindings, FamilyEvaluator, Real, Tensor, real, within
from gsl.prove.terms import SumTerm
from gsl.rewrite import Subst
from gsl.spec import TABLE, OpSpec, Trait

OPERAND_RANKS: Mapping[str, tuple[tuple[int, ...], ...]] = {
    **{f"nn.conv{n}d{end}": ((n + 2,), (n + 2,)) for n in (1, 2, 3) for end in ("", "_transpose")},
    **{f"nn.{kind}_pool{n}d": ((n + 2,),) for n in (1, 2, 3)
       for kind in ("max", "avg", "global_max", "global_avg")},
    "nn.dense": ((1, 2, 3, 4), (2,)), "nn.bias_add": ((1, 2, 3, 4), (1,)), "nn.batch_norm": ((2, 3, 4), *[(1,)] * 4),
    "nn.batch_matmul": ((3,), (3,)), "matmul": ((1, 2, 3, 4), (1, 2, 3, 4)),
    "concatenate": ((1, 2, 3, 4),), "split": ((1, 2, 3, 4),),
}  # fmt: skip
"""The ranks that the operands of operators may have, of those for which a proof is done."""

AtomOrigin = tuple[Pattern, str, int | None]
"""A pattern, the name of an attribute or ``shape``, and a place in it, or none."""


class SourceSide:
    """The source of a rule in a case, with all that its match tells."""

    def __init__(self, rule: Subst, path: Path) -> None:
        self.rule = rule
        self.path = path
        self.calc = Calculation(path, TermAlgebra(path), given=True)
        self.bindings = FamilyBindings(rule.plan.scopes, self.length, self.member)
        self.operators: dict[pat.OpClass, str] = {}
        self.lengths: dict[pat.Variadic, Whole] = {}
        self.labels: dict[Pattern, str] = {}
        """The names of leaves of which each instance has its own."""
        self.number: tuple[Poly, ...] = ()
        """The number of the instance that is matched."""
        self.members: list[Poly] = []
        """The numbers of an instance and of a field that stand for any one of them in a match."""
        self.origins: dict[IntAtom, AtomOrigin] = {}
        """The places of the sizes and attributes of which a variable is known."""
        self.asked = asked(rule)
        self.pending = [(c, set(references(c))) for where in rule.plan.where for c in conjuncts(where)]
        """The conditions that were not asked yet, each with the patterns that it reads."""
        self.ranks = (1,) if any_rank(rule) else RANKS
        self.casts = any(isinstance(p, pat.Call) and (isinstance(p.op, pat.OpClass) or p.label == "cast")
                         for p in (*rule.plan.patterns, *pat.walk(*rule.target.outputs)))  # fmt: skip

    def match(self) -> list[Matched]:
        """The outputs of the source. Impossible where there is no such match."""
        plan = self.rule.plan
        if any(len(scopes) > 1 for scopes in plan.scopes.values()):
            raise Unproved("it has instances of instances")
        if any(isinstance(c, pat.Use) for c in plan.given):
            raise Unproved("it is written with use relations")
        if plan.fuzzy:
            raise Unproved(f"calls of {', '.join(sorted(map(str, plan.fuzzy)))} may stand between its patterns")
        outputs = [self._output(pattern) for pattern in plan.outputs]
        self._attributes_equal()
        for pattern in plan.patterns:
            if pattern in self.bindings.nodes:
                self._demands(pattern)
        for condition, _ in self.pending:
            self._condition(condition)
        self._demand_reals()
        return outputs

    def _demand_reals(self) -> None:
        """Unproved for a match of complex numbers, of which the laws of real ones do not hold."""
        for node in self.bindings.nodes.values():
            dtype = self.path.reduce(node.value.dtype).number if isinstance(node.value, Tensor) else None
            if dtype is not None and DTYPES[dtype].startswith("complex"):
                raise Unproved("it computes with complex numbers")

    def node(self, pattern: Pattern, ranks: Sequence[int] | None = None) -> Matched:
        """The node of a pattern of the source."""
        ranks = self.ranks if ranks is None else ranks
        key = self.bindings.key(pattern, self.number)
        found = self.bindings.nodes.get(key)
        if found is None:
            with self.instance(self.number if key is not pattern else ()):
                found = self.bindings.nodes[key] = self._matched(pattern, ranks)
            ready = [c for c, read in self.pending if read <= self.bindings.nodes.keys()]
            self.pending = [pair for pair in self.pending if pair[0] not in ready]
            for condition in ready:
                self._condition(condition)
        return found

    def _matched(self, pattern: Pattern, ranks: Sequence[int]) -> Matched:
        match pattern:
            case pat.Alt() if self._is_leaf(pattern):
                return self.node(pattern.choices[0], ranks)
            case pat.Alt():
                chosen = self.path.choose(range(len(pattern.choices)), f"the alternative of {pattern.label}")
                self.bindings.chosen[pattern] = chosen
                return self.node(pattern.choices[chosen], ranks)
            case pat.And():
                left, right = pattern.both
                if isinstance(left, pat.Leaf) and not isinstance(right, pat.Leaf):
                    left, right = right, left
                found = self.node(left, ranks)
                if not isinstance(right, pat.Leaf) or right in self.bindings.nodes:
                    raise Unproved(f"{pattern!r} has two structures")
                self.bindings.nodes[right] = found
                return found
            case pat.Leaf():
                return self._leaf(pattern, ranks)
            case pat.Tuple():
                items = tuple(self.node(item) for item in pattern.items)
                return Matched(self.calc, TUPLE, tuple(tensor_of(item) for item in items), items)
            case pat.Segment():
                raise Unproved(f"{pattern!r} stands for any number of fields among others")
            case pat.Variadic():
                return self._family(pattern)
            case pat.GetItem():
                return self._field(pattern)
            case pat.Call() if pattern.operands is not None:
                return self._call(pattern)
        raise Unproved(f"{pattern!r} can't be read as an expression of indices")

    def _is_leaf(self, pattern: pat.Alt) -> bool:
        """True if the alternatives are leaves of which nothing is demanded, and nobody asks which of them it is."""
        plain = all(isinstance(p, pat.Leaf) and p.guard is None and getattr(p, "literal", None) is None
                    for p in pattern.choices)  # fmt: skip
        return plain and not self.asked & {pattern, *pattern.choices}

    def _is_number(self, pattern: Pattern) -> bool:
        """True for a wanted number that nothing else uses: a tensor that is filled with it broadcasts nothing, so its
        axes do not matter."""
        if not isinstance(pattern, pat.Const) or not isinstance(pattern.literal, Ast) or pattern.guard is not None:
            return False
        used = [child for parent in self.rule.plan.patterns for child in parent.children()]
        return used.count(pattern) == 1 and pattern not in {*self.asked, *pat.walk(*self.rule.target.outputs)}

    def _leaf(self, pattern: pat.Leaf, ranks: Sequence[int]) -> Matched:
        literal = pattern.literal if isinstance(pattern, pat.Const) else None
        guard, value = pattern.guard, None
        if isinstance(literal, Ast):
            value = self.evaluated(literal)
        elif literal is not None:
            raise Unproved("it has a literal of several numbers")
        shape: tuple[Any, ...] | None = None
        if guard is not None and isinstance(guard.shape, tuple):
            shape = tuple(None if size is None else self._try(size) for size in guard.shape)
        elif guard is not None and guard.shape is not None:
            shape = self._try(guard.shape) if isinstance(guard.shape, Ast) else None
        ndim = len(shape) if shape is not None else self._try(guard.ndim) if guard is not None and guard.ndim else None
        label = self._label(pattern)
        first = pattern in self.labels and not self.number
        if guard is not None and guard.values is not None and not first:  # the label is that of all instances
            self.path.domains[label] = guard.values
        own = (Poly(),) if first else self.number
        rank = ndim if isinstance(ndim, int) else self.path.choose(ranks, f"the rank of {label}")
        sizes = tuple(
            self._size(f"{label}.{axis}", own) if shape is None or shape[axis] is None else number(shape[axis])
            for axis in range(rank)
        )
        dtype = self._size(f"dtype.{label}", own, NUMBER)
        algebra = self.calc.algebra

        def at(index: tuple[Poly, ...]) -> SumTerm:
            return real(value) if value is not None else algebra.element(label, (*own, *index))

        attrs = {}
        if isinstance(pattern, pat.Const) and rank == 0:
            attrs = {"value": value if value is not None else Real(algebra.element(label, own), algebra)}
        elif isinstance(pattern, pat.Const) and value is not None:
            attrs = {"value": value}
        if not own:
            self._note(pattern, "shape", sizes)
        kind = CONST if isinstance(pattern, pat.Const) else PARAM
        return Matched(self.calc, kind, Tensor(sizes, dtype, at), (), attrs, label)

    def _field(self, pattern: pat.GetItem) -> Matched:
        whole = self.node(pattern.tuple)
        if isinstance(whole.value, Family):
            return self._member_field(pattern, whole)
        if not isinstance(whole.value, tuple):
            raise Impossible("a field of a tensor")
        index = None if pattern.number is None else self.evaluated(pattern.number)
        if index is None:
            index = self.path.choose(range(len(whole.value)), "the field")
        if not isinstance(index, int) or not -len(whole.value) <= index < len(whole.value):
            raise Impossible("no such field")
        found = whole.value[index]
        return Matched(self.calc, GETITEM, found, (whole,), {"index": index % len(whole.value)})

    def _call(self, pattern: pat.Call) -> Matched:
        name = self._operator(pattern)
        spec = TABLE[name]
        if not known(name):
            raise Unproved(f"{name} has no meaning as an expression of indices")
        ranks: Sequence[Sequence[int] | None] = OPERAND_RANKS.get(name, ())
        assert pattern.operands is not None
        if Trait.BROADCASTING in spec.traits:
            ranks = [(0,) if self._is_number(operand) else None for operand in pattern.operands]
        operands = tuple(
            self.node(operand, ranks[place] if place < len(ranks) else None)
            for place, operand in enumerate(pattern.operands)
        )
        values = tuple(operand.value for operand in operands)
        if not spec.takes(len(operands)):
            raise Impossible("no such call")
        attrs: dict[str, Any] = {}
        for attribute in sorted(spec.attrs, key=lambda name: name == "indices_or_sections"):
            if spec.attrs[attribute].derive is None:
                attrs[attribute] = self._attribute(pattern, spec, attribute, values, attrs)
        types = tuple(type_of(self.calc, value) for value in values)
        attrs = derived(self.calc, spec, jointly(self.calc, spec, attrs, types), types)
        return Matched(self.calc, name, call(self.calc, name, values, attrs), operands, attrs)

    def _attribute(
        self, pattern: pat.Call, spec: OpSpec, name: str, values: tuple[Any, ...], attrs: Mapping[str, Any]
    ) -> Any:
        given = pattern.attrs.get(name)
        if given is not None:
            try:
                value = self.evaluated(given)
            except Unproved:
                value = None
            if value is not None:
                return demanded(self.calc, spec, name, value, values, attrs)
        if name not in pattern.attrs:
            for constraint in self.rule.plan.given:  # attributes that are equal to those of a call which is known
                if isinstance(constraint, pat.AttrEqual) and pattern in (constraint.left, constraint.right):
                    other = constraint.right if pattern is constraint.left else constraint.left
                    node = self.bindings.nodes.get(other)
                    named = constraint.names is None or name in constraint.names
                    if node is not None and named and name in node.attrs and node.op == spec.name:
                        return node.attrs[name]
        fields = [p.field for p in self.rule.plan.patterns if isinstance(p, pat.Variadic)]
        if name == "indices_or_sections" and any(isinstance(p, pat.GetItem) and p.tuple is pattern for p in fields):
            return self._cuts(values[0], attrs["axis"])
        found = free(self.calc, spec, name, values)
        if not self.number:
            self._note(pattern, name, found)
        return found

    def _note(self, pattern: Pattern, name: str, value: Any) -> None:
        """Note where the variables of a value stand."""
        places: Any = enumerate(value) if isinstance(value, tuple) else [(None, value)]
        for place, item in places:
            found = item.poly if isinstance(item, Whole) else item
            atom = next(iter(found.atoms), None) if isinstance(found, Poly) else None
            if atom is not None and found == Poly.of(atom):
                self.origins.setdefault(atom, (pattern, name, place))

    def _operator(self, pattern: pat.Call) -> str:
        op = pattern.op
        if isinstance(op, OpSpec):
            return op.name
        if not isinstance(op, pat.OpClass):
            raise Unproved(f"{pattern.label} is native to a framework")
        if op not in self.operators:
            assert pattern.operands is not None
            found = self.path.choose(op.declared(len(pattern.operands), pattern.attrs), f"{op!r}")
            if not op.joint:
                return found
            self.operators[op] = found
        return self.operators[op]

    # ---------------------------------------------------------------- conditions

    def _attributes_equal(self) -> None:
        for constraint in self.rule.plan.given:
            if isinstance(constraint, pat.AttrEqual):
                left, right = (self.bindings.nodes.get(p) for p in (constraint.left, constraint.right))
                if left is None or right is None:
                    continue
                names = constraint.names
                if names is None:
                    names = tuple(TABLE[left.op].own(left.attrs))
                    if left.attrs.keys() != right.attrs.keys():
                        raise Impossible("other attributes")
                for name in names:
                    if name not in left.attrs or name not in right.attrs:
                        raise Impossible("no such attribute")
                    if TABLE[left.op].attrs[name].derive is None:
                        self.equate(left.attrs[name], right.attrs[name])

    def equate(self, left: Any, right: Any) -> None:
        """Take two values for equal. Impossible if they are not."""
        if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
            if len(left) != len(right):
                raise Impossible("another length")
            for one, other in zip(left, right):
                self.equate(one, other)
        elif isinstance(left, (Real, Family)) or isinstance(right, (Real, Family)):
            return  # what is said of numbers, and of tuples of any length, is not used
        elif isinstance(left, Whole) or isinstance(right, Whole):
            rest = difference(left, right)
            if rest is None:
                raise Impossible("other kinds of values")
            self.path.assume(("==", rest))
        elif not same(left, right):
            raise Impossible("other values")

    def _demands(self, pattern: Pattern) -> None:
        """Assume what a pattern demands of its own node."""
        node = self.bindings.nodes[self.bindings.key(pattern, self.number)]
        for expression, own in guarded(pattern, node):
            found = self._try(expression)
            if found is not None:
                self.equate(found, own)
        if isinstance(pattern, pat.Call):
            spec, values = TABLE[node.op], tuple(operand.value for operand in node.operands)
            wanted: dict[str, Any] = {}
            for name, expression in pattern.attrs.items():
                value = self._try(expression)
                if value is not None and name in node.attrs:
                    own = spec.attrs[name].derive is None
                    wanted[name] = demanded(self.calc, spec, name, value, values, node.attrs) if own else value
            types = tuple(type_of(self.calc, value) for value in values)
            full = jointly(self.calc, spec, {**node.attrs, **wanted}, types)
            for name in wanted:
                self.equate(full[name], node.attrs[name])

    def _condition(self, condition: Ast) -> None:
        """Take a condition for true. Impossible if it is false."""
        match condition:
            case Function("In", (Attribute(_, "dtype"), Literal())) if not self.casts:
                return  # real numbers have no dtype
            case Binary(">" | ">=" | "!=" as relation, Attribute(pattern, "value"), Literal(0)) if (
                pattern in self.bindings.nodes and pattern not in self.labels
            ):
                domain = {">": "positive", ">=": "nonnegative", "!=": "nonzero"}[relation]
                self.path.domains.setdefault(self.bindings.nodes[pattern].name, Domain.of(domain))
                return
        try:
            if isinstance(condition, Binary) and condition.operator == "==":
                self.equate(self.evaluated(condition.left), self.evaluated(condition.right))
                return
            held = self.evaluated(condition)
        except Unproved:
            return  # what can't be read is not used
        if held is not True:
            raise Impossible("a condition fails")

    def _try(self, expression: Ast) -> Any:
        """The value of an expression; ``None`` where it can't be read yet."""
        try:
            return self.evaluated(expression)
        except Unproved:
            return None

    def evaluated(self, expression: Ast, symbols: dict[Symbol, Any] | None = None, scope: Any = None) -> Any:
        if isinstance(expression, Literal):
            return expression.value
        try:
            scope = scope or MatchScope(self.bindings, self.number)
            return FamilyEvaluator(self.path, scope, self._symbols() if symbols is None else symbols).value(expression)
        except (EvaluationError, UndecidableError) as error:
            if isinstance(error.__cause__, RecursionError):
                raise error.__cause__ from None
            raise Unproved(f"{expression!r} can't be read: {error}") from error

    # ---------------------------------------------------------------- any number of instances

    def _output(self, pattern: Pattern) -> Matched:
        if not isinstance(pattern, pat.Variadic):
            return self.node(pattern)
        self.length(pattern)
        return self.member(pattern, pattern.field, self.output_number)

    @cached_property
    def output_number(self) -> Poly:
        """The number of the output that is looked at, of a source with any number of them."""
        variadic = self.rule.plan.variadic
        assert variadic is not None
        return self._any_member(number(self.length(variadic)))

    def _any_member(self, count: Poly) -> Poly:
        """The number of any one of some instances or fields."""
        self.members.append(Poly.of(self.path.index(count, "k")))
        return self.members[-1]

    def length(self, variadic: pat.Variadic) -> Whole:
        """The number of instances."""
        if variadic not in self.lengths:
            if not isinstance(variadic, pat.Variadic):
                raise Unproved(f"{variadic!r} can't be read as an expression of indices")
            with self.instance(()):
                self.lengths[variadic] = self.path.variable("n", max(variadic.min_len, 1))
                if variadic.first:
                    for template, first in zip(variadic.templates, variadic.first):
                        if isinstance(template, pat.Leaf) and isinstance(first, pat.Leaf):
                            self.labels[first] = self._label(template)
                    self.node(variadic.first_field)
                    fits(self, variadic)
        return self.lengths[variadic]

    def member(self, variadic: pat.Variadic, template: Pattern, place: Poly) -> Matched:
        """The node of a template in the instance with a number. Unproved if there may be no such instance."""
        count = number(self.length(variadic))
        if not place.terms and variadic.first:
            return self.bindings.nodes[variadic.first[variadic.templates.index(template)]]  # type: ignore[no-any-return]
        key = self.bindings.key(template, (place,))
        if key not in self.bindings.nodes or key is template:  # the same node in all instances
            if not any(atom == EACH or atom.operation == MEMBER for atom in place.atoms):
                self.path.require((">=", place), "the number of an instance")
                self.path.require((">=", count - 1 - place), "the number of an instance")
            with self.instance((place,)):
                self.node(variadic.field)
                for own in variadic.templates:
                    if self.bindings.key(own, (place,)) in self.bindings.nodes:
                        self._demands(own)
        return self.bindings.nodes[key]  # type: ignore[no-any-return]

    @contextmanager
    def instance(self, place: tuple[Poly, ...]) -> Iterator[None]:
        """Let what is matched be of the instance with a number."""
        outer, self.number = self.number, place
        try:
            with within(self.path, place[0] if place else None):
                yield
        finally:
            self.number = outer

    def _symbols(self) -> dict[Symbol, Any]:
        """The values of the symbols of the instance that is matched."""
        found = (v for v in self.rule.plan.patterns if isinstance(v, pat.Variadic) and v.symbol is not None)
        return {v.symbol: self.calc.whole(place) for v in found for place in self.number if v.symbol is not None}

    def _label(self, leaf: Pattern) -> str:
        if leaf in self.labels:
            return self.labels[leaf]
        label = self.path.name({"Wildcard": "x", "Param": "w"}.get(type(leaf).__name__, "c"))
        if self.bindings.scopes.get(leaf):
            self.labels[leaf] = label
        return label

    def _size(self, name: str, own: tuple[Poly, ...], kind: str = SIZE) -> Poly:
        if own:
            return operation(f"{kind} {name}", *own)
        return self.path.variable(name, 1 if kind == SIZE else 0).poly

    def _family(self, pattern: pat.Variadic) -> Matched:
        count = number(self.length(pattern))
        family = Family(count, lambda place: tensor_of(self.member(pattern, pattern.field, place)))
        return Matched(self.calc, TUPLE, family)

    def _member_field(self, pattern: pat.GetItem, whole: Matched) -> Matched:
        family = whole.value
        assert isinstance(family, Family)
        place = self._any_member(family.length) if pattern.number is None else number(self.evaluated(pattern.number))
        if EACH not in place.atoms:
            self.path.assume((">=", family.length - 1 - place))
        return Matched(self.calc, GETITEM, family.at(place), (whole,), {"index": self.calc.whole(place)})

    def _cuts(self, x: Tensor, axis: Any) -> Family:
        """The places of any number of cuts."""
        part = operation(f"{SIZE} {self.path.name('part')}", Poly.of(EACH))
        count = self.path.variable("fields").poly
        self.path.assume(("==", x.shape[axis] - self.path.prefix(part, count)))
        return Family(count - 1, lambda place: self.calc.whole(self.path.prefix(part, place + 1)))
