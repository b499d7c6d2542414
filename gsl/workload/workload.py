"""A program for users: its view, its weights, how to run it and how to compare it."""

from __future__ import annotations

import html
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from gsl import draw
from gsl.draw import hide_defaults, hide_nothing
from gsl.errors import ReplayError, WorkloadError, check_number, checked
from gsl.front.base import Explained, Extended, Placed, Program, Ranged, Scoped, Widened
from gsl.graph import Effect, Graph, Node, Type, is_call, op_name
from gsl.graph.text import text
from gsl.match import Match
from gsl.rewrite import Trace
from gsl.rewrite.apply import repeat
from gsl.rewrite.fold import fold_program
from gsl.spec import DeclaredSpec
from gsl.workload import inputs as _inputs
from gsl.workload.compare import OutputPath as LeafPath
from gsl.workload.compare import Report, Tolerance, culprit
from gsl.workload.groups import OutlinedGroup, UnreadReport, groups, inlined, joined, unread
from gsl.workload.inputs import Strategy
from gsl.workload.inputs import strategy as strategy_of
from gsl.workload.pattern import PartPattern, pattern_of
from gsl.workload.runs import FailedRunError, SeededRun, WantedInputs, compared, isolated, runs

if TYPE_CHECKING:
    import torch

    from gsl.cost import Costs, Model

DRAWABLE = 150
"""The largest number of boxes of a view's drawing in a notebook; for a larger view, a notebook shows a summary."""


