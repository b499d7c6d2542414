"""What the framework can't express is a refusal of one match: the rest of the rules goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.rules import RULES
from tests.helpers.nets import OfOne

x, y = pat.Wildcard(), pat.Wildcard()
w1, w2 = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
first, second = op.Matmul(x, w1), op.Matmul(x, w2)
merged = first.like(x, op.Concatenate([w1, w2], axis=1))
both = op.Split(merged, indices_or_sections=w1.shape[1:], axis=1)
MERGE = Subst([first, second], [both[0], both[1]], name="merge")
RELUS = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="relus")


BY_STRIDES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as_strided": lambda x: torch.as_strided(x.transpose(0, 1).contiguous().relu(), (12,), (1,)),
    "complex": lambda x: torch.view_as_complex(x.t().contiguous().relu().view(2, 3, 2)),
    "another dtype": lambda x: x.transpose(0, 1).contiguous().relu().view(torch.float16),
}


@pytest.mark.parametrize("way", ["exported", "traced"])
@pytest.mark.parametrize("case", BY_STRIDES)
def test_copy_that_a_call_by_strides_needs(case: str, way: str) -> None:
    model, value = OfOne(lambda x: (BY_STRIDES[case](x), torch.relu(torch.relu(x)))), torch.randn(3, 4)
    old = Workload.from_torch(model, (value,)) if way == "exported" else Workload.from_fx(
        torch.fx.symbolic_trace(model), (value,))  # fmt: skip
    new = RuleSet([RULES["copy-identity"], RELUS])(old, iterative=True)
    assert new.trace.summary() == {"relus": 1}
    assert "reads its operand by strides" in str(new.trace)
    old.compare(new).check()


def test_module_in_an_exported_program() -> None:
    class Double(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    double = Subst(op.Tanh(x), pat.Module(lambda match: Double(), x), name="double")
    old = Workload.from_torch(OfOne(lambda x: (torch.tanh(x), torch.relu(torch.relu(x)))), (torch.randn(3),))
    new = RuleSet([double, RELUS])(old)
    assert new.trace.summary() == {"relus": 1}
    assert "can't call the module" in str(new.trace)


def products(first: Any, second: Any) -> Workload:
    """Two products of one tensor with weights of these widths, in Relax; each has two relus."""
    from tvm import relax, tirx

    builder, known = relax.BlockBuilder(), {}

    def size(value: Any) -> Any:
        return known.setdefault(value, tirx.Var(value, "int64")) if isinstance(value, str) else value

    data = relax.Var("x", relax.TensorType([8, 64], "float32"))
    weights = [relax.Var(f"w{n}", relax.TensorType([64, size(s)], "float32")) for n, s in enumerate((first, second))]
    with builder.function("main", [data, *weights]):
        with builder.dataflow():
            parts = [builder.emit(relax.op.matmul(data, weight)) for weight in weights]
            parts = [builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.relu(part)))) for part in parts]
            result = builder.emit_output(relax.Tuple(parts))
        builder.emit_func_output(result)
    return Workload.from_relax(builder.get())


@pytest.mark.parametrize("sizes", [(32, "m"), ("m", 32), (32, 16)])
def test_split_of_an_axis_of_symbolic_size_in_relax(sizes: tuple[Any, Any]) -> None:
    old = products(*sizes)
    new = RuleSet([MERGE, RELUS])(old)
    assert new.trace.summary() == {"merge": 1, "relus": 2}
    old.compare(new, sizes={name: 5 + n for n, name in enumerate(s for s in sizes if isinstance(s, str))}).check()


def test_sizes_that_relax_does_not_follow_are_refused() -> None:
    old = products("m", "n")
    new = RuleSet([MERGE, RELUS])(old)
    assert new.trace.summary() == {"relus": 2}
    assert "the new split can't be written" in str(new.trace)
