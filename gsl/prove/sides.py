"""The two sides of a rule in one case: the source with all that its match tells, and the target built from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gsl.attr.ast import Ast, Attribute, Binary, Chosen, Function, Literal, Symbol, TupleOf
from gsl.attr.evaluate import Evaluator, same
from gsl.errors import EvaluationError, UndecidableError
from gsl.graph import CONST, GETITEM, PARAM, TUPLE
from gsl.match.bindings import Bindings, MatchScope, read
from gsl.pat import (
    Alt,
    And,
    AttrEqual,
    Call,
    Cond,
    Const,
    GetItem,
    Leaf,
    Like,
    OpClass,
    Pattern,
    Tuple,
    Use,
    Variadic,
    walk,
)
from gsl.pat import Match as MatchClause
from gsl.pat.variadic import parts, references
from gsl.prove.attributes import RANKS, completed, demanded, derived, free, type_of
from gsl.prove.meanings import call, known
from gsl.prove.normal import Sum, TermAlgebra
from gsl.prove.path import Impossible, Path, Unproved, Whole, number
from gsl.prove.poly import Poly
from gsl.prove.tensor import DTYPES, Calculation, DType, Real, Tensor, Value, real
from gsl.rewrite import Subst
from gsl.spec import TABLE, OpSpec, Trait

OPERAND_RANKS: Mapping[str, tuple[tuple[int, ...], ...]] = {
    **{f"nn.conv{n}d{end}": ((n + 2,), (n + 2,)) for n in (1, 2, 3) for end in ("", "_transpose")},
    **{f"nn.{kind}_pool{n}d": ((n + 2,),) for n in (1, 2, 3)
       for kind in ("max", "avg", "global_max", "global_avg")},
    "nn.dense": ((1, 2, 3, 4), (2,)), "nn.bias_add": ((1, 2, 3, 4), (1,)), "nn.batch_norm": ((2, 3, 4), *[(1,)] * 4),
    "nn.batch_matmul": ((3,), (3,)), "matmul": ((1, 2, 3, 4), (1, 2, 3, 4)), "matrix_set_diag": ((2,), (1,)),
    "nn.softmax": ((1, 2, 3, 4),), "nn.log_softmax": ((1, 2, 3, 4),), "concatenate": ((1, 2, 3, 4),),
    "split": ((1, 2, 3, 4),),
}  # fmt: skip
"""The ranks that the operands of operators may have, of those for which a proof is done."""


@dataclass(eq=False)
class Matched:
    """A node of a match: like :class:`gsl.graph.Node` to expressions, with a value that is an expression of indices."""

    calc: Calculation
    op: Any
    value: Value
    operands: tuple[Matched, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def shape(self) -> Any:
        """The sizes, as expressions read them."""
        return None if isinstance(self.value, tuple) else tuple(map(self.calc.whole, self.value.shape))

    @property
    def ndim(self) -> Any:
        """The rank."""
        return None if isinstance(self.value, tuple) else self.value.ndim

    @property
    def dtype(self) -> Any:
        """The dtype, of which its code is known."""
        return None if isinstance(self.value, tuple) else DType(self.value.dtype, self.calc.path)


class Sides:
    """The two sides of a rule in a case."""

    def __init__(self, rule: Subst, path: Path) -> None:
        self.rule = rule
        self.path = path
        self.source = Calculation(path, TermAlgebra(path), given=True)
        self.target = Calculation(path, TermAlgebra(path), given=False)
        self.bindings = Bindings[Any](rule.plan.scopes)
        self.operators: dict[OpClass, str] = {}
        self.made: dict[Any, Matched] = {}
        self.asked = _asked(rule)
        self.pending = [(c, set(references(c))) for where in rule.plan.where for c in all_of(where)]
        """The conditions that were not asked yet, each with the patterns that it reads."""
        self.ranks = (1,) if any_rank(rule) else RANKS
        self.casts = any(isinstance(p, Call) and (isinstance(p.op, OpClass) or p.label == "cast")
                         for p in (*rule.plan.patterns, *walk(*rule.target.outputs)))  # fmt: skip

    # ---------------------------------------------------------------- the source

    def match(self) -> list[Matched]:
        """The outputs of the source. Impossible where there is no such match."""
        plan = self.rule.plan
        if plan.variadic is not None or any(isinstance(p, Variadic) for p in plan.patterns):
            raise Unproved("it has any number of instances of a pattern")
        if any(isinstance(c, Use) for c in plan.given):
            raise Unproved("it is written with use relations")
        outputs = [self.node(pattern) for pattern in plan.outputs]
        self._attributes_equal()
        for pattern in plan.patterns:
            if pattern in self.bindings.nodes:
                self._demands(pattern)
        for condition, _ in self.pending:
            self._condition(condition)
        return outputs

    def node(self, pattern: Pattern, ranks: Sequence[int] | None = None) -> Matched:
        """The node of a pattern of the source."""
        ranks = self.ranks if ranks is None else ranks
        found = self.bindings.nodes.get(pattern)
        if found is None:
            found = self._matched(pattern, ranks)
            self.bindings.nodes[pattern] = found
            ready = [c for c, read in self.pending if read <= self.bindings.nodes.keys()]
            self.pending = [pair for pair in self.pending if pair[0] not in ready]
            for condition in ready:
                self._condition(condition)
        return found

    def _matched(self, pattern: Pattern, ranks: Sequence[int]) -> Matched:
        match pattern:
            case Alt() if self._is_leaf(pattern):
                return self.node(pattern.choices[0], ranks)
            case Alt():
                chosen = self.path.choose(range(len(pattern.choices)), f"the alternative of {pattern.label}")
                self.bindings.chosen[pattern] = chosen
                return self.node(pattern.choices[chosen], ranks)
            case And():
                left, right = pattern.both
                if isinstance(left, Leaf) and not isinstance(right, Leaf):
                    left, right = right, left
                found = self.node(left, ranks)
                if not isinstance(right, Leaf) or right in self.bindings.nodes:
                    raise Unproved(f"{pattern!r} has two structures")
                self.bindings.nodes[right] = found
                return found
            case Leaf():
                return self._leaf(pattern, ranks)
            case Tuple():
                items = tuple(self.node(item) for item in pattern.items)
                return Matched(self.source, TUPLE, tuple(_tensor(item) for item in items), items)
            case GetItem():
                return self._field(pattern)
            case Call() if pattern.operands is not None:
                return self._call(pattern)
        raise Unproved(f"{pattern!r} can't be read as an expression of indices")

    def _is_leaf(self, pattern: Alt) -> bool:
        """True if the alternatives are leaves of which nothing is demanded, and nobody asks which of them it is."""
        plain = all(isinstance(p, Leaf) and p.guard is None and getattr(p, "literal", None) is None
                    for p in pattern.choices)  # fmt: skip
        return plain and not self.asked & {pattern, *pattern.choices}

    def _leaf(self, pattern: Leaf, ranks: Sequence[int]) -> Matched:
        literal = pattern.literal if isinstance(pattern, Const) else None
        guard, value = pattern.guard, None
        if isinstance(literal, Ast):
            value = self._evaluated(literal)
        elif literal is not None:
            raise Unproved("it has a literal of several numbers")
        shape: tuple[Any, ...] | None = None
        if guard is not None and isinstance(guard.shape, tuple):
            shape = tuple(None if size is None else self._try(size) for size in guard.shape)
        elif guard is not None and guard.shape is not None:
            shape = self._try(guard.shape) if isinstance(guard.shape, Ast) else None
        ndim = len(shape) if shape is not None else self._try(guard.ndim) if guard is not None and guard.ndim else None
        label = self.path.name({"Wildcard": "x", "Param": "w"}.get(type(pattern).__name__, "c"))
        rank = ndim if isinstance(ndim, int) else self.path.choose(ranks, f"the rank of {label}")
        sizes = tuple(
            self.path.variable(f"{label}.{axis}").poly if shape is None or shape[axis] is None else number(shape[axis])
            for axis in range(rank)
        )
        dtype = self.path.variable(f"dtype.{label}", 0).poly
        algebra = self.source.algebra

        def at(index: tuple[Poly, ...]) -> Sum:
            return real(value) if value is not None else algebra.element(label, index)

        attrs = {}
        if isinstance(pattern, Const) and rank == 0:
            attrs = {"value": value if value is not None else Real(algebra.element(label, ()), algebra)}
        elif isinstance(pattern, Const) and value is not None:
            attrs = {"value": value}
        kind = CONST if isinstance(pattern, Const) else PARAM
        return Matched(self.source, kind, Tensor(sizes, dtype, at), (), attrs, label)

    def _field(self, pattern: GetItem) -> Matched:
        whole = self.node(pattern.tuple)
        if not isinstance(whole.value, tuple):
            raise Impossible("a field of a tensor")
        index = None if pattern.number is None else self._evaluated(pattern.number)
        if index is None:
            index = self.path.choose(range(len(whole.value)), "the field")
        if not isinstance(index, int) or not -len(whole.value) <= index < len(whole.value):
            raise Impossible("no such field")
        found = whole.value[index]
        return Matched(self.source, GETITEM, found, (whole,), {"index": index % len(whole.value)})

    def _call(self, pattern: Call) -> Matched:
        name = self._operator(pattern)
        spec = TABLE[name]
        if not known(name):
            raise Unproved(f"{name} has no meaning as an expression of indices")
        ranks = OPERAND_RANKS.get(name, ())
        assert pattern.operands is not None
        operands = tuple(
            self.node(operand, ranks[place] if place < len(ranks) else None)
            for place, operand in enumerate(pattern.operands)
        )
        values = tuple(operand.value for operand in operands)
        if not len(spec.operands) - spec.optional <= len(operands) <= len(spec.operands):
            raise Impossible("no such call")
        attrs: dict[str, Any] = {}
        for attribute in spec.attrs:
            if spec.attrs[attribute].derive is None:
                attrs[attribute] = self._attribute(pattern, spec, attribute, values)
        derived(self.source, spec, attrs, tuple(type_of(self.source, value) for value in values))
        return Matched(self.source, name, call(self.source, name, values, attrs), operands, attrs)

    def _attribute(self, pattern: Call, spec: OpSpec, name: str, values: tuple[Any, ...]) -> Any:
        given = pattern.attrs.get(name)
        if given is not None:
            try:
                value = self._evaluated(given)
            except Unproved:
                value = None
            if value is not None:
                return demanded(self.source, spec, name, value, values)
        if name not in pattern.attrs:
            for constraint in self.rule.plan.given:  # attributes that are equal to those of a call which is known
                if isinstance(constraint, AttrEqual) and pattern in (constraint.left, constraint.right):
                    other = constraint.right if pattern is constraint.left else constraint.left
                    node = self.bindings.nodes.get(other)
                    named = constraint.names is None or name in constraint.names
                    if node is not None and named and name in node.attrs and node.op == spec.name:
                        return node.attrs[name]
        return free(self.source, spec, name, values)

    def _operator(self, pattern: Call) -> str:
        op = pattern.op
        if isinstance(op, OpSpec):
            return op.name
        if not isinstance(op, OpClass):
            raise Unproved(f"{pattern.label} is native to a framework")
        if op not in self.operators:
            assert pattern.operands is not None
            count = len(pattern.operands)
            members = [
                name for name, spec in TABLE.items()
                if op.accepts(name) and len(spec.operands) - spec.optional <= count <= len(spec.operands)
                and all(attribute in spec.attrs for attribute in pattern.attrs)
            ]  # fmt: skip
            found = self.path.choose(members, f"{op!r}")
            if not op.joint:
                return found
            self.operators[op] = found
        return self.operators[op]

    # ---------------------------------------------------------------- conditions

    def _attributes_equal(self) -> None:
        for constraint in self.rule.plan.given:
            if isinstance(constraint, AttrEqual):
                left, right = (self.bindings.nodes.get(p) for p in (constraint.left, constraint.right))
                if left is None or right is None:
                    continue
                if left.op != right.op:
                    raise Impossible("other operators")
                for name in constraint.names or left.attrs:
                    if TABLE[left.op].attrs[name].derive is None:
                        self._equate(left.attrs[name], right.attrs[name])

    def _equate(self, left: Any, right: Any) -> None:
        """Take two values for equal. Impossible if they are not."""
        if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
            if len(left) != len(right):
                raise Impossible("another length")
            for one, other in zip(left, right):
                self._equate(one, other)
        elif isinstance(left, Whole) or isinstance(right, Whole):
            codes = [DTYPES.index(side) if isinstance(side, str) and side in DTYPES else side for side in (left, right)]
            if any(isinstance(side, bool) or not isinstance(side, (int, Whole)) for side in codes):
                raise Impossible("other kinds of values")
            self.path.assume(("==", number(codes[0]) - number(codes[1])))
        elif not isinstance(left, Real) and not isinstance(right, Real) and not same(left, right):
            raise Impossible("other values")

    def _demands(self, pattern: Pattern) -> None:
        """What a pattern demands of its own node."""
        node, guard = self.bindings.nodes[pattern], pattern.guard
        if guard is not None:
            if isinstance(guard.shape, tuple):
                if node.ndim != len(guard.shape):
                    raise Impossible("another rank")
                for own, size in zip(node.shape, guard.shape):
                    if size is not None:
                        self._equal(size, own)
            for name, expression in (("shape", guard.shape), ("dtype", guard.dtype), ("ndim", guard.ndim)):
                if isinstance(expression, Ast):
                    self._equal(expression, getattr(node, name))
        if isinstance(pattern, Call):
            for name, expression in pattern.attrs.items():
                value = self._try(expression)
                if value is not None and name in node.attrs:
                    values = tuple(operand.value for operand in node.operands)
                    if TABLE[node.op].attrs[name].derive is None:
                        value = demanded(self.source, TABLE[node.op], name, value, values)
                    self._equate(value, node.attrs[name])

    def _equal(self, expression: Ast, value: Any) -> None:
        found = self._try(expression)
        if found is not None:
            self._equate(found, value)

    def _condition(self, condition: Ast) -> None:
        """Take a condition for true. Impossible if it is false."""
        match condition:
            case Function("In", (Attribute(_, "dtype"), Literal())) if not self.casts:
                return  # real numbers have no dtype
        try:
            if isinstance(condition, Binary) and condition.operator == "==":
                self._equate(self._evaluated(condition.left), self._evaluated(condition.right))
                return
            held = self._evaluated(condition)
        except Unproved:
            return  # what can't be read is not used
        if held is not True:
            raise Impossible("a condition fails")

    def _try(self, expression: Ast) -> Any:
        """The value of an expression; ``None`` where it can't be read yet."""
        try:
            return self._evaluated(expression)
        except Unproved:
            return None

    def _evaluated(self, expression: Ast, symbols: dict[Symbol, Any] | None = None, scope: Any = None) -> Any:
        if isinstance(expression, Literal):
            return expression.value
        try:
            return Evaluator(scope or MatchScope(self.bindings, ()), symbols).value(expression)
        except (EvaluationError, UndecidableError) as error:
            raise Unproved(f"{expression!r} can't be read: {error}") from error

    # ---------------------------------------------------------------- the target

    def build(self) -> list[Matched]:
        """The outputs of the target. Unproved where it may not be well-formed."""
        target = self.rule.target
        if target.callable is not None:
            raise Unproved("its target is a function of the match")
        return [self._built(pattern) for pattern in target.outputs]

    def _built(self, pattern: Pattern) -> Matched:
        found = self.bindings.nodes.get(pattern) or self.made.get(pattern)
        if found is None:
            found = self.made[pattern] = self._new(pattern)
        return found

    def _value(self, expression: Ast) -> Any:
        return self._evaluated(expression, {}, _TargetScope(self))

    def _new(self, pattern: Pattern) -> Matched:
        match pattern:
            case _ if pattern in self.rule.plan.known:
                raise Unproved(f"{pattern!r} is part of an alternative that was not matched")
            case Call():
                op = pattern.op
                name = op.name if isinstance(op, OpSpec) else None
                if isinstance(op, OpClass):
                    name = self.operators.get(op)
                if name is None:
                    raise Unproved(f"{pattern.label} is native to a framework")
                operands = tuple(map(self._built, pattern.operands or ()))
                given = {key: self._value(value) for key, value in pattern.attrs.items()}
                node = self._called(name, operands, given)
                self._kept(pattern, node)
                return node
            case Like():
                model = self._built(pattern.of)
                if not isinstance(model.op, str) or model.op not in TABLE:
                    raise Unproved(f"{pattern!r} is like no call")
                operands = tuple(map(self._built, pattern.operands))
                given = {key: self._value(value) for key, value in pattern.attrs.items()}
                own = {key: value for key, value in model.attrs.items() if TABLE[model.op].attrs[key].derive is None}
                return self._called(model.op, operands, {**own, **given})
            case Const():
                return self._literal(pattern)
            case Tuple():
                items = tuple(map(self._built, pattern.items))
                return Matched(self.target, TUPLE, tuple(_tensor(item) for item in items), items)
            case GetItem() if pattern.number is not None:
                whole, index = self._built(pattern.tuple), self._value(pattern.number)
                if not isinstance(whole.value, tuple) or not isinstance(index, int) or not (
                    -len(whole.value) <= index < len(whole.value)
                ):  # fmt: skip
                    raise Unproved(f"there may be no field {index!r}")
                return Matched(self.target, GETITEM, whole.value[index], (whole,), {"index": index % len(whole.value)})
            case Cond():
                chosen = self._value(pattern.predicate)
                if not isinstance(chosen, bool):
                    raise Impossible("the engine refuses the match")
                return self._built(pattern.then if chosen else pattern.otherwise)
            case MatchClause():
                number_ = self.bindings.chosen.get(pattern.alternative)
                if number_ is None:
                    raise Unproved(f"{pattern.alternative!r} was not matched")
                return self._built(pattern.clauses[number_])
        raise Unproved(f"{pattern!r} can't be read as an expression of indices")

    def _called(self, name: str, operands: tuple[Matched, ...], given: Mapping[str, Any]) -> Matched:
        values = tuple(operand.value for operand in operands)
        spec = TABLE[name]
        if not known(name):
            raise Unproved(f"{name} has no meaning as an expression of indices")
        attrs = completed(self.target, spec, given, values)
        return Matched(self.target, name, call(self.target, name, values, attrs), operands, attrs)

    def _kept(self, pattern: Call, node: Matched) -> None:
        """Use that the engine refuses a match of which an attribute would be lost."""
        for source, name in self.rule.target.free.get(node.op, ()):
            matched = self.bindings.nodes.get(source)
            if name not in pattern.attrs and matched is not None and matched.op == node.op and name in matched.attrs:
                self._equate(matched.attrs[name], node.attrs[name])

    def _literal(self, pattern: Const) -> Matched:
        value = self._value(pattern.literal) if isinstance(pattern.literal, Ast) else pattern.literal
        dtype = self.path.variable("dtype.number", 0).poly
        if pattern.guard is not None and pattern.guard.dtype is not None:
            wanted = self._value(pattern.guard.dtype)
            dtype = wanted.poly if isinstance(wanted, DType) else Poly.of(DTYPES.index(wanted))
        if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
            raise Unproved(f"the literal {value!r}")
        found = real(value)
        return Matched(self.target, CONST, Tensor((), dtype, lambda index: found), (), {"value": value})


