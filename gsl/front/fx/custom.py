"""Operators of users in torch: the operator of ``torch.library`` that exists or is made, and its calls.

An operator that writes into its arguments is called through ``auto_functionalized``, torch's functional form of such a
call: its results are those of the operator, and then the new values of the arguments that it writes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx
from torch._ops import OpOverload

from gsl.errors import FrontEndError, PatternError, is_exhaustion
from gsl.front.fx.library import define, maker, registered
from gsl.front.fx.spellings.table import Native
from gsl.front.tree import Canon
from gsl.graph import TensorType, TupleType, dtype_name
from gsl.spec import REQUIRED, DeclaredSpec, OpSpec, Types
from gsl.spec.meaning import infer
from gsl.spec.natives import Parameter, schema_of

_V1: Final = torch.ops.higher_order.auto_functionalized
_V2: Final = torch.ops.higher_order.auto_functionalized_v2
FUNCTIONALIZED: Final = frozenset((_V1, _V2))

_NEW: Final = torch.ops.aten.new_empty.default

@dataclass(frozen=True, slots=True)
class OperatorArgument:
    """A parameter of the function that is an operator's meaning."""

    name: str
    schema: tuple[str, ...]
    """The types that it may have in a schema of torch, the usual one first; as a schema prints them."""
    default: Any = REQUIRED
    is_tensor: bool = False


