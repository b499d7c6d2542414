"""Rules of Relax's dataflow pattern language, with the patterns by which TVM makes groups for code generators, and of
onnxscript. Each match is shown to their functions as a graph of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, overload

from gsl import pat
from gsl.errors import ExchangeError, PatternError, require
from gsl.exchange.imported import ImportedRules, by_replacement, collected, refusal
from gsl.rewrite import Subst

if TYPE_CHECKING:
    from onnxscript.rewriter import RewriteRule, RewriteRuleSet


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
        return _fusion(patterns, name or str(patterns.name), annotate_codegen, priority)
    if isinstance(patterns, DFPattern) and callable(rewriter):
        return _rewriting(patterns, rewriter, name or str(getattr(rewriter, "__name__", "rewriter")), priority)
    if not isinstance(patterns, Iterable) or isinstance(patterns, DFPattern):
        raise ExchangeError(
            f"expected a pattern with its rewriter, or patterns as FuseOpsByPattern takes them, got {patterns!r}"
        )
    try:
        given = [FusionPattern(*one) if isinstance(one, tuple) else one for one in patterns]
    except TypeError as error:
        raise ExchangeError(f"expected patterns as FuseOpsByPattern takes them: {error}") from error
    for one in given:
        if not isinstance(one, FusionPattern):
            raise ExchangeError(f"expected patterns as FuseOpsByPattern takes them, got {one!r} among them")
    priorities = {id(one): len(given) - number for number, one in enumerate(given)}
    return collected(
        given,
        lambda one: str(one.name),
        lambda one, title: [_fusion(one, title, annotate_codegen, priorities[id(one)])],
    )


def _fusion(pattern: Any, name: str, annotate_codegen: bool, priority: int) -> Subst:
    from gsl.exchange.dpl import DplSource, is_fused

    if pattern.attrs_getter is not None:
        raise refusal(name, "it gives its groups attributes of its own")
    attrs = {"codegen": str(pattern.name).split(".")[0]} if annotate_codegen else {}
    source, target = DplSource(name, pattern.pattern).output, pat.Fused(str(pattern.name), **attrs)
    return _subst(name, source, target, lambda match: is_fused(pattern, match), priority=priority, extern_use=False)


def _rewriting(pattern: Any, rewriter: Any, name: str, priority: int) -> Subst:
    from gsl.exchange.dpl import DplSource, replacement

    check, target = by_replacement(lambda match: replacement(pattern, rewriter, match), "the rewriter")
    return _subst(name, DplSource(name, pattern).output, target, check, priority=priority)


def _subst(name: str, source: Any, target: Any, check: Any, **options: Any) -> Subst:
    try:
        return Subst(source, target, where=check, name=name, **options)
    except PatternError as error:
        raise refusal(name, error) from error


# ---------------------------------------------------------------- onnxscript


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
        return _of_onnxscript(rules, name or _name(rules))
    if not isinstance(rules, Iterable):
        rules = [rules]
    return collected(rules, _name, lambda rule, title: [_of_onnxscript(rule, title)])


def _name(rule: Any) -> str:
    if not hasattr(rule, "_target_pattern"):
        raise ExchangeError(f"expected rules of onnxscript.rewriter, got {rule!r} of type {type(rule).__name__}")
    function = rule._replacement_pattern._function
    return str(rule.name or getattr(function, "__name__", "rule"))


def _of_onnxscript(rule: Any, name: str) -> Subst:
    from gsl.exchange.onnxscript_match import replacement
    from gsl.exchange.onnxscript_source import OnnxscriptSource

    if rule.as_function:
        raise refusal(name, "it makes a function of the model of what it replaces")
    check, target = by_replacement(lambda match: replacement(rule, match), "a function of the rule")
    source = OnnxscriptSource(name, rule._target_pattern).outputs
    return _subst(name, source, target, check, extern_use=False if rule.remove_nodes else None)
