"""The benchmarks run at tiny sizes, and their checks find a system that makes another rewrite."""

from __future__ import annotations

import gc
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.progress import Progress
from rich.table import Table
from torch import fx, nn

from benchmarks import safe, search
from benchmarks.__main__ import main
from benchmarks.measure import Different, Job, Meter, Row, Sample, System, expected_seconds
from benchmarks.models import Bottleneck, Model
from benchmarks.parts import PARTS, chain, exports, footprint, many_rules, optimised, relay, scale, worst
from benchmarks.peers import absent, native, torch_fx
from benchmarks.report import page
from benchmarks.section import Goal, Section, goal_of_ratios
from benchmarks.terms import Rule, Terms, require_same
from demo import __main__ as shown
from demo import models
from demo.models import settle
from gsl import RuleSet, Subst, op, pat

BLOCKS = 4
Rewrite = Callable[[fx.Graph], None]


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there before a test stays out of the collector's way, as ``tests/conftest.py`` has it."""
    monkeypatch.setattr(gc, "unfreeze", lambda: None)


def once() -> Meter:
    return Meter(rounds=1)


def installed(systems: dict[str, System | str]) -> list[str]:
    return [name for name, system in systems.items() if not isinstance(system, str)]


def test_every_system_makes_the_rewrite_of_the_chain() -> None:
    systems = chain.systems(BLOCKS)
    row = once().measure("chain", 3 * BLOCKS, systems)
    of_torch = {chain.ENGINE, chain.IN_PLACE, chain.NEW, chain.HAND, chain.INDUCTOR, chain.REPLACE}
    assert of_torch <= set(installed(systems))
    assert all(row.seconds(name) is not None for name in installed(systems))
    for name, cell in row.cells.items():
        assert isinstance(cell, Sample) or "not installed" in cell, name


@pytest.mark.parametrize("count", [1, 3])
def test_every_system_makes_the_rewrite_of_one_rule_among_others(count: int) -> None:
    systems = many_rules.systems(many_rules.terms(14), many_rules.fused(14), many_rules.rules(count))
    row = once().measure("rules", 14, systems)
    assert all(row.seconds(name) is not None for name in installed(systems))


def test_the_rules_differ_and_one_matches() -> None:
    rules = many_rules.rules(150)
    assert len(set(rules)) == 150
    graph = native.graph_of(many_rules.terms(70), many_rules.tensors())
    many_rules.hand_written(rules[1:])(graph)
    require_same(native.terms_of(graph), many_rules.terms(70))
    many_rules.hand_written(rules[:1])(graph)
    require_same(native.terms_of(graph), many_rules.fused(70))


@pytest.mark.parametrize("part", ["absent", "relax", "groups", "worst", "footprint"])
def test_a_part_at_its_smallest(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "RUNS", 1)
    monkeypatch.setattr(worst, "USERS", 20)
    monkeypatch.setattr(worst, "LENGTH", 20)
    monkeypatch.setattr(worst, "DEPTH", 3)
    section = PARTS[part](once(), 100)
    assert [*section.goals, *section.sharper] or absent("Relax")
    assert page([section], once(), 60.0).startswith("# Results")


def test_relay_is_left_out_where_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "PYTHON", Path("absent"))
    section = relay.run(once(), 100)
    assert section.blocks == ["Not measured: there is no environment with Relay; `make test-relay` makes one."]


def test_goals_of_relay_can_be_missed() -> None:
    def found(case: str, size: int, ours: float, first: float | None) -> Row:
        return Row(case, size, {relay.GSL: Sample(ours, 1), relay.FIRST: Sample(first, 1) if first else "-"})

    def met(lowered: float, layers: float, long: float, first: float | None = 1.0) -> list[bool | None]:
        rows = [
            found(relay.LOWERED, 311, lowered, first), found(relay.LONG, 1600, long, 1.0),
            found(relay.LAYERS.format(128), 128, 0.1, 1.0), found(relay.LAYERS.format(512), 512, layers, 10.0),
        ]  # fmt: skip
        return [goal.met for goal in relay.goals({row.label: row for row in rows})]

    assert met(0.6, 0.4, 0.2) == [True, True, True, True]
    assert met(0.8, 0.5, 0.3) == [False, False, False, False]
    assert met(0.6, 0.4, 0.2, None)[:2] == [None, True]


