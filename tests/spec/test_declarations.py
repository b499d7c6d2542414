"""The table of operators, the names by which they are found, and the canonical forms of their attributes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sympy
import torch

from gsl.graph import SymDim, TensorType, TupleType
from gsl.spec import REQUIRED, TABLE, OpSpec, Trait, find

N, M = (SymDim(sympy.Symbol(name, positive=True, integer=True)) for name in "nm")


def f32(*shape: Any) -> TensorType:
    return TensorType(shape, "float32")


def spec_of(name: str) -> OpSpec:
    spec = find(name)
    assert spec is not None
    return spec


def test_names_are_unique() -> None:
    names = [name for spec in TABLE.values() for name in (spec.cls, spec.name, *spec.aliases)]
    assert sorted(names) == sorted(set(names))
    assert all(spec.name == name for name, spec in TABLE.items())


@pytest.mark.parametrize("spec", TABLE.values(), ids=lambda spec: spec.name)
def test_a_declaration_is_consistent(spec: OpSpec) -> None:
    assert spec.cls.isidentifier()
    assert spec.optional <= len(spec.operands)
    assert not set(spec.operands) & set(spec.attrs)
    assert all(find(name) is spec for name in (spec.name, spec.name.removeprefix("nn."), spec.cls, *spec.aliases))
    if spec.commutative:
        assert len(spec.operands) >= 2
    if Trait.ACTIVATION in spec.traits:
        assert Trait.ELEMENT_WISE in spec.traits
        assert len(spec.operands) == 1
    for name, attr in spec.attrs.items():
        assert name.isidentifier()
        if attr.derive is not None:
            assert attr.default is REQUIRED
        elif attr.default is not REQUIRED:
            default = spec.normalise(name, attr.default, (None,) * len(spec.operands))
            assert default == attr.default
            assert type(default) is type(attr.default)
        for value in attr.candidates:
            canonical = spec.normalise(name, value, (None,) * len(spec.operands))
            assert (canonical, type(canonical)) == (value, type(value))


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("nn.conv2d", "nn.conv2d"),
        ("conv2d", "nn.conv2d"),
        ("Conv2D", "nn.conv2d"),
        ("relu", "nn.relu"),
        ("silu", "silu"),
        ("nn.silu", "silu"),
        ("ReLU", "nn.relu"),
        ("scaled_dot_product_attention", "nn.attention"),
        ("cat", "concatenate"),
        ("remainder", "floor_mod"),
        ("fmod", "mod"),
        ("conv2D", None),
        ("", None),
    ],
)
def test_find(word: str, name: str | None) -> None:
    spec = find(word)
    assert (spec and spec.name) == name


def test_the_table_is_read_only() -> None:
    with pytest.raises(TypeError):
        TABLE["x"] = TABLE["add"]  # type: ignore[index]


CANONICAL: list[tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]] = [
    ("conv2d", {"padding": 1, "strides": [2, 1]}, (None, None), {"padding": (1, 1, 1, 1), "strides": (2, 1)}),
    ("conv2d", {"padding": (1, 2)}, (None, None), {"padding": (1, 2, 1, 2), "channels": None, "kernel_size": None}),
    ("conv2d", {}, (f32(1, 3, 8, 8), f32(6, 3, 5, 4)), {"channels": 6, "kernel_size": (5, 4)}),
    ("conv2d", {"kernel_layout": "HWIO"}, (None, f32(5, 4, 3, 6)), {"channels": 6, "kernel_size": (5, 4)}),
    ("conv2d", {"data_layout": "NHWC", "out_layout": "NHWC"}, (None, None), {"out_layout": ""}),
    ("conv2d", {"out_dtype": torch.float16}, (None, None), {"out_dtype": "float16"}),
    ("conv2d_transpose", {"groups": 2}, (None, f32(4, 3, 5, 4)), {"channels": 6, "kernel_size": (5, 4)}),
    ("conv1d", {"padding": (1,)}, (None, None), {"padding": (1, 1)}),
    ("dense", {}, (None, f32(N, 4)), {"units": N}),
    ("bias_add", {"axis": -1}, (f32(2, 3, 4), None), {"axis": 2}),
    ("bias_add", {"axis": -1}, (None, None), {"axis": -1}),
    ("softmax", {}, (f32(2, 3),), {"axis": 1}),
    ("layer_norm", {"axis": -1}, (f32(2, 3), None, None), {"axis": (1,)}),
    ("layer_norm", {"axis": (-1, -2)}, (f32(2, 3, 4),), {"axis": (1, 2)}),
    ("cast", {"dtype": torch.bfloat16}, (None,), {"dtype": "bfloat16"}),
    ("clip", {"a_min": 0, "a_max": 6}, (f32(2),), {"a_min": 0.0, "a_max": 6.0}),
    ("clip", {"a_min": 0}, (TensorType((2,), "int32"),), {"a_min": 0, "a_max": None}),
    ("pad", {"pad_width": 1, "pad_value": 0}, (f32(2, 3),), {"pad_width": ((1, 1), (1, 1)), "pad_value": 0.0}),
    ("pad", {"pad_width": ((0, 1),), "pad_value": 0.0}, (TensorType((2,), "int32"),), {"pad_value": 0}),
    ("concatenate", {"axis": -1}, (TupleType((None, f32(2, 3))),), {"axis": 1}),
    ("stack", {"axis": -1}, (TupleType((f32(2, 3), None)),), {"axis": 2}),
    ("split", {"indices_or_sections": 3, "axis": -1}, (f32(2, 6),), {"indices_or_sections": (2, 4), "axis": 1}),
    ("split", {"indices_or_sections": 2}, (f32(N * 4),), {"indices_or_sections": (N * 2,)}),
    ("split", {"indices_or_sections": 2}, (f32(N),), {"indices_or_sections": 2}),
    ("split", {"indices_or_sections": 2}, (None,), {"indices_or_sections": 2}),
    ("reshape", {"newshape": -1}, (f32(2, 3, 4),), {"newshape": (24,)}),
    ("reshape", {"newshape": (0, -1)}, (f32(2, 3, 4),), {"newshape": (2, 12)}),
    ("reshape", {"newshape": (4, -2)}, (f32(4, 3, 5),), {"newshape": (4, 3, 5)}),
    ("reshape", {"newshape": (-3, 0)}, (f32(2, 3, 4),), {"newshape": (6, 4)}),
    ("reshape", {"newshape": (0, -4, -1, 2, 0)}, (f32(2, 6, 4),), {"newshape": (2, 3, 2, 4)}),
    ("reshape", {"newshape": (0, -1)}, (None,), {"newshape": (0, -1)}),
    ("reshape", {"newshape": (0, -1)}, (f32(N, 3, 4),), {"newshape": (N, 12)}),
    ("reshape", {"newshape": (-1, 8)}, (f32(N, M, 8),), {"newshape": (N * M, 8)}),
    ("reshape", {"newshape": (-1, 8)}, (f32(N, 4),), {"newshape": (-1, 8)}),
    ("reshape", {"newshape": (N, -1, 2, 2)}, (f32(N, 12),), {"newshape": (N, 3, 2, 2)}),
    ("reshape", {"newshape": (3, 0)}, (f32(0, 3),), {"newshape": (3, 0)}),
    ("transpose", {}, (f32(2, 3, 4),), {"axes": (2, 1, 0)}),
    ("transpose", {}, (None,), {"axes": None}),
    ("transpose", {"axes": [0, -1, 1]}, (f32(2, 3, 4),), {"axes": (0, 2, 1)}),
    ("expand_dims", {"axis": -1}, (f32(2, 3),), {"axis": 2, "num_newaxis": 1}),
    ("squeeze", {}, (f32(1, 2, N, 1),), {"axis": (0, 3)}),
    ("squeeze", {"axis": (1, -1)}, (f32(1, 2, N, 1),), {"axis": (3,)}),
    ("sum", {}, (f32(2, 3),), {"axis": (0, 1), "keepdims": False, "exclude": False}),
    ("sum", {"axis": -1, "exclude": True}, (f32(2, 3, 4),), {"axis": (0, 1), "exclude": False}),
    ("sum", {"axis": (-1, 0)}, (f32(2, 3, 4),), {"axis": (0, 2)}),
    ("sum", {"axis": -1, "exclude": True}, (None,), {"axis": (-1,), "exclude": True}),
    ("broadcast_to", {"shape": (5, -1, 3)}, (f32(N, 1),), {"shape": (5, N, 3)}),
    ("tile", {"reps": 2}, (f32(2, 3),), {"reps": (1, 2)}),
    ("arange", {"stop": 4}, (), {"start": 0, "stop": 4, "step": 1, "dtype": "int64"}),
    ("arange", {"stop": 4.0}, (), {"dtype": "float32"}),
    ("matrix_set_diag", {"k": 1}, (None, None), {"k": (1, 1)}),
    (
        "strided_slice",
        {"begin": (0, 1, -2), "end": (2, 99, -1)},
        (f32(2, 3, 4),),
        {"begin": (1, 2), "end": (3, 3), "strides": (1, 1), "axes": (1, 2)},
    ),
    (
        "strided_slice",
        {"begin": -1, "end": None, "strides": -1, "axes": -1},
        (f32(2, 3),),
        {"begin": (2,), "end": (-4,), "strides": (-1,), "axes": (1,)},
    ),
    (
        "strided_slice",
        {"begin": (1, -3), "end": (2**63 - 1, None), "axes": (1, 0)},
        (f32(N, M),),
        {"begin": (N - 3, 1), "end": (N, M), "strides": (1, 1), "axes": (0, 1)},
    ),
]


@pytest.mark.parametrize(("name", "given", "types", "expected"), CANONICAL)
def test_canonical_attributes(
    name: str, given: dict[str, Any], types: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    spec = spec_of(name)
    full = spec.complete(given, types)
    assert set(full) == set(spec.attrs)
    found = {key: full[key] for key in expected}
    assert found == expected
    # 1, 1.0 and True are equal, and differ as attributes.
    assert repr(found) == repr(expected)
    own = {key: value for key, value in full.items() if spec.attrs[key].derive is None}
    assert spec.complete(own, types) == full


ERRORS: list[tuple[str, dict[str, Any], tuple[Any, ...], str]] = [
    (
        "conv2d",
        {"strides": (1, 2, 3)},
        (),
        "nn.conv2d: strides: expected an integer of at least 1 or a tuple of 2 of them, found (1, 2, 3)",
    ),
    ("conv2d", {"groups": True}, (), "nn.conv2d: groups: expected an integer, found True"),
    ("conv2d", {"groups": 0}, (), "nn.conv2d: groups: expected a positive integer, found 0"),
    (
        "conv2d",
        {"padding": "same"},
        (),
        "nn.conv2d: padding: expected a non-negative integer or a tuple of 2 or 4, found 'same'",
    ),
    (
        "conv2d",
        {"data_layout": "NCHW4c"},
        (),
        "nn.conv2d: data_layout: expected a layout like 'NCHW', found 'NCHW4c'",
    ),
    ("cast", {"dtype": "float"}, (), "cast: dtype: expected a dtype, found 'float'"),
    ("cast", {}, (), "cast: the attribute 'dtype' is required"),
    ("gelu", {"approximate": True}, (), "gelu: approximate: expected one of 'none', 'tanh', found True"),
    ("softmax", {"axis": 2}, (f32(2, 3),), "nn.softmax: axis: expected an axis between -2 and 1, found 2"),
    ("sum", {"axis": (0, -2)}, (f32(2, 3),), "sum: axis: expected distinct axes, found (0, -2)"),
    ("sum", {"keepdims": 1}, (None,), "sum: keepdims: expected True or False, found 1"),
    ("leaky_relu", {"alpha": "x"}, (None,), "nn.leaky_relu: alpha: expected a number, found 'x'"),
    ("transpose", {"axes": (0, 1)}, (f32(2, 3, 4),), "transpose: axes: expected a permutation of 3 axes, found (0, 1)"),
    (
        "reshape",
        {"newshape": (5, -1)},
        (f32(2, 3),),
        "reshape: newshape: expected a shape for 6 elements, found (5, -1)",
    ),
    ("reshape", {"newshape": (2, 2)}, (f32(2, 3),), "reshape: newshape: expected a shape for 6 elements, found (2, 2)"),
    ("reshape", {"newshape": (-1, -1)}, (f32(2, 3),), "reshape: newshape: expected at most one -1, found (-1, -1)"),
    (
        "reshape",
        {"newshape": (1, 6, 0)},
        (f32(2, 3),),
        "reshape: newshape: expected a shape for an operand of shape (2, 3), found (1, 6, 0)",
    ),
    (
        "split",
        {"indices_or_sections": 4},
        (f32(6),),
        "split: indices_or_sections: 6 elements can't be split into 4 equal sections",
    ),
    (
        "pad",
        {"pad_width": ((1, 1),)},
        (f32(2, 3),),
        "nn.pad: pad_width: expected a pair of integers for each of 2 axes, found ((1, 1),)",
    ),
    (
        "avg_pool2d",
        {"pool_size": 2, "dilation": 2},
        (),
        "nn.avg_pool2d: dilation: expected 1, since average pooling has no dilation, found 2",
    ),
    ("layer_norm", {"axis": ()}, (), "nn.layer_norm: axis: expected an axis or a tuple of axes, found ()"),
    (
        "layout_transform",
        {"src_layout": "NCHW", "dst_layout": "NHC4c"},
        (),
        "layout_transform: dst_layout: expected the axes of 'NCHW', found 'NHC4c'",
    ),
    (
        "strided_slice",
        {"begin": (0, 1), "end": (2,)},
        (),
        "strided_slice: expected as many of each, found begin (0, 1), end (2,), strides (1, 1), axes (0, 1)",
    ),
    (
        "strided_slice",
        {"begin": 0, "end": 2, "strides": 0},
        (),
        "strided_slice: strides: expected steps other than 0, found 0",
    ),
]


@pytest.mark.parametrize(("name", "given", "types", "text"), ERRORS)
def test_errors(name: str, given: dict[str, Any], types: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        spec_of(name).complete(given, types)


def test_an_unknown_attribute_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="stride"):
        spec_of("conv2d").complete({"stride": 1}, ())


@pytest.mark.parametrize(
    ("equation", "form"),
    [("bij, bjk -> bik", "abc,acd->abd"), ("nxy,nyz->nxz", "abc,acd->abd"), ("kj,ji", "ab,bc->ca"),
     ("...ij->...ji", "...ab->...ba"), ("...ij,jk", "...ab,bc->...ac"), ("ii", "aa->"), ("i,i->", "a,a->"),
     ("->", "->"), (",->", ",->"), ("Bij,Bjk->Bik", "abc,acd->abd"), ("Bi,ij", "Bi,ij"), ("i1->1i", "i1->1i")],
)  # fmt: skip
def test_equations_that_differ_in_letters_have_one_form(equation: str, form: str) -> None:
    einsum = spec_of("einsum")
    assert einsum.normalise("equation", equation, (None,)) == form
    assert einsum.normalise("equation", form, (None,)) == form
    if "." not in form and form[0].isalpha() and "1" not in form:
        operands = [torch.randn([2 + ord(index.lower()) % 5 for index in term if index != "."])
                    for term in equation.replace(" ", "").partition("->")[0].split(",")]  # fmt: skip
        assert torch.equal(torch.einsum(equation, *operands), torch.einsum(form, *operands))
