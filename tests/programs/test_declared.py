"""Shapes of named sizes, as text and as annotations."""

from __future__ import annotations

import pytest

from gsl.errors import PatternError
from gsl.programs.declared import Axis, annotated, declared


@pytest.mark.parametrize(
    ("text", "axes", "dtypes"),
    [
        ("b h n d", [Axis(1, ("b",)), Axis(1, ("h",)), Axis(1, ("n",)), Axis(1, ("d",))], ()),
        ("", [], ()),
        ("3 n", [Axis(3), Axis(1, ("n",))], ()),
        ("rows=3 2*n*d", [Axis(3), Axis(2, ("n", "d"))], ()),
        ("_ n", [Axis(1, ("_x_0",)), Axis(1, ("n",))], ()),
        ("*b n", [Axis(1, ("*b",), True), Axis(1, ("n",))], ()),
        ("#b n", [Axis(1, ("b",), broadcast=True), Axis(1, ("n",))], ()),
        ("n ...", [Axis(1, ("n",)), Axis(1, ("_x_1",), True)], ()),
        ("int64[b, n]", [Axis(1, ("b",)), Axis(1, ("n",))], ("int64",)),
        ("bool[]", [], ("bool",)),
    ],
)
def test_a_text_is_read(text: str, axes: list[Axis], dtypes: tuple[str, ...]) -> None:
    found = declared("x", text)
    assert list(found.axes or ()) == axes
    assert found.dtypes == dtypes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b n-1", "'n-1' is no size: expected a name, a number, a product such as h*d"),
        ("#2*b n", "'#2*b' is no size"),
        ("*a *b", "one axis of a shape stands for any number of them"),
        ("half[b n]", "half is no dtype"),
    ],
)
def test_what_is_no_shape_is_refused(text: str, message: str) -> None:
    with pytest.raises(PatternError, match=r"test_declared.py:\d+: x=") as error:
        declared("x", text)
    assert message in str(error.value)


class Annotation:
    """An annotation as jaxtyping makes it."""

    dim_str = "*b n"
    dtypes = ("float16", "float32", "float6_e3m2fn")


def test_annotations_of_jaxtyping_are_read() -> None:
    found = annotated("x", Annotation)
    assert found is not None
    assert found.axes == declared("x", "*b n").axes
    assert found.dtypes == ("float16", "float32")


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ('Float32[Tensor, "*b n"]', ("float32",)),
        ("'Float32[Tensor, \"*b n\"]'", ("float32",)),
        ("jaxtyping.Bool[torch.Tensor, '*b n']", ("bool",)),
        ('Int[Tensor, "*b n"]', ("int16", "int32", "int64", "int8")),
        ('Shaped[Tensor, "*b n"]', ()),
    ],
)
def test_annotations_that_are_text_are_read_without_the_package(text: str, dtypes: tuple[str, ...]) -> None:
    found = annotated("x", text)
    assert found is not None
    assert found.axes == declared("x", "*b n").axes
    assert found.dtypes == dtypes


@pytest.mark.parametrize("annotation", ["Tensor", "list[int]", "Odd[Tensor, 'n']", int, None])
def test_other_annotations_say_nothing(annotation: object) -> None:
    assert annotated("x", annotation) is None
