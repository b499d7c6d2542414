"""What a file leaves open: what the choices decide, what is then false, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gsl import Subst, op
from gsl.errors import ExchangeError
from gsl.graph import Node
from tests.exchange.nodes import concat, conv, holds, identity, pool, same_of, tensor
from tests.helpers.firing import Make, fire, ops
from tests.helpers.graphs import Builder

NOT_CONSTANTS: dict[str, tuple[str, Make]] = {
    "no ones": ("(ewmul ?x Iewmul)=>?x", lambda b: b.call("multiply", b.input("x", 3), tensor(b, [1, 1, 2]))),
    "not known": ("(ewmul ?x Iewmul)=>?x", lambda b: b.call("multiply", b.input("x", 3), b.input("y", 3))),
    "no identity": (
        "(matmul 0 ?x Imatmul)=>?x", lambda b: b.call("matmul", b.input("x", 2, 2), tensor(b, [[1, 0], [1, 1]])),
    ),
    "identity and more rows": (
        "(matmul 0 ?x Imatmul)=>(relu ?x)", lambda b: b.call("matmul", b.input("x", 2, 3), tensor(b, np.eye(3, 2))),
    ),
    "another place": (
        "(conv2d 1 1 0 0 ?x (Iconv 3))=>?x",
        lambda b: conv(b, b.input("x", 1, 3, 4, 4), tensor(b, np.roll(identity(3, 3, 3), 1, axis=2))),
    ),
    "channels exchanged": (
        "(conv2d 1 1 0 0 ?x (Iconv 3))=>?x",
        lambda b: conv(b, b.input("x", 1, 3, 4, 4), tensor(b, np.roll(identity(3, 3, 3), 1, axis=0))),
    ),
    "another size": (
        "(conv2d 1 1 0 0 ?x (Iconv 3))=>?x",
        lambda b: conv(b, b.input("x", 1, 3, 4, 4), tensor(b, identity(3, 1, 1))),
    ),
    "no average": (
        "(conv2d 1 1 1 0 ?x (Cpool 2 2))=>(poolavg 2 2 1 1 1 ?x)",
        lambda b: b.call("nn.conv2d", b.input("x", 1, 1, 4, 4), tensor(b, np.full((1, 1, 2, 2), 0.2))),
    ),
    "an average over channels": (
        "(conv2d 1 1 1 0 ?x (Cpool 2 2))=>(poolavg 2 2 1 1 1 ?x)",
        lambda b: b.call("nn.conv2d", b.input("x", 1, 2, 4, 4), tensor(b, np.full((2, 2, 2, 2), 0.25))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_CONSTANTS)
def test_what_is_no_constant_does_not_match(rule: Callable[..., Subst], name: str) -> None:
    text, make = NOT_CONSTANTS[name]
    assert holds(rule(text), make) is None


@pytest.mark.parametrize("side", ["low", "high"])
def test_an_identity_kernel_of_even_size_has_its_one_where_same_padding_puts_it(
    rule: Callable[..., Subst], side: str
) -> None:
    subst = rule("(conv2d 1 1 0 0 ?x (Iconv 2))=>?x", odd_padding=side)
    padding = (1, 1, 0, 0) if side == "low" else (0, 0, 1, 1)
    found = {}
    for place in range(4):
        kernel = np.zeros((1, 1, 4))
        kernel[..., place] = 1
        weight = kernel.reshape(1, 1, 2, 2)
        found[place] = holds(
            subst, lambda b, w=weight: conv(b, b.input("x", 1, 1, 4, 4), tensor(b, w), padding=padding)
        )
    assert found == {place: True if place == (3 if side == "low" else 0) else None for place in range(4)}


def enlarged_conv(size: tuple[int, int], stride: int, image: int, *, low: bool = True) -> Make:
    """A convolution with *same* padding and strides."""

    def make(b: Builder) -> Node:
        before, after = zip(*(same_of(image, k, stride)[:: 1 if low else -1] for k in size))
        data, kernel = b.input("x", 1, 1, image, image), b.input("w", 1, 1, *size)
        return b.call("nn.conv2d", data, kernel, strides=stride, padding=(*before, *after))

    return make


@pytest.mark.parametrize(("choice", "false"), [("centre", ()), ("low", (2,)), ("high", (1, 3))])
def test_where_an_enlarged_kernel_lies_decides_about_even_sizes(
    rule: Callable[..., Subst], choice: str, false: tuple[int, ...]
) -> None:
    # Of the kernels with side 1 to 4 in one of side 4 (for "low": of side 3, too).
    found = set()
    for side in (3, 4):
        subst = rule(f"(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 0 ?x (enlarge {side} {side} ?w))", enlarge=choice)
        for small in range(1, side + 1):
            if holds(subst, enlarged_conv((small, small), 1, 5)) is not True:
                found.add(small)
        assert holds(subst, enlarged_conv((side + 1, 1), 1, 5)) is None, "a kernel does not get smaller"
    assert found == set(false)


@pytest.mark.parametrize("side", ["low", "high"])
def test_the_centre_of_a_kernel_is_where_same_padding_puts_it(rule: Callable[..., Subst], side: str) -> None:
    """Of kernels of even size too, on the side that the choice says."""
    for large in (3, 4):
        text = f"(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 0 ?x (enlarge {large} {large} ?w))"
        subst = rule(text, odd_padding=side)
        for small in range(1, large + 1):
            assert holds(subst, enlarged_conv((small, small), 1, 5, low=side == "low")) is True


@pytest.mark.parametrize(("side", "false"), [("low", {(2, 4)}), ("high", {(1, 4), (2, 4)})])
def test_enlarging_under_same_padding_is_false_for_strides(
    rule: Callable[..., Subst], side: str, false: set[tuple[int, int]]
) -> None:
    subst = rule("(conv2d 2 2 0 0 ?x ?w)=>(conv2d 2 2 0 0 ?x (enlarge 3 3 ?w))", odd_padding=side)
    sizes = [(kernel, image) for kernel in (1, 2, 3) for image in (4, 5)]
    verdicts = {(k, n): holds(subst, enlarged_conv((k, k), 2, n, low=side == "low")) for k, n in sizes}
    assert {size for size, verdict in verdicts.items() if verdict is not True} == false


@pytest.mark.parametrize(("mode", "counted", "expected"), [(1, False, True), (0, False, False), (0, True, True)])
@pytest.mark.torch
def test_an_average_is_a_convolution_where_padding_counts(
    rule: Callable[..., Subst], mode: int, counted: bool, expected: bool
) -> None:
    subst = rule(f"(poolavg 3 3 1 1 {mode} ?x)=>(conv2d 1 1 {mode} 0 ?x (Cpool 3 3))", count_include_pad=counted)

    def make(b: Builder) -> Node:
        return pool(b, "avg", b.input("x", 1, 2, 5, 5), (3, 3), (1, 1), mode, count_include_pad=counted)

    assert holds(subst, make) is expected


def test_the_meaning_of_further_operators_is_told(rule: Callable[..., Subst]) -> None:
    lines = "(concat 0 2 (leaky 3 ?x) (leaky 3 ?y))=>(leaky 3 (concat 0 2 ?x ?y))"
    with pytest.raises(ExchangeError, match=r"column 14: unknown operator 'leaky'"):
        rule(lines)
    leaky = rule(lines, operators={"leaky": lambda data, params: op.LeakyReLU(data[0], alpha=params[0] / 10)})

    def make(b: Builder, alpha: float = 0.3) -> Node:
        return concat(b, 0, *[b.call("nn.leaky_relu", b.input(name, 2, 2), alpha=alpha) for name in "xy"])

    assert ops(fire(leaky, make, times=1)) == ["concatenate", "nn.leaky_relu"]
    fire(leaky, lambda b: make(b, 0.2), times=0)


def _sum_of_convolutions(b: Builder, *sizes: int) -> Node:
    """Two convolutions of one image whose kernels, of these sizes, are products of matrices."""
    x = b.input("x", 1, 2, 4, 4)
    kernels = [b.call("matmul", b.input("a", 3, 2, size, 1), b.input("b", 3, 2, 1, size)) for size in sizes]
    return b.call("add", *[conv(b, x, kernel) for kernel in kernels])


def _sum(b: Builder, *shape: int) -> Node:
    return b.call("nn.relu", b.call("add", b.input("x", *shape), b.input("y", *shape)))


SILENT_BROADCASTS: dict[str, tuple[str, Make, Make]] = {
    "ewadd": (
        "(ewadd (conv2d 1 1 0 0 ?x (matmul 0 ?a ?b)) (conv2d 1 1 0 0 ?x (matmul 0 ?c ?d)))=>"
        "(conv2d 1 1 0 0 ?x (ewadd (matmul 0 ?a ?b) (matmul 0 ?c ?d)))",
        lambda b: _sum_of_convolutions(b, 3, 3), lambda b: _sum_of_convolutions(b, 3, 1),
    ),
    "ewadd of variables": (
        "(ewadd (conv2d 1 1 0 0 ?x ?a) (conv2d 1 1 0 0 ?x ?b))=>(conv2d 1 1 0 0 ?x (ewadd (relu ?a) ?b))",
        lambda b: _sum_of_convolutions(b, 3, 3), lambda b: _sum_of_convolutions(b, 3, 1),
    ),
    "matmul": (
        "(relu (ewadd ?x ?y))=>(relu (ewadd ?x (matmul 0 ?x ?y)))", lambda b: _sum(b, 3, 3), lambda b: _sum(b, 3),
    ),
    "a batch of matmul": (
        "(relu (matmul 0 (matmul 0 ?x ?y) (tanh ?z)))=>(relu (matmul 0 (matmul 0 ?x ?y) (matmul 0 (tanh ?z) ?z)))",
        lambda b: _three(b, (2, 3, 3)), lambda b: _three(b, (2, 3, 3), (3, 3)),
    ),
}  # fmt: skip


def _three(b: Builder, shape: tuple[int, ...], last: tuple[int, ...] | None = None) -> Node:
    product = b.call("matmul", b.input("x", *shape), b.input("y", *shape))
    return b.call("nn.relu", b.call("matmul", product, b.call("tanh", b.input("z", *(last or shape)))))


@pytest.mark.parametrize("name", SILENT_BROADCASTS)
def test_operands_of_a_target_are_not_broadcast_in_silence(rule: Callable[..., Subst], name: str) -> None:
    text, fits, broadcasts = SILENT_BROADCASTS[name]
    assert holds(rule(text), fits) is not None
    assert holds(rule(text), broadcasts) is None


REFUSED = {
    "(relu ?x)=>(split_0 (split 0 ?x))": "open where the split cuts",
    "(conv2d 1 1 0 ?a ?x ?w)=>(conv2d 1 1 0 ?b ?x ?w)": r"does not say what \?b \(act\) is",
    "(conv2d ?s 1 0 0 ?x ?w)=>(relu (conv2d ?t 1 0 0 ?x ?w))": r"does not say what \?t \(stride_h\) is",
    "(conv2d 1 1 0 0 ?x (merge_gconv 2 ?w))=>(relu ?x)": "can't be told from others in a source",
    "(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 0 ?x (merge_gconv 2 ?w))": "choose groups=True",
    "(relu ?x)=>(relu (Iconv 3))": "takes its shape from a convolution, and stands in relu",
    "(relu ?x)=>(ewmul Iewmul Iewmul)": "from another constant",
    "(relu ?x)=>(ewadd Iewmul ?x)": "from a ewmul, and stands in ewadd",
    "(relu ?x)=>Imatmul": "there is none",
    "(conv2d 1 1 0 0 ?x (Iconv ?k))=>?x": "must be a number",
    "(conv2d 1 1 0 0 ?x (enlarge ?k ?k ?w))=>(conv2d 1 1 0 0 ?x ?w)": "variable size of an enlarged kernel",
    "(relu (conv2d 1 1 0 0 ?x ?w))=>(conv2d 1 1 0 2 ?x ?w)": "both sides are the same graph",
    "(relu (ewadd ?x ?y))=>(relu (ewadd ?y ?x))": "both sides are the same graph",
    "(concat 1 2 (conv2d 1 1 0 0 ?x ?w) ?y)=>(relu ?y)": "4 dimensions is taken for one of 2",
    "(conv2d 1 1 0 0 ?x ?w)=>(relu (concat 0 2 ?x ?w))": "4 dimensions is taken for one of 2",
    "(relu (transpose ?x))=>(split_0 (split 1 (ewadd (concat 1 2 ?x (relu ?x)) (concat 1 2 (relu ?x) ?x))))":
        "concatenated differently",
    "(relu ?x)=>(split_0 (split 1 (concat 1 2 ?x ?x ?x)))": "2 results, but 3 tensors",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_expressed_is_refused(rule: Callable[..., Subst], text: str) -> None:
    with pytest.raises(ExchangeError, match=REFUSED[text]) as raised:
        rule(text)
    assert "tensat-1 can't be imported: rules.txt: line 1" in str(raised.value)
