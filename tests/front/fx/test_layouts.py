"""How results lie in memory that kernels lay out as they like: views of them are written so that they always run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.fx import Pass
from gsl.rules import BOOK, IDIOMS, NORMAL, RULES

q, k, v, mask = (pat.Wildcard() for _ in range(4))
scores = op.Matmul(q, op.Transpose(k, axes=(0, 1, 3, 2))) * 0.5 + mask
ATTENTION = Subst(op.Matmul(op.Softmax(scores, axis=-1), v), op.Attention(q, k, v, mask, scale=0.5), name="attention")


class Model(nn.Module):
    """Attention with a mask that decides which kernel computes it."""

    def __init__(self, end: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.end = end
        self.bias = nn.Parameter(torch.randn(16, 16, 2))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        scores = q @ k.transpose(-2, -1) * 0.5 + self.bias.permute(2, 0, 1).unsqueeze(0)
        return self.end(torch.softmax(scores, -1) @ v)


VALUES = tuple(torch.randn(2, 16, 2, 4) for _ in range(3))
WEIGHT = torch.randn(4, 4)


def workload(way: str, end: Callable[[torch.Tensor], torch.Tensor]) -> Workload:
    model = Model(end).eval()
    if way == "exported":
        return Workload.from_torch(model, VALUES)
    return Workload.from_fx(torch.fx.symbolic_trace(model), VALUES)


@pytest.mark.parametrize("way", ["exported", "traced"])
def test_view_of_attention_without_the_copy_between(way: str) -> None:
    old = workload(way, lambda y: y.transpose(1, 2).contiguous().view(2, 16, 8))
    new = RuleSet([ATTENTION, RULES["copy-identity"]])(old, iterative=True)
    assert new.trace.summary() == {"attention": 1, "copy-identity": 1}
    old.compare(new).check()


def test_view_of_a_field_of_what_lies_otherwise() -> None:
    old = workload("exported", lambda y: torch.sort(y, dim=3)[0].view(2, 128))
    new = ATTENTION(old)
    assert [node.target for node in new.exported.graph.nodes][-2] is torch.ops.aten.reshape.default
    old.compare(new).check()


def test_view_of_a_reshape_that_copies_only_some_layouts() -> None:
    """In the gradients of attention: it copies what lies with its axes in reversed order, and is a view of what a
    kernel makes here."""
    def loss(k: torch.Tensor, q: torch.Tensor, v: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        extra = torch.zeros(1, 1, 4)
        return F.multi_head_attention_forward(
            q, k, v, 4, 2, weight, None, extra, extra, False, 0.0, weight[:4], None, training=False
        )[0].sum()

    values = tuple(torch.randn(sizes) for sizes in ((5, 2, 4), (3, 2, 4), (5, 2, 4), (12, 4)))
    graph = make_fx(torch.func.grad(loss))(*values)
    new = BOOK(Workload.from_fx(graph, values), iterative=True)
    assert new.trace.count("copy-identity") > 1
    torch.testing.assert_close(new.mod(*values), graph(*values))


def test_what_an_unknown_layout_does_not_reach() -> None:
    """Only the view of the attention itself may need a copy: a product lies alike whatever its operands."""
    old = workload("exported", lambda y: (y.view(256).view(2, 2, 16, 4) @ WEIGHT).view(2, 2, 64))
    new = ATTENTION(old)
    calls = [str(node.target) for node in new.exported.graph.nodes]
    assert (calls.count("aten.reshape.default"), calls.count("aten.view.default")) == (1, 2)
    old.compare(new).check()


def test_a_kernel_that_wants_dense_operands_gets_them_without_the_copy_of_the_program() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(2, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.norm(x.transpose(1, 2).contiguous().neg()).transpose(1, 2) + x
            return found

    exported = torch.export.export(Normed(), (torch.randn(2, 6, 4),)).run_decompositions()
    old = Workload.from_exported(exported)
    new = RULES["copy-identity"](old)
    assert new.trace.summary() == {"copy-identity": 1}
    old.compare(new).check()
    assert RULES["copy-identity"](new).trace.count() == 0


def test_a_copy_that_a_kernel_wants_is_not_taken_away_to_be_made_again() -> None:
    """Tokens are images with the channels last, and so is what the convolution gives to the norm."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.norm(self.conv(x.transpose(1, 2).reshape(2, 4, 3, 3).contiguous()))
            return found

    old = Workload.from_exported(torch.export.export(Normed(), (torch.randn(2, 9, 4),)).run_decompositions())
    new = RULES["copy-identity"](old)
    assert new.trace.summary() == {"copy-identity": 1}
    old.compare(new).check()
    again = RULES["copy-identity"](new)
    assert again.trace.count() == 0
    assert "lies in memory as a kernel wants it" in str(again.trace)


