"""The default optimisation rules of cirkit, for parameters and for layers, as rules of GSL.

Inner layers and parameter nodes have one user, as everywhere in cirkit. A circuit is walked from its outputs, and of
the rules that match at a layer the largest wins.
"""

from __future__ import annotations

from cirkit.backend.torch.layers import TorchHadamardLayer, TorchKroneckerLayer, TorchSumLayer, TorchTuckerLayer
from cirkit.backend.torch.layers.optimized import TorchCPTLayer, TorchTensorDotLayer
from cirkit.backend.torch.parameters.nodes import (
    TorchFlattenParameter,
    TorchKroneckerParameter,
    TorchLogParameter,
    TorchLogSoftmaxParameter,
    TorchMatMulParameter,
    TorchOuterProductParameter,
    TorchReduceSumParameter,
    TorchSoftmaxParameter,
)
from cirkit.backend.torch.parameters.optimized import TorchEinsumParameter

from gsl import Match, RuleSet, Subst, Within, Workload, attr, inside, is_op, pat
from tests.cirkit.circuits import Item, parameter


def log_softmax() -> Subst:
    """log(softmax(x)) = log_softmax(x)"""
    x = pat.Wildcard()
    softmax = pat.Call(TorchSoftmaxParameter, x)
    fused = pat.Call(TorchLogSoftmaxParameter, x, in_shape=softmax.in_shape, dim=softmax.dim)
    return Subst(pat.Call(TorchLogParameter, softmax), fused, extern_use=False, name="log_softmax")


def sum_of_outer_product() -> Subst:
    """sum_i (a ⊗ b) = einsum(a, b), with the two axes of the product flattened where they remain"""
    a, b = pat.Wildcard(), pat.Wildcard()
    outer = pat.Call(TorchOuterProductParameter, a, b)
    total = pat.Call(TorchReduceSumParameter, outer)

    def target(match: Match) -> pat.Pattern:
        first, second = match[outer].attrs["in_shape1"], match[outer].attrs["in_shape2"]
        shared, reduced, rank = match[outer].attrs["dim"], match[total].attrs["dim"], len(first)
        # The axis along which the product is taken has two numbers, one for each of a and b; the product has both
        # side by side, as one axis.
        of_b = [rank if axis == shared else axis for axis in range(rank)]
        kept = [[axis, rank] if axis == shared else [axis] for axis in range(rank) if axis != reduced]
        result = [axis for group in kept for axis in group]
        einsum = pat.Call(
            TorchEinsumParameter, a, b,
            in_shapes=(first, second), einsum=(tuple(range(rank)), tuple(of_b), tuple(result)),
        )  # fmt: skip
        if shared == reduced:
            return einsum
        place = kept.index([shared, rank])
        sizes = tuple(second[shared] if axis == rank else first[axis] for axis in result)
        return pat.Call(TorchFlattenParameter, einsum, in_shape=sizes, start_dim=place, end_dim=place + 1)

    return Subst(total, target, where=attr.Len(outer.in_shape1) <= 4, extern_use=False, name="sum_of_outer_product")


def sum_collapse() -> Subst:
    """A (B x) = (A B) x"""
    inner = is_op(TorchSumLayer)
    outer = pat.Call(TorchSumLayer, inner, arity=1)

    def target(match: Match) -> pat.Pattern:
        (left,), (right,) = match[outer].attrs["weight"].native, match[inner].attrs["weight"].native
        product = Item(TorchMatMulParameter(left.module.shape, right.module.shape), (left, right))
        return pat.Call(
            TorchSumLayer, *match[inner].args, num_input_units=inner.num_input_units,
            num_output_units=outer.num_output_units, arity=inner.arity, weight=parameter([product]),
        )  # fmt: skip

    return Subst(outer, target, extern_use=False, name="sum_collapse")


def sum_of_product(product: type, fused: type, name: str) -> Subst:
    """A sum over a product of layers is one layer"""
    inner = is_op(product)
    outer = pat.Call(TorchSumLayer, inner, arity=1)

    def target(match: Match) -> pat.Pattern:
        return pat.Call(
            fused, *match[inner].args, num_input_units=inner.num_input_units, num_output_units=outer.num_output_units,
            arity=inner.arity, weight=outer.weight,
        )  # fmt: skip

    return Subst(outer, target, extern_use=False, name=name)


def shatter(layer: pat.Pattern, x: pat.Pattern, name: str) -> Subst:
    """(A ⊗ B) x = two smaller products, one with A and one with B"""
    kronecker = is_op(TorchKroneckerParameter)
    weight = Within(layer.weight, kronecker.is_output())

    def target(match: Match) -> pat.Pattern:
        a, b = (parameter([node.native]) for node in weight.of(match)[kronecker].args)
        height, width = shape(a)
        between = height * (match[layer].attrs["num_input_units"] // width)
        first = pat.Call(
            TorchTensorDotLayer, x, num_input_units=layer.num_input_units, num_output_units=between, weight=a
        )
        return pat.Call(
            TorchTensorDotLayer, first, num_input_units=between, num_output_units=layer.num_output_units, weight=b
        )

    return Subst(layer, target, where=weight, name=name)


def shape(weight: Workload) -> tuple[int, int]:
    """The shape of the matrix that a parameter's graph computes."""
    (output,) = weight.native
    return output.module.shape


def parameters() -> RuleSet:
    """The rules for the graphs of parameters."""
    return RuleSet([log_softmax(), sum_of_outer_product()], strategy="last")


def shattering() -> RuleSet:
    """The rules that make several layers of one."""
    x, y = pat.Wildcard(), pat.Wildcard()
    dense, tensordot = pat.Call(TorchSumLayer, x, arity=1), pat.Call(TorchTensorDotLayer, y)
    return RuleSet([shatter(dense, x, "dense"), shatter(tensordot, y, "tensordot")], strategy="last")


def fusing() -> RuleSet:
    """The rules that make one layer of several."""
    tucker = sum_of_product(TorchKroneckerLayer, TorchTuckerLayer, "tucker")
    candecomp = sum_of_product(TorchHadamardLayer, TorchCPTLayer, "candecomp")
    return RuleSet([sum_collapse(), tucker, candecomp], strategy="last")


def turns() -> list[Subst | RuleSet]:
    """All rules, in the order in which they take turns."""
    return [inside(parameters(), name="parameters"), shattering(), fusing()]
