"""Rules of inductor's pattern matcher: from the functions that ``register_replacement`` takes, and from passes."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from gsl.errors import ExchangeError, FrontEndError, PatternError, nearest, require
from gsl.exchange.imported import ImportedRules, collected, refusal
from gsl.graph import Effect, TensorType, dtype_name
from gsl.programs.declared import Axis, DeclaredType
from gsl.programs.source import InputSample, PythonProgram
from gsl.rewrite import Subst

if TYPE_CHECKING:
    import torch

LeafSizes = Mapping[str, tuple[int | str, ...]]
"""The sizes of tensors by name: numbers, and names, of which equal ones are equal sizes."""
MemoryLayout = tuple[tuple[int, int], ...]
"""The axes of a tensor from the largest stride on, each with how many times its size lies between two steps of the axis
before it."""
_HALVES: Final = ("float16", "bfloat16")
_NUMBERS: Final = (bool, int, float)


@dataclass(frozen=True)
class ExampleInputs:
    """The parameters of a search function: tensors with example types, and literals with example values."""

    tensors: Mapping[str, TensorType]
    literals: Mapping[str, Any]
    layouts: Mapping[str, MemoryLayout]

    def with_literals(self, names: Sequence[str]) -> ExampleInputs:
        """These, but for some tensors, which are numbers instead."""
        tensors = {name: type for name, type in self.tensors.items() if name not in names}
        numbers = {name: 0.5 if "float" in self.tensors[name].dtype else 2 for name in names}
        return ExampleInputs(tensors, {**self.literals, **numbers}, self.layouts)

    def scalars(self) -> list[str]:
        """The tensors without dimensions."""
        return [name for name, type in self.tensors.items() if not type.ndim]


def from_inductor(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    scalar_workaround: Mapping[str, float] | None = None,
    extra_check: Callable[[Any], Any] | None = None,
    name: str | None = None,
    **options: Any,
) -> Subst:
    """The rule of what ``torch._inductor.pattern_matcher.register_replacement`` takes for inference.

    The source is ``search_fn`` in the calls that inductor makes of it, so it is found in the graphs of inductor's
    passes; of ``example_inputs``, ranks and dtypes count, and which sizes the functions need to be equal. Parameters in
    ``scalar_workaround``, and tensors without dimensions of which ``replace_fn`` needs the value, are literals that may
    vary. ``extra_check`` is asked with an ``InductorMatch``. What ``replace_fn`` returns is cast where ``search_fn``
    has another dtype. ``options`` are those of a rule. Raises ExchangeError for what can't be taken over, with the
    reason.
    """
    require("torch")
    if not callable(search_fn) or not callable(replace_fn) or not isinstance(example_inputs, Sequence):
        raise ExchangeError(
            f"expected two functions and a list of example inputs, got {search_fn!r}, {replace_fn!r}, "
            f"{example_inputs!r:.60}"
        )
    title = name or str(getattr(search_fn, "__name__", search_fn))
    given = _examples(title, search_fn, example_inputs, scalar_workaround or {})
    functions = InductorFunctions(search_fn, replace_fn, given)
    try:
        rule = functions.rule(title, options)
    except PatternError as error:
        reason = str(error)
        if functions.is_random():
            reason = (
                "it computes random numbers, which no rule may replace by others; give both functions with a dropout "
                "of 0.0, without that parameter, which is what inference computes"
            )
        raise refusal(title, reason) from error
    if extra_check is None:
        return rule
    from gsl.exchange.inductor_match import checked

    return rule.narrowed(checked(extra_check, functions.search, rule.leaves))


def _examples(
    title: str, search: Callable[..., Any], examples: Sequence[Any], scalars: Mapping[str, float]
) -> ExampleInputs:
    """The parameters with their examples. ExchangeError for those that are no tensors and no numbers."""
    import torch

    names = list(inspect.signature(search).parameters)
    tensors: dict[str, TensorType] = {}
    layouts: dict[str, MemoryLayout] = {}
    literals: dict[str, Any] = dict(scalars)
    unknown = [name for name in scalars if name not in names]
    wanted = [name for name in names if name not in scalars]
    if unknown or len(wanted) != len(examples):
        raise ExchangeError(
            f"{title}: expected an example for each of ({', '.join(wanted)}), got {len(examples)}"
            + f"; scalar_workaround has {', '.join(unknown)}, which are no parameters" * bool(unknown)
        )
    for name, example in zip(wanted, examples):
        if isinstance(example, torch.Tensor):
            tensors[name] = TensorType(tuple(map(int, example.shape)), dtype_name(example.dtype))
            layouts[name] = _layout(example)
        elif isinstance(example, _NUMBERS):
            literals[name] = example
        else:
            raise refusal(
                title, f"the example of {name} is a {type(example).__name__}, and a leaf of a rule is a tensor or a "
                "number; write a function with a parameter for each tensor of it"
            )  # fmt: skip
    return ExampleInputs(tensors, literals, layouts)


class InductorFunctions:
    """A search function and its replacement, as programs of a rule."""

    def __init__(self, search: Callable[..., Any], replace: Callable[..., Any], given: ExampleInputs) -> None:
        self.functions = (search, replace)
        self.given = given
        self.search: PythonProgram

    def rule(self, name: str, options: Mapping[str, Any]) -> Subst:
        """The rule of the functions. PatternError where there is none."""
        self._measure()
        errors: list[PatternError] = []
        for types in self._declared():
            self.search, replace = self._programs(types)
            try:
                return Subst.from_programs(self.search, replace, name=name, **options)
            except PatternError as error:
                errors.append(error)
        raise errors[0]

    def is_random(self) -> bool:
        """True if the calls that inductor makes of the search function make random numbers."""
        sample = InputSample(self.given.tensors, self.given.literals, {})
        try:
            nodes = self.search.trace(sample).graph.nodes
        except (FrontEndError, PatternError):
            return False
        return any(node.effect is Effect.RANDOM for node in nodes)

    def _measure(self) -> None:
        """Find out which sizes are equal, and which tensors without dimensions are numbers."""
        from gsl.front.fx.trace import equal_sizes

        self.casts = False
        self.sizes: list[LeafSizes] = []
        for given in (self.given, self.given.with_literals(self.given.scalars())):
            self.given = given
            try:
                both, outputs = equal_sizes(self.functions, given.tensors, given.literals)
                own, _ = equal_sizes(self.functions[:1], given.tensors, given.literals)
            except FrontEndError:
                continue
            self.casts = outputs[0] != outputs[1]
            self.sizes = [own] if own == both else [own, both]
            return

    def _declared(self) -> Iterator[dict[str, DeclaredType]]:
        """The shapes and dtypes of the tensors, the most general ones first."""
        own = {name: tuple(f"s{size}" if size != 1 else 1 for size in map(int, type.shape))  # type: ignore[arg-type]
               for name, type in self.given.tensors.items()}  # fmt: skip
        for sizes in self.sizes:
            broadcast = self._broadcast(sizes)
            if broadcast != sizes:
                yield self._types(broadcast)
            yield self._types(sizes)
        yield self._types(own)

    def _types(self, sizes: LeafSizes) -> dict[str, DeclaredType]:
        halves = any(type.dtype in _HALVES for type in self.given.tensors.values())
        found: dict[str, DeclaredType] = {}
        for name, type in self.given.tensors.items():
            axes = tuple(_axis(size) for size in sizes[name])
            found[name] = DeclaredType(axes, _dtypes(type.dtype, halves), " ".join(map(str, sizes[name])))
        return found

    def _broadcast(self, sizes: LeafSizes) -> LeafSizes:
        """The sizes, where those of 1 are ``#n`` if ``n`` is the one other size that stands there as well; so are then
        the other sizes of the same tensor, if 1 stands there as well."""
        from gsl.front.fx.trace import output_types

        names = list(dict.fromkeys(size for shape in sizes.values() for size in shape if isinstance(size, str)))
        numbers = dict(zip(names, _PRIMES))
        usual = {
            name: tuple(numbers[size] if isinstance(size, str) else size for size in shape)
            for name, shape in sizes.items()
        }

        def outputs(name: str, axis: int, size: int) -> Any:
            shape = usual[name]
            changed = {**usual, name: (*shape[:axis], size, *shape[axis + 1 :])}
            types = {n: TensorType(changed[n], type.dtype) for n, type in self.given.tensors.items()}
            try:
                return [output_types(function, types, self.given.literals) for function in self.functions]
            except FrontEndError:
                return None

        if len(names) != len(numbers):
            return sizes
        found = {name: list(shape) for name, shape in sizes.items()}
        for name, shape in sizes.items():
            expected = outputs(name, shape.index(1), 1) if 1 in shape else None
            if expected is None:
                continue
            for axis, size in enumerate(shape):
                if size == 1:
                    fitting = [other for other in names if outputs(name, axis, numbers[other]) == expected]
                    if len(fitting) == 1:
                        found[name][axis] = f"#{fitting[0]}"
                elif size in names and outputs(name, axis, 1) == expected:
                    found[name][axis] = f"#{size}"
            if not any(str(size).startswith("#") for size, own in zip(found[name], shape) if own == 1):
                found[name] = list(shape)
        return {name: tuple(shape) for name, shape in found.items()}

    def _programs(self, types: Mapping[str, DeclaredType]) -> tuple[PythonProgram, PythonProgram]:
        search, replace = self.functions
        programs = (
            PythonProgram("search_fn", self._function(search, search), make=self._traced),
            PythonProgram("replace_fn", self._function(replace, self._cast if self.casts else replace)),
        )
        for program in programs:
            program.tensors = types
        return programs

    def _traced(self, function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
        """The calls that inductor makes of the search function for tensors that lie in memory as the examples do."""
        from gsl.exchange.inductor_match import traced_by_inductor

        return traced_by_inductor(function, [
            _laid_out(tensor, self.given.layouts[name]) for name, tensor in zip(self.given.tensors, tensors)
        ])  # fmt: skip

    def _function(self, named: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the tensors by position, and of the literals by keyword."""
        names = list(self.given.tensors)

        @functools.wraps(named)
        def call(*tensors: Any, **literals: Any) -> Any:
            return function(**dict(zip(names, tensors)), **literals)

        positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        call.__annotations__ = {name: type(value) for name, value in self.given.literals.items()}
        call.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
            *(inspect.Parameter(name, positional) for name in names),
            *(inspect.Parameter(name, keyword) for name in self.given.literals),
        ])  # fmt: skip
        return call

    def _cast(self, **values: Any) -> tuple[Any, ...]:
        """The results of the replacement in the dtypes of what is searched."""
        wanted, found = (_outputs(function(**values)) for function in self.functions)
        return tuple(new.to(old.dtype) for old, new in zip(wanted, found, strict=True))


