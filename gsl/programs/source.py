"""The programs of a rule: functions and modules, which are traced anew for each sample, and finished graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, get_origin, runtime_checkable

from gsl.errors import FrontEndError, Location, PatternError
from gsl.graph import CONST, INPUT, PARAM, Effect, Graph, Node, Op, SymDim, TensorType, Type, dtype_name, op_name
from gsl.pat import Pattern
from gsl.programs.declared import DeclaredType, annotated, hints_of, sized
from gsl.walk import postorder
from gsl.workload import Workload


@dataclass(frozen=True, slots=True)
class InputSample:
    """Types of the tensors of a program, and values of its literals, with which it is traced."""

    types: Mapping[str, TensorType]
    literals: Mapping[str, Any]
    sizes: Mapping[str, Any]
    """The values of the named sizes: a number, or a tuple of them for any number of axes."""

    def __str__(self) -> str:
        literals = [f"{name}={value!r}" for name, value in self.literals.items()]
        return ", ".join([*(f"{name}: {type}" for name, type in self.types.items()), *literals])


@dataclass(frozen=True, slots=True)
class TracedNode:
    """A node of a program in one trace; operands are numbers of other nodes."""

    op: Op
    operands: tuple[int, ...]
    attrs: Mapping[str, Any]
    type: Type | None


@dataclass(frozen=True, slots=True)
class ProgramTrace:
    """The graph of a program for a sample: the nodes that its outputs need, operands first."""

    nodes: tuple[TracedNode, ...]
    outputs: tuple[int, ...]
    graph: Graph

    def form(self) -> tuple[Any, ...]:
        """The part that traces of one program have in common: operators, and how they are linked."""
        return self.outputs, tuple((node.op, node.operands, tuple(node.attrs)) for node in self.nodes)

    def types(self) -> list[Type | None]:
        """The types of the outputs."""
        return [self.nodes[output].type for output in self.outputs]


class RuleProgram(Protocol):
    """A program of which a rule is made."""

    title: str
    """Its name, and where it was written."""
    tensors: Mapping[str, DeclaredType | None]
    """Its parameters that are tensors, with what the program says of their types."""
    literals: Mapping[str, Any]
    """Its parameters that are literals, each with its default or its type; ``inspect.Parameter.empty`` without both."""
    weights: frozenset[str]
    """The names of the tensors that are weights of a module."""
    finished: bool
    """True if the types of the tensors can't be chosen."""

    def trace(self, sample: InputSample) -> ProgramTrace:
        """The trace of the program for a sample. FrontEndError where it can't."""


@runtime_checkable
class GraphRules(Protocol):
    """A rule, or a set of rules."""

    def apply(self, graph: Graph, *, iterative: bool = False) -> tuple[Graph, Any]:
        """A rewritten copy of a view, and what was rewritten."""


def rule_program(role: str, source: Any, shaped: Iterable[str], beside: GraphRules | None = None) -> RuleProgram:
    """The program of a function, a module, or anything that a workload is made of, in the form in which the rules
    ``beside`` leave it.

    ``shaped`` are parameters that are tensors even if they have a default. A program of a function is itself.
    PatternError for anything else.
    """
    if beside is not None and not isinstance(beside, GraphRules):
        raise PatternError(f"beside= is a rule or a RuleSet, got {beside!r}")
    if isinstance(source, PythonProgram):
        return source
    if isinstance(source, Pattern):
        raise PatternError(f"{role}: expected a program, got {source!r}; of patterns, a rule is Subst(source, target)")
    package = type(source).__module__.partition(".")[0]
    if isinstance(source, Workload):
        return GraphProgram(role, source, beside)
    if package == "tvm":
        workload = Workload(source) if hasattr(source, "functions") else Workload.from_expr(source)
        return GraphProgram(role, workload, beside)
    if hasattr(source, "graph_signature"):  # torch.export.ExportedProgram
        return GraphProgram(role, Workload(source), beside)
    if callable(source) and not isinstance(source, type):
        return PythonProgram(role, source, frozenset(shaped), beside=beside)
    raise PatternError(
        f"{role}: expected a function of tensors, a module of torch, a workload, or what a workload is made of, got "
        f"{source!r}"
    )


class PythonProgram:
    """A function of tensors, or a module of torch: its weights are parameters, too."""

    finished = False

    def __init__(
        self, role: str, function: Callable[..., Any], shaped: frozenset[str] = frozenset(), make: Any = None,
        beside: GraphRules | None = None,
    ) -> None:
        self.function = function
        self.beside = beside
        self.make = make
        """Traces a function with tensors as a ``GraphModule``; ``None`` for ``make_fx`` before dispatch."""
        own = dict(_weights(function))
        body = getattr(function, "forward", function)
        self.title = f"{role} {_named(function)}{_place(body)}"
        self.tensors: Mapping[str, DeclaredType | None]
        self.literals: Mapping[str, Any]
        self.tensors, self.literals = _parameters(self.title, body, shaped)
        self.tensors = {**self.tensors, **own}
        self.weights = frozenset(own)

    def trace(self, sample: InputSample) -> ProgramTrace:
        """The trace of the program for a sample. FrontEndError where it can't; PatternError if it never can."""
        from gsl.front.fx.trace import traced

        types = {name: sample.types[name] for name in self.tensors}
        literals = {name: sample.literals[name] for name in self.literals}
        try:
            graph = traced(self.function, types, literals, self.weights, self.make)
        except (FrontEndError, PatternError) as error:
            raise type(error)(f"{self.title}: {error}") from error
        return flattened(self.title, _left_by(self.beside, graph), self.tensors, lambda value: value)


