"""The target of a rule in one case, built from what its source matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gsl.attr.ast import Ast, Symbol
from gsl.graph import CONST, GETITEM, TUPLE
from gsl.match.bindings import MatchScope, read
from gsl.pat import Call, Cond, Const, GetItem, Instance, Like, OpClass, Pattern, Segment, Tuple, Variadic
from gsl.pat import Match as MatchClause
from gsl.prove.attributes import completed
from gsl.prove.matched import Matched, tensor_of
from gsl.prove.meanings import call, known
from gsl.prove.meanings.elementwise import held
from gsl.prove.poly import Impossible, Poly, Unproved, Whole, dtype_code, number
from gsl.prove.source import SourceSide
from gsl.prove.tensor import Calculation, Family, Real, Tensor, real
from gsl.spec import TABLE, OpSpec

SymbolValues = dict[Symbol, Any]


class TargetSide:
    """The target of a rule in a case."""

    def __init__(self, source: SourceSide) -> None:
        self.source = source
        self.calc = Calculation(source.path, source.calc.algebra, given=False)
        self.made: dict[Any, Matched] = {}

    def build(self) -> list[Matched]:
        """The outputs of the target. Unproved where it may not be well-formed."""
        target = self.source.rule.target
        if target.callable is not None:
            raise Unproved("its target is a function of the match")
        return [self._output(pattern) for pattern in target.outputs]

    def _output(self, pattern: Pattern) -> Matched:
        if not isinstance(pattern, Variadic):
            return self.built(pattern, {})
        if pattern.first or pattern.count is not None:
            raise Unproved(f"{pattern!r} as a target")
        symbol = {} if pattern.symbol is None else {pattern.symbol: self.calc.whole(self.source.output_number)}
        return self.built(pattern.field, symbol)

    def built(self, pattern: Pattern, symbols: SymbolValues) -> Matched:
        """The node of a pattern of the target."""
        found = self.source.bindings.nodes.get(pattern)
        if found is None:
            key = (pattern, *((symbol, poly_of(symbols.get(symbol))) for symbol in pattern.free_symbols))
            found = self.made.get(key)
            if found is None:
                found = self.made[key] = self._new(pattern, symbols)
        return found

    def _value(self, expression: Ast, symbols: SymbolValues) -> Any:
        return self.source.evaluated(expression, symbols, _TargetScope(self))

    def _new(self, pattern: Pattern, symbols: SymbolValues) -> Matched:
        match pattern:
            case _ if pattern in self.source.rule.plan.known:
                raise Unproved(f"{pattern!r} is part of an alternative that was not matched")
            case Call():
                op = pattern.op
                name = op.name if isinstance(op, OpSpec) else None
                if isinstance(op, OpClass):
                    name = self.source.operators.get(op)
                if name is None:
                    raise Unproved(f"{pattern.label} is native to a framework")
                operands = self._operands(pattern.operands or (), symbols)
                given = {key: self._value(value, symbols) for key, value in pattern.attrs.items()}
                node = self._called(name, operands, given)
                self._kept(pattern, node)
                return node
            case Like():
                model = self.built(pattern.of, symbols)
                if not isinstance(model.op, str) or model.op not in TABLE:
                    raise Unproved(f"{pattern!r} is like no call")
                operands = self._operands(pattern.operands, symbols)
                given = {key: self._value(value, symbols) for key, value in pattern.attrs.items()}
                return self._called(model.op, operands, {**TABLE[model.op].own(model.attrs), **given})
            case Const():
                return self._literal(pattern, symbols)
            case Tuple():
                items = self._operands(pattern.items, symbols)
                return Matched(self.calc, TUPLE, tuple(tensor_of(item) for item in items), items)
            case GetItem() if pattern.number is not None:
                whole, index = self.built(pattern.tuple, symbols), self._value(pattern.number, symbols)
                if isinstance(whole.value, Family):
                    return self._field(whole, whole.value, index)
                if not isinstance(whole.value, tuple) or not isinstance(index, int) or not (
                    -len(whole.value) <= index < len(whole.value)
                ):  # fmt: skip
                    raise Unproved(f"there may be no field {index!r}")
                return Matched(self.calc, GETITEM, whole.value[index], (whole,), {"index": index % len(whole.value)})
            case Instance():
                place = number(self._value(pattern.number, symbols))
                return self.source.member(pattern.variadic, pattern.template, place)
            case Segment():
                raise Unproved(f"{pattern!r} stands for any number of fields among others")
            case Variadic() if pattern.count is not None and not pattern.first:
                return self._family(pattern, symbols)
            case Cond():
                chosen = self._value(pattern.predicate, symbols)
                if not isinstance(chosen, bool):
                    raise Impossible("the engine refuses the match")
                return self.built(pattern.then if chosen else pattern.otherwise, symbols)
            case MatchClause():
                number_ = self.source.bindings.chosen.get(pattern.alternative)
                if number_ is None:
                    raise Unproved(f"{pattern.alternative!r} was not matched")
                return self.built(pattern.clauses[number_], symbols)
        raise Unproved(f"{pattern!r} can't be read as an expression of indices")

    def _called(self, name: str, operands: tuple[Matched, ...], given: Mapping[str, Any]) -> Matched:
        values = tuple(operand.value for operand in operands)
        spec = TABLE[name]
        if not known(name):
            raise Unproved(f"{name} has no meaning as an expression of indices")
        attrs = completed(self.calc, spec, given, values)
        return Matched(self.calc, name, call(self.calc, name, values, attrs), operands, attrs)

    def _kept(self, pattern: Call, node: Matched) -> None:
        """Use that the engine refuses a match of which an attribute would be lost."""
        for source, name in self.source.rule.target.free.get(node.op, ()):
            matched = self.source.bindings.nodes.get(source)
            if name not in pattern.attrs and matched is not None and matched.op == node.op and name in matched.attrs:
                self.source.equate(matched.attrs[name], node.attrs[name])

    def _literal(self, pattern: Const, symbols: SymbolValues) -> Matched:
        value = self._value(pattern.literal, symbols) if isinstance(pattern.literal, Ast) else pattern.literal
        if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
            raise Unproved(f"the literal {value!r}")
        found, guard = real(value), pattern.guard
        if guard is not None and guard.dtype is not None:
            dtype = dtype_code(self._value(guard.dtype, symbols))
            found = held(self.calc, found, dtype)
        else:
            dtype = self.calc.path.variable("dtype.number", 0).poly
        return Matched(self.calc, CONST, Tensor((), dtype, lambda index: found), (), {"value": value})

    def _operands(self, patterns: Sequence[Pattern], symbols: SymbolValues) -> tuple[Matched, ...]:
        return tuple(self.built(pattern, symbols) for pattern in patterns)

    def _field(self, whole: Matched, family: Family, index: Any) -> Matched:
        """A field of a tuple of any length."""
        place = number(index)
        self.calc.must((">=", place), "the number of a field")
        self.calc.must((">=", family.length - 1 - place), "the number of a field")
        return Matched(self.calc, GETITEM, family.at(place), (whole,), {"index": index})

    def _family(self, pattern: Variadic, symbols: SymbolValues) -> Matched:
        assert pattern.count is not None
        count = self._value(pattern.count, symbols)

        def at(place: Poly) -> Tensor:
            own = {} if pattern.symbol is None else {pattern.symbol: self.calc.whole(place)}
            return tensor_of(self.built(pattern.field, {**symbols, **own}))

        if isinstance(count, Whole):
            return Matched(self.calc, TUPLE, Family(count.poly, at))
        return Matched(self.calc, TUPLE, tuple(at(Poly.of(place)) for place in range(count)))


class _TargetScope(MatchScope):
    """Lets expressions also read attributes of what the target has built."""

    def __init__(self, side: TargetSide) -> None:
        super().__init__(side.source.bindings, ())
        self.side = side

    def attribute(self, pattern: Any, name: str, symbols: dict[Symbol, Any]) -> Any:
        if isinstance(pattern, Variadic) and name == "length":
            return super().attribute(pattern, name, symbols)
        return read(self.side.built(pattern, symbols), name)  # type: ignore[arg-type]


def poly_of(value: Any) -> Any:
    """A value by which equal numbers are found."""
    return value.poly if isinstance(value, Whole) else value
