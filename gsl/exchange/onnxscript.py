"""Rules of onnxscript's rewriter, from its rules and sets of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from gsl.errors import ExchangeError, PatternError
from gsl.exchange.imported import ImportedRules, unique
from gsl.match import Match
from gsl.pat import Pattern
from gsl.rewrite import Subst

if TYPE_CHECKING:
    from onnxscript.rewriter import RewriteRule, RewriteRuleSet


@overload
def from_onnxscript(rules: RewriteRule, *, name: str | None = None) -> Subst: ...


@overload
def from_onnxscript(rules: RewriteRuleSet | Iterable[RewriteRule]) -> ImportedRules: ...


def from_onnxscript(rules: Any, *, name: str | None = None) -> Subst | ImportedRules:
    """The rule of a ``RewriteRule`` of ``onnxscript.rewriter``; of a ``RewriteRuleSet`` or a list of rules, an
    ``ImportedRules``, whose ``refused`` tells of each other rule why it was not taken over.

    The source has the canonical operators as which the front end for ONNX reads the pattern's, and those without a
    reading by their names. What attributes and literals have to be, the check and the replacement are asked with the
    match as a model of ONNX, in which the values and nodes are those of ``onnx_ir``. Raises ExchangeError for a rule
    that can't be taken over, with the reason.
    """
    if hasattr(rules, "_target_pattern"):
        return _rule(rules, name or _name(rules))
    if not isinstance(rules, Iterable):
        rules = [rules]
    made: list[Subst] = []
    refused: dict[str, str] = {}
    names: set[str] = set()
    for rule in rules:
        title = unique(_name(rule), names)
        try:
            made.append(_rule(rule, title))
        except ExchangeError as error:
            refused[title] = str(error)
    return ImportedRules(made, refused)


def _name(rule: Any) -> str:
    if not hasattr(rule, "_target_pattern"):
        raise ExchangeError(f"expected rules of onnxscript.rewriter, got {rule!r} of type {type(rule).__name__}")
    function = rule._replacement_pattern._function
    return str(rule.name or getattr(function, "__name__", "rule"))


def _rule(rule: Any, name: str) -> Subst:
    from gsl.exchange.onnxscript_match import replacement
    from gsl.exchange.onnxscript_source import OnnxscriptSource

    if rule.as_function:
        raise ExchangeError(f"{name} can't be taken over: it makes a function of the model of what it replaces")

    def check(match: Match) -> bool | str:
        found = replacement(rule, match)
        return found if isinstance(found, str) else True

    def target(match: Match) -> list[Pattern]:
        found = replacement(rule, match)
        assert not isinstance(found, str)
        return found

    source = OnnxscriptSource(name, rule._target_pattern).outputs
    try:
        return Subst(source, target, where=check, name=name, extern_use=False if rule.remove_nodes else None)
    except PatternError as error:
        raise ExchangeError(f"{name} can't be taken over: {error}") from error
