"""TASO's rules: a protocol-buffers file of pairs of operator graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from gsl.errors import ExchangeError
from gsl.exchange.imported import Conditions, ImportedRules, rule_set
from gsl.exchange.terms import FIELD, OPEN, SIGNATURES, VARIABLE, RuleTerm, Semantics, TermRule, problem, walk

# ---------------------------------------------------------------- the wire format


VARINT, LENGTH = 0, 2
_WIRE_TYPES = {0: "a varint", 1: "64 bits", 2: "a length and bytes", 3: "the start of a group", 4: "the end of a group",
               5: "32 bits"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the file that holds one message, and its name in errors."""

    start: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """A kind of message: the name and wire type of each field by its number."""

    name: str
    fields: Mapping[int, tuple[str, int]]


class MessageReader:
    """Reads messages from bytes. ExchangeError with the byte at which they are malformed."""

    def __init__(self, data: bytes, file: str) -> None:
        self.data = data
        self.file = file

    def error(self, offset: int, what: str, problem: str) -> ExchangeError:
        """The error of a problem at a byte of the file."""
        return ExchangeError(f"{self.file}: byte {offset}: {what}: {problem}")

    def read(self, layout: MessageLayout, span: Span) -> dict[str, list[tuple[int, int, int]]]:
        """The fields of a message by name, in order: the value (or the start) of each, its end, its own place."""
        found: dict[str, list[tuple[int, int, int]]] = {name: [] for name, _ in layout.fields.values()}
        offset = span.start
        while offset < span.end:
            place = offset
            key, offset = self._varint(offset, span, "the key of a field")
            number, wire = key >> 3, key & 7
            if number not in layout.fields:
                known = ", ".join(f"{n} ({name})" for n, (name, _) in layout.fields.items())
                raise self.error(place, span.what, f"{layout.name} has no field {number}: known are {known}")
            name, expected = layout.fields[number]
            if wire != expected:
                other = _WIRE_TYPES.get(wire, f"the unknown wire type {wire}")
                raise self.error(place, span.what, f"the field {name!r} is {_WIRE_TYPES[expected]}, found {other}")
            value, offset = self._varint(offset, span, f"the field {name!r}")
            if wire == VARINT:
                found[name].append((_int32(value), offset, place))
                continue
            if value > span.end - offset:
                raise self.error(
                    place, span.what, f"the field {name!r} has {value} bytes, but only {span.end - offset} are left"
                )
            found[name].append((offset, offset + value, place))
            offset += value
        return found

    def _varint(self, offset: int, span: Span, what: str) -> tuple[int, int]:
        """A number of variable length and where it ends."""
        value = 0
        for count in range(10):
            if offset + count >= span.end:
                raise self.error(offset, span.what, f"{what} is cut off")
            byte = self.data[offset + count]
            value |= (byte & 0x7F) << 7 * count
            if byte < 0x80:
                return value, offset + count + 1
        raise self.error(offset, span.what, f"{what} is a varint of more than 10 bytes")


