"""Rules for quantised programs of torch, as PT2E writes them.

They remove what is quantised or dequantised twice, and make one call of a layer between operands that are dequantised,
with its bias, a term that is added, an activation, and the quantisation of its result. What is left to quantise and to
dequantise is so by kernels. They do so step by step, so apply them until nothing changes (``iterative=True``). They are
for inference on a CPU; the operators are those of ``gsl.operators.quantised``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gsl import attr, op, pat
from gsl.operators import quantised as q
from gsl.rewrite import RuleSet, Subst
from gsl.rules.common import RuleSides, fields, rule
from gsl.rules.packed import activated, by_activation, conv

SCHEME = ("scale", "zero_point", "quant_min", "quant_max", "dtype")
"""The attributes that tell how numbers are quantised. The first two may be tensors instead."""


def _either(*functions: Any) -> Callable[..., pat.Call]:
    """Calls of torch's function, or of one kernel."""
    return partial(pat.Call, pat.OneOf(*functions, joint=False))


quantising, dequantising = _either(q.quantise, q.quantised), _either(q.dequantise, q.dequantised)
quantising_dynamic = _either(q.quantise_dynamic, q.quantised_dynamic)
dequantising_dynamic = _either(q.dequantise_dynamic, q.dequantised_dynamic)


def back(data: pat.Pattern, **scheme: Any) -> tuple[pat.Call, pat.Call]:
    """The dequantised tensor, and that tensor quantised again in the same way."""
    floats = dequantising(data, **scheme)
    return floats, quantising(floats, **pat.same_attr(floats, SCHEME))


def usual(floats: pat.Call) -> attr.Expr:
    """True for a scale with which no number overflows, nor is lost, and a zero that single precision holds."""
    scale = (floats.scale > 1e-30) & (floats.scale < 1e30)
    return scale & (floats.zero_point >= -255) & (floats.zero_point <= 255)


def every_number(again: pat.Call, x: pat.Pattern) -> attr.Expr:
    """True for a call that quantises to all numbers of its dtype, which is that of ``x``."""
    byte = (again.dtype == "uint8") & (again.quant_min == 0) & (again.quant_max == 255)
    signed = (again.dtype == "int8") & (again.quant_min == -128) & (again.quant_max == 127)
    return (byte | signed) & (x.dtype == again.dtype)


def once(function: Any, *scheme: pat.Pattern) -> RuleSides:
    x = pat.Wildcard()
    first, second = function(x, *scheme), function(x, *scheme)
    return [first, second], [first, first], pat.attr_eq(first, second)


@rule(priority=1)
def quantise_again() -> RuleSides:
    """q(dq(q(x))) = q(x)

    For one way to quantise.
    """
    x = pat.Wildcard()
    first = quantising(x)
    floats, second = back(first, **pat.same_attr(first, SCHEME))
    return second, first, usual(floats)


@rule()
def quantise_dequantised() -> RuleSides:
    """q(dq(x)) = x

    For one way to quantise, which uses all numbers of the dtype.
    """
    x = pat.Wildcard()
    floats, again = back(x)
    return again, x, every_number(again, x), usual(floats)


def between(move: Callable[[pat.Pattern], pat.Call]) -> RuleSides:
    """f(x) for q(f(dq(x))), where f moves elements."""
    x = pat.Wildcard()
    floats = dequantising(x)
    moved = move(floats)
    again = quantising(moved, **pat.same_attr(floats, SCHEME))
    return again, moved.like(x), every_number(again, x), usual(floats), moved.extern_use(False)


@rule()
def quantise_reshaped() -> RuleSides:
    """q(reshape(dq(x))) = reshape(x)

    As quantise-dequantised.
    """
    return between(op.Reshape)


@rule()
def quantise_transposed() -> RuleSides:
    """q(transpose(dq(x))) = transpose(x)

    As quantise-dequantised.
    """
    return between(op.Transpose)


@rule()
def quantise_concatenated() -> RuleSides:
    """q(concatenate(dq(x0), dq(x1), …)) = concatenate(x0, x1, …)

    As quantise-dequantised.
    """
    x0 = pat.Wildcard()
    x, first = pat.Wildcard(dtype=x0.dtype), dequantising(x0)
    floats = dequantising(x, **pat.same_attr(first, SCHEME))
    parts = pat.Variadic(floats, templates=[floats, x], first=[first, x0], min_len=2)
    joined = op.Concatenate(parts)
    again = quantising(joined, **pat.same_attr(first, SCHEME))
    return again, joined.like(fields(parts, x)), every_number(again, x0), usual(first), joined.extern_use(False)


@rule()
def quantise_once() -> RuleSides:
    """q(x), q(x) = q(x)

    For one way to quantise.
    """
    return once(quantising)


@rule()
def dequantise_once() -> RuleSides:
    """dq(x), dq(x) = dq(x)

    For one way to dequantise.
    """
    return once(dequantising)