@pytest.mark.parametrize("operand", range(3))
def test_a_kernel_of_attention_gets_rows_without_the_copy_of_the_program(operand: int) -> None:
    """It takes the last axes of its operands to be dense, and looks at no stride to see if they are."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

    def attention(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        operands = [x, x, x]
        operands[operand] = y.transpose(-1, -2).contiguous().neg()
        result: torch.Tensor = kernel(*operands)[0]
        return result

    values = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 4, 5)
    old = Workload.from_fx(make_fx(attention)(*values), values)
    new = RULES["copy-identity"](old)
    assert new.trace.summary() == {"copy-identity": 1}
    old.compare(new).check()


@pytest.mark.parametrize("operand", range(4))
def test_a_kernel_of_the_gradients_of_attention_gets_rows_without_the_copy_of_the_program(operand: int) -> None:
    aten = torch.ops.aten
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default

    def gradients(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        result, sums = forward(x, x, x)
        operands = [x, x, x, x, result]
        operands[operand] = y.transpose(-1, -2).contiguous().neg()
        return list(backward(*operands, sums, 0.0, False))

    values = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 4, 5)
    old = Workload.from_fx(make_fx(gradients)(*values), values)
    new = RULES["copy-identity"](old)
    assert new.trace.summary() == {"copy-identity": 1}
    old.compare(new).check()


BY_STRIDES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as_strided": lambda y: torch.as_strided(y, (4,), (1,)),
    "as_strided_copy": lambda y: torch.as_strided_copy(y, (4,), (1,)),
    "as_strided_scatter": lambda y: torch.as_strided_scatter(y, torch.ones(4), (4,), (1,)),
    "view_copy": lambda y: torch.view_copy(y, dtype=torch.int32),
    "view_as_complex_copy": lambda y: torch.view_as_complex_copy(y.view(3, 2, 2)).abs(),
    "stride": lambda y: y * y.stride(0),
    "is_contiguous": lambda y: y * y.is_contiguous(),
}


@pytest.mark.parametrize("name", BY_STRIDES)
def test_a_copy_stays_where_its_strides_are_read(name: str) -> None:
    graph = torch.fx.symbolic_trace(lambda x: BY_STRIDES[name](x.t().contiguous()))
    old = Workload.from_fx(graph, (torch.randn(4, 3),))
    new = RULES["copy-identity"](old)
    assert f"%{name} reads its operand by strides" in str(new.trace)
    old.compare(new).check()


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_an_as_strided_that_moves_no_element_hinders_no_rule(is_dynamic: bool) -> None:
    """Torch writes one behind the mean of images with the channels last, when it decomposes a pooling."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.layer = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.norm(self.conv(x)))
            found: torch.Tensor = self.layer(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))
            return found

    images = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    sizes = ({0: torch.export.Dim("batch")},) if is_dynamic else None
    exported = torch.export.export(Pooled().eval(), (images,), dynamic_shapes=sizes).run_decompositions()
    assert "as_strided" in str(exported.graph)
    old = Workload.from_exported(exported)
    new = RULES["conv-batch-norm"](old)
    assert new.trace.count() == 1
    old.compare(new).check()


@pytest.mark.parametrize("way", ["workload", "in place"])
def test_it_is_a_copy_where_its_operand_lies_otherwise(way: str) -> None:
    x = pat.Wildcard()
    flat = op.Reshape(op.Transpose(op.Exp(x), axes=(1, 0)), newshape=(12,))
    turned = Subst(op.Exp(x), op.Transpose(op.Reshape(flat, newshape=(4, 3)), axes=(1, 0)), name="turned")

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(torch.exp(x), (3, 4), (4, 1)).view(-1) * 2.0

    values = torch.randn(3, 4)
    module = make_fx(function, tracing_mode="fake")(values)
    if way == "workload":
        old = Workload.from_fx(module, (values,))
        new = turned(old)
        assert new.trace.count() == 1
        old.compare(new).check()
    else:
        Pass(turned)(module)
    torch.testing.assert_close((new.mod if way == "workload" else module)(values), function(values))