def test_large_graphs_compute_the_same_after_their_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs(gates: list[scale.Gate], inputs: list[scale.Gate]) -> list[int]:
        drawn = random.Random(1)
        values = {gate: drawn.getrandbits(64) for gate in inputs}
        every = (1 << 64) - 1
        compute: dict[str, Callable[..., int]] = {
            "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
            "nand": lambda a, b: every ^ (a & b), "not": lambda a: every ^ a, "buf": lambda a: a,
        }  # fmt: skip
        for gate in scale.gates_below(gates):
            if gate not in values:
                values[gate] = compute[gate.kind](*[values[each] for each in gate.inputs])
        return [values[gate] for gate in gates]

    gates = scale.circuit(2000)
    inputs = [gate for gate in scale.gates_below(gates) if gate.kind == "input"]
    workload = scale.circuit_workload(gates)
    new = scale.algebra()(workload, iterative=True)
    assert new.trace.count() > 1000
    assert outputs(new.native, inputs) == outputs(gates, inputs)
    assert len(new.trace.summary()) >= 10
    for found in (scale.on_decoder(200), scale.on_relax_decoder(200)):
        assert (found.rewrites > 20, found.peak >= found.native) == (True, True)
    monkeypatch.setattr(scale, "SIZES", (200,))
    monkeypatch.setattr(scale, "in_process", lambda function, size: function(min(size, 200)))
    assert len(scale.run(once(), 200).sharper) == 4


def test_exports_and_models(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Model("a block", lambda: settle(Bottleneck(4, 1, 1)), lambda: (torch.rand(1, 4, 8, 8),))
    monkeypatch.setattr(exports, "MODELS", (small,))
    asked: list[tuple[object, ...]] = []

    def in_process(function: Callable[[str, int], float], name: str, number: int) -> float:
        asked.append((function, name, number))
        return function(name, number)

    monkeypatch.setattr(exports, "in_process", in_process)
    section = exports.run(once(), 100)
    assert "| a block | 4 | conv_norm_relu 1, conv_norm 1, norm_relu 1, add_relu 1 |" in section.blocks[2]
    assert asked == [(exports.first_run, name, 0) for name in (exports.GSL, exports.INDUCTOR)] * exports.TIMES

    assert [goal.what for goal in exports.run_book(once(), 100).sharper] == [
        "the book to its fixpoint, folded and stored, a block"
    ]

    some = (optimised.EXPORT, optimised.BOOK, optimised.OPTIMISING, optimised.CPU, optimised.FUSED)
    monkeypatch.setattr(optimised, "SHORT", (small,))
    monkeypatch.setattr(optimised, "ROUNDS", 1)
    monkeypatch.setattr(optimised, "FORMS", some)
    section = optimised.run(once(), 100)
    assert len(section.blocks) == 2, "a table for one thread, and what its numbers are"
    head, line = section.blocks[0].splitlines()[::2]
    assert all(name in head for name in some)
    assert line.count(" ×, ") == 4
    assert [goal.what for goal in section.goals] == ["`BOOK`, 1 models", "rules for a CPU, 1 models"]
    assert section.goals[0].measured.endswith("× as fast (a block)")


@pytest.mark.long
def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "growth", "--rounds", "1", "--largest", "3000", "--output", str(tmp_path / "page.md")]
    main(options)
    assert re.search(r"^growth took \d+ s$", capsys.readouterr().out, re.MULTILINE)
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| growth, 1,000 to 3,000 operators | exponent at most 1.1 |" in text
    assert "## How it was measured" in text
    for image in tmp_path.glob("*.svg"):
        assert "<text" in image.read_text(encoding="utf-8")
        assert f"({image.name})" in text


def nothing(graph: fx.Graph) -> None:
    """A system that rewrites nothing."""


def all_but_one(graph: fx.Graph) -> None:
    """A system that misses a match."""
    relu = graph.find_nodes(op="call_function", target=native.aten.relu.default)[0]
    relu.target = native.aten.abs.default
    chain.hand_written(graph)
    relu.target = native.aten.relu.default


def swapped(graph: fx.Graph) -> None:
    """A system that mixes up two operands."""
    chain.hand_written(graph)
    node = graph.output_node().all_input_nodes[0]
    x, w, scale, shift, mean, variance = node.args
    node.args = (x, w, shift, scale, mean, variance)


def other_constant(graph: fx.Graph) -> None:
    """A system that changes an argument."""
    node = graph.find_nodes(op="call_function", target=native.aten.batch_norm.default)[0]
    node.args = (*node.args[:7], 1e-3, *node.args[8:])
    chain.hand_written(graph)
    node = graph.find_nodes(op="call_function", target=native.fused(chain.RULE))[0]
    with graph.inserting_after(node):
        extra = graph.call_function(native.aten.abs.default, (node,))
    node.replace_all_uses_with(extra, delete_user_cb=lambda user: user is not extra)


