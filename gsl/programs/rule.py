"""The rule of two programs: patterns whose attributes are what all traces have in common."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gsl import attr, pat
from gsl.attr import Expr
from gsl.attr.ast import Attribute
from gsl.errors import FrontEndError, PatternError
from gsl.graph import GETITEM, INPUT, op_name
from gsl.pat import Pattern
from gsl.programs.fit import (
    AxesOf,
    Column,
    NodeColumn,
    Quantities,
    Quantity,
    UnfitError,
    equals,
    from_the_end,
    is_default,
    near,
    same,
    shape_of,
)
from gsl.programs.parameters import RuleLiteral, RuleTensor, parameters
from gsl.programs.samples import Sampler, Traced
from gsl.programs.source import GraphRules, InputSample, ProgramTrace, RuleProgram, TracedNode, flattened, rule_program
from gsl.spec import spec_of

Rule = TypeVar("Rule")
ValuePath = tuple[int, ...]
"""A place in nested tuples."""
MakeRule = Callable[..., Rule]
"""Makes the rule of a source, a target and conditions: ``Subst``."""


def rule_from_programs(
    make: MakeRule[Rule], before: Any, after: Any, where: Any, beside: GraphRules | None, leaves: Mapping[str, Any],
    options: Mapping[str, Any],
) -> tuple[Rule, Mapping[str, Any]]:
    """The rule of two programs, and its leaves and literals by the names of the parameters.

    PatternError with what was expected and found, where, and how to mend it.
    """
    shaped = [name for name, given in leaves.items() if not isinstance(given, list)]
    try:
        programs = rule_program("before", before, shaped, beside), rule_program("after", after, shaped)
        _check_options(programs[0], options)
        tensors, literals = parameters(*programs, leaves)
        traces, check = Sampler(*programs, tensors, literals).traced()
    except FrontEndError as error:
        raise PatternError(str(error)) from error
    for program, own, more in zip(programs, (traces.before, traces.after), (check.before, check.after)):
        for other in (*zip(traces.samples, own), (check.samples[0], more[0])):
            _check_alike(program, (traces.samples[0], own[0]), other)
    found, plain = _sides(programs, tensors, literals, traces)
    rule = make(plain.source, plain.target, where=plain.where, name=programs[0].title)
    _check_fires(rule, check, programs[0])
    if not programs[0].finished:
        _check_result(rule, check, programs[1])
    sides = FittedSides(programs, tensors, literals, found, given=True)
    conditions = [*sides.where, *_conditions(where, sides.names)]
    return make(sides.source, sides.target, where=conditions, **options), sides.names


def _check_options(before: RuleProgram, options: Mapping[str, Any]) -> None:
    """Raise PatternError for an option of the rule that may as well be meant for a parameter of the programs."""
    for option, value in options.items():
        known = option in before.tensors or option in before.literals
        if known and option != "name" and value not in (None, False, 0, "", ()):
            raise PatternError(
                f"{option}={value!r}: {before.title} has a parameter of this name, and so has Subst.from_programs, "
                "which takes it as an option of the rule: give the parameter another name in both programs"
            )


def _sides(
    programs: tuple[RuleProgram, RuleProgram],
    tensors: Sequence[RuleTensor],
    literals: Sequence[RuleLiteral],
    traces: Traced,
) -> tuple[Traced, FittedSides]:
    """The sides of the rule, and the traces that they are made of: all, or all but those with an extreme rank."""
    errors: list[PatternError] = []
    for found in traces.restricted():
        try:
            return found, FittedSides(programs, tensors, literals, found, given=False)
        except PatternError as error:
            errors.append(error)
    raise errors[0]


def _conditions(where: Any, names: Mapping[str, Any]) -> Iterator[Any]:
    """The conditions that were given; a function of parameters of the programs makes one of their patterns."""
    for condition in where if isinstance(where, (list, tuple)) else (where,):
        wanted = list(inspect.signature(condition).parameters) if inspect.isfunction(condition) else []
        if wanted and all(name in names for name in wanted):
            values = {name: names[name] for name in wanted}
            yield condition(**{name: v.value if isinstance(v, pat.Const) else v for name, v in values.items()})
        else:
            yield condition


def _check_alike(
    program: RuleProgram, one: tuple[InputSample, ProgramTrace], other: tuple[InputSample, ProgramTrace]
) -> None:
    """Raise PatternError for two traces of a program that have not the same form."""
    if one[1].form() != other[1].form():
        first, second = _difference(one[1], other[1])
        raise PatternError(
            f"{program.title} computes other calls for other sizes: {first} with {one[0]}, and {second} with "
            f"{other[0]}; a rule has one source: write a rule for each case, or say the sizes"
        )


def _check_fires(rule: Any, check: Traced, before: RuleProgram) -> None:
    """Raise PatternError for a rule that does not match the program it was made of, with sizes not seen before."""
    graph = check.before[0].graph
    if not any(match.outputs == tuple(graph.outputs) for match in rule.match(graph)):
        raise PatternError(
            f"the rule made of {before.title} does not match it with other sizes ({check.samples[0]}): "
            f"{rule.explain(graph)}"
        )


def _check_result(rule: Any, check: Traced, after: RuleProgram) -> None:
    """Raise PatternError for a rule that makes other values than the second program, with values not seen before."""
    expected = check.after[0]
    found = flattened(after.title, rule.apply(check.before[0].graph)[0], after.tensors, lambda value: value)
    for old, new in zip(expected.nodes, found.nodes) if found.form() == expected.form() else ():
        for name, value in old.attrs.items():
            if not equals(value, new.attrs[name]):
                raise PatternError(
                    f"{after.title}: {_described(old)}: {name} is {value!r} for {check.samples[0]}, and the expression "
                    f"that has its values for the others is {new.attrs[name]!r} there: no expression of sizes and "
                    "literals was found for it; give more values to try, or make the target by a function"
                )


class FittedSides:
    """The patterns of the two sides of a rule."""

    def __init__(
        self,
        programs: tuple[RuleProgram, RuleProgram],
        tensors: Sequence[RuleTensor],
        literals: Sequence[RuleLiteral],
        found: Traced,
        *,
        given: bool,
    ) -> None:
        self.programs = programs
        self.found = found
        self.literals = literals
        self.where: list[Any] = []
        """The conditions of the rule."""
        self.sizes: dict[str, Expr] = {}
        """The named sizes as far as they are known; of ``*b`` the tuple of them."""
        self.names: dict[str, Any] = {}
        """The leaves and the literals by the names of parameters."""
        self.quantities = Quantities()
        used = {node.attrs["name"] for node in found.before[0].nodes if node.op == INPUT}
        self.tensors = [tensor for tensor in tensors if tensor.name in used]
        self._check_used(used)
        for tensor in self.tensors:
            self._leaf(tensor, tensor.pattern if given else None)
        self._measure()
        self.unknown = self._unknowns()
        self.told = self._told()
        self.known: frozenset[Pattern] = frozenset()
        """The patterns of the source."""
        self.source = self._side(found.before, programs[0], is_source=True)
        self.known = frozenset(pat.walk(*self.source))
        self._demand_products()
        self.target = self._side(found.after, programs[1], is_source=False)

    def _check_used(self, used: set[str]) -> None:
        for node in self.found.after[0].nodes:
            if node.op == INPUT and node.attrs["name"] not in used:
                raise PatternError(
                    f"{self.programs[1].title} uses the parameter {node.attrs['name']}, which {self.programs[0].title} "
                    "does not use, so no match tells what it is"
                )

    # Leaves

    def _leaf(self, tensor: RuleTensor, given: Pattern | None) -> None:
        """The pattern of a leaf; what is said of its shape is demanded by it, or by a condition."""
        axes, dtypes = tensor.axes, tensor.type.dtypes
        own = tensor.dtypes[0] if len(dtypes) == 1 or self.found.single else None
        known: list[Any] = [None] * len(axes)
        if given is not None:
            leaf = given
        elif any(axis.variadic for axis in axes):
            leaf = pat.Wildcard(dtype=own)
        else:
            known = [None if axis.broadcast else self._size(axis.factor, axis.names) for axis in axes]
            some = any(size is not None for size in known)
            leaf = pat.Wildcard(shape=tuple(known), dtype=own) if some else pat.Wildcard(ndim=len(axes), dtype=own)
        self.names[tensor.name] = leaf
        if len(dtypes) > 1 and own is None:
            self.where.append(attr.In(leaf.dtype, dtypes))
        for number, axis in enumerate(axes):
            if axis.variadic:
                self._variadic_axis(tensor, leaf, axis.names[0], number, len(axes) - 1 - number)
                continue
            index = tensor.index(number)
            if axis.name is not None:
                found = leaf.shape[index]
                size = self.sizes.setdefault(axis.name, found)
                if size is not found and known[number] is None:
                    self.where.append(found == size)
            elif not axis.names and known[number] is None:
                self.where.append(leaf.shape[index] == axis.factor)
        if given is not None and not any(axis.variadic for axis in axes):
            self.where.append(leaf.ndim == len(axes))

    def _variadic_axis(self, tensor: RuleTensor, leaf: Pattern, name: str, head: int, tail: int) -> None:
        """Demand the number of axes that ``*b`` may stand for, and that they are those of other leaves."""
        low, high = self.found.lengths[name]
        least = head + tail + low
        if low == high:
            self.where.append(leaf.ndim == least)
        elif least:
            self.where.append(leaf.ndim >= least)
        if high is not None and low != high:
            self.where.append(leaf.ndim <= head + tail + high)
        shape = leaf.shape[head or None : -tail or None] if head or tail else leaf.shape
        if tensor.type.axes is not None:
            known = self.sizes.setdefault(name, shape)
            if known is not shape:
                self.where.append(shape == known)
                return
        shapes = self._shapes(tensor)
        for more in range(low + 1):
            for before in range(more, -1, -1):
                self._axes_of(leaf, shapes, head + before, tail + more - before)
        for place in range(low):
            for index in (place - low - tail, head + place):
                sizes = tuple(shape[index] for shape in shapes)
                self._quantity(f"axis {index} of {tensor.name}", leaf.shape[index], sizes)

    def _shapes(self, tensor: RuleTensor) -> list[tuple[int, ...]]:
        return [shape_of(sample.types[tensor.name]) for sample in self.found.samples]

    def _axes_of(self, leaf: Pattern, shapes: Sequence[tuple[int, ...]], head: int, tail: int) -> None:
        """The axes of a leaf but for the first and the last ones."""
        shape = leaf.shape[head or None : -tail or None] if head or tail else leaf.shape
        length = leaf.ndim - (head + tail) if head or tail else leaf.ndim
        values = tuple(shape[head : len(shape) - tail] for shape in shapes)
        self.quantities.axes.append(AxesOf(shape, length, values))

    def _quantity(self, name: str, expr: Expr, values: Column) -> None:
        self.quantities.sizes.append(Quantity(name, expr, values))

    def _size(self, factor: int, names: Sequence[str]) -> Any:
        """A number times named sizes; ``None`` as long as they are not known."""
        if not all(name in self.sizes for name in names):
            return None
        if not names:
            return factor
        product = self.sizes[names[0]]
        for name in names[1:]:
            product = product * self.sizes[name]
        return product * factor if factor != 1 else product

    def _measure(self) -> None:
        """The quantities of the leaves."""
        samples = self.found.samples
        for name, expr in self.sizes.items():
            values = tuple(sample.sizes[name] for sample in samples)
            if type(values[0]) is int:
                self._quantity(name, expr, values)
        for tensor in self.tensors:
            leaf = self.names[tensor.name]
            types = [sample.types[tensor.name] for sample in samples]
            if len({type.ndim for type in types}) > 1:
                self.quantities.ranks.append(
                    Quantity(f"the rank of {tensor.name}", leaf.ndim, tuple(type.ndim for type in types))
                )
            for number, axis in enumerate(tensor.axes):
                if axis.broadcast:
                    index = tensor.index(number)
                    sizes = tuple(shape[index] for shape in self._shapes(tensor))
                    self._quantity(f"axis {index} of {tensor.name}", leaf.shape[index], sizes)
            self.quantities.dtypes.append(
                Quantity(f"the dtype of {tensor.name}", leaf.dtype, tuple(type.dtype for type in types))
            )

    def _demand_products(self) -> None:
        """Demand products of sizes, and sizes that may be 1 instead, which are known when the source is made."""
        for tensor in self.tensors:
            leaf: Pattern = self.names[tensor.name]
            for number, axis in enumerate(tensor.axes):
                if axis.variadic or axis.name is not None or not axis.names:
                    continue
                size = self._size(axis.factor, axis.names)
                index = tensor.index(number)
                if axis.broadcast:
                    if size is None:
                        raise PatternError(
                            f"{tensor.name}={tensor.type.text!r}: #{axis.names[0]} is the size {axis.names[0]} or 1, "
                            f"and no other shape tells {axis.names[0]}"
                        )
                    self.where.append((leaf.shape[index] == size) | (leaf.shape[index] == 1))
                    continue
                shape = leaf.guard.shape if leaf.guard is not None else None
                if size is not None and not (isinstance(shape, tuple) and shape[number] is not None):
                    self.where.append(leaf.shape[index] == size)

    # Sides

    def _side(self, traces: Sequence[ProgramTrace], program: RuleProgram, *, is_source: bool) -> list[Pattern]:
        first = traces[0]
        for sample, trace in zip(self.found.samples, traces):
            _check_alike(program, (self.found.samples[0], first), (sample, trace))
        made: dict[int, Pattern] = {}
        for number, node in enumerate(first.nodes):
            column = NodeColumn(
                number,
                tuple(trace.nodes[number] for trace in traces),
                tuple(made[operand] for operand in node.operands),
                tuple(tuple(trace.nodes[operand].type for operand in node.operands) for trace in traces),
            )
            try:
                made[number] = self._node(column, is_source=is_source)
            except UnfitError as error:
                raise PatternError(f"{program.title}: {_described(node)}: {error}") from None
        return [made[output] for output in first.outputs]

    def _unknowns(self) -> dict[str, Column]:
        """The values of names that the source is to tell: literals, and sizes that are factors only."""
        samples = self.found.samples
        names = [n for tensor in self.tensors for axis in tensor.axes if not axis.variadic for n in axis.names]
        unknown = {n: tuple(sample.sizes[n] for sample in samples) for n in names if n not in self.sizes}
        for literal in self.literals:
            if literal.name in self.sizes:
                self.names[literal.name] = self.sizes[literal.name]
            else:
                unknown[literal.name] = tuple(sample.literals[literal.name] for sample in samples)
        return unknown

    def _told(self) -> dict[tuple[int, str], list[tuple[str, ValuePath]]]:
        """The nodes and attributes of the source that tell the values of names, with the places in a tuple."""
        traces = self.found.before
        left = {name: column for name, column in self.unknown.items() if not all(same(column[0], v) for v in column)}
        told: dict[tuple[int, str], list[tuple[str, ValuePath]]] = {}
        for number, node in enumerate(traces[0].nodes):
            for attribute in () if node.op in (INPUT, GETITEM) else node.attrs:
                values = tuple(trace.nodes[number].attrs[attribute] for trace in traces)
                for name, column in list(left.items()):
                    path = next((path for path, items in _parts(values) if same(column, items)), None)
                    if path is not None:
                        told.setdefault((number, attribute), []).append((name, path))
                        del left[name]
        return told

    def _bind(self, name: str, expr: Expr) -> None:
        """Let a name stand for what the source tells."""
        self.quantities.named.append(Quantity(name, expr, self.unknown.pop(name)))
        self.names.setdefault(name, expr)
        self.sizes[name] = expr

    def _follow(self) -> bool:
        """Let names that no attribute tells stand for axes divided by the rest of their products. True if any are."""
        told = {name for each in self.told.values() for name, _ in each}
        before = len(self.unknown)
        for tensor in self.tensors:
            for number, axis in enumerate(tensor.axes):
                left = [name for name in axis.names if name not in self.sizes]
                if axis.variadic or axis.broadcast or len(left) != 1 or left[0] in told or left[0] not in self.unknown:
                    continue
                size = self.names[tensor.name].shape[tensor.index(number)]
                others = self._size(axis.factor, [name for name in axis.names if name != left[0]])
                self._bind(left[0], size // others)
                if self.known:
                    self.where.append(size % others == 0)  # those of the source are demanded when it is made
        return len(self.unknown) < before

    def _node(self, column: NodeColumn, *, is_source: bool) -> Pattern:
        node = column.nodes[0]
        match node.op:
            case "input":
                leaf: Pattern = self.names[node.attrs["name"]]
                return leaf
            case "const":
                return self._const(column, is_source=is_source)
            case "tuple":
                return pat.Tuple(*column.operands)
            case "getitem":
                return column.operands[0][node.attrs["index"]]
        return self._call(column, is_source=is_source)

    def _const(self, column: NodeColumn, *, is_source: bool) -> Pattern:
        values = column.values("value")
        if hasattr(values[0], "shape"):
            return pat.Const(values[0])
        if is_source and (column.number, "value") in self.told:
            leaf = pat.Const(ndim=0)
            ((name, _),) = self.told[column.number, "value"]
            self.names[name] = leaf
            self._bind(name, leaf.value)
            return leaf
        value = self._fit(values)
        literal = _literal_of(value)
        return literal if literal is not None and not is_source else pat.Const(value)

    def _call(self, column: NodeColumn, *, is_source: bool) -> Pattern:
        node, operands = column.nodes[0], column.operands
        spec = spec_of(node.op)
        attrs: dict[str, Any] = {}
        told = [name for name in node.attrs if is_source and (column.number, name) in self.told]
        later: list[str] = []
        own = near(column) if operands and (is_source or operands[0] in self.known) else None
        for name in node.attrs:
            if (spec is not None and spec.attrs[name].derive is not None) or name in told:
                continue
            given = None if spec is None else from_the_end(spec, name, column)
            try:
                given = self._fit(column.values(name), f"the attribute {name}", own) if given is None else given
            except UnfitError:
                if not told:
                    raise
                later.append(name)  # it may follow from what another attribute of the call tells
                continue
            if is_source or spec is None or not is_default(spec, name, column):
                attrs[name] = attr.Const(None) if given is None else given
        call = pat.Call(node.op if spec is None else spec, *operands, **attrs)
        for attribute in told:
            self._tell(getattr(call, attribute), column.values(attribute), self.told[column.number, attribute])
        for attribute in later:
            self._demand(getattr(call, attribute), column.values(attribute), ())
        return call

    def _tell(self, value: Expr, values: Column, told: Sequence[tuple[str, ValuePath]]) -> None:
        """Let an attribute tell names, and demand the other items of a tuple of which some do."""
        for name, path in told:
            self._bind(name, functools.reduce(lambda whole, index: whole[index], path, value))
        self._demand(value, values, {path for _, path in told})

    def _demand(self, value: Expr, values: Column, told: Collection[ValuePath]) -> None:
        """Demand the parts of an attribute that tell no names."""
        if () in told:
            return
        if not told:
            self.where.append(value == self._fit(values))
            return
        self.where.append(attr.Len(value) == len(values[0]))
        for index, items in enumerate(zip(*values)):
            self._demand(value[index], items, {path[1:] for path in told if path[0] == index})

    def _fit(self, values: Column, what: str = "the literal", own: Quantities | None = None) -> Any:
        try:
            return self.quantities.fit(values, own)
        except UnfitError as error:
            if self._follow():
                return self._fit(values, what, own)
            reason = f"{what}: {error}"
            if self.unknown:
                reason += (
                    f"; nothing that {self.programs[0].title} computes tells {', '.join(self.unknown)} as it is: use "
                    "the value itself there, and compute others of it in the second program"
                )
            raise UnfitError(reason) from None


def _parts(values: Column, path: ValuePath = ()) -> Iterator[tuple[ValuePath, Column]]:
    """The values, and the items of those that are tuples of one form, with their places."""
    yield path, values
    if all(isinstance(value, tuple) and len(value) == len(values[0]) for value in values):
        for index, items in enumerate(zip(*values)):
            yield from _parts(items, (*path, index))


def _literal_of(value: Any) -> Pattern | None:
    """The literal of the source whose value an expression is."""
    node = value.ast if isinstance(value, Expr) else None
    return node.pattern if isinstance(node, Attribute) and isinstance(node.pattern, pat.Const) else None


def _difference(one: ProgramTrace, other: ProgramTrace) -> tuple[str, str]:
    """The first calls in which two traces differ."""
    for left, right in itertools.zip_longest(one.nodes, other.nodes):
        if left is None or right is None or (left.op, left.operands) != (right.op, right.operands):
            return _described(left), _described(right)
    return "an output", "another one"


def _described(node: TracedNode | None) -> str:
    return "nothing more" if node is None else op_name(node.op)
