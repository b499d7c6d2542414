"""Rules as a pass of ``onnx_ir``, for pipelines over models of ONNX."""

from __future__ import annotations

from collections.abc import Iterable

from gsl import errors
from gsl.errors import missing_package

try:
    import onnx_ir as ir
except ModuleNotFoundError as _error:
    raise missing_package(_error) from _error

from gsl.front.onnx import OnnxProgram, from_onnx
from gsl.front.onnx.files import checked
from gsl.pause import paused_collector
from gsl.rewrite import RuleSet, Subst, Trace
from gsl.rewrite.apply import apply, untouched
from gsl.workload import Workload


class Pass(ir.passes.InPlacePass):
    """A pass that applies rules to a model, the graphs in its nodes and its functions, and changes the model itself.

    It stands among other passes: ``ir.passes.Sequential(gsl.onnx.Pass(rules), …)(model)``. ``iterative`` and
    ``fold_params`` are those of a rule. ``traces`` has what was done, one for each model. A pass that fails raises an
    error of GSL, and leaves the graph where it failed as it was.
    """

    @errors.checked(errors.PatternTypeError)
    def __init__(
        self, rules: Subst | RuleSet | Iterable[Subst], *, iterative: bool = False, fold_params: bool = True
    ) -> None:
        self.rules = rules if isinstance(rules, RuleSet) else RuleSet([rules] if isinstance(rules, Subst) else rules)
        self.iterative = iterative
        self.fold_params = fold_params
        self.traces: list[Trace] = []

    @paused_collector  # once, and not for each of its steps
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """The model, and whether a rule fired."""
        program = from_onnx(model, check=False).with_operators({spec.name: spec for spec in self.rules.operators})
        idle = untouched(self.rules, program, self.rules.tidy, self.iterative, self.fold_params)
        if idle is not None:
            checked(model)
            self.traces.append(idle)
            return ir.passes.PassResult(model, modified=False)
        new, trace = apply(
            list(self.rules), program.load(check=True), strategy=self.rules.strategy, tidy=self.rules.tidy,
            iterative=self.iterative, max_steps=self.rules.max_steps,
            evaluate=program.evaluate if self.fold_params else None, own=True,
        )  # fmt: skip
        is_other = (trace.firings or trace.shared or trace.unused) and program.changed_by(new)
        if not is_other:
            trace.refuse(program.kept)
        self.traces.append(trace)
        new.release()
        del new  # what is gone when the collector works again is not looked at by it

        def inside(name: str, inner: OnnxProgram) -> OnnxProgram:
            found = self.rules(Workload(inner), iterative=self.iterative, fold_params=self.fold_params)
            if found.trace.count():
                trace.inside[name] = found.trace
            return from_onnx(found.program)

        program.inside(inside, in_place=True)
        return ir.passes.PassResult(model, modified=bool(is_other or trace.inside))


__all__ = ["Pass"]
