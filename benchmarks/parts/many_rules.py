"""One rule and many on one graph, and rules whose operators do not occur."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import fx

from benchmarks.measure import Job, Meter, Row, System
from benchmarks.peers import absent, native, torch_fx
from benchmarks.section import Section, goal_of_ratios
from benchmarks.terms import Rule, Terms, chain

CYCLE = ("exp", "log", "sin", "abs", "sqrt", "neg", "tanh")
"""The operators of the chain, over and over."""
MISSING = ("erf", "floor", "ceil", "sigmoid")
"""Operators that it does not have."""
OPERATORS = 10_000
COUNTS = (1, 10, 50, 150)
GSL, GSL_MATCH, HAND = "GSL, engine", "GSL, match alone", "FX by hand"
REPLACE, INDUCTOR = "torch.fx `replace_pattern`", "inductor's matcher"
TINYGRAD, ONNX = "tinygrad `graph_rewrite`", "onnxscript's rewriter"
ONE_PASS = "one pass over `graph.nodes`"


def triple(*names: str) -> Rule:
    """A rule for three operators in a row, the first of which comes first in the graph."""
    first, second, third = names
    return Rule("_".join(names), (third, (second, (first, "x"))), native.like_first)


def rules(count: int) -> list[Rule]:
    """One rule that matches, and others of the same operators that do not, spread over all that there are."""
    present = {tuple(CYCLE[(start + step) % len(CYCLE)] for step in range(3)) for start in range(len(CYCLE))}
    others = [names for names in product(CYCLE, repeat=3) if names not in present]
    chosen = [others[number * len(others) // (count - 1)] for number in range(count - 1)] if count > 1 else []
    return [triple(*CYCLE[:3]), *(triple(*names) for names in chosen)]


def absent_rules(count: int) -> list[Rule]:
    """Rules whose second operator does not occur, though the others do."""
    names = [(first, middle, last) for middle in MISSING for first, last in product(CYCLE, repeat=2)]
    return [triple(*each) for each in names[:count]]


def terms(count: int) -> Terms:
    """The chain of all operators, a whole number of times over."""
    return chain(("x",), [(name, ()) for name in CYCLE], count // len(CYCLE) * len(CYCLE))


def fused(count: int) -> Terms:
    """The chain after the rewrite."""
    links = [(rules(1)[0].name, ()), *((name, ()) for name in CYCLE[3:])]
    return chain(("x",), links, count // len(CYCLE) * len(links))


def tensors() -> dict[str, torch.Tensor]:
    """The input of the chain."""
    return {"x": torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))}


def hand_written(chosen: Sequence[Rule]) -> Callable[[fx.Graph], None]:
    """The rules as one pass over the nodes, with a table of the operators in a row."""
    table: dict[Any, Any] = {}
    for rule in chosen:
        third, (second, (first, _)) = rule.source
        names = [native.SPELLINGS[name][0] for name in (third, second, first)]
        table.setdefault(names[0], {}).setdefault(names[1], {})[names[2]] = native.fused(rule)

    def rewrite(graph: fx.Graph) -> None:
        for third in graph.nodes:
            seconds = table.get(third.target)
            if seconds is None:
                continue
            second = third.args[0]
            firsts = seconds.get(second.target)
            if firsts is None or len(second.users) > 1:
                continue
            first = second.args[0]
            target = firsts.get(first.target)
            if target is None or len(first.users) > 1:
                continue
            with graph.inserting_before(third):
                new = graph.call_function(target, first.args)
            new.meta.update(third.meta)
            third.replace_all_uses_with(new)
            for node in (third, second, first):
                graph.erase_node(node)

    return rewrite


def systems(before: Terms, after: Terms, chosen: list[Rule], *, slow: bool = True) -> dict[str, System | str]:
    """The systems with these rules. Instead of those that take long, ``slow=False`` adds what a pass costs."""
    subject = torch_fx.Subject.of(before, after, tensors(), runs=len(before.calls) <= 3_000)
    gsl = torch_fx.GSL(subject, chosen)
    found: dict[str, System | str] = {GSL: gsl.engine}
    if not slow:
        found[GSL_MATCH] = gsl.match
    found[INDUCTOR] = torch_fx.inductor_matcher(subject, chosen)
    found[HAND] = torch_fx.by_hand(subject, hand_written(chosen))
    found[TINYGRAD] = absent("tinygrad") or "not measured"
    if not absent("tinygrad"):
        from benchmarks.peers import tiny

        missing = "has no such operators"
        found[TINYGRAD] = tiny.graph_rewriting(before, chosen, after) if tiny.can_express(chosen, before) else missing
    if slow:
        found[REPLACE] = torch_fx.replace_pattern(subject, chosen)
        found[ONNX] = absent("onnxscript") or "not measured"
        if not absent("onnxscript"):
            from benchmarks.peers import onnx_script

            found[ONNX] = onnx_script.rewriter(before, chosen, after)
    else:
        found[ONE_PASS] = torch_fx.floors(subject)[ONE_PASS]
        found["one pass over the view"] = lambda: Job(lambda: sum(1 for node in gsl.workload.graph if node.op == "erf"))
    return found


def run(meter: Meter, largest: int) -> Section:
    """All counts of rules on one chain."""
    count = min(OPERATORS, largest)
    before, after = terms(count), fused(count)
    rows: list[Row] = []
    for number in COUNTS:
        label = f"{number} rule{'s' * (number > 1)}"
        # What a system takes grows with the rules here, so the rules count as its size.
        left = {
            name: f"over {meter.limit:.0f} s expected" if _expected(rows, name, number) > meter.limit else system
            for name, system in systems(before, after, rules(number)).items()
        }
        rows.append(meter.measure(label, len(before.calls), left))
    section = Section("From 1 to 150 rules")
    section.add(
        f"""A chain of {len(CYCLE)} unary operators over and over ({', '.join(CYCLE)}). Each rule makes one call of
        three in a row; the first one matches at every seventh operator, the others are other triples of the same
        operators, spread evenly over the {len(CYCLE) ** 3 - len(CYCLE)} that do not occur."""
    )
    section.systems(rows, GSL)
    first, last = rows[0], rows[-1]
    one, many = first.seconds(GSL), last.seconds(GSL)
    section.goals.append(
        goal_of_ratios(
            "engine, 150 rules against 1 rule, same graph",
            "at most 1.5 ×; and at most 0.25 × inductor with 150 rules",
            [
                ("one rule", many / one if one and many else None, 1.5),
                ("inductor", last.ratio(GSL, INDUCTOR), 0.25),
            ],
        )
    )
    return section


def _expected(rows: Sequence[Row], name: str, number: int) -> float:
    """The seconds that a system may take with so many rules."""
    known = rows[-1].seconds(name) if rows else None
    return 0.0 if known is None else known * number / COUNTS[len(rows) - 1]


def run_absent(meter: Meter, largest: int) -> Section:
    """Rules that can't match on the same chain."""
    count = min(OPERATORS, largest)
    before = terms(count)
    rows = [
        meter.measure(
            f"{number} absent rule{'s' * (number > 1)}",
            len(before.calls),
            systems(before, before, absent_rules(number), slow=False),
        )
        for number in (COUNTS[0], COUNTS[-1])
    ]
    section = Section("Rules whose rarest operator does not occur")
    section.add("The same chain; each rule is a triple whose middle operator does not occur, and both others do.")
    section.systems(rows, GSL)
    bounds = [(f"with {row.label.split()[0]}", row.ratio(GSL, ONE_PASS), 2.0) for row in rows]
    section.goals.append(
        goal_of_ratios(
            "engine, a rule whose rarest operator does not occur",
            "at most 2 × one pass over the nodes, whatever the number of such rules",
            bounds,
        )
    )
    return section