class TorchOperator:
    """The operator of ``torch.library`` of a declaration. It is made when it is first asked for, if there is none."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[OperatorArgument],
        results: int,
        writes: Sequence[str],
        meaning: Callable[..., Any],
        title: str,
    ) -> None:
        self.name = name
        self.arguments = tuple(arguments)
        self.results = results
        self.meaning = meaning
        self.title = title
        """The operator and the place of its meaning, for errors."""
        self._writes = tuple(writes)
        """The arguments that it writes, as far as they are said."""

    @property
    def exists(self) -> bool:
        """True if torch has an operator of that name."""
        return registered(self.name) is not None

    @property
    def overload(self) -> OpOverload:
        """The operator. PatternError for one that exists with a schema that disagrees, and for one that was made of
        another declaration since."""
        if self._is_stale:
            raise PatternError(
                f"{self.title}: {self.name} was declared again since, and torch has one operator of a name; make the "
                "rules anew with the last declaration, or use another name"
            )
        return self._found if self._made is None else self._made

    @property
    def _is_stale(self) -> bool:
        """True if the operator that was made here was made of another declaration since."""
        return "_made" in vars(self) and self._made is not None and maker(self.name) is not self.meaning

    @functools.cached_property
    def _made(self) -> OpOverload | None:
        """The operator that is made here; ``None`` where torch has one that was not."""
        return None if self.exists and maker(self.name) is None else self._make()

    @functools.cached_property
    def _found(self) -> OpOverload:
        """The operator that torch has."""
        found = registered(self.name)
        assert found is not None
        self._check(found)
        return found

    @functools.cached_property
    def twin(self) -> OpOverload:
        """The operator itself, or for one that writes into its arguments, a function of values for traces."""
        if not self.writes:
            return self.overload
        name = f"gsl_traced::{self.name.replace('::', '__').replace('.', '_')}"
        return define(name, self._schema(()), self.meaning, self.meaning)

    @functools.cached_property
    def writes(self) -> tuple[str, ...]:
        """The arguments that the operator writes, in the order of its schema."""
        return tuple(parameter.name for parameter in schema_of(self.overload) if parameter.is_written)

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names of the results that are new values of arguments, and empty texts for those before them."""
        return ("",) * self.returned + self.writes

    @functools.cached_property
    def returned(self) -> int:
        """The number of tensors that a call returns besides the arguments that it writes."""
        return len([each for each in self.overload._schema.returns if each.alias_info is None])

    # ------------------------------------------------------------ making and checking

    def _schema(self, writes: Sequence[str]) -> str:
        """The schema of an operator that writes these arguments, and returns all other results."""
        parts, keyword, marks = [], False, iter("abcdefghij")
        own = [OperatorArgument(name, ("Tensor",), is_tensor=True) for name in writes
               if name not in {argument.name for argument in self.arguments}]  # fmt: skip
        for argument in (*own, *self.arguments):
            if not argument.is_tensor and not keyword:
                keyword = True
                parts.append("*")
            kind = argument.schema[0]
            kind = f"Tensor({next(marks)}!)" if argument.name in writes else kind
            parts.append(f"{kind} {argument.name}{_default_text(argument.default)}")
        returned = ["Tensor"] * (self.results - len(writes))
        results = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
        return f"({', '.join(parts)}) -> {results}"

    def _make(self) -> OpOverload:
        schema = self._schema(self._writes)
        if not self._writes:
            return define(self.name, schema, self.meaning, self.meaning)
        known = [argument.name for argument in self.arguments]

        def write(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip([*(n for n in self._writes if n not in known), *known], args)) | kwargs
            found = self.meaning(**{name: given[name] for name in known if name in given})
            results = found if isinstance(found, tuple) else (found,)
            first = self.results - len(self._writes)
            for name, value in zip(self._writes, results[first:]):
                given[name].copy_(value)
            return None if first == 0 else results[0] if first == 1 else results[:first]

        return define(self.name, schema, write, self.meaning, self._writes)

    def _check(self, found: OpOverload) -> None:
        """Raise PatternError where the schema of an existing operator is not that of the declaration."""
        schema, parameters = found._schema, schema_of(found)
        theirs = {parameter.name: parameter for parameter in parameters}
        where = f"{self.title}: torch has {schema}"
        for own in self.arguments:
            other = theirs.pop(own.name, None)
            if other is None:
                raise PatternError(
                    f"{where}, which has no argument {own.name}; the parameters of the meaning have the names of the "
                    f"schema: {', '.join(parameter.name for parameter in parameters)}"
                )
            if _kind(other) not in own.schema:
                raise PatternError(
                    f"{where}, where {own.name} is of type {_kind(other)}, but the meaning says {own.schema[0]}; "
                    "annotate it as the schema does"
                )
            if other.has_default and own.default is not REQUIRED and not _same(own, other.default):
                raise PatternError(
                    f"{where}, where {own.name} has the default {other.default!r}, but the meaning has "
                    f"{own.default!r}"
                )
        for name, other in theirs.items():
            if not other.is_written and not other.has_default:
                raise PatternError(
                    f"{where}, and the meaning has no parameter {name}; only arguments that are written and not read "
                    "may be left out, and those with a default"
                )
        written = [parameter.name for parameter in parameters if parameter.is_written]
        returned = len([each for each in schema.returns if each.alias_info is None])
        if self.results != returned + len(written):
            also = f" and writes {', '.join(written)}" if written else ""
            raise PatternError(
                f"{where}, which returns {returned} tensors{also}, but the meaning returns {self.results}; it is the "
                "functional form: what is returned, and then one result for each argument that is written, in order"
            )
        if self._writes and tuple(written) != self._writes:
            raise PatternError(f"{where}, which writes {', '.join(written)}, but mutates_args={list(self._writes)}")

    # ------------------------------------------------------------ calls

    def targets(self) -> tuple[Any, ...]:
        """The targets by which a graph calls the operator; none if torch does not have it."""
        if not self.exists or self._is_stale:
            return ()
        overload = self.overload
        return (overload, getattr(getattr(torch.ops, overload.namespace), overload._opname), *self._twins())

    def _twins(self) -> tuple[OpOverload, ...]:
        return (self.twin,) if "twin" in vars(self) and self.writes else ()

    def is_mutable(self, target: Any) -> bool:
        """True for a call that writes into its arguments, which is no function of values."""
        return bool(self.writes) and target not in self._twins()

    def canon(
        self, spec: DeclaredSpec, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Canon | None:
        """The reading of a call with these arguments; ``None`` for one that the meaning does not tell of."""
        parameters = schema_of(self.twin if target in self._twins() else self.overload)
        return self._canon(spec, dict(zip([parameter.name for parameter in parameters], args)) | dict(kwargs))

    def _canon(self, spec: DeclaredSpec, given: dict[str, Any]) -> Canon | None:
        operands: list[Any] = []
        attrs: dict[str, Any] = {}
        for argument in self.arguments:
            value = given.pop(argument.name, argument.default)
            if not argument.is_tensor:
                attrs[argument.name] = _plain(value)
            elif value is not None:
                if len(operands) < spec.operands.index(argument.name):
                    return None  # an optional tensor before it is absent
                operands.append(value)
        for other in schema_of(self.overload):
            left = other.name in given and not other.is_written
            if left and given[other.name] != other.default:
                return None
        return Canon(spec.name, tuple(operands), attrs)

    def functionalized(
        self, spec: DeclaredSpec, target: Any, kwargs: Mapping[str, Any]
    ) -> tuple[Canon, tuple[int, ...]] | None:
        """The reading of a call through ``auto_functionalized``, and the numbers of its results in the native tuple.

        ``None`` for one that writes into a part of a tensor.
        """
        given = dict(kwargs)
        first = max(self.returned, 1)
        places = list(range(first, first + len(self.writes)))
        if target is _V2:
            bases = given.pop("_all_bases", ())
            indices = [given.pop(f"_{name}_base_index", None) for name in self.writes]
            if any(name.startswith("_") for name in given) or sorted(map(str, indices)) != sorted(
                map(str, range(len(bases)))
            ):
                return None
            given |= {name: bases[index] for name, index in zip(self.writes, indices)}
            places = [first + index for index in indices]
        canon = self._canon(spec, given)
        return None if canon is None else (canon, (*range(self.returned), *places))

    def written(
        self, spec: DeclaredSpec, operands: Sequence[Any], attrs: Mapping[str, Any], types: Types
    ) -> Native | tuple[Native, ...]:
        """The native call on these operands, or the fields of its result. ValueError where a type is not known."""
        tensors = [argument.name for argument in self.arguments if argument.is_tensor]
        plain = {argument.name: attrs[argument.name] for argument in self.arguments
                 if not argument.is_tensor and not _same(argument, attrs[argument.name])}  # fmt: skip
        given = {**dict(zip(tensors, operands)), **self.arguments_of(plain)}
        if self.writes:
            return self._functional_call(spec, operands, attrs, types, given)
        args = []
        for other in schema_of(self.overload):
            if other.kwarg_only or other.name not in given:
                break
            args.append(given.pop(other.name))
        return Native(self.overload, tuple(args), given)

    def arguments_of(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes as arguments of the operator: lists for tuples, and dtypes for their names where it takes them."""
        dtypes = {parameter.name for parameter in schema_of(self.overload) if parameter.takes_dtype}
        return {
            name: getattr(torch, value) if name in dtypes and isinstance(value, str)
            else list(value) if isinstance(value, tuple) else value
            for name, value in attrs.items()
        }  # fmt: skip

    def _functional_call(
        self, spec: DeclaredSpec, operands: Sequence[Any], attrs: Mapping[str, Any], types: Types, given: dict[str, Any]
    ) -> Native | tuple[Native, ...]:
        """The call through ``auto_functionalized``, which takes all arguments by name."""
        for parameter in schema_of(self.overload):
            name = parameter.name
            if name not in given and name in attrs:
                given |= self.arguments_of({name: attrs[name]})
            elif name not in given and not parameter.is_written:
                given[name] = parameter.default
        result = infer(spec, types, attrs)
        fields = result.fields if isinstance(result, TupleType) else (result,)
        for number, name in enumerate(self.writes, start=self.returned):
            if name not in given:  # it is written and not read
                field = fields[number]
                if not isinstance(field, TensorType):
                    raise ValueError(f"{spec.name}: the type of {name}, which it writes, is not known")
                given[name] = Native(_NEW, (operands[0], field.shape), {"dtype": getattr(torch, field.dtype)})
        call = Native(_V1, (self.overload,), given)
        first = max(self.returned, 1)
        places = (*range(self.returned), *range(first, first + len(self.writes)))
        found = tuple([Native(operator.getitem, (call, place)) for place in places])
        return found if spec.fields else found[0]


def declared_targets(operators: Mapping[str, OpSpec]) -> dict[Any, DeclaredSpec]:
    """The declarations by what graphs call."""
    found: dict[Any, DeclaredSpec] = {}
    for spec in operators.values():
        if isinstance(spec, DeclaredSpec) and spec.native is not None:
            found.update(dict.fromkeys(spec.native.targets(), spec))
    return found


def overload_in(node: fx.Node) -> Any:
    """The operator that a native call of an operator calls, also through ``auto_functionalized``."""
    if node.op != "call_function":
        return None
    return node.args[0] if node.target in FUNCTIONALIZED and node.args else node.target


def _kind(parameter: Parameter) -> str:
    """The type of a parameter as a declaration says it: a dtype is a text, its name."""
    return parameter.kind.replace("int", "str") if parameter.takes_dtype else parameter.kind


def _plain(value: Any) -> Any:
    """The value of an attribute: a tuple for a list, the name of a dtype."""
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return tuple(value) if isinstance(value, list) else value


def _same(own: OperatorArgument, value: Any) -> bool:
    """True if a value is the default of a parameter."""
    value = tuple(value) if isinstance(value, list) else value
    return own.default is not REQUIRED and type(own.default) is type(value) and bool(own.default == value)


def _default_text(default: Any) -> str:
    if default is REQUIRED:
        return ""
    if isinstance(default, tuple):
        return f"={list(default)}"
    return f'="{default}"' if isinstance(default, str) else f"={default}"


def disagreement(
    native: TorchOperator, types: Mapping[str, TensorType], attrs: Mapping[str, Any], tolerances: Mapping[str, Any]
) -> str | None:
    """The case in which the registered kernel gives other values than the meaning, on random tensors; ``None`` if none.

    Also ``None`` where this machine has no kernel.
    """
    generator = torch.Generator().manual_seed(0)
    values = [_random(type, generator) for type in types.values()]
    expected = native.meaning(*values, **attrs)
    try:
        found = run_operator(native, values, attrs)
    except (NotImplementedError, RuntimeError) as error:
        if is_exhaustion(error):
            raise
        return None
    return _difference(expected, found, "by the meaning", "by the kernel", tolerances)


def order_matters(
    native: TorchOperator, types: Mapping[str, TensorType], attrs: Mapping[str, Any], tolerances: Mapping[str, Any]
) -> str | None:
    """The case in which the meaning gives other values when its two first operands are exchanged, on random tensors;
    ``None`` if none, or where it can't be computed."""
    generator = torch.Generator().manual_seed(0)
    first, second, *_ = [_random(type, generator) for type in types.values()]
    try:
        expected = native.meaning(first, second, **attrs)
        found = native.meaning(second, first, **attrs)
    except Exception as error:
        if is_exhaustion(error):
            raise
        return None
    return _difference(expected, found, "as it is", "with its operands exchanged", tolerances)


def _difference(
    expected: Any, found: Any, one: str, other: str, tolerances: Mapping[str, Any]
) -> str | None:
    """The first place where results differ, in words."""
    pairs = zip(*(each if isinstance(each, (tuple, list)) else (each,) for each in (expected, found)))
    for number, (mine, theirs) in enumerate(pairs):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return (f"result {number} is {tuple(mine.shape)} of {mine.dtype} {one}, and {tuple(theirs.shape)} "
                    f"of {theirs.dtype} {other}")  # fmt: skip
        near = tolerances.get(dtype_name(mine.dtype))
        off = (mine.double() - theirs.double()).abs().nan_to_num(nan=0.0)
        # A kernel may round in its own way: ten times what a rewrite may change.
        allowed = 0.0 if near is None else 10 * (near.atol + near.rtol * float(mine.double().abs().nan_to_num().max()))
        if mine.numel() and float(off.max()) > allowed:
            place = torch.unravel_index(off.argmax(), off.shape)
            where = ", ".join(str(int(index)) for index in place)
            return (f"result {number} at [{where}] is {mine[place].item():.6g} {one}, and "
                    f"{theirs[place].item():.6g} {other}")  # fmt: skip
    return None


def _random(type: TensorType, generator: torch.Generator) -> torch.Tensor:
    shape: Any = type.shape
    dtype = getattr(torch, type.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def run_operator(native: TorchOperator, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The results of the operator on tensors, which are left as they are."""
    names = [argument.name for argument in native.arguments if argument.is_tensor]
    given = {**dict(zip(names, operands)), **native.arguments_of(attrs)}
    if not native.writes:
        return native.overload(**given)
    if any(type(value).__name__ == "Proxy" for value in operands):
        raise FrontEndError(f"{native.title}: a mutable operator can't be traced by symbolic_trace; use torch.export")
    results = native.meaning(*operands, **attrs)  # for the types of what is only written
    results = results if isinstance(results, tuple) else (results,)
    copies = {
        name: operands[names.index(name)].clone() if name in names else torch.empty_like(results[number])
        for number, name in enumerate(native.writes, start=native.returned)
    }
    found = native.overload(**{**given, **copies})
    returned = () if native.returned == 0 else (found,) if native.returned == 1 else tuple(found)
    whole = (*returned[: native.returned], *copies.values())
    return whole[0] if len(whole) == 1 else whole
