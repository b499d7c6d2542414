"""A chain of convolution, batch norm and relu: every system, and GSL in three ways."""

from __future__ import annotations

from functools import cache

import torch
from torch import fx

from benchmarks.measure import Meter, Row, System
from benchmarks.peers import absent, native, torch_fx
from benchmarks.peers.native import aten
from benchmarks.section import Section, goal_of_ratios
from benchmarks.terms import Rule, Terms, chain

BLOCKS = (100, 1_000, 10_000)
LINKS = (("conv", ("w",)), ("batch_norm", ("scale", "shift", "mean", "variance")), ("relu", ()))
INPUTS = ("x", "w", "scale", "shift", "mean", "variance")
RULE = Rule(
    "conv_bn_relu",
    ("relu", ("batch_norm", ("conv", "x", "w"), "scale", "shift", "mean", "variance")),
    native.convolution,
)
RUNNABLE = 3_000
"""Up to how many operators the graphs are run, to compare numbers."""
SHAPES = {"x": (1, 2, 4, 4), "w": (2, 2, 1, 1), "scale": (2,), "shift": (2,), "mean": (2,), "variance": (2,)}

ENGINE, IN_PLACE, NEW = "GSL, engine", "GSL, in place", "GSL, to a new module"
HAND, REPLACE, INDUCTOR = "FX by hand", "torch.fx `replace_pattern`", "inductor's matcher"
TINYGRAD, ONNX = "tinygrad `graph_rewrite`", "onnxscript's rewriter"
FUSE, CALL = "Relax `FuseOpsByPattern`", "Relax `rewrite_call`"


