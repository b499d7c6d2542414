"""Patterns of onnxscript as sources over canonical operators.

How a node of ONNX is read depends on types, literals and attributes, of which a pattern tells little. So each node of a
pattern is read by the front end's table with operands of many kinds, and its pattern has an alternative for each form
that was found, and one for the call by its name. What attributes and literals have to be is left open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript.rewriter import _pattern_ir as theirs

from gsl import pat
from gsl.exchange.imported import refusal
from gsl.front.onnx import spellings
from gsl.front.onnx.spellings import OnnxCall
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import GETITEM, TUPLE, TensorType
from gsl.pat import Pattern
from gsl.spec import TABLE
from gsl.spec.natives import OnnxOp

_RANKS: Final = (2, 4, 1, 3, 5)
_SIZE: Final = 3
_DTYPES: Final = ("float32", "int64", "bool")
_FLOATS: Final = (0.5, 1 / 6)
_BOUNDS: Final = (0.0, 6.0)
"""Numbers of which some reader makes another operator."""
_OTHERS: Final = 3
"""The largest number of operands beyond those that a pattern names, of an operator that takes any number."""
_MOST: Final = 99
"""The largest number of operands of an operator that does not take any number."""
_LATEST: Final = 23
_SEVERAL: Final[Mapping[str, str]] = {"Split": "split", "TopK": "topk"}
"""The operators of several results that have a canonical reading, by the canonical operator."""

CallForm = tuple[Any, ...]
"""A reading without attributes: ``(op, forms)``, the number of an operand, the place of an operand of the node that
makes an operand, as ``("of", number, place)``, or ``None`` for a literal."""


class _Told(NamedTuple):
    """An operand as a pattern tells it: what makes it, by the name of ONNX's operator, with its number of operands; the
    kind of a literal; the place of the operand that it is, too."""

    maker: str = ""
    operands: int = 0
    literal: str = ""
    same: int | None = None


class OnnxscriptSource:
    """The source of a rule: a pattern for each output of a pattern of onnxscript.

    Raises ExchangeError for what has no source, with the reason.
    """

    def __init__(self, title: str, graph: theirs.GraphPattern) -> None:
        self.title = title
        self._made: dict[Any, Pattern] = {}
        self.outputs = [self.value(output) for output in graph.outputs]

    def value(self, value: Any) -> Pattern:
        """The pattern of a value."""
        if isinstance(value, theirs.AnyValue):
            return pat.Wildcard()
        if value not in self._made:
            self._made[value] = self._new(value)
        return self._made[value]

    def _new(self, value: Any) -> Pattern:
        match value:
            case theirs.NodeOutputPattern():
                return self._output(value)
            case theirs.Constant():
                return pat.Wildcard() if isinstance(value.value, list) else pat.Const(ndim=0)
            case theirs.BacktrackingOr():
                return _either([self.value(choice) for choice in value._values])
            case theirs.OpIdDispatchOr():
                return _either([self.value(choice) for _, choice in value._op_to_pattern.values()])
            case _:
                return pat.Wildcard()

    def _output(self, value: Any) -> Pattern:
        node = value.producer()
        if len(node.outputs) > 1:
            return self._whole(node)[value.output_index]
        found = [self._built(form, inputs) for inputs in self._inputs(node) for form in self._forms(node, inputs)]
        return _either(found)

    def _whole(self, node: Any) -> Pattern:
        """The pattern of a node of several results."""
        if node not in self._made:
            operands = [self.value(value) for value in node.inputs if value is not None]
            domain, name = self._name(node)
            native = pat.Call(OnnxOp(name, domain), *operands)
            spec = None if domain else _SEVERAL.get(name)
            self._made[node] = native if spec is None else pat.Alt(pat.Call(TABLE[spec], operands[0]), native)
        return self._made[node]

    def _name(self, node: Any) -> tuple[str, str]:
        if not isinstance(node.op, theirs.StringConstantPattern) or not isinstance(
            node.domain, theirs.StringConstantPattern
        ):
            raise refusal(
                self.title, f"{node.domain}::{node.op} stands for many operators by the beginning of their names; "
                "write a rule for each"
            )  # fmt: skip
        domain = node.domain.value()
        return ("" if domain == "ai.onnx" else domain), node.op.value()

    def _inputs(self, node: Any) -> Iterator[list[Any]]:
        """The operands of a node, with each number of those that may be there."""
        domain, name = self._name(node)
        least = len(node.inputs)
        while least and node.inputs[least - 1] is not None and node.inputs[least - 1].can_match_none:
            least -= 1
        most = len(node.inputs)
        if node.allow_other_inputs:
            schema = _schema(domain, name)
            most = most + _OTHERS if schema is None or schema.max_input > _MOST else max(schema.max_input, most)
            least = least if schema is None else max(least, schema.min_input)
        for count in range(min(least, most), most + 1):
            yield [*node.inputs[:count], *(theirs.AnyValue() for _ in range(count - len(node.inputs)))]

    def _forms(self, node: Any, inputs: Sequence[Any]) -> list[CallForm]:
        domain, name = self._name(node)
        native = (OnnxOp(name, domain), tuple(place for place, value in enumerate(inputs) if value is not None))
        if domain or name not in spellings.READERS:
            return [native]
        given = tuple((key, attr._value) for key, attr in node.attributes.items()
                      if isinstance(attr, theirs.AttrConstantPattern))  # fmt: skip
        frozen = tuple((key, tuple(value) if isinstance(value, (list, tuple)) else value) for key, value in given)
        return [
            *_forms(
                name,
                tuple([_told(value, inputs[:place]) for place, value in enumerate(inputs)]),
                frozen,
                tuple(node.attributes),
            ),
            native,
        ]

    def _built(self, form: Any, inputs: Sequence[Any]) -> Pattern:
        """The pattern of a form on these operands."""
        match form:
            case None:
                return pat.Const()
            case int(place):
                return self.value(inputs[place])
            case ("of", int(place), int(inner)):
                return self.value(inputs[place].producer().inputs[inner])
        op, operands = form
        built = [self._built(operand, inputs) for operand in operands]
        if op == TUPLE:
            return pat.Tuple(*built)
        if op == GETITEM:
            return built[0][0]
        return pat.Call(TABLE[op] if isinstance(op, str) else op, *built)


def _either(patterns: Sequence[Pattern]) -> Pattern:
    return patterns[0] if len(patterns) == 1 else pat.Alt(*patterns)


def _told(value: Any, before: Sequence[Any]) -> _Told:
    match value:
        case None:
            return _Told(literal="none")
        case _ if value in before:
            return _Told(same=before.index(value))
        case theirs.NodeOutputPattern():
            node = value.producer()
            named = isinstance(node.op, theirs.StringConstantPattern) and len(node.outputs) == 1
            return _Told(str(node.op) if named else "?", len(node.inputs))
        case theirs.Constant():
            return _Told(literal="list" if isinstance(value.value, list) else "number")
    return _Told()


def _schema(domain: str, name: str) -> Any:
    try:
        return onnx.defs.get_schema(name, domain)
    except onnx.defs.SchemaError:
        return None


# ---------------------------------------------------------------- readings by trial


@cache
def _forms(
    name: str, operands: tuple[_Told, ...], given: tuple[tuple[str, Any], ...], named: tuple[str, ...]
) -> tuple[CallForm, ...]:
    """The forms in which the front end reads an operator of ONNX, with operands as a pattern tells them."""
    found: dict[CallForm, tuple[int, ...]] = {}
    without = tuple([told._replace(maker="") for told in operands])
    for number, told in enumerate(dict.fromkeys((operands, without))):
        options: dict[Any, Sequence[Any]] = {**_attributes(name, dict(given), named), _RANKS: _RANKS, _DTYPES: _DTYPES}
        options |= {place: _kinds(one, place, len(told)) for place, one in enumerate(told)}
        decided: list[int] | None = []
        while decided is not None:
            choices = _Choices(options, decided)
            form = _read(name, told, dict(given), choices)
            if form is not None:
                place = (number, *choices.numbers())
                found[form] = min(place, found.get(form, place))
            decided = choices.following()
    return tuple(sorted(found, key=lambda form: found[form]))


class _Choices:
    """The choices for one reading, made as the reader asks for them: it does not depend on what it does not ask for."""

    def __init__(self, options: Mapping[Any, Sequence[Any]], decided: Sequence[int]) -> None:
        self.options = options
        """The values of attributes by their names, the kinds of operands by their places; the ranks and the dtypes by
        themselves."""
        self.decided = decided
        self.made: dict[Any, int] = {}
        """The numbers of the options that were taken, in the order in which they were asked for."""

    def take(self, name: Any) -> Any:
        """The option that is taken. KeyError for what is no choice."""
        options, place = self.options[name], len(self.made)
        return options[self.made.setdefault(name, self.decided[place] if place < len(self.decided) else 0)]

    def numbers(self) -> tuple[int, ...]:
        """The numbers of all options that were taken; the first one stands for those that were not asked for."""
        return tuple([self.made.get(name, 0) for name in self.options])

    def following(self) -> list[int] | None:
        """The decisions of the next reading; ``None`` after the last one."""
        made = list(self.made.items())
        while made:
            name, number = made.pop()
            if number + 1 < len(self.options[name]):
                return [*(before for _, before in made), number + 1]
        return None


def _read(name: str, operands: Sequence[_Told], given: Mapping[str, Any], choices: _Choices) -> CallForm | None:
    """The form in which an operator is read, with these choices; ``None`` if it is not read."""
    values: list[ir.Value | None] = []
    for place, one in enumerate(operands):
        values.append(_operand(place, one) if one.same is None else values[one.same])
    node = _TrialNode(name, values, ir.Node("", name, values).outputs, _TrialAttributes(given, choices))
    canon = spellings.read(OnnxCall(node, _TrialScope(values, choices)), [0])  # type: ignore[arg-type]
    return _form(canon, values, choices) if canon is not None and _is_complete(canon) else None


def _operand(place: int, shape: _Told) -> ir.Value | None:
    if shape.literal == "none":
        return None
    if not shape.maker:
        return ir.Value(name=f"x{place}")
    inner = [ir.Value(name=f"x{place}_{number}") for number in range(shape.operands)]
    return ir.Node("", shape.maker, inner).outputs[0]


def _kinds(shape: _Told, place: int, count: int) -> tuple[Any, ...]:
    """The kinds of an operand, in turn: a tensor of the rank that is tried, a vector, a number, a list of integers."""
    if shape.literal in ("number", "list"):
        return ("number", *_BOUNDS) if shape.literal == "number" else ("list", "pads")
    if shape.literal == "none":
        return ("none",)
    if shape.maker or shape.operands or shape.same is not None:
        return ("tensor",)
    if place == 0:
        return ("tensor",) if count > 2 else ("tensor", "number", "list")
    return ("tensor", "vector", "number", "list", "pads") if count > 3 else (
        "tensor", "vector", "number", *_BOUNDS, "list", "pads"
    )  # fmt: skip


def _attributes(name: str, given: Mapping[str, Any], named: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The values of the attributes of a node that are tried: one of those that it needs, and several of some others, of
    which the first is that there is none. A list is a function of a rank."""
    found: dict[str, tuple[Any, ...]] = {}
    for key, attr in _schema("", name).attributes.items():
        if key not in given:
            values = _samples(attr.type)
            found[key] = values[:1] if attr.required or key in named else (None, *values)
    fixed = {key: values for key, values in found.items() if len(values) == 1}
    few = [key for key, values in found.items() if len(values) > 1][:4]
    return {**fixed, **{key: found[key] for key in few}}


