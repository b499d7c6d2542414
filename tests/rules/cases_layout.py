"""Cases of the families layout and merge."""

from __future__ import annotations

import sympy

from gsl.graph import Node, SymDim
from tests.rules.harness import Build, Fires, Refuses, View

B, S = (SymDim(sympy.Symbol(name, integer=True, positive=True)) for name in "bs")


def transposes(first: tuple[int, ...], second: tuple[int, ...]) -> object:
    return lambda b: b.call("transpose", b.call("transpose", b.input("x", 2, 3, 4), axes=first), axes=second)


def reshapes(shape: tuple[object, ...], *shapes: tuple[object, ...], dtype: str = "float64") -> object:
    def view(b: Build) -> Node:
        x = b.input("x", *shape, dtype=dtype)
        for new in shapes:
            x = b.call("reshape", x, newshape=new)
        return x

    return view


def untyped_reshapes(b: Build) -> Node:
    x = b.input("x", 2, 3, 4)
    x.type = None
    return b.call("reshape", b.call("reshape", x, newshape=(6, 4)), newshape=(0, -1))


def casts(*dtypes: str) -> object:
    def view(b: Build) -> Node:
        x = b.input("x", 2, 30, dtype=dtypes[0])
        for dtype in dtypes[1:]:
            x = b.call("cast", x, dtype=dtype)
        return x

    return view


def rejoined(
    *fields: int, sections: object = 2, axis: int = 1, other: int = 1, shape: tuple[object, ...] = (3, 6)
) -> object:  # fmt: skip
    """The concatenation of some fields of a split of an input."""

    def view(b: Build) -> Node:
        parts = b.call("split", b.input("x", *shape), indices_or_sections=sections, axis=axis)
        return b.call("concatenate", b.tuple(*[b.get(parts, i) for i in fields]), axis=other)

    return view


def two_splits(b: Build) -> Node:
    x, y = b.input("x", 3, 6), b.input("y", 3, 6)
    first = b.call("split", x, indices_or_sections=2, axis=1)
    second = b.call("split", y, indices_or_sections=2, axis=1)
    return b.call("concatenate", b.tuple(b.get(first, 0), b.get(second, 1)), axis=1)


def joined(*ops: str, axis: int = 1, dtypes: tuple[str, ...] = ("float64",) * 9, **attrs: object) -> object:
    """The concatenation of some functions of inputs."""

    def view(b: Build) -> Node:
        data = [b.input(f"x{i}", 2, i + 1, dtype=dtypes[i]) for i in range(len(ops))]
        calls = [b.call(op, x, **(attrs if i == 0 or op == "cast" else {})) for i, (op, x) in enumerate(zip(ops, data))]
        return b.call("concatenate", b.tuple(*calls), axis=axis)

    return view


def nested(*places: int, axis: int = 1, other: int = 1, used: bool = False) -> View:
    """A concatenation of three tensors, of which those at some places are each a concatenation of two others."""

    def view(b: Build) -> list[Node]:
        fields, inner = [], []
        for i in range(3):
            if i in places:
                pair = [b.input(f"{name}{i}", 2, 2) for name in "xy"]
                inner.append(b.call("concatenate", b.tuple(*pair), axis=other))
                fields.append(inner[-1])
            else:
                fields.append(b.input(f"x{i}", *((2, 3) if axis == other else (4, 2))))
        whole = b.call("concatenate", b.tuple(*fields), axis=axis)
        return [whole, *([b.call("exp", each) for each in inner] if used else [])]

    return view


def joined_and_used(count: int) -> object:
    def view(b: Build) -> list[Node]:
        calls = [b.call("exp", b.input(f"x{i}", 2, 3)) for i in range(count)]
        return [b.call("concatenate", b.tuple(*calls), axis=1), b.call("negative", calls[0])]

    return view


def sums_joined(b: Build) -> Node:
    x, y = b.input("x", 2, 3), b.input("y", 2, 3)
    return b.call("concatenate", b.tuple(b.call("add", x, y), b.call("add", y, x)), axis=0)


