"""Outlined groups as functions of a model: files of them, their bodies, and what can't be one."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from gsl import Subst, Workload, op, pat
from gsl.front.onnx.groups import DOMAIN
from tests.front.onnx.onnx_helpers import bytes_of, check, nodes, workload

X, Y = pat.Wildcard(), pat.Wildcard()
SUM = op.ReLU(X + Y)
FUSED = Subst(SUM, pat.Fused("add_relu", level=2, note="by hand"), name="fuse")


def outlined() -> tuple[Workload, Workload]:
    old = workload("a = Add(x, w) b = Relu(a) c = Add(b, half) d = Relu(c) y = Exp(d)",
                   more="float[3] w = {1, -2, 3}, float half = {0.5}")  # fmt: skip
    return old, FUSED(old, fold_params=False)


def test_a_file_of_groups(tmp_path: Path) -> None:
    old, new = outlined()
    check(new.model)
    assert nodes(new.model) == ["add_relu", "add_relu_1", "Exp"]
    new.program.save(tmp_path / "model.onnx")
    again = Workload.from_onnx(tmp_path / "model.onnx")
    assert [(str(group.name), dict(group.attrs)) for group in again.groups().values()] == [
        ("add_relu", {"level": 2, "note": "by hand"})
    ] * 2
    assert str(again) == str(new)
    assert bytes_of(again.model) == bytes_of(new.model)
    old.compare(again, rtol=1e-6).check()
    back = again.inline()
    assert not back.model.functions
    assert nodes(back.model) == nodes(old.model)
    old.compare(back, rtol=1e-6).check()


def test_one_of_two_is_put_back() -> None:
    old, new = outlined()
    back = new.inline(next(iter(new.groups())))
    assert [name for _, name, _ in back.model.functions] == ["add_relu_1"]
    assert len(new.model.functions) == 2
    old.compare(back, rtol=1e-6).check()


def test_groups_in_a_branch() -> None:
    old = workload(
        "t = ReduceSum<keepdims: int = 0>(x) c = Greater(t, zero) y = If(c) <"
        "then_branch = one () => (float[2,3] p) { a = Add(x, x) p = Relu(a) },"
        "else_branch = two () => (float[2,3] q) { b = Add(x, zero) q = Relu(b) }>",
        more="float zero = {0.0}",
    )  # fmt: skip
    new = FUSED(old, fold_params=False)
    check(new.model)
    assert {name for _, name, _ in new.model.functions} == {"add_relu", "add_relu_1"}
    old.compare(new, rtol=1e-6).check()


@pytest.mark.parametrize(("version", "attrs", "match"), [
    (8, {}, "this one has version 8"),
    (10, {"scale": float("inf")}, "scale=inf of a group must be made of finite numbers"),
])  # fmt: skip
def test_what_cant_be_a_group(version: int, attrs: dict[str, float], match: str) -> None:
    wl = workload("a = Add(x, x) y = Relu(a)")
    wl.model.ir_version = version
    before = bytes_of(wl.model)
    new = Subst(SUM, pat.Fused("add_relu", **attrs), name="fuse")(wl)
    assert match in new.trace.refused[0].reason
    assert not new.groups()
    assert bytes_of(new.model) == bytes_of(wl.model) == before


@pytest.mark.parametrize("text", ["open('x')", "[1]", "{1: 2}", "{" * 10_000])
def test_ill_formed_metadata_make_no_group(text: str) -> None:
    _, new = outlined()
    for function in new.model.functions.values():
        function.metadata_props["gsl.attributes"] = text
    wl = Workload(ir.from_proto(ir.to_proto(new.model)))
    assert not wl.groups()
    assert [str(node.op) for node in wl.graph if node.opaque] == [f"{DOMAIN}::add_relu", f"{DOMAIN}::add_relu_1"]