def _int32(value: int) -> int:
    """The signed number of 32 bits that is written as a varint."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


# ---------------------------------------------------------------- rules


COLLECTION = MessageLayout("RuleCollection", {1: ("rule", LENGTH)})
RULE = MessageLayout("Rule", {1: ("source", LENGTH), 2: ("target", LENGTH), 3: ("output", LENGTH)})
OPERATOR = MessageLayout("Operator", {1: ("type", VARINT), 2: ("operand", LENGTH), 3: ("parameter", LENGTH)})
TENSOR = MessageLayout("Tensor", {1: ("operator", VARINT), 2: ("result", VARINT)})
PARAMETER = MessageLayout("Parameter", {1: ("key", VARINT), 2: ("value", VARINT)})
OUTPUT = MessageLayout("MapOutput", {n: (name, VARINT) for n, name in enumerate(
    ("source operator", "target operator", "source result", "target result"), 1)})  # fmt: skip

TYPES = (
    "INPUT", "WEIGHT", "ANY", "CONV2D", "DROPOUT", "LINEAR", "POOL2D_MAX", "POOL2D_AVG", "RELU", "SIGMOID", "TANH",
    "BATCHNORM", "CONCAT", "SPLIT", "RESHAPE", "TRANSPOSE", "EW_ADD", "EW_MUL", "MATMUL", "MUL", "ENLARGE",
    "MERGE_GCONV", "CONSTANT_IMM", "CONSTANT_ICONV", "CONSTANT_ONE", "CONSTANT_POOL",
)  # fmt: skip
"""The operators by their number."""
KEYS = (
    "OP_TYPE", "NUM_INPUTS", "NUM_OUTPUTS", "GROUP", "KERNEL_H", "KERNEL_W", "STRIDE_H", "STRIDE_W", "PAD", "ACTI",
    "NUMDIM", "AXIS", "PERM", "OUTSHUFFLE", "MERGE_GCONV_COUNT", "AXES", "KEEP_DIMS", "EPSILON",
)  # fmt: skip
"""The keys of parameters by their number."""
MOST_DIMENSIONS = 16
"""More than that is no tensor, but a damaged file."""
COUNTS = ("OP_TYPE", "NUM_INPUTS", "NUM_OUTPUTS")
"""Parameters that repeat what the message says anyway; of these only the number of results of a split is needed."""
NAMES = {
    "CONV2D": "conv2d", "MATMUL": "matmul", "EW_ADD": "ewadd", "EW_MUL": "ewmul", "MUL": "smul", "RELU": "relu",
    "SIGMOID": "sigmoid", "TANH": "tanh", "TRANSPOSE": "transpose", "CONCAT": "concat", "SPLIT": "split",
    "ENLARGE": "enlarge_like", "POOL2D_AVG": "poolavg", "POOL2D_MAX": "poolmax", "MERGE_GCONV": "merge_gconv",
    "CONSTANT_ICONV": "Iconv", "CONSTANT_IMM": "Imatmul", "CONSTANT_ONE": "Iewmul", "CONSTANT_POOL": "Cpool",
}  # fmt: skip
"""The operators that have a meaning here, by TENSAT's names."""
KEY_OF = {
    "act": "ACTI", "stride_h": "STRIDE_H", "stride_w": "STRIDE_W", "pad": "PAD", "axis": "AXIS", "ndim": "NUMDIM",
    "kernel_h": "KERNEL_H", "kernel_w": "KERNEL_W", "count": "MERGE_GCONV_COUNT",
}  # fmt: skip
FURTHER: Mapping[str, tuple[str, ...]] = {
    "conv2d": ("KERNEL_H", "KERNEL_W"),
    "enlarge_like": ("KERNEL_H", "KERNEL_W"),
    "transpose": ("NUMDIM", "PERM", "OUTSHUFFLE"),
}
"""Parameters beyond those of TENSAT's operators."""


def rules_from_taso(
    path: str | PathLike[str], *, where: Conditions | None = None, strict: bool = False, **choices: Any
) -> ImportedRules:
    """The rules of a ``graph_subst.pb`` of TASO as a rule set; ``rules["taso-17"]`` is number 17, counted from 0.

    ``choices``, the fields of :class:`gsl.exchange.Semantics`, decide the questions that the file leaves open.
    ``where`` adds conditions: for the name of a rule, a function of the patterns of its variables by their names. Rules
    that can't be expressed are left out, with a warning, and listed with the reason in ``refused``; ``strict`` makes it
    an error.

    Raises ExchangeError, with the byte, the rule and the field, for a file that is malformed, and for one that can't be
    read.
    """
    file = Path(fspath(path))
    semantics = Semantics.of(choices)
    return rule_set(read_taso(file, semantics.operators), semantics, file.name, where or {}, strict)


