"""Rules that a pass of inductor's pattern matcher holds already."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gsl.errors import ExchangeError, FrontEndError, PatternError
from gsl.exchange.imported import ImportedRules, collected
from gsl.exchange.inductor import from_inductor
from gsl.graph import TensorType
from gsl.rewrite import Subst

if TYPE_CHECKING:
    import torch

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
    return collected(
        entries,
        lambda entry: _name(entry, kept[id(entry)]),
        lambda entry, name: _rules(name, entry, kept[id(entry)], example_inputs or {}),
    )


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
        raise ExchangeError(f"{name} can't be taken over: {reason}")
    if kept["trace_fn"] is joint_fwd_bwd:
        raise ExchangeError(f"{name} can't be taken over: it is a pattern of a graph with gradients")

    def rule(title: str, given: Sequence[torch.Tensor]) -> Subst:
        return from_inductor(
            kept["search_fn"], kept["replace_fn"], given, scalar_workaround=kept["scalar_workaround"],
            extra_check=_own_check(kept["extra_check"]), name=title,
        )  # fmt: skip

    if name in examples:
        return [rule(name, examples[name])]
    found = list(_examples(entry.pattern, kept))
    if not found:
        raise ExchangeError(
            f"{name} can't be taken over: a pass does not keep example inputs, and inductor makes this pattern of none "
            f"that were tried; give them as example_inputs={{{name!r}: […]}}"
        )
    if len(found) == 1:
        return [rule(name, found[0])]
    return [rule(f"{name}{[tensor.ndim for tensor in given]}", given) for given in found]


def _own_check(check: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """The check that was given; ``None`` for the one that is always true."""
    from torch._inductor import pattern_matcher

    return None if check is pattern_matcher._return_true else check


def _examples(pattern: Any, kept: Mapping[str, Any]) -> Iterator[list[torch.Tensor]]:
    """The example inputs among those that are tried of which inductor makes a pattern, of one dtype for each ranks."""
    import torch
    from torch._inductor.pattern_matcher import PatternPrettyPrinter, gen_pattern
    from torch._subclasses.fake_tensor import FakeTensorMode

    search, scalars = kept["search_fn"], kept["scalar_workaround"]
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