class GraphProgram:
    """A finished graph, whose symbolic sizes are its named sizes."""

    finished = True
    literals: Mapping[str, Any] = MappingProxyType({})
    weights: frozenset[str] = frozenset()

    def __init__(self, role: str, workload: Workload, beside: GraphRules | None = None) -> None:
        self.title = f"{role} {workload.name}"
        self.graph = _left_by(beside, workload.graph)
        leaves = [node for node in workload.graph.nodes if node.op in (INPUT, PARAM)]
        self.tensors: Mapping[str, DeclaredType | None] = {node.name: _declared(node) for node in leaves}

    def trace(self, sample: InputSample) -> ProgramTrace:
        """The trace of the graph where its symbolic sizes are those of a sample. FrontEndError for other sizes."""
        sizes: dict[Any, Any] = {}
        for node in self.graph.nodes:
            type = sample.types.get(node.name) if node.op in (INPUT, PARAM) else None
            for axis, (dim, size) in enumerate(zip(node.shape or (), type.shape if type else ())):
                if isinstance(dim, SymDim) and dim.expr.is_Symbol:
                    sizes.setdefault(dim.expr, size)
                elif dim != size and not isinstance(dim, SymDim):
                    raise FrontEndError(f"{self.title}: axis {axis} of {node.name} is {dim}, and elsewhere {size}")

        def number(value: Any) -> Any:
            if isinstance(value, SymDim):
                found = value.expr.subs(sizes)
                return int(found) if found.is_Integer else value
            if isinstance(value, TensorType):
                return TensorType(number(value.shape), value.dtype)
            return tuple(map(number, value)) if isinstance(value, tuple) else value

        return flattened(self.title, self.graph, self.tensors, number)


def flattened(
    title: str, graph: Graph, leaves: Collection[str], number: Callable[[Any], Any]
) -> ProgramTrace:
    """The nodes that the outputs of a view need. PatternError for a call with an effect that a rule can't move."""
    numbers: dict[Node, int] = {}
    nodes: list[TracedNode] = []
    for node in postorder(graph.outputs, lambda node: node.operands):
        if node.effect in (Effect.MUTATES, Effect.OTHER):
            raise PatternError(f"{title}: {op_name(node.op)} has an effect, so no rule may replace or make it")
        numbers[node] = len(nodes)
        operands, type = tuple(numbers[operand] for operand in node.operands), number(node.type)
        if node.op in (INPUT, PARAM) and node.name in leaves:
            nodes.append(TracedNode(INPUT, operands, {"name": node.name}, type))
        else:  # a tensor that the function holds is a literal
            attrs = {name: number(value) for name, value in node.attrs.items()}
            nodes.append(TracedNode(CONST if node.op == PARAM else node.op, operands, attrs, type))
    return ProgramTrace(tuple(nodes), tuple(numbers[output] for output in graph.outputs), graph)


def _left_by(rules: GraphRules | None, graph: Graph) -> Graph:
    """A view in the form in which rules leave it."""
    return graph if rules is None else rules.apply(graph, iterative=True)[0]


def _named(function: Any) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _place(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({Location(code.co_filename, code.co_firstlineno)})" if code is not None else ""


def _weights(function: Any) -> Iterable[tuple[str, DeclaredType]]:
    """The weights of a module of torch by name: what it does not say of their sizes is as it is."""
    if not hasattr(function, "named_parameters"):
        return
    for name, value in (*function.named_parameters(), *function.named_buffers()):
        yield name, sized(name, tuple(value.shape), dtype_name(value.dtype))


_SEVERAL: Final = (list, tuple, dict, Sequence, Mapping)


def _parameters(
    title: str, function: Callable[..., Any], shaped: frozenset[str]
) -> tuple[dict[str, DeclaredType | None], dict[str, Any]]:
    """The tensors and the literals of a function. PatternError for parameters that are neither."""
    tensors: dict[str, DeclaredType | None] = {}
    literals: dict[str, Any] = {}
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise PatternError(f"{title}: its parameters are not known: {error}; write a function around it") from None
    hints = hints_of(function)
    for name, parameter in signature.parameters.items():
        hint = hints.get(name, parameter.annotation)
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise PatternError(
                f"{title}: {parameter} stands for any number of parameters, and each leaf of a rule needs a name: "
                "write them out"
            )
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            literals[name] = parameter.default if parameter.default is not parameter.empty else hint
        elif parameter.default is parameter.empty or name in shaped:
            if isinstance(kind := get_origin(hint) or hint, type) and issubclass(kind, _SEVERAL):
                raise PatternError(
                    f"{title}: {parameter} is no tensor, and each parameter before * is one: give each tensor of a "
                    "list a parameter of its own; a list of numbers stands after *, as in f(x, *, axes)"
                )
            tensors[name] = annotated(name, hint)
    return tensors, literals


def _declared(node: Node) -> DeclaredType | None:
    """The type of an input of a graph, whose symbolic sizes are named."""
    if not isinstance(node.type, TensorType):
        return None
    sizes = [None if isinstance(dim, SymDim) and not dim.expr.is_Symbol else dim for dim in node.type.shape]
    return sized(node.name, (str(dim) if isinstance(dim, SymDim) else dim for dim in sizes), node.type.dtype)
