"""Programs of torch whose parts become groups: equal numbers with groups, without them, and from a file."""

from __future__ import annotations

import io
from typing import Any

import torch
from hypothesis import event
from hypothesis import strategies as st

from gsl import RuleSet, Subst, Workload, pat
from gsl.errors import FixpointError
from tests.fuzz.laws import LAWS, Abstraction, made_of_parts
from tests.fuzz.on_programs import compared, drawn, run_twice, text_of
from tests.fuzz.programs import FORMS, STEPS
from tests.fuzz.target import target

VALUES = (1, 0.5, float("nan"), "text", None, (1, 2.0), True)
"""The values of an attribute of a group."""


class Grouping(Abstraction):
    """Makes a source of a part of a graph, and a group of it."""

    def group(self, name: str) -> Subst | None:
        """A rule that makes groups of some calls of the graph; ``None`` where the graph has none."""
        found = self.rule(name)
        if found is None:
            return None
        source = list(found.source.outputs)
        calls = [pattern for pattern in self.patterns.values() if isinstance(pattern, pat.Call)]
        attrs: dict[str, Any] = {"n": self.of(*VALUES)} if self.of(True, False) else {}
        if calls and self.of(True, False):
            attrs["shape"] = self.of(*calls).shape
        if calls and self.of(True, False, False):
            source.append(self.of(*calls))
        outputs = list(dict.fromkeys(source))
        return Subst(outputs, pat.Fused(self.of("g", "h.k", "class", name), **attrs), name=name)


def rules_of(data: st.DataObject, old: Workload) -> RuleSet:
    """Some laws, and some rules that make groups."""
    chosen = list(data.draw(st.lists(st.sampled_from(LAWS), max_size=2, unique=True)))
    chosen += made_of_parts(data.draw(st.integers(1, 3)), lambda name: Grouping(data, old.graph).group(name))
    return RuleSet(chosen)


@target("groups", examples=24)
def check_groups(data: st.DataObject) -> None:
    _, form, old = drawn(data, STEPS, FORMS)
    before = text_of(old)
    try:
        new = rules_of(data, old)(old, max_steps=60)
    except FixpointError:
        return
    event("grouped" if new.groups() else "not grouped")
    assert text_of(old) == before
    agree(old, new, form)
    assert str(new.trace.replay(old)) == str(new)
    flat = new.inline()
    assert not flat.groups()
    agree(old, flat, form)
    if new.groups():
        agree(old, rules_of(data, new)(new), form)
        if form != "traced":
            saved(old, new, form)


def agree(old: Workload, new: Workload, form: str) -> None:
    """Equal numbers, also in a second run."""
    new.mod.graph.lint()
    compared(old, new)
    for one, other in zip(run_twice(old, form), run_twice(new, form), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6, equal_nan=True)


def saved(old: Workload, new: Workload, form: str) -> None:
    """A program with groups comes back from a file with them."""
    file = io.BytesIO()
    torch.export.save(new.exported, file)
    file.seek(0)
    back = Workload(torch.export.load(file))
    assert [group.name for group in back.groups().values()] == [group.name for group in new.groups().values()]
    agree(old, back, form)
