"""Rules of ``torch.fx.subgraph_rewriter``: from the functions, modules and graphs that ``replace_pattern`` takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from gsl import pat
from gsl.errors import ExchangeError, FrontEndError, PatternError, checked, require
from gsl.exchange.imported import patterns_of, refusal
from gsl.graph import INPUT, PARAM, Graph, Node, op_name
from gsl.match import Match
from gsl.pat import Pattern
from gsl.rewrite import Subst

if TYPE_CHECKING:
    from torch import fx

_BY_TYPES: Final = ("reshape", "broadcast_to")
"""Operators that are read as others where types are known."""


@checked(ExchangeError)
def from_fx(
    pattern: Any, replacement: Any, *, match_filters: Sequence[Callable[..., Any]] = (), name: str | None = None,
    **leaves: Any,
) -> Subst:  # fmt: skip
    """The rule of what ``torch.fx.subgraph_rewriter.replace_pattern`` takes: functions, modules, graph modules or
    graphs, whose parameters are the same in order.

    It is the rule that ``Subst.from_programs`` makes of them, which takes ``leaves`` and the options of a rule. Where
    nothing is said of shapes and that needs them, the rule has the calls of the symbolic trace, with leaves of any
    shape. Each of ``match_filters`` is called with a match that has ``placeholder_nodes``, ``returning_nodes``,
    ``anchors`` and their ``nodes_map``, the graph of the workload and that of the pattern. Raises ExchangeError for
    what can't be taken over, with the reason.
    """
    require("torch")
    before = _program(pattern)
    after = _renamed(_program(replacement), _tensors(before))
    title = name or str(getattr(before, "__name__", type(before).__name__))
    rule = _of_programs(title, before, after, leaves)
    for check in match_filters:
        if not callable(check):
            raise ExchangeError(f"{title}: match_filters= is a list of functions of a match, got {check!r} among them")
        rule = rule.narrowed(_filtered(check, before, rule.leaves))
    return rule


def _program(given: Any) -> Any:
    """A function or module; the module of a graph. ExchangeError for what has no parameters that can be told."""
    from torch import fx, nn

    if isinstance(given, fx.Graph):
        return fx.GraphModule(nn.Module(), given)
    try:
        inspect.signature(getattr(given, "forward", given))
    except (TypeError, ValueError) as error:
        expected = "a program is a function in Python, a module or a graph"
        raise ExchangeError(f"{expected}, got {given!r:.60}: {error}") from None
    return given


def _tensors(program: Any) -> list[str]:
    """The parameters of a program that are tensors."""
    parameters = inspect.signature(getattr(program, "forward", program)).parameters.values()
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY and p.default is p.empty]


def _renamed(program: Any, names: Sequence[str]) -> Any:
    """A program whose parameters have these names; the same one where it has others in number."""
    own = _tensors(program)
    if own == list(names) or len(own) != len(names):
        return program

    @functools.wraps(getattr(program, "forward", program))
    def renamed(*values: Any, **literals: Any) -> Any:
        return program(*values, **literals)

    new = dict(zip(own, names))
    given = inspect.signature(getattr(program, "forward", program)).parameters.values()
    kept = [p.replace(name=new.get(p.name, p.name)) for p in given if p.name in new or p.kind is p.KEYWORD_ONLY]
    renamed.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return renamed


def _of_programs(title: str, before: Any, after: Any, given: Mapping[str, Any]) -> Subst:
    try:
        return Subst.from_programs(before, after, name=title, **given)
    except PatternError as error:
        first = error
    if not given.keys() <= inspect.signature(Subst).parameters.keys():
        raise refusal(title, first) from first
    try:
        return _rule_without_types(title, before, after, given)
    except PatternError as error:
        needs_shapes = isinstance(first.__cause__, FrontEndError)
        raise refusal(title, f"{first}; without shapes: {error}" if needs_shapes else first) from first


def _rule_without_types(title: str, before: Any, after: Any, options: Mapping[str, Any]) -> Subst:
    """The rule of the calls in two symbolic traces. PatternError for calls that are read by the types of operands."""
    leaves: dict[str, Pattern] = {}
    source = _patterns(_view(before), leaves)
    known = dict(leaves)
    target = _patterns(_view(after), leaves)
    extra = [name for name in leaves if name not in known]
    if extra:
        raise PatternError(f"{title} does not compute with {', '.join(extra)}, so no match tells what that is")
    rule = Subst(source, target, name=title, **options)
    rule.leaves = known
    return rule


def _view(program: Any) -> Graph:
    """The view of a symbolic trace."""
    from torch import fx

    from gsl.front.fx.program import from_graph_module

    try:
        traced = program if isinstance(program, fx.GraphModule) else fx.symbolic_trace(program)
    except Exception as error:
        raise PatternError(f"symbolic_trace fails: {type(error).__name__}: {error}") from error
    returned = traced.graph.output_node().args[0]
    several = returned if isinstance(returned, (tuple, list)) else (returned,)
    other = [each for each in several if not isinstance(each, fx.Node)]
    if other:  # the order in a dictionary is another one in each program
        raise PatternError(f"expected a tensor or a tuple of tensors, but a {type(other[0]).__name__} is returned")
    return from_graph_module(traced).load()


def _patterns(graph: Graph, leaves: dict[str, Pattern]) -> list[Pattern]:
    """The patterns of the outputs of a view without types; leaves are those of their names, or new ones."""

    def leaf(node: Node) -> Pattern | None:
        if node.op in _BY_TYPES or _is_of_torch(node.op):
            raise PatternError(f"{op_name(node.op)} is another call for each shape of its operand: give the shapes")
        return leaves.setdefault(node.name, pat.Wildcard()) if node.op in (INPUT, PARAM) else None

    return patterns_of(graph, leaf)


def _is_of_torch(op: Any) -> bool:
    """True for a function of torch or Python, or a method of a tensor, that no canonical operator reads."""
    if isinstance(op, str):
        return False
    module = getattr(op, "__module__", None) or getattr(op, "__objclass__", object).__module__
    return module.partition(".")[0] in ("torch", "_operator")


def _filtered(check: Callable[..., Any], program: Any, leaves: Mapping[str, Any]) -> Callable[[Match], bool | str]:
    """The condition that asks a filter of ``replace_pattern_with_filters`` about a match."""
    from torch import fx

    from gsl.front.fx.handle import native_of

    traced: fx.Graph = program.graph if isinstance(program, fx.GraphModule) else fx.symbolic_trace(program).graph
    inputs = [node for node in traced.find_nodes(op="placeholder") if str(node.target) in leaves]
    ends = traced.output_node().args[0]
    outputs = list(ends) if isinstance(ends, (tuple, list)) else [ends]
    name = getattr(check, "__name__", "a filter")

    def match_filter(match: Match) -> bool | str:
        own = [match[leaves[str(node.target)]] for node in inputs]
        foreign = next((node for node in (*own, *match.outputs) if native_of(node) is None), None)
        if foreign is not None:
            return f"{name} is asked about nodes of torch, and %{foreign.name} is none"
        given, found = ([native_of(node) for node in nodes] for nodes in (own, match.outputs))
        nodes = {**dict(zip(inputs, given)), **dict(zip(outputs, found))}
        view = SimpleNamespace(anchors=outputs, nodes_map=nodes, placeholder_nodes=given, returning_nodes=found)
        try:
            verdict = check(view, getattr(found[0], "graph", None), traced)
        except (AttributeError, KeyError) as error:
            return f"{name} reads what a match does not have here: {error!r}"
        return bool(verdict) or f"{name} is false"

    return match_filter
