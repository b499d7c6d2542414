"""The declaration of a user's operator, and the rules between its call and its meaning."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gsl import op
from gsl.errors import FrontEndError, PatternError, PatternTypeError, checked, located, nearest
from gsl.graph import Graph, TensorType
from gsl.operators.signature import Meaning, checked_leaves, checked_name, checked_writes, meaning_of
from gsl.pat import Call, Pattern
from gsl.programs.declared import DeclaredType, annotated, declared
from gsl.programs.parameters import parameters
from gsl.programs.samples import Sampler
from gsl.programs.source import InputSample, rule_program
from gsl.rewrite import RuleSet, Subst
from gsl.spec import REQUIRED, DeclaredSpec, OpSpec, Trait, Types
from gsl.spec.custom import computed, is_inside_meaning, is_noting_calls, note_call
from gsl.spec.meaning import has_symbols
from gsl.spec.spec import exact
from gsl.workload.compare import TOLERANCES

_MOST_GRAPHS = 64
_TRAITS = ("commutative", "element_wise", "broadcasting", "activation", "reduction", "layout")


@checked(PatternTypeError)
def operator(
    name: str,
    *,
    traits: Trait | str | Iterable[Trait | str] = (),
    mutates_args: str | Sequence[str] = (),
    **leaves: Any,
) -> Callable[[Callable[..., Any]], UserOperator]:
    """A decorator that declares an operator by its meaning: a function of tensors that returns tensors.

    ``name`` is that of an operator of ``torch.library``, with its namespace; if torch has none, it is made when it is
    first needed. Positional parameters are the operands, keyword-only ones the attributes; all are annotated.
    ``leaves`` gives shapes of named sizes (``x="*b d", weight="d"``; annotations of jaxtyping say the same), and for
    attributes a list of values to try. ``mutates_args`` names the arguments that an operator writes that is made here;
    the function is then the functional form, with one result more for each of them. ``traits`` are those of
    ``op.Trait``: a pattern matches a commutative operator in either order.

    PatternError, with the place, for a function that can't be a meaning, and for an operator of torch with another
    schema, or with a kernel that gives other values.
    """
    checked_name(name)
    wanted = _traits((traits,) if isinstance(traits, (str, Trait)) else traits)
    writes = checked_writes(name, mutates_args)

    def declare(function: Callable[..., Any]) -> UserOperator:
        made = _declared(name, function, leaves, wanted, writes)
        made.check()
        return made

    return declare


def library_operator(name: str, **leaves: Any) -> Callable[[Callable[..., Any]], UserOperator]:
    """The same for operators of GSL itself, which its tests check: nobody has to wait for that who imports them."""
    return lambda function: _declared(name, function, leaves)


def _declared(
    name: str, function: Callable[..., Any], leaves: Mapping[str, Any], traits: Trait = Trait.NONE,
    writes: tuple[str, ...] = (),
) -> UserOperator:  # fmt: skip
    meaning = meaning_of(name, function)
    return UserOperator(name, meaning, traits, writes, checked_leaves(meaning, leaves))


def _traits(given: Iterable[Trait | str]) -> Trait:
    wanted = Trait.NONE
    for trait in given:
        if isinstance(trait, str):
            if trait.lower() not in _TRAITS:
                raise PatternError(located(f"unknown trait {trait!r}: {nearest(trait.lower(), _TRAITS)}"))
            trait = Trait[trait.upper()]
        wanted |= trait
    return wanted


class UserOperator(op.Operator):
    """An operator of the user's: a class for patterns, and on tensors a call of the operator itself."""

    def __init__(
        self, name: str, meaning: Meaning, traits: Trait, writes: tuple[str, ...], leaves: Mapping[str, Any]
    ) -> None:
        function = meaning.function
        values = computed(function)

        def run(torch: Any, *operands: Any, **attrs: Any) -> Any:
            return values(*operands, **attrs)

        self.meaning = meaning
        self._graphs: dict[Any, Graph] = {}
        """The last graphs of the meaning, by the types of the operands and the attributes."""
        super().__init__(
            DeclaredSpec(
                name,
                function.__name__,
                meaning.tensors,
                run,
                meaning.attrs,
                optional=meaning.optional,
                traits=traits,
                fields=meaning.is_tuple,
                home=(function.__module__, function.__qualname__),
                leaves=leaves,
                shapes=_shapes(meaning, leaves),
                traced=self._traced,
                native=_torch_operator(name, meaning, values, writes),
            )
        )
        self._in_graph: Callable[..., Any] = function
        """The function that graphs of ``torch.compile`` call: the operator as soon as there is one. That of one that
        writes is its meaning."""
        self.__name__ = function.__name__
        self.__wrapped__ = function  # which has its signature
        self.__doc__ = function.__doc__ or self.__doc__

    def __repr__(self) -> str:
        return self.spec.cls

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, self._declared.place()

    def __copy__(self) -> UserOperator:
        return self

    def __deepcopy__(self, memo: Any) -> UserOperator:
        return self

    @property
    def _declared(self) -> DeclaredSpec:
        assert isinstance(self.spec, DeclaredSpec)
        return self.spec

    @property
    def torch_op(self) -> Any:
        """The operator of ``torch.library``. It is made if torch has none of that name."""
        native = self._declared.native
        if not native.writes:
            self._in_graph = native.overload
        return native.overload

    def __call__(self, *operands: Any, **attrs: Any) -> Any:
        """A call pattern; of tensors, the results of the operator, by its kernel."""
        if any(map(_is_tensor, operands)) and not any(isinstance(each, Pattern) for each in operands):
            if sys.modules["torch"].compiler.is_dynamo_compiling():
                return self._in_graph(*operands, **attrs)
            return self._run(operands, attrs)
        return Call(self.spec, *operands, **attrs)

    def _run(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        from gsl.front.fx.custom import run_operator

        spec = self._declared
        given = list(operands)
        while given and given[-1] is None:
            given.pop()
        if not spec.takes(len(given)):
            raise PatternTypeError.here(
                f"{spec.cls} takes {spec.arity} tensors ({', '.join(spec.operands)}), got {len(given)}"
            )
        for name in attrs:
            if name not in spec.attrs:
                raise PatternTypeError.here(f"{spec.cls} has no attribute {name!r}: {nearest(name, spec.attrs)}")
        try:
            full = spec.complete(attrs, ())
        except ValueError as error:
            if is_noting_calls():  # which tries others
                raise
            raise PatternError(located(str(error))) from None
        absent = [name for name, operand in zip(spec.operands, given) if operand is None]
        if absent and (absent[0] in spec.operands[: len(spec.operands) - spec.optional] or is_noting_calls()):
            raise PatternError(located(_gap(spec, absent[0], given)))
        if is_inside_meaning():
            return self.meaning.function(*given, **full)
        _ = self.torch_op  # which is made now, if torch has none
        if note_call(spec):
            return spec.native.twin(*given, **spec.native.arguments_of(full))
        return run_operator(spec.native, given, full)

    # ------------------------------------------------------------ the meaning

    def _traced(self, types: Types, attrs: Mapping[str, Any]) -> Graph:
        from gsl.front.fx.trace import traced

        tensors: dict[str, TensorType] = {}
        for name, type in zip(self.meaning.tensors, types):
            if not isinstance(type, TensorType) or has_symbols(type):
                raise FrontEndError(
                    f"{self.meaning.title}: it is written out for operands of known types and sizes, and {name} is "
                    f"{type or 'not known'}"
                )
            tensors[name] = type
        key = (types, exact(tuple(attrs.items())))
        if key not in self._graphs:
            if len(self._graphs) >= _MOST_GRAPHS:
                self._graphs.clear()
            graph = self._graphs[key] = traced(self.meaning.function, tensors, attrs, frozenset())
            for node in graph.nodes:
                node.native = None  # it is written anew wherever it is needed
        return self._graphs[key]

    def check(self) -> None:
        """Raise PatternError where the meaning can't be traced, or an operator that torch has disagrees with it."""
        from gsl.front.fx.custom import disagreement, order_matters

        sample, results = self.sample
        if len(results) != self.meaning.results:
            raise PatternError(
                f"{self.meaning.title}: it returns {_tensors(len(results))}, but is annotated with "
                f"{_tensors(self.meaning.results)}"
            )
        native = self._declared.native
        attrs = {**self._defaults(), **sample.literals}
        if self.spec.commutative:
            if len(self.spec.operands) < 2:
                raise PatternError(f"{self.meaning.title}: a commutative operator has two operands, and this has "
                                   f"{_tensors(len(self.spec.operands))}")  # fmt: skip
            reason = order_matters(native, sample.types, attrs, TOLERANCES)
            if reason is not None:
                raise PatternError(f"{self.meaning.title}: the meaning is not commutative: {reason}, for {sample}")
        if not native.exists:
            return
        _ = self.torch_op
        reason = disagreement(native, sample.types, attrs, TOLERANCES)
        if reason is not None:
            raise PatternError(
                f"{self.meaning.title}: the meaning is not what the operator of torch computes: {reason}, for {sample}"
            )

    @functools.cached_property
    def sample(self) -> tuple[InputSample, Types]:
        """Types and attributes with which the meaning can be computed, and the types of its results; attributes that
        have a default have that."""
        fixed = self._defaults()
        program = rule_program("the meaning of", _side(self, self.meaning.function, fixed), ())
        tensors, literals = parameters(program, program, self._leaves(fixed))
        try:
            return Sampler(program, program, tensors, literals).first()
        except FrontEndError as error:
            raise PatternError(str(error)) from error

    def _defaults(self) -> dict[str, Any]:
        return {name: attr.default for name, attr in self.spec.attrs.items() if attr.default is not REQUIRED}

    def _leaves(self, fixed: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in self._declared.leaves.items() if name not in fixed}

    # ------------------------------------------------------------ rules

    def recognise(
        self, *, name: str | None = None, priority: int = 0, beside: Subst | RuleSet | None = None, **fixed: Any
    ) -> Subst:
        """The rule from the meaning, written out, to the call.

        ``fixed`` are attributes that have one value only, and optional operands that are absent (``weight=None``);
        ``beside`` are rules that leave programs in another form, in which the meaning is then looked for.
        PatternError where the meaning does not tell an attribute, or computes other calls for other values: fix it.
        """
        meaning, call = self._sides(fixed)
        name = name or f"recognise {self.spec.cls}"
        return Subst.from_programs(
            meaning, call, name=name, priority=priority, beside=beside, **self._leaves(fixed)
        )

    def lower(self, *, name: str | None = None, priority: int = 0, **fixed: Any) -> Subst:
        """The rule from the call to the meaning, written out; ``fixed`` as in :meth:`recognise`."""
        meaning, call = self._sides(fixed)
        return Subst.from_programs(
            call, meaning, name=name or f"lower {self.spec.cls}", priority=priority, **self._leaves(fixed)
        )

    def _sides(self, fixed: Mapping[str, Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        last = self.meaning.tensors[len(self.meaning.tensors) - self.meaning.optional:]
        if not self.meaning.tensors:
            raise PatternError(f"{self.meaning.title}: it has no operands, so there are no rules between its call and "
                               "its meaning")  # fmt: skip
        for name, value in fixed.items():
            if name not in self.meaning.schemas:
                raise PatternError(f"{self.meaning.title}: {name}= is no parameter: "
                                   f"{nearest(name, self.meaning.schemas)}")  # fmt: skip
            if name in self.meaning.tensors and (value is not None or name not in last):
                raise PatternError(f"{self.meaning.title}: {name}={value!r}: only an optional tensor can be fixed, as "
                                   "None")  # fmt: skip
            if name in self.spec.attrs:
                try:
                    self.spec.normalise(name, value, ())
                except ValueError as error:
                    raise PatternError(f"{self.meaning.title}: {error}") from None
        given = [None if name in fixed else name for name in self.meaning.tensors]
        while given[-1] is None:
            given.pop()
        if None in given:
            absent = self.meaning.tensors[given.index(None)]
            raise PatternError(f"{self.meaning.title}: {_gap(self.spec, absent, given)}")
        return _side(self, self.meaning.function, fixed), _side(self, self, fixed)


def _gap(spec: OpSpec, absent: str, given: Sequence[Any]) -> str:
    """The message that an operand is left out before another one."""
    place = spec.operands.index(absent)
    if place < len(spec.operands) - spec.optional:
        return f"{spec.cls}: {absent} is None, and not optional"
    later = next(name for name, value in zip(spec.operands[place:], given[place:]) if value is not None)
    return (f"{spec.cls}: {absent} is left out before {later}, which no pattern tells: leave out operands from the end "
            "on, or declare an operator without it")


def _tensors(number: int) -> str:
    return f"{number} tensor{'' if number == 1 else 's'}"


def _shapes(meaning: Meaning, leaves: Mapping[str, Any]) -> dict[str, DeclaredType]:
    """The types of the operands, as far as they are said."""
    known = {name: declared(name, leaves[name]) for name in meaning.tensors if name in leaves}
    hints = {name: annotated(name, meaning.hints[name]) for name in meaning.tensors}
    return {**{name: type for name, type in hints.items() if type is not None}, **known}


def _side(own: UserOperator, call: Callable[..., Any], fixed: Mapping[str, Any]) -> Callable[..., Any]:
    """A program of the parameters of an operator that are not fixed."""
    function = own.meaning.function
    known = inspect.signature(function).parameters.values()
    left = [p for p in known if p.name not in fixed]
    tensors = [p.name for p in left if p.kind is not inspect.Parameter.KEYWORD_ONLY]

    values = {name: value for name, value in fixed.items() if name not in own.meaning.tensors}

    def program(*operands: Any, **attrs: Any) -> Any:
        given = dict(zip(tensors, operands))
        found = [given.get(name) for name in own.meaning.tensors]
        while found and found[-1] is None:
            found.pop()
        return call(*found, **attrs, **values)

    program.__name__ = function.__name__
    program.__wrapped__ = function  # type: ignore[attr-defined]
    program.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p if p.kind is inspect.Parameter.KEYWORD_ONLY else p.replace(default=p.empty) for p in left]
    )
    program.__annotations__ = function.__annotations__
    return program


def _torch_operator(name: str, meaning: Meaning, values: Callable[..., Any], writes: tuple[str, ...]) -> Any:
    """The operator of torch, if torch is there; without it, the meaning can't be computed either."""
    from gsl.front.fx.custom import OperatorArgument, TorchOperator

    optional = meaning.tensors[len(meaning.tensors) - meaning.optional:]
    arguments = [
        OperatorArgument(
            own, schema,
            meaning.attrs[own].default if own in meaning.attrs else None if own in optional else REQUIRED,
            own in meaning.tensors,
        )
        for own, schema in meaning.schemas.items()
    ]  # fmt: skip
    space = name.partition("::")[0]
    # The namespaces of torch have no dots.
    own = name.replace(".", "_") if "." in space else name
    return TorchOperator(own, arguments, meaning.results, writes, values, meaning.title)


def _is_tensor(value: Any) -> bool:
    """True for a tensor of torch, and for what stands for one in a trace."""
    return "torch" in sys.modules and hasattr(type(value), "__torch_function__")


def _found(module: str, name: str) -> UserOperator:
    import importlib

    found: UserOperator = getattr(importlib.import_module(module), name)
    return found