@rule()
def quantise_once_dynamic() -> RuleSides:
    """q(x, s, z), q(x, s, z) = q(x, s, z)

    For one way to quantise, and a scale and a zero that are tensors.
    """
    return once(quantising_dynamic, pat.Wildcard(), pat.Wildcard())


@rule()
def dequantise_once_dynamic() -> RuleSides:
    """dq(x, s, z), dq(x, s, z) = dq(x, s, z)

    For one way to dequantise, and a scale and a zero that are tensors.
    """
    return once(dequantising_dynamic, pat.Wildcard(), pat.Wildcard())


def by_kernel(function: Any, kernel: Any, *scheme: pat.Pattern) -> RuleSides:
    """A call of torch's function as a call of one kernel, where no other rule takes it."""
    x = pat.Wildcard()
    call = function(x, *scheme)
    return call, kernel(x, *scheme, **pat.same_attr(call, SCHEME[len(scheme) :]))


@rule(priority=-1)
def quantise_by_kernel() -> RuleSides:
    """q(x) = q(x)

    By one kernel.
    """
    return by_kernel(q.quantise, q.quantised)


@rule(priority=-1)
def dequantise_by_kernel() -> RuleSides:
    """dq(x) = dq(x)

    By one kernel.
    """
    return by_kernel(q.dequantise, q.dequantised)


@rule(priority=-1)
def quantise_dynamic_by_kernel() -> RuleSides:
    """q(x, s, z) = q(x, s, z)

    By one kernel, for a scale and a zero that are tensors.
    """
    return by_kernel(q.quantise_dynamic, q.quantised_dynamic, pat.Wildcard(), pat.Wildcard())


@rule(priority=-1)
def dequantise_dynamic_by_kernel() -> RuleSides:
    """dq(x, s, z) = dq(x, s, z)

    By one kernel, for a scale and a zero that are tensors.
    """
    return by_kernel(q.dequantise_dynamic, q.dequantised_dynamic, pat.Wildcard(), pat.Wildcard())


def pairs(quantise: Any, dequantise: Any, name: str) -> tuple[Subst, ...]:
    """The same rules for two operators of any framework, which take a scale and a zero as tensors.

    They fire where these are literals without axes. ``quantise`` has to use all numbers of its dtype. ``name`` is the
    beginning of the rules' names.
    """
    first, second = _Literals(), _Literals()
    x = pat.Wildcard()
    floats = pat.Call(dequantise, x, first.scale, first.zero)
    again = pat.Call(quantise, floats, second.scale, second.zero)
    is_same = first.equal(second)
    is_byte = attr.In(x.dtype, ("uint8", "int8")) & (x.dtype == again.dtype) & (floats.dtype == "float32")
    is_usual = (first.scale.value > 1e-30) & (first.scale.value < 1e30)
    where = [is_same, is_byte, is_usual]
    found = [Subst(again, x, where=where, name=f"{name}-quantise-dequantised", doc="q(dq(x)) = x")]
    for own, title in ((quantise, "quantise"), (dequantise, "dequantise")):
        one, two = pat.Call(own, x, first.scale, first.zero), pat.Call(own, x, second.scale, second.zero)
        found.append(Subst([one, two], [one, one], where=[is_same, pat.attr_eq(one, two)], name=f"{name}-{title}-once",
                           doc="for one way to quantise"))
    return tuple(found)


class _Literals:
    """A scale and a zero that are literals without axes."""

    def __init__(self) -> None:
        self.scale, self.zero = pat.Const(ndim=0), pat.Const(ndim=0)

    def equal(self, other: _Literals) -> attr.Expr:
        return (self.scale.value == other.scale.value) & (self.zero.value == other.zero.value)


# Layers


Product = Callable[[pat.Pattern, pat.Pattern], pat.Call]
"""The product of data and a weight."""