@checked(WorkloadError)
class Workload:
    """A program: a graph with its weights, which can be run, compared, drawn and rewritten. Never changed.

    ``source`` is a ``torch.fx.GraphModule``, a ``torch.export.ExportedProgram``, or an ``IRModule`` of TVM, with the
    values of some of its parameters in ``params``.
    """

    __slots__ = ("_call", "_graph", "_lent", "_name", "_program", "_trace")

    def __init__(self, source: Any, params: Mapping[str, Any] | None = None, *, name: str | None = None) -> None:
        if isinstance(source, Workload):
            source, name = source.program, name or source.name
        self._program: Program
        if hasattr(source, "load") and hasattr(source, "store") and hasattr(source, "evaluate"):
            if params is not None:
                raise WorkloadError("a workload has its weights already, so it takes no params")
            members, absence = ("native", "inputs", "params"), object()  # they may take long to compute
            absent = [member for member in members if inspect.getattr_static(source, member, absence) is absence]
            if absent:
                raise WorkloadError(
                    f"a {type(source).__name__} has load, store and evaluate, but no {', '.join(absent)}: a front end "
                    "has the members of gsl.front.base.Program"
                )
            self._program = source
        else:
            from gsl import front

            self._program = front.program(source, params)
        if not isinstance(name, str | None):
            raise WorkloadError(f"the name of a workload is a string, got {name!r} of type {type(name).__name__}")
        self._name = name or _own_name(self._program.native)
        self._graph: Graph | None = None
        self._lent = False
        """True if a view was given away, to be changed."""
        self._call: Callable[..., Any] | None = None
        self._trace: Trace | None = None

    @classmethod
    def from_torch(
        cls,
        model: torch.nn.Module,
        args: Sequence[Any] | torch.Tensor = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        dynamic_shapes: Any = None,
        operators: Iterable[Any] = (),
        name: str | None = None,
    ) -> Workload:
        """The workload of a module, by ``torch.export`` with these inputs; ``operators`` as in
        :meth:`with_operators`."""
        from gsl.front import fx

        if not isinstance(args, (tuple, list)):
            args = (args,)
        if not (kwargs is None or isinstance(kwargs, Mapping)):
            raise WorkloadError(
                f"kwargs are inputs by name, got {type(kwargs).__name__}; several inputs are a tuple: "
                "Workload.from_torch(model, (x, y))"
            )
        if not isinstance(operators, Iterable):
            operators = (operators,)
        program = fx.from_model(model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
        return cls(program, name=name or type(model).__name__).with_operators(*operators)

    @classmethod
    def from_fx(
        cls,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any] | torch.Tensor | None = None,
        *,
        name: str | None = None,
    ) -> Workload:
        """The workload of a traced module. With example inputs in order, every node has a type."""
        from gsl.front import fx

        return cls(fx.from_graph_module(gm, example_inputs), name=name)

    @classmethod
    def from_exported(
        cls,
        exported: torch.export.ExportedProgram,
        example_inputs: Sequence[Any] | torch.Tensor | None = None,
        *,
        name: str | None = None,
    ) -> Workload:
        """The workload of an exported program."""
        from gsl.front import fx

        return cls(fx.from_exported(exported, example_inputs), name=name)

    @classmethod
    def from_relax(
        cls,
        mod: Any,
        params: Mapping[str, Any] | None = None,
        *,
        function: str | None = None,
        name: str | None = None,
    ) -> Workload:
        """The workload of one Relax function of an ``IRModule``: ``main``, the only one, or the one of that name.

        ``params`` are values of its parameters by name, or what ``relax.frontend.detach_params`` gives; all other
        parameters are inputs.
        """
        from gsl.front import relax

        return cls(relax.from_module(mod, params, function=function), name=name)

    @classmethod
    def from_relay(cls, mod: Any, params: Mapping[str, Any] | None = None, *, name: str | None = None) -> Workload:
        """The workload of the function ``main`` of a Relay ``IRModule``, with values of its parameters by name."""
        from gsl.front import relay

        return cls(relay.from_module(mod, params), name=name)

    @classmethod
    def from_expr(
        cls, expr: Any, inputs: Iterable[str] | None = None, *, seed: int = 0, name: str | None = None
    ) -> Workload:
        """The workload of a function or expression of Relax or Relay.

        ``inputs`` names the variables that are fed, which are all of them if it is left out. The others are weights,
        and get random values of this seed.
        """
        from gsl.front import tvm

        return cls(tvm.from_expr(expr, inputs, seed=seed), name=name)

    @classmethod
    def from_onnx(
        cls, model: Any, example_inputs: Sequence[Any] | None = None, *, name: str | None = None
    ) -> Workload:
        """The workload of a model of ONNX: an ``onnx_ir.Model``, an ``onnx.ModelProto``, the path of a file, or what
        ``torch.onnx.export`` returns.

        Example inputs, in order, tell the numbers of symbolic sizes where programs are compared and costs measured.

        The tensors of a file that has external data stay in their files until they are needed.
        """
        from gsl.front import onnx

        found = cls(onnx.from_onnx(model), name=name)
        return found if example_inputs is None else found.with_example_inputs(example_inputs)

    @classmethod
    def from_nodes(
        cls,
        outputs: Sequence[Any],
        *,
        operands: Callable[[Any], Iterable[Any]],
        attrs: Callable[[Any], Mapping[str, Any]] | None = None,
        op: Callable[[Any], Any] = type,
        rebuild: Callable[[Any, Sequence[Any], Mapping[str, Any], Any], Any] | None = None,
        run: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Workload:
        """The workload of a graph of any objects, given by its outputs.

        ``operands(obj)`` are the objects that one takes its inputs from, ``attrs(obj)`` its configuration by name, and
        ``op(obj)`` its operator, which is its class unless told otherwise. ``rebuild(op, operands, attrs, old)`` makes
        an object of what a rule made, where ``old`` is ``None``, and of an ``old`` object whose operands have changed;
        parts that no change reaches stay the same objects. ``run(outputs, …)`` runs the graph, on inputs that are named
        as its parameters. ``native`` is the list of the outputs.

        Raises FrontEndError for a cycle, and for what these functions can't give.
        """
        from gsl.front.nodes import Access, NodesProgram

        given = {} if attrs is None else {"attrs": attrs}
        return cls(NodesProgram(outputs, Access(operands, op=op, rebuild=rebuild, run=run, **given)), name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        # The view is loaded anew, and so is what runs.
        return partial(Workload, name=self._name), (self._program,), (None, {"_trace": self._trace})

    @property
    def name(self) -> str:
        """The name of the workload in messages and reports."""
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
                f"{self.name} is of type {type(self.native).__name__}, not an ExportedProgram; "
                f"make the workload with Workload.from_torch or Workload.from_exported"
            )
        return self.native

    @property
    def model(self) -> Any:
        """The ``onnx_ir.Model``. WorkloadError if the workload was made from something else."""
        if type(self.native).__module__.partition(".")[0] != "onnx_ir":
            raise WorkloadError(
                f"{self.name} is of type {type(self.native).__name__}, not a model of ONNX; make the workload with "
                "Workload.from_onnx"
            )
        return self.native

    def save(self, path: str | Path) -> None:
        """Save a model of ONNX: whole, or not at all; weights that lie in other files, and large ones, go to a file
        beside it. WorkloadError for a program of another framework, which has ways of its own."""
        if not hasattr(self._program, "save"):
            raise WorkloadError(
                f"{self.name} is of type {type(self.native).__name__}; save it as its framework does: "
                "torch.export.save, tvm.ir.save_json"
            )
        self._program.save(Path(path))

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

    def lend(self) -> tuple[Graph, bool]:
        """A view for a rewrite, and whether it may be changed itself: one time, if no other object refers to it.

        Most workloads are rewritten once, and then a copy of their view would never be used.
        """
        if self._graph is None and not self._lent:
            self._lent = True
            return self._program.load(), True
        return self.graph, False

    def with_example_inputs(self, inputs: Sequence[Any] | Mapping[str, Any] | torch.Tensor) -> Workload:
        """This workload with other example inputs, in order or by name. WorkloadError for a program that has those with
        which it was made."""
        if not hasattr(self._program, "with_example_inputs"):
            raise WorkloadError(
                f"{self.name} is of type {type(self.native).__name__}, whose example inputs are those with which it "
                "was made"
            )
        return Workload(self._program.with_example_inputs(self.bind(inputs)), name=self._name)

    def replace(self, graph: Graph | None, *, name: str | None = None, trace: Trace | None = None) -> Workload:
        """The workload of a rewritten copy of this one's view, or of the same one. FrontEndError if it can't be written
        back."""
        new = Workload(self._program if graph is None else self._program.store(graph), name=name or self.name)
        new._trace = trace
        return new

    def with_program(self, program: Program) -> Workload:
        """This workload with another program; the trace stays."""
        if program is self._program:
            return self
        new = Workload(program, name=self._name)
        new._trace = self._trace
        return new

    def with_operators(self, *operators: Any) -> Workload:
        """This workload, of which calls of these operators are read by their declarations: ``@gsl.operator``.

        A rule brings the operators that it names, so this is needed only to see them beforehand.
        """
        specs = [getattr(each, "spec", each) for each in operators]
        for spec in specs:
            if not isinstance(spec, DeclaredSpec):
                raise WorkloadError(f"operators= takes operators that @gsl.operator declared, got {spec!r}")
        given = {spec.name: spec for spec in specs}
        program = self._program
        if not isinstance(program, Extended):
            return self
        if all(program.operators.get(str.__str__(name)) is spec for name, spec in given.items()):
            return self
        return self.with_program(program.with_operators(given))

    @property
    def trace(self) -> Trace:
        """The trace of the rules that made this workload. WorkloadError if it was not made by rules."""
        if self._trace is None:
            raise WorkloadError(f"{self.name} was not made by applying rules, so it has no trace")
        return self._trace

    def build(self, **options: Any) -> Workload:
        """This workload, prepared to run; the options are those of its front end. May be called again.
        WorkloadError for options that it does not take."""
        try:
            self._call = self._program.build(**options)
        except TypeError as error:
            if not options:
                raise
            given = ", ".join(f"{name}=" for name in options)
            raise WorkloadError(f"{self.name} can't be built with {given}: {error}") from error
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on these inputs, given by position or by name, without gradients.

        A program of torch returns tensors, one of TVM numpy arrays; numpy arrays and tensors of both are taken.
        WorkloadError for inputs that do not fit.
        """
        import torch

        bound = self._bind(args, kwargs)
        call = self._callable()
        with torch.no_grad():
            try:
                return call(*bound)
            except (RuntimeError, TypeError) as error:  # not before it: who has the module may have moved it
                found = _inputs.misplaced(dict(zip(self._program.inputs, bound)), self._devices())
                if found is None:
                    raise
                raise WorkloadError(f"{self.name}: {found}") from error

    def random_inputs(
        self,
        *,
        seed: int = 0,
        sizes: Mapping[str, int] | None = None,
        strategy: str | tuple[float, float] | Strategy = "normal",
        keep_integers: bool = False,
    ) -> tuple[Any, ...]:
        """Inputs that fit the types, always the same for a seed.

        Floats are drawn by the strategy; integers lie in the range of the example (0 and 1 without one), or are
        those of the example with ``keep_integers``. ``sizes`` gives symbolic sizes by name; the others are those of
        the example. WorkloadError where a type or size is not known.
        """
        return tuple(
            _inputs.random(
                self.name, self._program.inputs, self.example_inputs, seed=seed, sizes=sizes,
                devices=self._devices(), ranges=self._ranges(), keep_integers=keep_integers,
                strategy=strategy if isinstance(strategy, Strategy) else strategy_of(strategy),
            )
        )  # fmt: skip

    def bind(self, inputs: Sequence[Any] | Mapping[str, Any] | torch.Tensor) -> tuple[Any, ...]:
        """The inputs in order, from values in order or by name, checked as a call checks them."""
        if isinstance(inputs, Mapping):
            return tuple(self._bind((), inputs))
        return tuple(self._bind(inputs if isinstance(inputs, (tuple, list)) else (inputs,), {}))

    def compare(
        self,
        other: Workload,
        inputs: Sequence[Any] | Mapping[str, Any] | torch.Tensor | None = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        seed: int | Sequence[int] = 0,
        strategies: str | tuple[float, float] | Sequence[str | tuple[float, float]] | None = None,
        sizes: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
        trace: Trace | None = None,
    ) -> Report:
        """Run both workloads on the same inputs, and report where the other one differs from this one.

        Without ``inputs``, there are two runs: the example inputs, and random ones (of which integers are those of
        the example, unless there are only integers); without an example, one random run. Random operators draw the
        same numbers in both. Inputs and buffers that a run changes in place are compared too, and restored.
        Outputs are compared with those of the same key, position or field (of the same number, with a workload of
        another front end); there must be some, and they must not be NaN alone. WorkloadError if the inputs do not fit.

        Tolerances are those of :data:`TOLERANCES`, unless given. If none is given, both are programs of one front end,
        and an output is beyond its tolerance, both are run in float64 where that is possible. The output passes if they
        agree there, and the rounding errors of the other one are at most twice as large as those of this one.

        ``strategies`` are names of :data:`STRATEGIES` or ranges ``(low, high)`` by which the floats of random inputs
        are drawn, ``sizes`` values of symbolic sizes by name, and ``seed`` may be several: there is a run for each
        combination. With the ``trace`` of the rules that made the other workload of this one, the report tells which
        step introduced a difference.
        """
        _check_workload("compare", other)
        for option, value in (("rtol", rtol), ("atol", atol)):
            if value is not None:
                check_number(option, value, "a number", 0, whole=False, error=WorkloadError)
        if len(other.inputs) != len(self.inputs):
            raise WorkloadError(
                f"{self.name} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), "
                f"but {other.name} takes {len(other.inputs)} ({', '.join(other.inputs)})"
            )

        def given(standard: Tolerance) -> Tolerance:
            return Tolerance(standard.rtol if rtol is None else rtol, standard.atol if atol is None else atol)

        override = None if rtol is None and atol is None else given

        def fails(part: Workload, part_runs: Sequence[SeededRun]) -> bool:
            try:
                return not all(row.passed for row in compared(self, part, part_runs, override))
            except FailedRunError:
                return True

        wanted = runs(self, inputs, WantedInputs.of(strategies, seed, sizes))
        try:
            rows = compared(self, other, wanted, override)
        except FailedRunError as error:
            if trace is None:
                hint: Any = "with trace=, the trace of the rules that made it, it is told which step did it"
            else:
                hint = culprit(self, trace, lambda part: fails(part, wanted)) or "no step of the trace did it"
            raise WorkloadError(f"{error}; {hint}") from error.__cause__
        failed = next((wanted[row.run] for row in rows if not row.passed), None)
        found = None
        if trace is not None and failed is not None:
            found = culprit(self, trace, lambda part: fails(part, [failed]))
        labels = tuple(run.label for run in wanted)
        return Report(self.name, other.name, rows, tuple(run.values for run in wanted), labels, found)

    def groups(self) -> Mapping[str, OutlinedGroup]:
        """The outlined groups in the graph, by the names of their calls, in order; read-only."""
        return groups(self.graph)

    def inline(self, name: str | None = None) -> Workload:
        """This workload without the outlined groups of that name, or the call of that name: they are put back.

        Without a name, all of them. WorkloadError if there is none.
        """
        return self if not self.groups() and name is None else self.replace(inlined(self.name, self.graph, name))

    def fold(self, *, params: bool = False) -> Workload:
        """This workload with all that depends only on literals computed ahead of time, as literal tensors.

        With ``params``, also what depends on weights, which become new weights: later changes of the old ones do not
        count then, and no gradients flow to them. A value larger than a megabyte stays in the graph, unless its
        operands are as large; so do calls with effects, what outputs may share memory with, and sizes that are known at
        run time only.
        """
        graph = self.graph.copy()
        is_folded = fold_program(graph, self._program.evaluate, params=params)
        return self.replace(graph, trace=self._trace) if is_folded else self

    def op_counts(self) -> Counter[str]:
        """The number of calls of each operator, the most frequent first."""
        counts = Counter(op_name(node.op) for node in self.graph if is_call(node))
        return Counter(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))

    def pattern(
        self, outputs: str | Node | Sequence[str | Node], inputs: str | Node | Sequence[str | Node] = ()
    ) -> PartPattern:
        """The pattern of a part of the graph, from which one begins to write a rule: all that leads to the outputs, as
        far as the inputs, which may be any tensors.

        Nodes are given by their names in the text of the workload. Attributes are demanded where they are not those
        that the operator has by default, and literals as they are; weights are ``pat.Param()``. WorkloadError for a
        node that is not there, and for a call that no rule may replace.
        """
        given = (outputs, inputs)
        ends, begins = ([each] if isinstance(each, (str, Node)) else list(each) for each in given)
        return pattern_of(self.name, self.graph, ends, begins)

    def cost(
        self, model: str | Callable[[Node], float] | Model = "measured", *, threads: int | None = None
    ) -> Costs:
        """The cost of each call on this machine, and of all of them together; prints as a table.

        ``"measured"``: seconds, by a run of each call alone on operands like its own; a measured cost is kept in the
        user's cache. ``"compiled"``: those of what inductor, the compiler of ``torch.compile``, makes of the program.
        ``"kernels"``: those within a CUDA graph, without what a call takes from Python.
        ``"analytic"``: the least seconds that its operations and bytes can take. A function of a node: what it returns.
        ``threads`` are those of torch, as many as it has unless told otherwise.

        WorkloadError for another model, for a program whose calls can't be run one by one, with ``"compiled"`` for one
        that is not of torch, and with ``"kernels"`` for one that does not lie on a GPU of CUDA.
        """
        from gsl.cost import cost

        return cost(self, model, threads=threads)

    def unread(self) -> UnreadReport:
        """The calls that have no canonical reading: which, how often, and why, where the front end tells.

        Those of graphs within calls are told with the names of the graphs in front.
        """
        return joined({"": self._unread(), **{f"{name}/": part._unread() for name, part in self.inside.items()}})

    def _unread(self) -> UnreadReport:
        """The calls of the graph itself that have no canonical reading."""
        return unread(self.graph, [node for node in self.graph if is_call(node)], self.why_unread())

    def why_unread(self) -> Callable[[Node], str | None]:
        """A function that tells the reason why an opaque node of the view has no canonical reading: empty where none is
        known, ``None`` for one that computes no tensor."""
        program = self._program
        return program.why_unread() if isinstance(program, Explained) else lambda node: ""

    @property
    def inside(self) -> Mapping[str, Workload]:
        """The graphs within calls by name, at any depth, and the functions of a model, as workloads of their own: for
        a look, as rules are applied in them anyway."""
        found: dict[str, Workload] = {}

        def note(name: str, program: Program) -> Program:
            part = found[name] = type(self)(program, name=name)
            found.update({f"{name}/{inner}": each for inner, each in part.inside.items()})
            return program

        if hasattr(self._program, "inside"):
            self._program.inside(note)
        return found

    def text(self, *, full: bool = False) -> str:
        """The view as text, without attributes that have their default value unless ``full``."""
        return text(self.graph, hide=hide_nothing if full else hide_defaults)

    def visualize(
        self,
        path: str | Path | None = None,
        *,
        depth: int | Literal["auto", "all"] = "auto",
        expand: str | Sequence[str] = (),
        params: bool | None = None,
        highlight: Mapping[Node, str] | None = None,
        matches: Mapping[str, Iterable[Match]] | None = None,
    ) -> draw.Drawing:
        """A drawing of the view, also written to ``path`` (.svg, .png, .pdf or .dot).

        A large view is drawn by its modules, as deep as it can be read; ``depth`` says how deep (0 for the outermost
        modules, ``"all"`` for every call and no modules), and ``expand`` names modules that are open in any case
        (``"encoder.layer.0"``, ``"*.attention"``); WorkloadError for one that the program does not have. Equal
        neighbours such as layers are drawn once. ``params`` says whether weights are drawn, which they are where no
        module is closed. ``highlight`` gives nodes of the view a colour, ``matches`` gives the matches of each rule by
        the rule's name, which get a colour and a number each.
        """
        paint, legend = draw.painted({rule: [m.inner for m in found] for rule, found in (matches or {}).items()})
        paint.update({node: draw.Paint(colour, "#1b1b1b") for node, colour in (highlight or {}).items()})
        for node in paint.keys() - set(self.graph.nodes):
            raise WorkloadError(f"the node {node} to be highlighted is not in the view; take it from wl.graph")
        panel = draw.Panel("", draw.diagram(self.graph, self._options(depth, expand, params), paint))
        return draw.saved(draw.Drawing(draw.Figure(self.name, (panel,), legend)), path)

    def before_after(
        self,
        new: Workload,
        path: str | Path | None = None,
        *,
        depth: int | Literal["auto", "all"] = "auto",
        expand: str | Sequence[str] = (),
        params: bool | None = None,
    ) -> draw.Drawing:
        """A drawing of this workload beside one that rules made of it; the nodes that each rule matched and made are
        coloured.

        Also written to ``path`` (.svg, .png, .pdf or .dot). The options are those of :meth:`visualize`. The new
        workload has to come from this one in one application of rules, which is repeated on the view for the drawing;
        otherwise there are no colours.
        """
        _check_workload("before_after", new)
        name, options = f"{self.name} before and after", self._options(depth, expand, params)
        after, trace, notes = new.graph, new._trace, []
        before = self.graph
        if trace is not None:
            # The names in a trace are those of the views that rules worked on; a front end may choose others.
            named = [spec for rule in trace.rules.values() for spec in rule.operators]
            try:
                before = self.with_operators(*named).graph
                after, trace = repeat(trace, before, None, self._program.evaluate)
            except ReplayError as error:
                trace, notes = None, [f"not coloured, as {new.name} does not come from {self.name}: {error}"]
        drawing = draw.before_after(before, after, trace, options=options, name=name, notes=notes)
        return draw.saved(drawing, path)

    def _options(
        self, depth: int | Literal["auto", "all"] = "auto", expand: str | Sequence[str] = (),
        params: bool | None = None,
    ) -> draw.Options:  # fmt: skip
        scope = self._program.scope if isinstance(self._program, Scoped) else None
        options = draw.Options(scope, depth, (expand,) if isinstance(expand, str) else tuple(expand), params)
        draw.check_expanded(self.graph, options)
        return options

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        inputs, params = len(self.inputs), len(self.params)
        return f"<Workload {self.name}: {inputs} input{'s' * (inputs != 1)}, {params} param{'s' * (params != 1)}>"

    def _repr_svg_(self) -> str | None:
        return self.visualize()._repr_svg_() if draw.boxes(self.graph, self._options()) <= DRAWABLE else None

    def _repr_html_(self) -> str | None:
        if draw.boxes(self.graph, self._options()) <= DRAWABLE:
            return None
        rows = "".join(f"<tr><td>{html.escape(op)}</td><td>{n}</td></tr>" for op, n in self.op_counts().items())
        return f"<p>{html.escape(repr(self))}</p><table><tr><th>operator</th><th>calls</th></tr>{rows}</table>"

    def _callable(self) -> Callable[..., Any]:
        if self._call is None:
            self.build()
        assert self._call is not None
        return self._call

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        return _inputs.bind(
            self.name, self._program.inputs, self._defaults(), args, kwargs, casts=self._program.casts_inputs,
            devices=self._devices(), ranges=self._ranges(),
        )  # fmt: skip

    def _ranges(self) -> _inputs.Ranges:
        """The ranges of symbolic sizes, where the program tells them."""
        return self._program.size_ranges if isinstance(self._program, Ranged) else {}

    def _devices(self) -> Mapping[str, Any]:
        """The devices of the inputs: those of the first weight where the program tells none."""
        if not isinstance(self._program, Placed):
            return {}
        known = self._program.input_devices
        if len(known) == len(self._program.inputs):
            return known
        weight = next((weight.device for weight in self._program.params.values()), None)
        return {**dict.fromkeys(self._program.inputs, weight), **known}

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

    def isolated(self, inputs: Mapping[str, Any], seed: int) -> list[tuple[LeafPath, Any]]:
        """The leaves of the result of one run with their paths, and of the values that the run changed in place, which
        is undone.

        ``inputs`` are by name, in order; random operators draw from ``seed``.
        """
        return self._isolated(self._callable(), inputs, seed)

    def in_float64(self, inputs: Mapping[str, Any], seed: int) -> list[tuple[LeafPath, Any]]:
        """The same of a run in float64; nothing where the program can't be run so, or draws random numbers, which would
        be others."""
        program = self._program
        if not isinstance(program, Widened) or any(node.effect is Effect.RANDOM for node in self.graph):
            return []
        values = {name: program.wide(value) for name, value in inputs.items()}
        try:
            return self._isolated(program.in_float64(), values, seed)
        except Exception:  # of a kernel that does not take float64, say: the comparison is what it was
            return []

    def _isolated(self, call: Callable[..., Any], inputs: Mapping[str, Any], seed: int) -> list[tuple[LeafPath, Any]]:
        # Parameters are copied only where a run could change them: they may be most of the memory.
        effects = any(node.effect in (Effect.MUTATES, Effect.OTHER) for node in self.graph)
        impure = effects or bool(self.graph.written)
        return isolated(call, inputs, self._program.params, seed=seed, whole_state=impure)


def _check_workload(method: str, other: object) -> None:
    """Raise WorkloadError unless a method got another workload."""
    if not isinstance(other, Workload):
        raise WorkloadError(
            f"{method} needs another Workload, but got {type(other).__name__}; make it one with "
            "Workload.from_torch(model, inputs)"
        )


def _own_name(native: Any) -> str:
    """A name for a program that was given none: that of the traced module's class."""
    for holder in (native, getattr(native, "graph_module", None)):
        getter = getattr(holder, "_get_name", None)
        if callable(getter) and getter() != "GraphModule":
            return str(getter())
    return "workload"