def all_of(condition: Ast) -> Iterator[Ast]:
    """The conditions of which a condition is the conjunction."""
    match condition:
        case Binary("&", left, right):
            yield from all_of(left)
            yield from all_of(right)
        case Function("all", (TupleOf(items),)):
            for item in items:
                yield from all_of(item)
        case _:
            yield condition


def any_rank(rule: Subst) -> bool:
    """True if a rule computes element by element with one tensor, so that it is the same for each rank."""
    patterns = [*rule.plan.patterns, *walk(*rule.target.outputs)]
    leaves = {p for p in rule.plan.patterns if isinstance(p, Leaf)}
    calls = [p for p in patterns if not isinstance(p, Leaf)]
    each = all(
        (isinstance(p, Call) and isinstance(p.op, OpSpec) and Trait.ELEMENT_WISE in p.op.traits
         and len(p.operands or ()) == 1) or isinstance(p, Like) for p in calls
    )  # fmt: skip
    read = (part for p in patterns for e in p.expressions() for part in parts(e))
    sized = any(isinstance(part, Attribute) and part.name in ("shape", "ndim", "axis")
                for part in (*read, *(q for e in rule.plan.where for q in parts(e))))  # fmt: skip
    return each and not sized and len(leaves) == 1 and all(p.guard is None or p.guard.shape is p.guard.ndim is None
                                                           for p in patterns)  # fmt: skip


