"""Circuits of cirkit's templates, and others that reach every rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cirkit.symbolic import functional
from cirkit.symbolic.circuit import Circuit
from cirkit.symbolic.initializers import UniformInitializer
from cirkit.symbolic.layers import EmbeddingLayer, HadamardLayer, SumLayer
from cirkit.symbolic.parameters import (
    ExpParameter,
    LogParameter,
    OuterProductParameter,
    Parameter,
    ReduceSumParameter,
    SoftmaxParameter,
    TensorParameter,
)
from cirkit.templates import data_modalities, pgms, tensor_factorizations
from cirkit.templates.utils import Parameterization
from cirkit.utils.scope import Scope

STATES = 3
"""How many values the inputs of a circuit take."""
PLAIN, LOG = "sum-product", "lse-sum"


def image(regions: str, layers: str, inputs: str = "categorical", size: int = 4, weights: str = "softmax") -> Circuit:
    """A circuit over the pixels of a small image."""
    return data_modalities.image_data(
        (1, size, size), regions, input_layer=inputs, num_input_units=2, sum_product_layer=layers, num_sum_units=2,
        sum_weight_param=Parameterization(activation=weights, initialization="normal"),
    )  # fmt: skip


def power(circuit: Circuit, exponent: int) -> Circuit:
    """A circuit times itself, whose weights are Kronecker products."""
    result = circuit
    for _ in range(exponent - 1):
        result = functional.multiply(result, circuit)
    return result


def modulus() -> Circuit:
    """The squared modulus of a circuit with complex weights."""
    weights = Parameterization(dtype="complex", initialization="normal")
    circuit = data_modalities.image_data(
        (1, 2, 2), "quad-tree-2", input_layer="embedding", num_input_units=2, sum_product_layer="cp",
        num_sum_units=2, sum_weight_param=weights,
    )  # fmt: skip
    return functional.multiply(circuit, functional.conjugate(circuit))


def positive(*shape: int) -> TensorParameter:
    """A weight of numbers between 0.1 and 1."""
    return TensorParameter(*shape, initializer=UniformInitializer(0.1, 1.0))


def markov() -> Circuit:
    """A hidden Markov model of four steps."""
    return pgms.hmm([0, 1, 2, 3], num_latent_states=3, input_layer_kwargs={"num_categories": STATES})


def two_outputs() -> Circuit:
    """Two circuits over the same variables, side by side."""
    return functional.concatenate([image("quad-tree-2", layers, size=2) for layers in ("cp", "tucker")])


def chain(sums: int) -> Circuit:
    """Sums on top of each other, above a product of two inputs."""
    layers: list[Any] = [*_leaves(), HadamardLayer(2, arity=2)]
    below: dict[Any, list[Any]] = {layers[-1]: layers[:2]}
    for number in range(sums):
        width, height = 2 + number % 3, 2 + (number + 1) % 3
        layer = SumLayer(width, height, arity=1, weight=_weight(height, width))
        below[layer] = [layers[-1]]
        layers.append(layer)
    return Circuit(layers, below, [layers[-1]])


def shared_product() -> Circuit:
    """Two sums over one product, so that the product has two users and stays."""
    leaves = _leaves()
    product = HadamardLayer(2, arity=2)
    sums = [SumLayer(2, 2, arity=1, weight=_weight(2, 2)) for _ in range(2)]
    top = SumLayer(2, 1, arity=2, weight=_weight(1, 4))
    below = {product: leaves, sums[0]: [product], sums[1]: [product], top: sums}
    return Circuit([*leaves, product, *sums, top], below, [top])


def output_within() -> Circuit:
    """A sum over a product that is an output itself."""
    leaves = _leaves()
    product, total = HadamardLayer(2, arity=2), SumLayer(2, 2, arity=1, weight=_weight(2, 2))
    return Circuit([*leaves, product, total], {product: leaves, total: [product]}, [total, product])


def weighted(weight: Parameter) -> Circuit:
    """An input and a sum with the given weight, a matrix."""
    height, width = weight.shape
    leaf = EmbeddingLayer(Scope([0]), width, num_states=STATES, weight=_weight(width, STATES))
    layer = SumLayer(width, height, arity=1, weight=weight)
    return Circuit([leaf, layer], {layer: [leaf]}, [layer])


def exp_log_softmax() -> Parameter:
    """exp(log(softmax(w))), of which the inner two can be joined."""
    shape = (2, 4)
    return Parameter.from_sequence(
        positive(*shape), SoftmaxParameter(shape), LogParameter(shape), ExpParameter(shape)
    )


def outer_sum(axis: int, reduced: int) -> Circuit:
    """A weight that is the outer product of two tensors of three axes along one of them, and the sum of it over one."""
    first = (2, 3, 4)
    second = tuple(5 if number == axis else size for number, size in enumerate(first))
    product = OuterProductParameter(first, second, axis=axis)
    total = ReduceSumParameter(product.shape, axis=reduced)
    return weighted(Parameter.from_unary(total, Parameter.from_binary(product, positive(*first), positive(*second))))


def _leaves() -> list[Any]:
    """An input layer for each of two variables."""
    return [EmbeddingLayer(Scope([v]), 2, num_states=STATES, weight=_weight(2, STATES)) for v in (0, 1)]


def _weight(*shape: int) -> Parameter:
    return Parameter.from_input(positive(*shape))


CASES: dict[str, tuple[str, Callable[[], Circuit]]] = {
    "cp, quad tree": (LOG, lambda: image("quad-tree-2", "cp")),
    "cp-t, quad tree of four": (PLAIN, lambda: image("quad-tree-4", "cp-t")),
    "tucker, quad tree": (LOG, lambda: image("quad-tree-2", "tucker")),
    "cp, quad graph": (PLAIN, lambda: image("quad-graph", "cp", size=3)),
    "tucker, quad graph": (PLAIN, lambda: image("quad-graph", "tucker", "embedding")),
    "cp-t, poon-domingos": (LOG, lambda: image("poon-domingos", "cp-t", size=2)),
    "cp, poon-domingos": (PLAIN, lambda: image("poon-domingos", "cp", size=2)),
    "cp, random tree, gaussian": (LOG, lambda: image("random-binary-tree", "cp", "gaussian", size=3)),
    "tucker, linear tree": (LOG, lambda: image("linear-tree", "tucker", size=3)),
    "tensor train": (PLAIN, lambda: tensor_factorizations.tensor_train((3, 4, 3), 2)),
    "tucker factorisation": (PLAIN, lambda: tensor_factorizations.tucker((3, 4, 3), 2)),
    "hidden markov model": (LOG, markov),
    "square, cp": (LOG, lambda: power(image("quad-tree-2", "cp", size=2), 2)),
    "square, tucker": (PLAIN, lambda: power(image("quad-tree-2", "tucker", "embedding", size=2), 2)),
    "square, gaussian": (PLAIN, lambda: power(image("quad-tree-2", "cp-t", "gaussian", size=2), 2)),
    "cube": (PLAIN, lambda: power(image("quad-tree-2", "cp", "embedding", size=2), 3)),
    "partition function of a square": (LOG, lambda: functional.integrate(power(image("quad-tree-2", "cp", size=2), 2))),
    "marginal": (LOG, lambda: functional.integrate(image("quad-tree-2", "tucker", size=2), Scope([0, 1]))),
    "evidence": (LOG, lambda: functional.evidence(image("quad-tree-2", "cp", size=2), {0: 3, 1: 4})),
    "two outputs": (LOG, two_outputs),
    "shared product": (LOG, shared_product),
    "exp of log of softmax": (LOG, lambda: weighted(exp_log_softmax())),
    **{f"{sums} sums": (LOG, partial(chain, sums)) for sums in (*range(1, 8), 70)},
    **{
        f"outer product along {axis}, sum over {reduced}": (PLAIN, partial(outer_sum, axis, reduced))
        for axis in range(3)
        for reduced in range(3)
    },
}
"""By name: the semiring in which the circuit is evaluated, which for logarithms must have no negative weights."""