@pytest.mark.parametrize("wrong", [nothing, all_but_one, swapped, other_constant])
def test_a_system_that_does_something_else_is_found(wrong: Rewrite) -> None:
    subject = torch_fx.Subject.of(chain.terms(BLOCKS), chain.fused(BLOCKS), chain.tensors())
    with pytest.raises(Different, match="wrong one: "):
        once().measure("chain", 3 * BLOCKS, {"wrong one": torch_fx.by_hand(subject, wrong)})
    once().measure("chain", 3 * BLOCKS, {"right one": torch_fx.by_hand(subject, chain.hand_written)})


@pytest.mark.parametrize("peer", ["tinygrad", "onnxscript", "Relax"])
def test_a_wrong_rewrite_elsewhere_is_found(peer: str) -> None:
    if absent(peer):
        pytest.skip(f"{peer} is not installed")
    systems = chain.elsewhere(chain.terms(BLOCKS), chain.fused(BLOCKS - 1))
    name = next(name for name in systems if name.startswith(peer))
    with pytest.raises(Different, match="call"):
        once().measure("chain", 3 * BLOCKS, {name: systems[name]})


def test_wrong_numbers_are_found() -> None:
    values = [torch.arange(3.0)]
    native.require_equal(values, [torch.arange(3.0) + 1e-7])
    with pytest.raises(Different, match=r"the results differ by 1\.0e-02"):
        native.require_equal(values, [torch.arange(3.0) + 0.01])
    with pytest.raises(Different, match="the outputs differ"):
        native.require_close("a", values, [torch.arange(3.0) + 0.01])


def test_a_wrong_replacement_has_other_numbers() -> None:
    """Where the calls are as expected, but one computes something else."""
    subject = torch_fx.Subject.of(chain.terms(BLOCKS), chain.terms(BLOCKS), chain.tensors())
    subject.values = [value + 1 for value in subject.values or ()]
    with pytest.raises(Different, match="the results differ"):
        once().measure("chain", 3 * BLOCKS, {"idle": torch_fx.by_hand(subject, nothing)})


def test_terms_are_compared_up_to_the_order_of_writing() -> None:
    one = Terms(("x",), (("a", (0,)), ("b", (0,)), ("c", (1, 2))), (3,))
    other = Terms(("x",), (("b", (0,)), ("a", (0,)), ("unused", (0,)), ("c", (2, 1))), (4,))
    require_same(one, other)
    with pytest.raises(Different, match="call 0"):
        require_same(one, replace(other, calls=(*other.calls[:3], ("c", (1, 2)))))


def test_one_name_is_one_rule() -> None:
    native.fused(Rule("a_rule_of_the_tests", ("relu", "x")))
    with pytest.raises(ValueError, match="another rule"):
        native.fused(Rule("a_rule_of_the_tests", ("tanh", "x")))


def test_a_system_that_would_take_too_long_is_left_out_and_named() -> None:
    def slow() -> Job:
        raise AssertionError("it was run")

    meter = Meter(rounds=1, limit=5.0)
    meter.rows += [Row("case, 1", size, {"slow": Sample(size / 100, 1)}) for size in (100, 200)]
    assert expected_seconds(meter.rows, "slow", 400) == pytest.approx(4.0)
    row = meter.measure("case, 3", 800, {"slow": slow, "missing": "is not installed"}, "case, ")
    assert row.cells == {"slow": "over 5 s expected", "missing": "is not installed"}
    section = Section("A part")
    section.systems([row], "slow")
    assert "| slow | over 5 s expected |" in section.blocks[0]


def test_a_goal_is_met_only_by_what_was_measured() -> None:
    assert goal_of_ratios("", "", [("a", 0.5, 1.0)]).met is True
    assert goal_of_ratios("", "", [("a", 0.5, 1.0), ("b", 1.5, 1.0)]).met is False
    assert goal_of_ratios("", "", [("a", 0.5, 1.0), ("b", None, 1.0)]).met is None
    goals = [Goal("what", "goal", "1 ×", False)], [Goal("more", "less", "2 ×", True)]
    text = page([Section("A part", *goals, seconds=12.3)], Meter(), 60.0)
    assert "took 1.0 minutes (A part: 12 s)" in " ".join(text.split())
    assert text.index("| what | goal | 1 × | **no** |") < text.index("| more | less | 2 × | yes |")


def test_models_are_timed_in_all_forms_that_rules_make() -> None:
    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))

    model = Model("small", make, lambda: (torch.randn(8, 16),))
    some = (optimised.EXPORT, optimised.BOOK, optimised.OPTIMISING, optimised.CPU, optimised.INT8)
    made = optimised.measure(model, (*some, optimised.FUSED), rounds=2)
    assert made.pop(optimised.FUSED) == "no batch norms"
    found = {name: timed for name, timed in made.items() if isinstance(timed, optimised.Timed)}
    assert {found[name].error for name in some[:3]} == {0}
    assert found[optimised.CPU].error < 1e-5
    assert found[optimised.INT8].error < 0.05
    assert all(timed.least > 0 for timed in found.values())