def _asked(rule: Subst) -> set[Pattern]:
    """The patterns of which a rule asks which alternative was matched, or which literal."""
    target = list(walk(*rule.target.outputs))
    found: set[Pattern] = {p.alternative for p in target if isinstance(p, MatchClause)}
    expressions = [*rule.plan.where, *(e for p in (*rule.plan.patterns, *target) for e in p.expressions())]
    for part in (part for expression in expressions for part in parts(expression)):
        if isinstance(part, Chosen):
            found.add(part.alternative)
        elif isinstance(part, Attribute) and part.name == "value":
            found.add(part.pattern)
    uses = Counter(child for p in dict.fromkeys((*rule.plan.patterns, *target)) for child in p.children())
    found |= {p for p in uses if uses[p] > 1 and isinstance(p, Leaf)}
    return found | {p for p in (*rule.plan.outputs, *rule.target.outputs) if isinstance(p, Leaf)}


class _TargetScope(MatchScope):
    """Lets expressions also read attributes of what the target has built."""

    def __init__(self, sides: Sides) -> None:
        super().__init__(sides.bindings, ())
        self.sides = sides

    def attribute(self, pattern: Any, name: str, symbols: dict[Symbol, Any]) -> Any:
        return read(self.sides._built(pattern), name)  # type: ignore[arg-type]


def _tensor(node: Matched) -> Tensor:
    if isinstance(node.value, tuple):
        raise Unproved("a tuple in a tuple")
    return node.value