@pytest.mark.parametrize(("mode", "fired"), [("fake", 1), ("real", 0)])
def test_a_product_above_a_call_by_strides(mode: Any, fired: int) -> None:
    """Its result lies as before, which is known where torch can compute with the values: not with ``real`` ones."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x.t().contiguous() @ y, (2, 2), (1, 2))

    values = torch.randn(3, 2), torch.randn(3, 2)
    old = Workload.from_fx(make_fx(function, tracing_mode=mode)(*values), values)
    new = RULES["copy-identity"](old)
    assert new.trace.count() == fired
    old.compare(new).check()


LAZY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conjugation": lambda x: torch.view_as_real(torch.conj(x) * 1),
    "view of it": lambda x: torch.view_as_real(torch.conj(x).t() * 1),
}


@pytest.mark.parametrize("mode", ["fake", "real"])
@pytest.mark.parametrize("name", LAZY)
def test_a_conjugation_is_carried_out_where_memory_is_read(name: str, mode: Any) -> None:
    values = (torch.randn(3, 2, dtype=torch.complex64),)
    old = Workload.from_fx(make_fx(LAZY[name], tracing_mode=mode)(*values), values)
    new = NORMAL(old, iterative=True)
    assert "copy-identity refused" in str(new.trace)
    old.compare(new).check()


aten = torch.ops.aten
SHIFTS = torch.arange(4.0).reshape(4, 1) - 1.5
KERNELS: dict[str, Callable[..., Any]] = {
    # of a tensor, one value for each row of it, and a vector
    "layer norm": lambda x, rows, v: aten.native_layer_norm_backward(
        x, x + SHIFTS, [4], rows, rows, v, v, [True, True, True]
    ),
    "group norm": lambda x, rows, v: aten.native_group_norm(x.reshape(4, 4, 1), v, v, 4, 4, 1, 2, 1e-5),
    "group norm backward": lambda x, rows, v: aten.native_group_norm_backward(
        x.reshape(4, 4, 1), (x + SHIFTS).reshape(4, 4, 1), rows, rows, v, 4, 4, 1, 1, [True, True, True]
    ),
    "weight norm": lambda x, rows, v: aten._weight_norm_interface(x, rows, 0),
}


@pytest.mark.parametrize("mode", ["fake", "real", "symbolic"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_norms_get_dense_operands(name: str, mode: Any) -> None:
    """They take their operands to be dense, and look at no stride to see if they are."""

    def run(x: torch.Tensor, rows: torch.Tensor, v: torch.Tensor) -> Any:
        return KERNELS[name](x.t().contiguous().abs(), rows[:, ::2].contiguous().abs(), v[::2].contiguous().abs())

    values = (torch.randn(4, 4), torch.rand(4, 2) + 0.5, torch.randn(8))
    traced = make_fx(run, tracing_mode=mode, _allow_non_fake_inputs=True)(*values)
    old = Workload.from_fx(traced, values)
    new = RULES["copy-identity"](old)
    assert new.trace.count() >= 1
    old.compare(new).check()
    assert RULES["copy-identity"](new).trace.count() == 0


@pytest.mark.parametrize("name", ["attention", "group norm"])
def test_a_second_rewrite_knows_of_layouts_that_the_first_one_could_not_tell(name: str) -> None:
    """Torch makes the values of this module apart, so a rewrite does not compute with them, and they stay as they were:
    dense, which the product is no more where a copy before it has gone."""

    def function(x: torch.Tensor) -> torch.Tensor:
        product = x.transpose(-1, -2).contiguous() * 2.5
        if name == "attention":
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(product, product, product)[0]
        return torch.ops.aten.native_group_norm(product, None, None, 1, 2, 40, 1, 1e-5)[0]

    x = torch.randn(1, 2, 8, 5)
    new = Workload.from_fx(make_fx(function)(x), (x,))
    for _ in range(3):
        new = BOOK(new, iterative=True)
        torch.testing.assert_close(new.mod(x), function(x))
    assert not new.trace.count()


@pytest.mark.parametrize("name", ["attention", "group norm"])
def test_a_second_rewrite_copies_nothing_again(name: str) -> None:
    """The first one makes a copy for the kernel, and the second one replaces the operand of that copy."""

    def function(x: torch.Tensor) -> torch.Tensor:
        product = torch.sigmoid(x.transpose(-1, -2).contiguous()) + x.sum()
        if name == "attention":
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(product, product, product)[0]
        return torch.ops.aten.native_group_norm(product, None, None, 1, 2, 40, 1, 1e-5)[0]

    x, value = torch.randn(1, 2, 8, 5), pat.Wildcard()
    copied = RULES["copy-identity"](Workload.from_fx(make_fx(function)(x), (x,)))
    new = Subst(op.Sigmoid(value), 1 / (op.Exp(-value) + 1))(copied)
    torch.testing.assert_close(new.mod(x), function(x))
    assert copied.op_counts()["copy"] == new.op_counts()["copy"] > 0
    assert not RULES["copy-identity"](new).trace.count()


def test_names_of_inputs_say_nothing_of_strides() -> None:
    graph = torch.fx.symbolic_trace(lambda stride: stride.t().contiguous() * 2.0)
    assert RULES["copy-identity"](Workload.from_fx(graph, (torch.randn(4, 3),))).trace.count() == 1


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_with_a_folded_norm_lies_as_its_kernel_tells(form: torch.memory_format) -> None:
    """The layout of the call that stood there, without the bias, is that of a run of the new one."""
    conv, images = nn.Conv2d(3, 8, 3, stride=2, bias=False), torch.randn(2, 3, 9, 7)
    model = nn.Sequential(conv, nn.BatchNorm2d(8)).eval().to(memory_format=form)
    new = RULES["conv-batch-norm"](Workload.from_torch(model, (images.to(memory_format=form),))).exported
    (call,) = [node for node in new.graph.nodes if node.target is torch.ops.aten.conv2d.default]
    known = call.meta["val"]
    with known.fake_mode:
        run = call.target(*torch.fx.node.map_arg(call.args, lambda node: node.meta["val"]))
    assert len(call.args) > 2
    assert known.stride() == run.stride()
    assert run.is_contiguous(memory_format=form)


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("end", [lambda y: y, torch.relu, lambda y: y.flatten(2) * 2], ids=["copy", "relu", "flat"])
def test_view_of_a_convolution_of_volumes_without_the_copy_between(
    end: Callable[[torch.Tensor], torch.Tensor], decomposed: bool
) -> None:
    """An export tells that the result of such a convolution is dense, and the kernel writes its channels last."""

    class Volumes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(2, 3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return end(self.conv(x).clone(memory_format=torch.contiguous_format)).view(6, 27)

    images = torch.randn(2, 2, 4, 4, 4).to(memory_format=torch.channels_last_3d)
    exported = torch.export.export(Volumes(), (images,))
    old = Workload.from_exported(exported.run_decompositions() if decomposed else exported)
    new = RULES["copy-identity"](old)
    assert new.trace.summary() == {"copy-identity": 1}
    torch.testing.assert_close(new.exported.module()(images), exported.module()(images))


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("form", ["exported", "decomposed"])
@pytest.mark.parametrize("call", [nn.BatchNorm1d(4), nn.MaxPool1d(2)], ids=["batch norm", "pooling"])
def test_view_of_a_call_whose_layout_torch_does_not_tell(call: nn.Module, form: str, is_dynamic: bool) -> None:
    """The fake result lies as the operand, and that of a CPU is dense."""

    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.call, self.layer = call, nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = self.call(x.transpose(1, 2)).transpose(1, 2)
            found: torch.Tensor = self.layer(made.clone(memory_format=torch.contiguous_format).view(-1, 4))
            return found

    shapes = {"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}} if is_dynamic else None
    program = torch.export.export(Viewed().eval(), (torch.randn(2, 6, 4),), dynamic_shapes=shapes)
    old = Workload.from_exported(program if form == "exported" else program.run_decompositions())
    new = RULES["copy-identity"](old)
    assert new.trace.summary() == {"copy-identity": 1}
    old.compare(new).check()


def test_values_of_several_fake_modes() -> None:
    """Torch computes with values of one mode only: how a call on two of them lies is not known, and it is kept."""
    aten, graph, modes = torch.ops.aten, torch.fx.Graph(), (FakeTensorMode(), FakeTensorMode())
    a, b, w = map(graph.placeholder, "abw")
    product = graph.call_function(aten.mm.default, (a, b))
    total = graph.call_function(aten.add.Tensor, (product, w))
    others = w, total, graph.call_function(aten.exp.default, (total,))
    graph.output((others[-1], graph.call_function(aten.log.default, (a,))))
    for node in graph.nodes:
        if node.op != "output":
            node.meta["val"] = modes[node in others].from_tensor(torch.randn(3, 3))
    x, y = pat.Wildcard(), pat.Wildcard()
    turned = op.Transpose(op.Matmul(op.Transpose(y, axes=(1, 0)), op.Transpose(x, axes=(1, 0))), axes=(1, 0))
    old = Workload.from_fx(torch.fx.GraphModule(nn.Module(), graph))
    Subst(op.Log(x), op.Exp(x), name="other")(old)  # from here on it is known how the result of an equal call lies
    new = Subst(op.Matmul(x, y), turned, name="turned")(old)
    assert new.trace.summary() == {"turned": 1}
    values = [torch.rand(3, 3) for _ in range(3)]
    torch.testing.assert_close(new.mod(*values), old.mod(*values))


def test_view_of_attention_that_several_rules_made() -> None:
    """The call that the second rule replaces is one of the first, and its kernel has chosen no layout yet."""

    class Halved(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            found = torch.softmax((q / 2) @ k.transpose(-2, -1), -1) @ v
            return (found + v).transpose(1, 2).contiguous().view(2, 16, 8)

    old = Workload.from_torch(Halved(), VALUES)
    new = IDIOMS(old, iterative=True)
    assert [new.trace.count(rule) for rule in ("attention", "attention-query-factor", "copy-identity")] == [1, 1, 1]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        old.compare(new).check()