def _samples(kind: Any) -> tuple[Any, ...]:
    types = onnx.defs.OpSchema.AttrType
    return {
        types.INT: (1,), types.FLOAT: _FLOATS, types.INTS: (lambda rank: list(range(rank))[::-1],),
        types.TENSOR: (ir.tensor(np.zeros(1, dtype=np.float32)),),
    }.get(kind, ())  # fmt: skip


class _TrialNode(NamedTuple):
    """A node as readers see it, whose attributes are chosen when they are asked for."""

    op_type: str
    inputs: Sequence[ir.Value | None]
    outputs: Sequence[ir.Value]
    attributes: Mapping[str, ir.Attr]
    domain: str = ""
    overload: str = ""


class _TrialAttributes(Mapping[str, ir.Attr]):
    """The attributes of a node: those that are given, and those that are chosen."""

    def __init__(self, given: Mapping[str, Any], choices: _Choices) -> None:
        self.given = given
        self.choices = choices

    def __getitem__(self, name: str) -> ir.Attr:
        value = self.given[name] if name in self.given else self.choices.take(name)
        if value is None:
            raise KeyError(name)
        value = value(self.choices.take(_RANKS)) if callable(value) else value
        return ir.convenience.convert_attributes({name: value})[0]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.given, *(name for name in self.choices.options if isinstance(name, str) and name in self)])

    def __len__(self) -> int:
        return len(list(self))