@cache
def tensors() -> dict[str, torch.Tensor]:
    """Inputs for which the links neither vanish nor grow."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    return {
        "x": drawn(1, 2, 4, 4),
        "w": 0.8 * torch.eye(2, dtype=torch.float64)[:, :, None, None] + 0.1 * drawn(2, 2, 1, 1),
        "scale": 0.9 + 0.1 * drawn(2),
        "shift": 0.1 + 0.1 * drawn(2),
        "mean": 0.1 * drawn(2),
        "variance": 1 + 0.1 * drawn(2),
    }


def terms(blocks: int) -> Terms:
    """The chain."""
    return chain(INPUTS, LINKS, 3 * blocks)


def fused(blocks: int) -> Terms:
    """The chain after the rewrite."""
    return chain(INPUTS, ((RULE.name, INPUTS[1:]),), blocks)


def hand_written(graph: fx.Graph) -> None:
    """The rewrite as a pass written for this one pattern."""
    target = native.fused(RULE)
    for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
        norm = relu.args[0]
        if norm.target is not aten.batch_norm.default or len(norm.users) > 1 or norm.args[5]:
            continue
        conv = norm.args[0]
        if conv.target is not aten.conv2d.default or len(conv.users) > 1 or len(conv.args) > 2:
            continue
        with graph.inserting_before(relu):
            new = graph.call_function(target, (*conv.args, *norm.args[1:5]))
        new.meta.update(relu.meta)
        relu.replace_all_uses_with(new)
        for node in (relu, norm, conv):
            graph.erase_node(node)


def systems(blocks: int) -> dict[str, System | str]:
    """The systems on a chain of so many blocks."""
    before, after = terms(blocks), fused(blocks)
    subject = torch_fx.Subject.of(before, after, tensors(), runs=3 * blocks <= RUNNABLE)
    gsl = torch_fx.GSL(subject, [RULE])
    found: dict[str, System | str] = {
        ENGINE: gsl.engine,
        IN_PLACE: gsl.in_place,
        NEW: gsl.new_module,
        HAND: torch_fx.by_hand(subject, hand_written),
        INDUCTOR: torch_fx.inductor_matcher(subject, [RULE]),
        REPLACE: torch_fx.replace_pattern(subject, [RULE]),
    }
    found |= elsewhere(before, after)
    return found | torch_fx.floors(subject)


def elsewhere(before: Terms, after: Terms) -> dict[str, System | str]:
    """The systems that are not of torch."""
    found: dict[str, System | str] = {}
    for name in (TINYGRAD, ONNX, FUSE, CALL):
        reason = absent(name.split()[0].removesuffix("'s"))
        found[name] = reason if reason else "not measured"
    if not absent("tinygrad"):
        from benchmarks.peers import tiny

        found[TINYGRAD] = tiny.graph_rewriting(before, [RULE], after)
    if not absent("onnxscript"):
        from benchmarks.peers import onnx_script

        found[ONNX] = onnx_script.rewriter(before, [RULE], after)
    if not absent("Relax"):
        from benchmarks.peers import tvm_relax

        found[FUSE] = tvm_relax.fuse_ops(before, RULE, after, SHAPES)
        found[CALL] = tvm_relax.call_rewriting(before, RULE, (RULE.name, *RULE.leaves), after, SHAPES)
    return found


def run(meter: Meter, largest: int) -> Section:
    """The chain at its sizes."""
    rows: list[Row] = []
    for blocks in BLOCKS:
        if 3 * blocks <= largest:
            rows.append(meter.measure(f"chain, {blocks:,} blocks", 3 * blocks, systems(blocks), "chain, "))
    section = Section("A chain of convolution, batch norm and relu")
    section.add(
        """`relu(batch_norm(conv2d(x, w), …))` becomes one call of an operator `conv_bn_relu` that computes the same.
        Everything matches. The factors are those by which a system takes longer than GSL's engine."""
    )
    section.systems(rows, ENGINE)
    section.add(
        f"""*{ENGINE}*: copy, match, check and rewrite on a view that is loaded. *{IN_PLACE}*: `gsl.fx.Pass` on the
        graph of a `GraphModule`, from loading to the changed graph, without `recompile`. *{NEW}*: a rule on a
        `Workload`, which leaves the old module as it was and compiles the new one. The systems of torch change a copy
        in place that was made before, without `recompile`; inductor's rule is a pattern with a function that writes
        the new call, as in its own passes. tinygrad has operators in the roles of these, with as many operands; in
        Relax a batch norm has a tuple, so that its graph has a third more bindings, and the new call is one of a
        composite function (`FuseOpsByPattern`) or of a packed function (`rewrite_call`). GSL pauses Python's garbage
        collector for a pass, as it does for its users; the others run with it, as they do for theirs."""
    )
    if rows:
        last = rows[-1]
        what = f"chain of {last.size:,} operators"
        section.goals += [
            goal_of_ratios(
                f"engine, match and rewrite on the view, {what}",
                "at most 0.7 × tinygrad's `graph_rewrite`, and below the hand-written FX pass",
                [("tinygrad", last.ratio(ENGINE, TINYGRAD), 0.7), ("FX by hand", last.ratio(ENGINE, HAND), 1.0)],
            ),
            goal_of_ratios(
                f"whole way in place, {what}",
                "at most 1 × inductor in place; at least 15 × faster than `replace_pattern`",
                [
                    ("inductor", last.ratio(IN_PLACE, INDUCTOR), 1.0),
                    (f"`replace_pattern` (goal {1 / 15:.2f} ×)", last.ratio(IN_PLACE, REPLACE), 1 / 15),
                ],
            ),
        ]
        section.sharper += [
            goal_of_ratios(
                f"whole way in place, {what}", "at most 0.5 × inductor in place",
                [("inductor", last.ratio(IN_PLACE, INDUCTOR), 0.5)],
            ),
            goal_of_ratios(
                f"engine, {what}", "at most 0.4 × tinygrad's `graph_rewrite`, 0.7 × FX by hand",
                [("tinygrad", last.ratio(ENGINE, TINYGRAD), 0.4), ("FX by hand", last.ratio(ENGINE, HAND), 0.7)],
            ),
        ]  # fmt: skip
    return section
