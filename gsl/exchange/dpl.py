"""Rules of Relax's dataflow pattern language, from the patterns by which TVM makes groups for its code generators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gsl import pat
from gsl.errors import ExchangeError, PatternError, require
from gsl.exchange.imported import ImportedRules, unique
from gsl.match import Match
from gsl.pat import Pattern
from gsl.rewrite import Subst


def from_dpl(
    patterns: Any,
    rewriter: Callable[[Any, dict[Any, Any]], Any] | None = None,
    *,
    name: str | None = None,
    annotate_codegen: bool = False,
    priority: int = 0,
) -> Any:
    """The rule of a pattern of ``tvm.relax.dpl`` and its rewriter, as ``rewrite_call`` takes them; of a
    ``FusionPattern`` of ``tvm.relax.transform``, the rule that outlines what it matches; of a list of those, as
    ``FuseOpsByPattern`` takes them, an ``ImportedRules`` in which earlier ones go first. Its ``refused`` tells of each
    other pattern why it was not taken over.

    The source has the canonical operators as which the front end for Relax reads the calls of the pattern. The pattern
    itself, its check and the rewriter are asked with each match as a function of Relax. With ``annotate_codegen``, a
    group is for the code generator that the pattern's name begins with. Raises ExchangeError for a pattern that can't
    be taken over, with the reason.
    """
    require("tvm")
    from tvm.relax.dpl import DFPattern
    from tvm.relax.transform import FusionPattern

    if isinstance(patterns, FusionPattern):
        return _rule(patterns, name or str(patterns.name), annotate_codegen, priority)
    if isinstance(patterns, DFPattern) and rewriter is not None:
        return _rewriting(patterns, rewriter, name or str(getattr(rewriter, "__name__", "rewriter")), priority)
    if not isinstance(patterns, Iterable) or isinstance(patterns, DFPattern):
        raise ExchangeError(
            f"expected a pattern with its rewriter, or patterns as FuseOpsByPattern takes them, got {patterns!r}"
        )
    made: list[Subst] = []
    refused: dict[str, str] = {}
    names: set[str] = set()
    given = [FusionPattern(*one) if isinstance(one, tuple) else one for one in patterns]
    for number, one in enumerate(given):
        if not isinstance(one, FusionPattern):
            raise ExchangeError(f"expected patterns as FuseOpsByPattern takes them, got {one!r} among them")
        title = unique(str(one.name), names)
        try:
            made.append(_rule(one, title, annotate_codegen, len(given) - number))
        except ExchangeError as error:
            refused[title] = str(error)
    return ImportedRules(made, refused)


def _rule(pattern: Any, name: str, annotate_codegen: bool, priority: int) -> Subst:
    from gsl.exchange.dpl_match import is_fused

    if pattern.attrs_getter is not None:
        raise ExchangeError(f"{name} can't be taken over: it gives its groups attributes of its own")

    def check(match: Match) -> bool | str:
        return is_fused(pattern, match)

    attrs = {"codegen": str(pattern.name).split(".")[0]} if annotate_codegen else {}
    target = pat.Fused(str(pattern.name), **attrs)
    return _subst(pattern.pattern, target, check, name, priority, extern_use=False)


def _rewriting(pattern: Any, rewriter: Any, name: str, priority: int) -> Subst:
    from gsl.exchange.dpl_match import replacement

    def check(match: Match) -> bool | str:
        found = replacement(pattern, rewriter, match)
        return found if isinstance(found, str) else True

    def target(match: Match) -> list[Pattern]:
        found = replacement(pattern, rewriter, match)
        assert not isinstance(found, str)
        return [found]

    return _subst(pattern, target, check, name, priority)


def _subst(pattern: Any, target: Any, check: Any, name: str, priority: int, **choices: Any) -> Subst:
    from gsl.exchange.dpl_source import DplSource

    try:
        return Subst(DplSource(name, pattern).output, target, where=check, name=name, priority=priority, **choices)
    except PatternError as error:
        raise ExchangeError(f"{name} can't be taken over: {error}") from error