def read_taso(file: Path, operators: Collection[str] = ()) -> list[TermRule]:
    """The rules of a file as terms. Raises ExchangeError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ExchangeError(f"{file}: the file can't be read: {error.strerror}") from error
    return list(_File(MessageReader(data, file.name), operators).rules())


class _File:
    """The terms of a file."""

    def __init__(self, reader: MessageReader, operators: Collection[str]) -> None:
        self.reader = reader
        self.operators = operators
        """The operators whose meaning the caller tells."""
        self.fields: dict[tuple[RuleTerm, int], RuleTerm] = {}
        """The results of splits."""

    def rules(self) -> Iterator[TermRule]:
        whole = Span(0, len(self.reader.data), "the file")
        spans = self.reader.read(COLLECTION, whole)["rule"]
        if not spans:
            raise self.reader.error(0, "the file", "it has no rules")
        for number, (start, end, _) in enumerate(spans):
            yield self._rule(number, Span(start, end, f"rule {number}"))

    def _rule(self, number: int, span: Span) -> TermRule:
        found = self.reader.read(RULE, span)
        variables: dict[int, RuleTerm] = {}
        sides = [self._side(side, found[side], variables, span) for side in ("source", "target")]
        sources: list[RuleTerm] = []
        targets: list[RuleTerm] = []
        for place, (start, end, offset) in enumerate(found["output"]):
            what = f"{span.what}, output {place}"
            values = self._numbers(OUTPUT, Span(start, end, what))
            for side, terms, outputs in (("source", sides[0], sources), ("target", sides[1], targets)):
                operator, result = values[f"{side} operator"], values[f"{side} result"]
                if not 0 <= operator < len(terms):
                    raise self.reader.error(
                        offset, what, f"the {side} has {len(terms)} operators, but no operator {operator}"
                    )
                outputs.append(self._result(terms[operator], result, offset, what))
            if sources[-1] in sources[:-1]:
                raise self.reader.error(offset, what, "the same result of the source is mapped twice")
        if not sources:
            raise self.reader.error(span.start, span.what, "it has no mapped output")
        for side, terms, outputs in (("source", sides[0], sources), ("target", sides[1], targets)):
            used = set(walk(*outputs))
            dead = next((term for term in terms if term not in used), None)
            if dead is not None:
                raise ExchangeError(f"{dead.place}: no mapped output of the {side} depends on it")
        return TermRule(f"taso-{number}", f"{self.reader.file}: {span.what}", tuple(sources), tuple(targets))

    def _side(
        self, side: str, spans: list[tuple[int, int, int]], variables: dict[int, RuleTerm], rule: Span
    ) -> list[RuleTerm]:
        terms: list[RuleTerm] = []
        for number, (start, end, offset) in enumerate(spans):
            what = f"{rule.what}, {side} operator {number}"
            terms.append(self._operator(Span(start, end, what), offset, terms, side, variables))
        return terms

    def _operator(
        self, span: Span, offset: int, before: list[RuleTerm], side: str, variables: dict[int, RuleTerm]
    ) -> RuleTerm:
        found = self.reader.read(OPERATOR, span)
        if not found["type"]:
            raise self.reader.error(offset, span.what, "it has no field 'type'")
        number, _, place = found["type"][-1]
        if not 0 <= number < len(TYPES):
            known = f"known are 0 to {len(TYPES) - 1}"
            raise self.reader.error(place, span.what, f"unknown operator type {number}: {known}")
        operands = []
        for index, (start, end, at) in enumerate(found["operand"]):
            what = f"{span.what}, operand {index}"
            tensor = self._numbers(TENSOR, Span(start, end, what))
            operands.append(self._operand(tensor, before, side, variables, at, what))
        params: dict[str, int] = {}
        for index, (start, end, at) in enumerate(found["parameter"]):
            what = f"{span.what}, parameter {index}"
            parameter = self._numbers(PARAMETER, Span(start, end, what))
            key = parameter["key"]
            if not 0 <= key < len(KEYS):
                raise self.reader.error(at, what, f"unknown key {key}: known are 0 to {len(KEYS) - 1}")
            if KEYS[key] in params:
                raise self.reader.error(at, what, f"{KEYS[key]} is given twice")
            params[KEYS[key]] = parameter["value"]
        return self._term(TYPES[number], operands, params, span, offset)

    def _numbers(self, layout: MessageLayout, span: Span) -> dict[str, int]:
        """The fields of a message that is made of numbers, each of which must be there."""
        found = self.reader.read(layout, span)
        for name, values in found.items():
            if not values:
                raise self.reader.error(span.start, span.what, f"it has no field {name!r}")
        return {name: values[-1][0] for name, values in found.items()}

    def _operand(
        self,
        tensor: dict[str, int],
        before: list[RuleTerm],
        side: str,
        variables: dict[int, RuleTerm],
        at: int,
        what: str,
    ) -> RuleTerm:
        number = tensor["operator"]
        if number < 0:
            if number not in variables:
                if side == "target":
                    raise self.reader.error(at, what, f"it is the input {number}, which the source does not use")
                place = f"{self.reader.file}: byte {at}: {what}"
                variables[number] = RuleTerm(VARIABLE, (), {"name": f"input_{-number}"}, place)
            if tensor["result"] != 0:
                raise self.reader.error(at, what, f"an input is one tensor, so it has no result {tensor['result']}")
            return variables[number]
        if number >= len(before):
            raise self.reader.error(
                at, what,
                f"it is a result of operator {number}, but only operators before this one can be used ({len(before)}): "
                "it is missing, or depends on this one",
            )  # fmt: skip
        return self._result(before[number], tensor["result"], at, what)

    def _result(self, term: RuleTerm, result: int, at: int, what: str) -> RuleTerm:
        """One of the results of an operator."""
        count = term.params["parts"] if term.op == "split" else 1
        if not 0 <= result < count:
            raise self.reader.error(at, what, f"the operator has {count} results, so there is no result {result}")
        if term.op != "split":
            return term
        field = RuleTerm(FIELD, (term,), {"index": result}, term.place)
        return self.fields.setdefault((term, result), field)

    def _term(self, type: str, operands: list[RuleTerm], params: dict[str, int], span: Span, offset: int) -> RuleTerm:
        place = f"{self.reader.file}: byte {offset}: {span.what}"
        outputs = params.get("NUM_OUTPUTS")
        if params.get("NUM_INPUTS", len(operands)) != len(operands):
            raise self.reader.error(
                offset, span.what, f"NUM_INPUTS is {params['NUM_INPUTS']}, but it has {len(operands)} operands"
            )
        params = {key: value for key, value in params.items() if key not in COUNTS}
        name = NAMES.get(type)
        if name is None or type in self.operators:
            return RuleTerm(OPEN, operands, {"name": type, "arguments": params}, place)
        signature = SIGNATURES[name]
        if len(operands) != signature.operands and not (signature.at_least and len(operands) > signature.operands):
            raise self.reader.error(
                offset, span.what, f"{type} takes {signature.operands} operands, found {len(operands)}"
            )
        values: dict[str, Any] = {}
        for param in signature.params:
            if KEY_OF[param] not in params:
                raise self.reader.error(offset, span.what, f"{type} lacks the parameter {KEY_OF[param]}")
            values[param] = params.pop(KEY_OF[param])
        values |= {key: params.pop(key) for key in FURTHER.get(name, ()) if key in params}
        if name in ("poolavg", "poolmax") and params.get("ACTI") == 0:
            del params["ACTI"]
        if params:
            raise self.reader.error(offset, span.what, f"{type} has no parameter {', '.join(params)}")
        wrong = problem(values)
        if wrong is not None:
            raise self.reader.error(offset, span.what, f"{type}: {wrong}")
        if name == "split":
            if outputs is None or outputs < 2:
                raise self.reader.error(offset, span.what, "SPLIT needs NUM_OUTPUTS of at least 2")
            values["parts"] = outputs
        if name == "transpose":
            values = {"axes": self._permutation(values, offset, span.what)}
        return RuleTerm(name, operands, values, place)

    def _permutation(self, values: dict[str, int], offset: int, what: str) -> tuple[int, ...]:
        """The axes of a transposition, whose places are the digits of PERM to the base NUMDIM."""
        if "NUMDIM" not in values or "PERM" not in values:
            raise self.reader.error(offset, what, "TRANSPOSE needs the parameters NUMDIM and PERM")
        ndim, rest = values["NUMDIM"], values["PERM"]
        if not 1 <= ndim <= MOST_DIMENSIONS:
            raise self.reader.error(offset, what, f"NUMDIM is 1 to {MOST_DIMENSIONS}, found {ndim}")
        axes = [0] * ndim
        for place in reversed(range(len(axes))):
            rest, axes[place] = divmod(rest, ndim)
        if rest or sorted(axes) != list(range(len(axes))):
            raise self.reader.error(offset, what, f"PERM {values['PERM']} is no permutation of {ndim} axes")
        return tuple(axes)