FIRES = (
    Fires("transpose-transpose", "rotation twice", transposes((1, 2, 0), (1, 2, 0)), """\
%x: float64[2, 3, 4] = input
%transpose: float64[4, 2, 3] = transpose(%x, axes=(2, 0, 1))
return %transpose"""),
    Fires("transpose-transpose", "different permutations", transposes((1, 2, 0), (0, 2, 1))),
    Fires("transpose-transpose", "inverse", transposes((1, 2, 0), (2, 0, 1)), """\
%x: float64[2, 3, 4] = input
return %x"""),
    Fires("reshape-reshape", "through a matrix", reshapes((2, 3, 4), (6, 4), (3, 8)), """\
%x: float64[2, 3, 4] = input
%reshape: float64[3, 8] = reshape(%x, newshape=(3, 8))
return %reshape"""),
    Fires("reshape-reshape", "codes of Relay", reshapes((2, 3, 4), (-3, 0), (0, -1))),
    Fires("reshape-reshape", "no elements", reshapes((0, 4), (4, 0), (2, 0))),
    Fires("reshape-identity", "same shape", reshapes((2, 3), (2, -1)), """\
%x: float64[2, 3] = input
return %x"""),
    Fires("reshape-identity", "no axes", reshapes((), ())),
    Fires("cast-cast", "float to wider float", casts("float32", "float64", "float16"), """\
%x: float32[2, 30] = input
%cast: float16[2, 30] = cast(%x, dtype='float16')
return %cast"""),
    Fires("cast-cast", "byte to wider integer to signed byte", casts("uint8", "int32", "int8")),
    Fires("cast-cast", "negative byte to wider integer to unsigned byte", casts("int8", "int64", "uint8")),
    Fires("cast-cast", "bool to integer to float", casts("bool", "int32", "float64")),
    Fires("cast-cast", "integer to integer to float", casts("int16", "int64", "float16")),
    Fires("cast-cast", "integer to float with enough bits", casts("int16", "float32", "float64")),
    Fires("cast-cast", "half to float to the other half", casts("bfloat16", "float32", "float16")),
    Fires("cast-identity", "same dtype", casts("float32", "float32"), """\
%x: float32[2, 30] = input
return %x"""),
    Fires("dropout-identity", "in inference", lambda b: b.call("nn.dropout", b.input("x", 2, 3), rate=0.1), """\
%x: float64[2, 3] = input
return %x"""),
    Fires("dropout-identity", "between two calls",
          lambda b: b.call("exp", b.call("nn.dropout", b.call("exp", b.input("x", 2, 3))))),
    Fires("copy-identity", "of a call", lambda b: b.call("copy", b.call("exp", b.input("x", 2, 3))), """\
%x: float64[2, 3] = input
%exp: float64[2, 3] = exp(%x)
return %exp"""),
    Fires("copy-identity", "of a copy", lambda b: b.call("copy", b.call("copy", b.input("x", 2, 3)))),
    Fires("dispatch-tuple", "second of two",
          lambda b: b.get(b.tuple(b.input("x", 2), b.input("y", 3)), 1), """\
%x: float64[2] = input
%y: float64[3] = input
return %y"""),
    Fires("split-concat", "halves", rejoined(0, 1), """\
%x: float64[3, 6] = input
return %x"""),
    Fires("split-concat", "unequal parts, first axis", rejoined(0, 1, sections=(1,), axis=0, other=0)),
    Fires("split-concat", "negative axis", rejoined(0, 1, axis=1, other=-1)),
    Fires("split-concat", "symbolic size", rejoined(0, 1, sections=(2,), axis=1, other=1, shape=(3, B))),
    Fires("split-concat-variadic", "three unequal parts", rejoined(0, 1, 2, sections=(1, 4)), """\
%x: float64[3, 6] = input
return %x"""),
    Fires("split-concat-variadic", "one part", rejoined(0, sections=())),
    Fires("split-concat-variadic", "an empty part", rejoined(0, 1, 2, sections=(2, 2))),
    Fires("concat-concat", "in the middle", nested(1), """\
%x0: float64[2, 3] = input
%x1: float64[2, 2] = input
%y1: float64[2, 2] = input
%x2: float64[2, 3] = input
%concatenate: float64[2, 10] = concatenate((%x0, %x1, %y1, %x2), axis=1)
return %concatenate"""),
    Fires("concat-concat", "in all fields", nested(0, 1, 2, axis=0, other=0)),
    Fires("concat-concat", "negative axis", nested(0, 2, axis=-1, other=-1)),
    Fires("merge-element-wise", "exp", joined("exp", "exp"), """\
%x0: float64[2, 1] = input
%x1: float64[2, 2] = input
%concatenate: float64[2, 3] = concatenate((%x0, %x1), axis=1)
%exp: float64[2, 3] = exp(%concatenate)
return %exp"""),
    Fires("merge-element-wise", "equal attributes", joined("cast", "cast", dtype="float16")),
    Fires("merge-element-wise-variadic", "three", joined("nn.relu", "nn.relu", "nn.relu"), """\
%x0: float64[2, 1] = input
%x1: float64[2, 2] = input
%x2: float64[2, 3] = input
%concatenate: float64[2, 6] = concatenate((%x0, %x1, %x2), axis=1)
%relu: float64[2, 6] = nn.relu(%concatenate)
return %relu"""),
    Fires("merge-element-wise-variadic", "two", joined("nn.leaky_relu", "nn.leaky_relu", alpha=0.01)),
)  # fmt: skip