@dataclass(frozen=True, slots=True)
class LayerCall:
    """A quantised layer as a call of one operator."""

    name: str
    operator: Any
    dequantise: Any
    product: Product
    window: Callable[[pat.Call], dict[str, attr.Expr]]
    """The attributes of the call that follow from a product."""
    where: Callable[[pat.Call], tuple[attr.Expr, ...]]
    """The conditions on a product."""
    axis: Callable[[pat.Call], Any]
    """The axis on which a result has the channels."""
    is_dynamic: bool = False

    def rules(self) -> tuple[Subst, ...]:
        """The product becomes a call, and what stands behind a call becomes a part of it."""
        x, w = pat.Wildcard(dtype="uint8"), pat.Param(dtype="int8")
        scales, zeros, b = pat.Param(dtype="float32"), pat.Param(), pat.Param(dtype="float32")
        tensors = (pat.Wildcard(), pat.Wildcard()) if self.is_dynamic else ()
        other = pat.Wildcard(dtype="float32")
        plain = x, w, scales, zeros, *tensors
        bare, biased = self._call(*plain, activation="none"), self._call(*plain, b, activation="none")
        made = [
            self._product("", *plain),
            self._product("weight", x, q.quantise_channels(pat.Param(), scales, zeros, dtype="int8"), *plain[2:]),
            self._rule("bias", op.BiasAdd(bare, b, axis=self.axis(bare)), bare.like(*plain, b), bare.extern_use(False)),
            self._rule("sum", biased + other, biased.like(*plain, b, other), biased.extern_use(False),
                       other.shape == biased.shape),
        ]  # fmt: skip
        for form, operands in (("", plain), ("bias", (*plain, b)), ("sum", (*plain, b, other))):
            made.append(self._activated(form, operands))
            if not self.is_dynamic:
                made.append(self._quantised(form, operands))
        return tuple(made)

    def _call(self, *operands: pat.Pattern, **attrs: Any) -> pat.Call:
        """A call of which the result is not quantised, and what is added is not dequantised."""
        call: pat.Call = self.operator(*operands, out_scale=None, other_scale=1.0, other_zero=0, **attrs)
        return call

    def _product(self, form: str, x: pat.Pattern, w: Any, *rest: pat.Pattern) -> Subst:
        """The rule for the product. A weight that the program quantises itself is so once, as a new parameter."""
        scales, zeros, *tensors = rest
        data = self.dequantise(x, *tensors)
        found = self.product(data, q.dequantise_channels(w, scales, zeros, axis=0))
        scheme = {} if self.is_dynamic else {"scale": data.scale, "zero_point": data.zero_point}
        small = w.like(*w.operands) if form else w
        call = self.operator(x, small, *rest, **scheme, **self.window(found))
        return self._rule(form, found, call, *self.where(found))

    def _activated(self, form: str, operands: Sequence[pat.Pattern]) -> Subst:
        call = self._call(*operands, activation="none")
        f = activated(call)
        new = by_activation(f, lambda name: call.like(*operands, activation=name))
        return self._rule(f"{form} activation", f, new, call.extern_use(False))

    def _quantised(self, form: str, operands: Sequence[pat.Pattern]) -> Subst:
        """The rule for a result that is quantised. What is added is dequantised then, as the kernel demands."""
        given, scheme = list(operands), {}
        if form == "sum":
            small_other = pat.Wildcard(dtype="uint8")
            second = dequantising(small_other)
            operands, given[-1] = (*operands[:-1], small_other), second
            scheme = {"other_scale": second.scale, "other_zero": second.zero_point}
        call = self._call(*given)
        small = quantising(call, dtype="uint8", quant_min=0, quant_max=255)
        new = call.like(*operands, **scheme, out_scale=small.scale, out_zero=small.zero_point)
        return self._rule(f"{form} quantised", small, new, call.extern_use(False), usual(small))

    def _rule(self, form: str, source: Any, target: Any, *where: Any) -> Subst:
        parts = form.split()
        doc = f"{self.name} of dequantised operands{''.join(f', {part}' for part in parts)} = one quantised call"
        name = "-".join(("quantised", self.name, *parts))
        return Subst(source, target, where=list(where), name=name, doc=doc, priority=2)


def _symmetric(found: pat.Call) -> tuple[attr.Expr, ...]:
    padding = found.padding
    return padding[0] == padding[2], padding[1] == padding[3]


def _window(found: pat.Call) -> dict[str, attr.Expr]:
    padding = attr.Tuple(found.padding[0], found.padding[1])
    return {"stride": found.strides, "padding": padding, "dilation": found.dilation, "groups": found.groups}


def _dense(name: str, call: Any, dequantise: Any, *, is_dynamic: bool = False) -> LayerCall:
    return LayerCall(
        name, call, dequantise, lambda data, weight: op.Dense(data, weight, out_dtype=""), lambda found: {},
        lambda found: (), lambda call: call.ndim - 1, is_dynamic,
    )  # fmt: skip


def _conv(name: str, call: Any, dequantise: Any, *, is_dynamic: bool = False) -> LayerCall:
    return LayerCall(name, call, dequantise, conv, _window, _symmetric, lambda call: 1, is_dynamic)


LAYERS = (
    _dense("dense", q.quantised_linear, dequantising),
    _conv("conv", q.quantised_conv2d, dequantising),
    _dense("dynamic-dense", q.quantised_linear_dynamic, dequantising_dynamic, is_dynamic=True),
    _conv("dynamic-conv", q.quantised_conv2d_dynamic, dequantising_dynamic, is_dynamic=True),
)
SHARED = (
    quantise_by_kernel, dequantise_by_kernel, quantise_dynamic_by_kernel, dequantise_dynamic_by_kernel,
    quantise_again, quantise_dequantised, quantise_reshaped, quantise_transposed, quantise_concatenated,
    quantise_once, dequantise_once, quantise_once_dynamic, dequantise_once_dynamic,
)  # fmt: skip
ONNX = pairs("onnx::QuantizeLinear", "onnx::DequantizeLinear", "onnx")
QUANTISED = RuleSet((*SHARED, *ONNX, *(rule for layer in LAYERS for rule in layer.rules())))
"""The rules for quantised programs."""
