"""A program for users: its view, its weights, how to run it and how to compare it."""

from __future__ import annotations

import html
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gsl import draw
from gsl.draw import hide_defaults, hide_nothing
from gsl.errors import WorkloadError
from gsl.front.base import Program
from gsl.graph import GETITEM, LEAVES, TUPLE, Effect, Graph, Node, Type, op_name
from gsl.graph.subgraph import Subgraph, inline
from gsl.graph.text import text
from gsl.rewrite import Trace
from gsl.workload import inputs as _inputs
from gsl.workload.compare import Path as LeafPath
from gsl.workload.compare import Report, Tolerance, compare_results, without_numbers
from gsl.workload.run import isolated

if TYPE_CHECKING:
    import torch

DRAWABLE = 150
"""A view with more calls than this is summed up in a notebook, because nobody can read its drawing."""


@dataclass(frozen=True, slots=True)
class Group:
    """A part of a program that a rule outlined with ``pat.Fused``: its name, its attributes, and what it computes."""

    name: str
    attrs: Mapping[str, Any]
    body: Graph

    def __str__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.attrs.items())
        lines = text(self.body, hide=hide_defaults).splitlines()
        return "\n".join([f"group {self.name}{given}", *(f"  {line}" for line in lines)])


class Workload:
    """A program: a graph with its weights, which can be run, compared, drawn and rewritten. Never changed.

    ``source`` is a ``torch.fx.GraphModule``, a ``torch.export.ExportedProgram``, or whatever else a front end knows.
    """

    __slots__ = ("_call", "_graph", "_name", "_program", "_trace")

    def __init__(self, source: Any, *, name: str | None = None) -> None:
        from gsl import front

        if isinstance(source, Workload):
            source, name = source.program, name or source.name
        is_program = all(hasattr(source, part) for part in ("load", "store", "evaluate"))
        self._program: Program = source if is_program else front.program(source)
        self._name = name or _own_name(self._program.native)
        self._graph: Graph | None = None
        self._call: Callable[..., Any] | None = None
        self._trace: Trace | None = None

    @classmethod
    def from_torch(
        cls,
        model: torch.nn.Module,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        dynamic_shapes: Any = None,
        name: str | None = None,
    ) -> Workload:
        """The workload of a module, by ``torch.export`` with these inputs."""
        from gsl.front import fx

        if not isinstance(args, (tuple, list)):
            args = (args,)
        program = fx.from_model(model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
        return cls(program, name=name or type(model).__name__)

    @classmethod
    def from_fx(
        cls, gm: torch.fx.GraphModule, example_inputs: Sequence[Any] | None = None, *, name: str | None = None
    ) -> Workload:
        """The workload of a traced module. With example inputs in order, every node has a type."""
        from gsl.front import fx

        return cls(fx.from_graph_module(gm, example_inputs), name=name)

    @classmethod
    def from_exported(
        cls,
        exported: torch.export.ExportedProgram,
        example_inputs: Sequence[Any] | None = None,
        *,
        name: str | None = None,
    ) -> Workload:
        """The workload of an exported program."""
        from gsl.front import fx

        return cls(fx.from_exported(exported, example_inputs), name=name)

    @property
    def name(self) -> str:
        """What the workload is called in messages and reports."""
        return self._name

    @property
    def program(self) -> Program:
        """The graph together with its front end."""
        return self._program

    @property
    def native(self) -> Any:
        """The graph in the form in which it was handed in."""
        return self._program.native

    @property
    def mod(self) -> Any:
        """The graph as a module that prints and runs in its framework (a ``GraphModule``)."""
        return self._program.module

    @property
    def exported(self) -> torch.export.ExportedProgram:
        """The ``torch.export.ExportedProgram``. WorkloadError if the workload was made from something else."""
        from torch.export import ExportedProgram

        if not isinstance(self.native, ExportedProgram):
            raise WorkloadError(
                f"{self.name} is a {type(self.native).__name__}, not an ExportedProgram; "
                f"make the workload with Workload.from_torch or Workload.from_exported"
            )
        return self.native

    @property
    def params(self) -> Mapping[str, Any]:
        """The weights by name, as tensors of the framework; read-only."""
        return MappingProxyType(dict(self._program.params))

    @property
    def inputs(self) -> Mapping[str, Type | None]:
        """The inputs in order with their types, where known; read-only."""
        return MappingProxyType(dict(self._program.inputs))

    @property
    def example_inputs(self) -> tuple[Any, ...] | None:
        """The inputs with which the workload was made, in order, if it was."""
        examples = self._program.example_inputs
        return None if examples is None else tuple(examples)

    @property
    def graph(self) -> Graph:
        """The view of the graph. It is loaded once: copy it before changing it."""
        if self._graph is None:
            self._graph = self._program.load()
        return self._graph

    def replace(self, graph: Graph, *, name: str | None = None, trace: Trace | None = None) -> Workload:
        """The workload of a rewritten copy of this one's view. FrontEndError if it can't be written back."""
        new = Workload(self._program.store(graph), name=name or self.name)
        new._trace = trace
        return new

    @property
    def trace(self) -> Trace:
        """What the rules did that made this workload. WorkloadError if it was not made by rules."""
        if self._trace is None:
            raise WorkloadError(f"{self.name} was not made by applying rules, so it has no trace")
        return self._trace

    def build(self, **options: Any) -> Workload:
        """This workload, prepared to run; the options are those of its front end. May be called again."""
        self._call = self._program.build(**options)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns for these inputs, by position or by name, without gradients.

        numpy arrays are converted. WorkloadError for inputs that do not fit.
        """
        import torch

        bound = self._bind(args, kwargs)
        call = self._callable()
        with torch.no_grad():
            return call(*bound)

    def random_inputs(self, *, seed: int = 0, sizes: Mapping[str, int] | None = None) -> tuple[Any, ...]:
        """Inputs that fit the types, always the same for a seed.

        Floats are normal; integers lie in the range of the example (0 and 1 without one). ``sizes`` gives symbolic
        sizes by name; the others are those of the example. WorkloadError where a type or size is not known.
        """
        return tuple(self._random(seed, sizes=sizes))

    def compare(
        self,
        other: Workload,
        inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        seed: int = 0,
    ) -> Report:
        """Run both workloads on the same inputs, and report where the other one differs from this one.

        Without ``inputs``, there are two runs: the example inputs, and random ones (of which integers are those of
        the example, unless there are only integers); without an example, one random run. Random operators draw the
        same numbers in both. Inputs and buffers that a run changes in place are compared too, and restored.
        Outputs are compared with those of the same key, position or field; there must be some, and they must not be
        NaN alone. Tolerances are those of :data:`TOLERANCES`, unless given. WorkloadError if the inputs do not fit.
        """
        if not isinstance(other, Workload):
            raise WorkloadError(
                f"compare needs another Workload, but got {type(other).__name__}; make it one with "
                "Workload.from_torch(model, inputs)"
            )
        if len(other.inputs) != len(self.inputs):
            raise WorkloadError(
                f"{self.name} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), "
                f"but {other.name} takes {len(other.inputs)} ({', '.join(other.inputs)})"
            )

        def override(standard: Tolerance) -> Tolerance:
            return Tolerance(standard.rtol if rtol is None else rtol, standard.atol if atol is None else atol)

        runs = self._comparison_inputs(inputs, seed)
        by_name = set(self.inputs) == set(other.inputs)
        compared = []
        for number, values in enumerate(runs):
            named = dict(zip(self.inputs, values))
            same = {n: named[n] for n in other.inputs} if by_name else named
            expected, found = self._isolated(named, seed), other._isolated(same, seed)
            compared += compare_results(number, expected, found, override)
        return Report(self.name, other.name, without_numbers(compared), tuple(tuple(values) for values in runs))

    def groups(self) -> Mapping[str, Group]:
        """The outlined groups in the graph, by the names of their calls, in order; read-only."""
        found = {}
        for node in self.graph:
            if isinstance(node.op, Subgraph):
                found[node.name] = Group(node.op.name, MappingProxyType(dict(node.attrs)), node.op.body)
        return MappingProxyType(found)

    def inline(self, name: str | None = None) -> Workload:
        """This workload without the outlined groups of that name, or the call of that name: they are put back.

        Without a name, all of them. WorkloadError if there is none.
        """
        calls = [node for node in self.graph if isinstance(node.op, Subgraph)]
        wanted = [node for node in calls if name is None or name in (node.name, str(node.op))]
        if name is not None and not wanted:
            known = ", ".join(f"{node.name} ({node.op})" for node in calls) or "none"
            raise WorkloadError(f"{self.name} has no group {name!r}; its groups are: {known}")
        return self.replace(inline(self.graph, wanted)) if wanted else self

    def op_counts(self) -> Counter[str]:
        """How often each operator is called, the most frequent first."""
        counts = Counter(op_name(node.op) for node in self.graph if _is_call(node))
        return Counter(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))

    def text(self, *, full: bool = False) -> str:
        """The view as text, without attributes that have their default value unless ``full``."""
        return text(self.graph, hide=hide_nothing if full else hide_defaults)

    def visualize(
        self,
        path: str | Path | None = None,
        *,
        params: bool = True,
        highlight: Mapping[Node, str] | None = None,
    ) -> Any:
        """A drawing of the view as a ``graphviz.Digraph``, also written to ``path`` (.svg, .png, .pdf or .dot).

        ``params=False`` leaves the weights out; ``highlight`` gives nodes of the view a colour. WorkloadError
        without the Python package graphviz; without its program ``dot``, the .dot text is written, with a warning.
        """
        drawing = draw.digraph(
            self.graph, name=self.name, params=params, highlight=highlight or {}, hide=hide_defaults
        )
        if path is not None:
            draw.save(drawing, path)
        return drawing

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        inputs, params = len(self.inputs), len(self.params)
        return f"<Workload {self.name}: {inputs} input{'s' * (inputs != 1)}, {params} param{'s' * (params != 1)}>"

    def _repr_html_(self) -> str:
        counts = self.op_counts()
        if sum(counts.values()) > DRAWABLE:
            rows = "".join(f"<tr><td>{html.escape(op)}</td><td>{n}</td></tr>" for op, n in counts.items())
            return f"<p>{html.escape(repr(self))}</p><table><tr><th>operator</th><th>calls</th></tr>{rows}</table>"
        return draw.page(lambda: draw.digraph(self.graph, name=self.name, hide=hide_defaults), self.text())

    def _callable(self) -> Callable[..., Any]:
        if self._call is None:
            self.build()
        assert self._call is not None
        return self._call

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        return _inputs.bind(self.name, self._program.inputs, self._defaults(), args, kwargs)

    def _defaults(self) -> Mapping[str, Any]:
        """The values of the inputs that may be left out, as the module's signature gives them."""
        try:
            parameters = inspect.signature(getattr(self.mod, "forward", self.mod)).parameters
        except (TypeError, ValueError):
            return {}
        return {
            name: parameter.default
            for name, parameter in parameters.items()
            if name in self._program.inputs and parameter.default is not inspect.Parameter.empty
        }

    def _random(
        self, seed: int, *, sizes: Mapping[str, int] | None = None, keep_integers: bool = False
    ) -> list[Any]:
        devices = [param.device for param in self._program.params.values() if hasattr(param, "device")]
        return _inputs.random(
            self.name, self._program.inputs, self.example_inputs, seed=seed, sizes=sizes,
            device=devices[0] if devices else None, keep_integers=keep_integers,
        )

    def _comparison_inputs(self, inputs: Sequence[Any] | Mapping[str, Any] | None, seed: int) -> list[list[Any]]:
        if isinstance(inputs, Mapping):
            return [self._bind((), inputs)]
        if inputs is not None:
            return [self._bind(inputs if isinstance(inputs, (tuple, list)) else (inputs,), {})]
        examples = self.example_inputs
        if examples is None:
            return [self._random(seed)]
        floats = any(getattr(getattr(value, "dtype", None), "is_floating_point", False) for value in examples)
        return [list(examples), self._random(seed, keep_integers=floats)]

    def _isolated(self, inputs: Mapping[str, Any], seed: int) -> list[tuple[LeafPath, Any]]:
        # Parameters are copied only where a run could change them: they may be most of the memory.
        effects = any(node.effect in (Effect.MUTATES, Effect.OTHER) for node in self.graph)
        impure = effects or bool(self.graph.written)
        return isolated(self._callable(), inputs, self._program.params, seed=seed, whole_state=impure)


def _is_call(node: Node) -> bool:
    return node.op not in LEAVES and node.op not in (TUPLE, GETITEM)


def _own_name(native: Any) -> str:
    """A name for a program that was given none: that of the traced module's class."""
    for holder in (native, getattr(native, "graph_module", None)):
        getter = getattr(holder, "_get_name", None)
        if callable(getter) and getter() != "GraphModule":
            return str(getter())
    return "workload"