class _TrialScope:
    """The surroundings of a node whose operands are of some kinds."""

    opset = _LATEST

    def __init__(self, values: Sequence[Any], choices: _Choices) -> None:
        self.choices = choices
        self.places = {value: place for place, value in reversed([*enumerate(values)]) if value is not None}

    def _kind(self, value: Any) -> Any:
        """The kind of an operand; ``None`` of another value."""
        return self.choices.take(self.places[value]) if value in self.places else None

    def type_of(self, value: Any) -> TensorType | None:
        kind = self._kind(value)
        if kind == "vector" or (kind is None and value.producer() is None):
            return TensorType((_SIZE,), self.choices.take(_DTYPES))
        array = self.constant(value)
        if array is not None:
            return TensorType(array.shape, array.dtype.name)
        return TensorType((_SIZE,) * self.choices.take(_RANKS), self.choices.take(_DTYPES))

    def constant(self, value: Any) -> Any:
        match self._kind(value):
            case "number":
                return np.array(_number(self.places[value]), dtype=np.float32)
            case float(bound):
                return np.array(bound, dtype=np.float32)
            case "list":
                return np.ones(1, dtype=np.int64)
            case "pads":
                return np.zeros(2 * self.choices.take(_RANKS), dtype=np.int64)
        return None

    def sizes(self, value: Any) -> tuple[int, ...] | None:
        array = self.constant(value)
        return None if array is None else tuple(map(int, array.reshape(-1)))


def _number(place: int) -> float:
    """The number that an operand is, other than that of any other operand."""
    return place + 2.25


def _is_complete(canon: Canon) -> bool:
    """True if each call of a reading has as many operands as its operator takes."""
    calls = [operand for operand in canon.operands if isinstance(operand, Canon)]
    if canon.op in TABLE and not TABLE[canon.op].takes(len(canon.operands)):
        return False
    return all(map(_is_complete, calls))


def _form(canon: Any, values: Sequence[Any], choices: _Choices) -> Any:
    if isinstance(canon, Canon):
        return (canon.op, tuple([_form(operand, values, choices) for operand in canon.operands]))
    if isinstance(canon, ir.Value):
        if canon in values:
            return values.index(canon)
        for place, value in enumerate(values):
            maker = None if value is None else value.producer()
            if maker is not None and canon in maker.inputs:
                return ("of", place, maker.inputs.index(canon))
    if not isinstance(canon, LiteralOperand):
        return None
    for place in sorted([place for place in choices.made if isinstance(place, int)]):
        kind = choices.take(place)
        if canon.value == (_number(place) if kind == "number" else kind):
            return place
    return None