def test_both_searches_are_measured_on_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(torch.nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return torch.cat([torch.relu(a + 1), torch.relu(a + 2)], 1)

    monkeypatch.setitem(search.GRAPHS, "small", lambda: (Small(), (torch.randn(8, 8),)))
    x, y = pat.Wildcard(), pat.Wildcard()
    both = op.Concatenate([op.ReLU(x), op.ReLU(y)], axis=1)
    outcome = search.measure("small", RuleSet([Subst(both, op.ReLU(op.Concatenate([x, y], axis=1)))]), 20.0)
    assert outcome.agrees
    assert outcome.backtrack == outcome.greedy is not None
    assert outcome.backtrack < outcome.before
    assert len(outcome.row()) == len(search.HEAD)


# ------------------------------------------------------------ what is chosen, beside what there is


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUDGET", "DECODING_BUDGET", "LIBRARY_BUDGET", "SCREEN", "FINAL"):
        monkeypatch.setattr(safe, name, 0.1)
    monkeypatch.setattr(safe, "ROUNDS", (1, 2))


def mixed() -> torch.nn.Module:
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
    return settle(torch.nn.Sequential(*layers, torch.nn.Linear(144, 8)))


@pytest.mark.long
def test_all_subsets_are_beside_what_is_chosen(hasty: None) -> None:
    model = Model("small", mixed, lambda: (torch.randn(1, 3, 8, 8),))
    wl, _ = safe.fresh(model)
    # Folded or not, with both kinds of packed layers or one or none.
    programs = safe.subset_programs(wl, safe.OF_CONVOLUTIONS)
    assert len(programs) == 2 * 4
    assert {"none", "folded batch norms, packed layers, packed convolutions"} <= set(programs)
    with torch.no_grad():
        row = safe.subsets(model, safe.OF_CONVOLUTIONS)
    assert row["programs"] == 8
    assert row["best"] > 0
    assert len(safe.subset_cells(row)) == len(safe.PARTS["subsets"].head)
    assert not row["by"] or row["by"] in programs


def test_a_step_of_a_decoder_writes_its_cache() -> None:
    sizes = {"n_embd": 64, "n_layer": 1, "n_head": 1, "vocab_size": 20}
    wl, inputs = safe.fresh(Model("tiny", lambda: safe.Step("GPT2", **sizes), safe._cache(1, 1)))
    before = inputs[2][0].clone()
    with torch.no_grad():
        safe.run_of(wl, inputs)()
    changed = (inputs[2][0] != before).any(-1).nonzero()
    assert changed.tolist() == [[0, 0, safe.POSITION]]


def test_rows_are_kept_and_shown_again(
    hasty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = safe.PARTS["transformers"]
    rows = {"mixed": lambda: safe.library("mixed", lambda: (mixed(), torch.randn(1, 3, 8, 8)))}
    monkeypatch.setitem(safe.PARTS, "transformers", replace(part, rows=lambda: rows))
    safe.run_part("transformers", tmp_path / "lines")
    first = capsys.readouterr().out
    assert first.splitlines()[-1].startswith("| mixed | ")
    monkeypatch.delitem(rows, "mixed")
    rows["mixed"] = lambda: pytest.fail("it is known")
    safe.run_part("transformers", tmp_path / "lines")
    assert capsys.readouterr().out == first
    assert first.splitlines()[-1] in safe.page(tmp_path / "lines")


def test_a_choice_that_is_slower_or_larger_for_nothing_is_not_safe() -> None:
    row = {"model": "a", "export": 1.0, "book": 1.0, "chosen": 1.0, "taken": True, "optimize": 1.0, "again": 1.0,
           "export_calls": 5, "book_calls": 5, "chosen_calls": 5}  # fmt: skip

    def verdict(**other: float) -> str:
        return safe.library_cells({**row, **other})[7]

    assert [verdict(), verdict(chosen=0.9, chosen_calls=6)] == ["yes", "yes"]
    assert [verdict(chosen=1.1), verdict(chosen=1.001, chosen_calls=6)] == ["**no**", "**no**"]


def test_the_demo_tells_of_a_model_for_which_nothing_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "BUDGET", 1)
    table = Table("model", "fired", "operators", "error", "ms")
    progress = Progress(disable=True)
    model = models.Model("relu", nn.ReLU, lambda: (torch.ones(2),))
    assert shown.work(model, progress, progress.add_task(""), table)
    assert [*table.columns[0].cells] == ["[bold]relu", "by the book", "by gsl.optimize"]
    assert [*table.columns[1].cells] == ["", "0", "0"]
