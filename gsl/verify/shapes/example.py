"""The shape rule of an operator that has none of its own."""

from __future__ import annotations

from gsl.spec import TABLE
from gsl.spec.examples import Sample
from gsl.verify.choices import pick
from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.solve import Solver


def by_example(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """The shapes and the attributes of one of the operator's examples."""
    spec = TABLE[str(draft.op)]
    example = pick(s.choices, spec.examples, ("example", spec.name))
    for operand, sample in zip(draft.operands, example.operands):
        s.solve(operand, Goal(sample.shape if isinstance(sample, Sample) else (), goal.dtype))
    types = tuple([None if operand is None else operand.type for operand in draft.operands])
    for name, attribute in spec.attrs.items():
        if attribute.derive is None:
            s.attr(draft, name, [spec.normalise(name, example.attrs.get(name, attribute.default), types)])