REFUSES = (
    Refuses("concat-concat", "different axes", nested(1, other=0)),
    Refuses("concat-concat", "used elsewhere", nested(1, used=True)),
    Refuses("transpose-transpose", "a single one", lambda b: b.call("transpose", b.input("x", 2, 3))),
    Refuses("transpose-transpose", "something in between",
            lambda b: b.call("transpose", b.call("exp", b.call("transpose", b.input("x", 2, 3))))),
    Refuses("reshape-reshape", "a single one", reshapes((2, 3), (6,))),
    Refuses("reshape-reshape", "codes that refer to a tensor of unknown shape", untyped_reshapes),
    Refuses("reshape-identity", "another shape", reshapes((2, 3), (3, 2))),
    Refuses("reshape-identity", "equal for some sizes only", reshapes((B, S), (S, B))),
    Refuses("cast-cast", "fractions are lost", casts("float32", "int32", "float32")),
    Refuses("cast-cast", "bits are lost", casts("float32", "float16", "float32")),
    Refuses("cast-cast", "bits of an integer are lost", casts("int64", "float64", "int64")),
    Refuses("cast-cast", "integer in a half", casts("int16", "float16", "float32")),
    Refuses("cast-cast", "one half in the other", casts("float16", "bfloat16", "float32")),
    Refuses("cast-cast", "truncation", casts("int64", "int8", "int64")),
    Refuses("cast-cast", "the sign is lost", casts("int8", "uint8", "int32")),
    Refuses("cast-cast", "all but the truth is lost", casts("int32", "bool", "int32")),
    Refuses("cast-cast", "to an integer beyond whose range it is not defined", casts("float32", "float64", "int8")),
    Refuses("cast-cast", "negative numbers to unsigned by way of a float", casts("int8", "float32", "uint8")),
    Refuses("cast-identity", "another dtype", casts("float32", "float64")),
    Refuses("dropout-identity", "another operator", lambda b: b.call("nn.relu", b.input("x", 2, 3))),
    Refuses("copy-identity", "another operator", lambda b: b.call("abs", b.input("x", 2, 3))),
    Refuses("dispatch-tuple", "a field of a call",
            lambda b: b.get(b.call("split", b.input("x", 4), indices_or_sections=2), 0)),
    Refuses("split-concat", "two fields of three", rejoined(0, 1, sections=3)),
    Refuses("split-concat", "the last two of three", rejoined(1, 2, sections=3)),
    Refuses("split-concat", "exchanged", rejoined(1, 0)),
    Refuses("split-concat", "one field twice", rejoined(0, 0)),
    Refuses("split-concat", "another axis", rejoined(0, 1, axis=1, other=0)),
    Refuses("split-concat", "two splits", two_splits),
    Refuses("split-concat-variadic", "two fields of three", rejoined(0, 1, sections=3)),
    Refuses("split-concat-variadic", "exchanged", rejoined(0, 2, 1, sections=3)),
    Refuses("split-concat-variadic", "one twice", rejoined(0, 1, 1, sections=3)),
    Refuses("split-concat-variadic", "another axis", rejoined(0, 1, 2, sections=3, axis=1, other=0)),
    Refuses("split-concat-variadic", "two splits", two_splits),
    Refuses("merge-element-wise", "different functions", joined("exp", "negative")),
    Refuses("merge-element-wise", "different attributes", joined("nn.leaky_relu", "nn.leaky_relu", alpha=0.5)),
    Refuses("merge-element-wise", "different dtypes", joined("exp", "exp", dtypes=("float32", "float64"))),
    Refuses("merge-element-wise", "not element-wise", joined("nn.softmax", "nn.softmax")),
    Refuses("merge-element-wise", "two operands", sums_joined),
    Refuses("merge-element-wise", "used elsewhere", joined_and_used(2)),
    Refuses("merge-element-wise-variadic", "one of three differs", joined("exp", "exp", "negative")),
    Refuses("merge-element-wise-variadic", "attributes differ", joined(*["nn.leaky_relu"] * 3, alpha=0.5)),
    Refuses("merge-element-wise-variadic", "dtypes differ",
            joined(*["exp"] * 3, dtypes=("float64",) * 2 + ("float32",))),
    Refuses("merge-element-wise-variadic", "used elsewhere", joined_and_used(3)),
)  # fmt: skip
