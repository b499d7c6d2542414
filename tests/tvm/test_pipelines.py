"""Rules in pipelines of TVM, down to an executable that runs, and groups that another code generator compiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import gsl.relax
from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError

X, Y = pat.Wildcard(), pat.Wildcard()
RELU_TWICE = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relu twice")
SUM = Subst(op.ReLU(X + Y), pat.Fused("own.add_relu", codegen="own"), extern_use=False, name="sum")
TARGET = tvm.target.Target("llvm")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(torch.relu(self.conv(x) + x[:, :1, 1:-1, 1:-1])).mean((2, 3)))


@pytest.fixture(scope="module")
def inputs() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def net(inputs: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def module(net: nn.Module, inputs: torch.Tensor) -> tvm.IRModule:
    with torch.no_grad():
        return from_exported_program(torch.export.export(net, (inputs,)))


def kernels(functions: Any, change: Subst | None) -> list[Any]:
    """A module for each group, in which TVM itself compiles what the group computes, once it is changed."""
    made = []
    for function in functions:
        local = function.body.blocks[0].bindings[0].value.without_attr("Composite")
        alone = tvm.IRModule({"main": local.with_attr("global_symbol", "main")})
        if change is not None:
            alone = change(Workload(alone)).mod
        lowered = tvm.transform.Sequential([
            relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ])(alone)  # fmt: skip
        (kernel,) = [f for f in lowered.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
        symbol = str(function.attrs["global_symbol"])
        made.append(tvm.compile(kernel.with_attr("global_symbol", symbol), target=TARGET).mod)
    return made


@pytest.fixture
def codegen(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The symbols of the groups that the code generator ``own`` was given."""
    seen: list[str] = []
    change = getattr(request, "param", None)

    def generate(functions: Any, options: Any, names: Any) -> list[Any]:
        seen.extend(str(function.attrs["global_symbol"]) for function in functions)
        return kernels(functions, change)

    tvm_ffi.register_global_func("relax.ext.own", generate, override=True)
    yield seen
    tvm_ffi.registry.remove_global_func("relax.ext.own")


def run(executable: Any, inputs: torch.Tensor) -> np.ndarray:
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.from_dlpack(inputs))
    return (found if hasattr(found, "numpy") else found[0]).numpy()


def expected(net: nn.Module, inputs: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return net(inputs).numpy()


def close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-4, atol=1e-5))


def ops(mod: tvm.IRModule) -> dict[str, int]:
    return dict(Workload(mod).op_counts())


PIPELINES = {
    "zero": lambda: [relax.get_pipeline("zero")],
    "by hand": lambda: [
        relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(), relax.transform.FoldConstant(),
        relax.transform.FuseOps(), relax.transform.FuseTIR(),
    ],
}  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_pass_stands_before_lowering(
    pipeline: str, module: tvm.IRModule, net: nn.Module, inputs: torch.Tensor
) -> None:
    rewritten = gsl.relax.Pass(RELU_TWICE)(module)
    assert (ops(module)["nn.relu"], ops(rewritten)["nn.relu"]) == (2, 1)
    results = []
    for first in ([], [gsl.relax.Pass(RELU_TWICE)]):
        with TARGET:
            lowered = tvm.transform.Sequential([*first, *PIPELINES[pipeline]()])(module)
        results.append(run(tvm.compile(lowered, target=TARGET), inputs))
    assert close(results[1], results[0])
    assert close(results[1], expected(net, inputs))


def test_a_pass_is_part_of_the_build(module: tvm.IRModule, net: nn.Module, inputs: torch.Tensor) -> None:
    seen: list[dict[str, int]] = []

    @tvm.transform.module_pass(opt_level=0, name="look")
    def look(mod: tvm.IRModule, context: Any) -> tvm.IRModule:
        seen.append(ops(mod))
        return mod

    pipeline = tvm.transform.Sequential([gsl.relax.Pass(RELU_TWICE), look, relax.get_default_pipeline(TARGET)])
    executable = relax.build(module, TARGET, relax_pipeline=pipeline)
    assert [counts["nn.relu"] for counts in seen] == [1]
    assert close(run(executable, inputs), expected(net, inputs))


def offloaded(module: tvm.IRModule, inputs: torch.Tensor) -> np.ndarray:
    pipeline = tvm.transform.Sequential([
        gsl.relax.Pass(RELU_TWICE), gsl.relax.Pass(SUM), relax.transform.RunCodegen(),
        relax.get_default_pipeline(TARGET),
    ])  # fmt: skip
    return run(relax.build(module, TARGET, relax_pipeline=pipeline), inputs)


def test_a_group_runs_in_what_its_code_generator_made(
    codegen: list[str], module: tvm.IRModule, net: nn.Module, inputs: torch.Tensor
) -> None:
    assert close(offloaded(module, inputs), expected(net, inputs))
    assert codegen == ["fused_own_add_relu_own"]


@pytest.mark.parametrize("codegen", [Subst(X + Y, X - Y, name="a mistake")], indirect=True, ids=["a mistake"])
def test_a_code_generator_that_is_wrong_is_noticed(
    codegen: list[str], module: tvm.IRModule, net: nn.Module, inputs: torch.Tensor
) -> None:
    assert not close(offloaded(module, inputs), expected(net, inputs))


def test_a_group_for_no_code_generator_is_compiled_by_tvm(
    module: tvm.IRModule, net: nn.Module, inputs: torch.Tensor
) -> None:
    rule = Subst(op.ReLU(X + Y), pat.Fused("own.add_relu"), extern_use=False, name="sum")
    pipeline = tvm.transform.Sequential([gsl.relax.Pass(rule), relax.get_default_pipeline(TARGET)])
    executable = relax.build(module, TARGET, relax_pipeline=pipeline)
    assert close(run(executable, inputs), expected(net, inputs))


def test_a_saved_module_is_read_and_rewritten(module: tvm.IRModule) -> None:
    loaded = tvm.ir.load_json(tvm.ir.save_json(module))
    tvm.ir.assert_structural_equal(loaded, module)
    before = Workload(loaded)
    after = RELU_TWICE(before)
    again = Workload(tvm.ir.load_json(tvm.ir.save_json(after.mod)))
    tvm.ir.assert_structural_equal(again.mod, after.mod)
    before.compare(again).check()


@pytest.mark.parametrize("text", ["", "{", '{"nodes": []}', "[1]"])
def test_a_file_that_is_no_module_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError, AttributeError, FrontEndError)):
        Workload(tvm.ir.load_json(text))


def test_something_else_that_was_saved_is_no_module() -> None:
    with pytest.raises(FrontEndError, match="IRModule"):
        Workload(tvm.ir.load_json(tvm.ir.save_json(relax.Var("x", relax.TensorType([2], "float32")))))
