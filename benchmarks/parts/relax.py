"""Relax, from module to module: GSL and TVM's own ways to rewrite."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Different, Meter, Row, System, exponent
from benchmarks.peers import absent
from benchmarks.section import Section, goal_of_number, goal_of_ratios
from benchmarks.terms import Rule, chain
from gsl import Subst, op, pat

SIZES = (100, 1_000, 3_000, 10_000, 30_000)
GOAL = 1_000
"""The size of the goal."""
SHAPES = {"x": (4,)}
RULE = Rule("tanh_exp_log", ("log", ("exp", ("tanh", "x"))))
TARGET = ("tanh", "x")
GROUP = Rule("tanh_exp", ("exp", ("tanh", "x")))
GROUP_SIZES = (50, 200, 800)
GSL, ENGINE = "GSL, module to module", "GSL, engine"
CALL, BINDINGS = "Relax `rewrite_call`", "Relax `rewrite_bindings`"
FUSE = "Relax `FuseOpsByPattern`"


def rule() -> Subst:
    """The rule of GSL."""
    x = pat.Wildcard()
    return Subst(op.Log(op.Exp(op.Tanh(x))), op.Tanh(x), name=RULE.name, extern_use=False)


def systems(count: int) -> dict[str, System | str]:
    """The systems on a chain of so many operators."""
    from benchmarks.peers import tvm_relax

    links = [(name, ()) for name in ("tanh", "exp", "log")]
    before, after = chain(("x",), links, count // 3 * 3), chain(("x",), links[:1], count // 3)
    return {
        GSL: tvm_relax.gsl(before, rule(), after, SHAPES),
        ENGINE: tvm_relax.gsl_engine(before, rule(), SHAPES),
        CALL: tvm_relax.call_rewriting(before, RULE, TARGET, after, SHAPES),
        BINDINGS: tvm_relax.bindings_rewriting(before, RULE, TARGET, after, SHAPES),
    }


def grouping(count: int) -> dict[str, System | str]:
    """The systems that make groups of two operators in a chain of so many."""
    from benchmarks.peers import tvm_relax

    before = chain(("x",), [("tanh", ()), ("exp", ())], count)
    after = chain(("x",), [(GROUP.name, ())], count // 2)
    x = pat.Wildcard()
    rule = Subst(op.Exp(op.Tanh(x)), pat.Fused(GROUP.name), name=GROUP.name)
    return {
        GSL: tvm_relax.gsl(before, rule, after, SHAPES),
        FUSE: tvm_relax.fuse_ops(before, GROUP, after, SHAPES),
    }


def require_equal_numbers(count: int) -> None:
    """Raise Different unless what GSL and TVM make of a chain computes what the chain computes, on TVM's machine."""
    from benchmarks.peers import tvm_relax

    links = [(name, ()) for name in ("tanh", "exp", "log")]
    before = chain(("x",), links, count // 3 * 3)
    x = np.linspace(-1, 1, SHAPES["x"][0], dtype="float32")
    expected = tvm_relax.run(tvm_relax.module_of(before, SHAPES), [x])
    for name, system in systems(count).items():
        if name != ENGINE and not isinstance(system, str):
            found = tvm_relax.run(system().work(), [x])
            if not np.allclose(found, expected, rtol=1e-4, atol=1e-5):
                raise Different(f"{name}: the numbers differ")


def run(meter: Meter, largest: int) -> Section:
    """The chain at its sizes."""
    section = Section("Relax, module to module")
    reason = absent("Relax")
    if reason:
        section.add(f"Not measured: {reason}.")
        return section
    require_equal_numbers(SIZES[0])
    rows: list[Row] = [
        meter.measure(f"Relax, {size:,}", size // 3 * 3, systems(size), "Relax, ") for size in SIZES if size <= largest
    ]
    section.add(
        """A chain of `tanh`, `exp` and `log`, in which `log(exp(tanh(x)))` becomes `tanh(x)`; every result has been
        compared, and, at the smallest size, run on TVM's virtual machine. `rewrite_call` and `rewrite_bindings` are
        called on the function, of which a new module is made."""
    )
    section.systems(rows, GSL)
    at = next((row for row in rows if row.size >= GOAL // 3 * 3), rows[-1])
    section.goals.append(
        goal_of_ratios(
            f"Relax module to Relax module, {at.size:,} operators",
            "at least 3 × faster than `rewrite_call` and `rewrite_bindings`",
            [(f"{name} (goal {1 / 3:.2f} ×)", at.ratio(GSL, name), 1 / 3) for name in (CALL, BINDINGS)],
        )
    )
    if len(rows) > 2:
        slope = exponent([row for row in rows if row.size >= at.size], GSL)
        section.goals.append(
            goal_of_number("Relax module to Relax module, beyond", "linear", slope, 1.1, "exponent {:.2f}")
        )
    return section


def run_groups(meter: Meter, largest: int) -> Section:
    """Groups of two operators, beside TVM's own."""
    section = Section("Relax, groups")
    reason = absent("Relax")
    if reason:
        section.add(f"Not measured: {reason}.")
        return section
    rows = [
        meter.measure(f"groups, {size}", size, grouping(size), "groups, ") for size in GROUP_SIZES if size <= largest
    ]
    section.add(
        """A chain of `tanh` and `exp`, in which each pair becomes the call of a private function that carries the name
        of the group. Functions of groups that are equal are one, which GSL also keeps for later modules."""
    )
    section.systems(rows, GSL)
    section.sharper.append(
        goal_of_ratios(
            "Relax, groups of two operators, module to module", "at most 1 × `FuseOpsByPattern` at each size",
            [(f"at {row.size}", row.ratio(GSL, FUSE), 1.0) for row in rows],
        )
    )  # fmt: skip
    return section