_PRIMES: Final = (  # sizes that are tried, one for each name
    11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53,
)


def _layout(example: torch.Tensor) -> MemoryLayout:
    strides = example.stride()
    order = sorted(range(example.ndim), key=lambda axis: -strides[axis])
    gaps = {axis: -(-strides[outer] // max(strides[axis] * example.shape[axis], 1)) for outer, axis in pairwise(order)}
    return tuple((axis, max(gaps.get(axis, 1), 1)) for axis in order)


def _laid_out(tensor: torch.Tensor, layout: MemoryLayout) -> torch.Tensor:
    """A tensor like another one, with this layout."""
    found = tensor.new_empty([tensor.shape[axis] * gap for axis, gap in layout])
    for place, (axis, _) in enumerate(layout):
        found = found.narrow(place, 0, tensor.shape[axis])
    order = [axis for axis, _ in layout]
    return found.permute([order.index(axis) for axis in range(tensor.ndim)])


def _axis(size: int | str) -> Axis:
    if isinstance(size, int):
        return Axis(size)
    if size.startswith("#"):
        return Axis(names=(size[1:],), broadcast=True)
    factors = size.split("*")
    numbers = [int(factor) for factor in factors if factor.isdigit()]
    names = tuple(factor for factor in factors if not factor.isdigit())
    if len(numbers) > 1 or not all(name.isidentifier() for name in names):
        raise PatternError(f"a size is {size}, and only products of sizes are taken over")
    return Axis(numbers[0] if numbers else 1, names)


def _dtypes(example: str, halves: bool) -> tuple[str, ...]:
    """The dtypes that a tensor with this one as an example may have, beside tensors of 16 bits or without them."""
    if example in _HALVES:
        return _HALVES
    return () if example == "float32" and not halves else (example,)


def _outputs(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


# ---------------------------------------------------------------- passes


_SIZE: Final = 8
_RANKS: Final = (2, 3, 4, 1)
"""The numbers of axes of example inputs that are tried: one for all of them, or for all but some vectors."""
_DTYPES: Final = ("float32", "float16")
_TRIED: Final = 24
"""The largest number of combinations of ranks and dtypes of which a pattern is made."""
_PARTS: Final = ("search_fn", "replace_fn", "scalar_workaround", "extra_check", "trace_fn", "exclusive_arg_names")
"""The arguments of ``register_replacement`` that a pass keeps."""


def from_inductor_pass(
    passes: Any, *, example_inputs: Mapping[str, Sequence[torch.Tensor]] | None = None
) -> ImportedRules:
    """The rules of a ``PatternMatcherPass``: those that ``register_replacement`` has put there for inference.

    Each is what ``from_inductor`` makes of the same arguments, under the name of its search function; equal names are
    numbered. A pass does not keep example inputs. Unless ``example_inputs`` has some for that name, they are found by
    trial: all for which inductor makes the pattern that the pass holds. Where these have several ranks, there is a rule
    for each, ``name[2, 1]`` for a matrix and a vector. ``refused`` of the result tells of each other entry why it was
    not taken over.
    """
    entries = _entries(passes)
    kept = {id(entry): _kept(entry) for entry in entries}
    given = dict(example_inputs or {})
    names: list[str] = []

    def rules(entry: Any, name: str) -> list[Subst]:
        names.append(name)
        return _rules(name, entry, kept[id(entry)], given)

    found = collected(entries, lambda entry: _name(entry, kept[id(entry)]), rules)
    for name in given:
        if name not in names:
            raise ExchangeError(f"example_inputs= names {name!r}, no entry of the pass: {nearest(name, names)}")
    return found


def _entries(passes: Any) -> list[Any]:
    """The entries of a pass in their order, each once. ExchangeError for what is no pass."""
    patterns = getattr(passes, "patterns", None)
    if not isinstance(patterns, Mapping):
        raise ExchangeError(f"expected a PatternMatcherPass, got {passes!r} of type {type(passes).__name__}")
    entries = {id(entry): entry for found in patterns.values() for entry in found}
    return list(entries.values())


def _kept(entry: Any) -> dict[str, Any]:
    """The arguments of ``register_replacement`` that an entry keeps; none for another entry."""
    if type(entry).__name__ != "ReplacementPatternEntry" or not inspect.isfunction(entry.extra_check):
        return {}
    found = inspect.getclosurevars(entry.extra_check).nonlocals
    return {name: found[name] for name in _PARTS} if all(name in found for name in _PARTS) else {}


def _name(entry: Any, kept: Mapping[str, Any]) -> str:
    function = kept.get("search_fn") or getattr(entry, "handler", None)
    return str(getattr(function, "__name__", None) or type(entry).__name__)


def _rules(
    name: str, entry: Any, kept: Mapping[str, Any], examples: Mapping[str, Sequence[torch.Tensor]]
) -> list[Subst]:
    """The rules of an entry. ExchangeError with the reason where there is none."""
    from torch._inductor.pattern_matcher import joint_fwd_bwd

    if not kept:
        reason = {
            "GraphPatternEntry": "its handler changes the graph itself, and a rule says what replaces a match",
            "LoweringPatternEntry": "its handler makes inductor's own code of a match, which is no graph",
        }.get(type(entry).__name__, "the functions that it was made of are not known")
        raise refusal(name, reason)
    if kept["trace_fn"] is joint_fwd_bwd:
        raise refusal(name, "it is a pattern of a graph with gradients")

    def rule(title: str, given: Sequence[torch.Tensor]) -> Subst:
        return from_inductor(
            kept["search_fn"], kept["replace_fn"], given, scalar_workaround=kept["scalar_workaround"],
            extra_check=_own_check(kept["extra_check"]), name=title,
        )  # fmt: skip

    if name in examples:
        return [rule(name, examples[name])]
    found = list(_example_tensors(entry.pattern, kept))
    if not found:
        raise refusal(
            name, "a pass does not keep example inputs, and inductor makes this pattern of none that were tried; give "
            f"them as example_inputs={{{name!r}: […]}}"
        )  # fmt: skip
    if len(found) == 1:
        return [rule(name, found[0])]
    return [rule(f"{name}{[tensor.ndim for tensor in given]}", given) for given in found]


def _own_check(check: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """The check that was given; ``None`` for the one that is always true."""
    from torch._inductor import pattern_matcher

    return None if check is pattern_matcher._return_true else check


def _example_tensors(pattern: Any, kept: Mapping[str, Any]) -> Iterator[list[torch.Tensor]]:
    """The example inputs among those that are tried of which inductor makes a pattern, of one dtype for each ranks."""
    import torch
    from torch._inductor.pattern_matcher import PatternPrettyPrinter, gen_pattern
    from torch._subclasses.fake_tensor import FakeTensorMode

    search, scalars = kept["search_fn"], kept["scalar_workaround"] or {}
    expected = PatternPrettyPrinter.run(pattern)
    done: set[tuple[tuple[int, ...], ...]] = set()
    wanted = [parameter for parameter in inspect.signature(search).parameters if parameter not in scalars]
    for shapes, dtype in itertools.islice(_tried((search, kept["replace_fn"]), wanted, scalars), _TRIED):
        if shapes in done:
            continue
        with FakeTensorMode(allow_non_fake_inputs=True):
            tensors = [torch.empty(shape, dtype=getattr(torch, dtype)) for shape in shapes]
            try:
                found = gen_pattern(search, tensors, kept["trace_fn"], scalars, kept["exclusive_arg_names"])
            except Exception:  # inductor makes no pattern of these
                continue
        if PatternPrettyPrinter.run(found) == expected:
            done.add(shapes)
            yield tensors


def _tried(
    functions: Sequence[Callable[..., Any]], names: Sequence[str], scalars: Mapping[str, Any]
) -> Iterator[tuple[tuple[tuple[int, ...], ...], str]]:
    """Shapes and dtypes with which functions can be computed and return the same types: equal shapes first."""
    from gsl.front.fx.trace import output_types

    for ranks, dtype in itertools.product(_ranks(len(names)), _DTYPES):
        shapes = tuple((_SIZE,) * rank for rank in ranks)
        types = {name: TensorType(shape, dtype) for name, shape in zip(names, shapes)}
        try:
            old, new = (output_types(function, types, scalars) for function in functions)
        except (FrontEndError, PatternError):
            continue
        if [type.shape for type in old] == [type.shape for type in new]:
            yield shapes, dtype


def _ranks(count: int) -> list[tuple[int, ...]]:
    """The numbers of axes of so many tensors, with few vectors first."""
    found = [ranks for most in _RANKS for ranks in itertools.product((most, 1), repeat=count) if most in ranks]
    return sorted(dict.fromkeys(found), key=lambda ranks: sum(rank != max(ranks) for rank in ranks))
