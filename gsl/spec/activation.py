"""Activations, softmax and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import Example, call
from gsl.spec.spec import AttrSpec, OpSpec, Trait

_ACTIVATION = Trait.ELEMENT_WISE | Trait.ACTIVATION


def _activation(
    name: str,
    cls: str,
    function: Callable[..., Any],
    attrs: dict[str, AttrSpec] | None = None,
    aliases: tuple[str, ...] = (),
    examples: tuple[Example, ...] = (call(e.X),),
    decompose: Callable[..., Any] | None = None,
    torch_names: str = "",
) -> OpSpec:
    """A function ``function(F, data, **attrs)`` of torch.nn.functional."""

    def meaning(torch: Any, data: Any, **values: Any) -> Any:
        return function(torch.nn.functional, data, **values)

    return OpSpec(name, cls, ("data",), meaning, attrs or {}, traits=_ACTIVATION, aliases=aliases, examples=examples,
                  decompose=decompose, torch_names=torch_names)  # fmt: skip


def _prelu(torch: Any, data: Any, alpha: Any, axis: int) -> Any:
    if alpha.dim() == 1:
        alpha = alpha.reshape(-1, *[1] * (data.dim() - 1 - axis))
    return torch.where(data > 0, data, alpha * data)


_AXIS = {"axis": AttrSpec(-1, n.axis())}
_ALPHAS = (0.01, 0.5, 1.0, -0.5, 2.0)
_WIDE = e.rand(2, 3, 4, low=-10.0, high=10.0)

OPS: tuple[OpSpec, ...] = (
    _activation("nn.relu", "ReLU", lambda F, x: F.relu(x), aliases=("Relu",)),
    _activation(
        "nn.relu6",
        "ReLU6",
        lambda F, x: F.relu6(x),
        aliases=("Relu6",),
        examples=(call(_WIDE),),
        decompose=lambda o, x: o("clip", x, a_min=0, a_max=6),
        torch_names="hardtanh",
    ),
    _activation(
        "nn.leaky_relu",
        "LeakyReLU",
        lambda F, x, alpha: F.leaky_relu(x, alpha),
        {"alpha": AttrSpec(0.01, n.real, candidates=_ALPHAS)},
        aliases=("LeakyRelu",),
        examples=(call(e.X, alpha=0.2),),
    ),
    _activation(
        "elu",
        "ELU",
        lambda F, x, alpha: F.elu(x, alpha),
        {"alpha": AttrSpec(1.0, n.real, candidates=_ALPHAS)},
        ("nn.elu",),
        (call(e.X, alpha=2),),
    ),
    _activation("selu", "SELU", lambda F, x: F.selu(x), aliases=("nn.selu",)),
    # "none" is x Phi(x), "tanh" its approximation.
    _activation(
        "gelu",
        "GELU",
        lambda F, x, approximate: F.gelu(x, approximate=approximate),
        {"approximate": n.word("none", "tanh")},
        ("nn.gelu", "Gelu"),
        (call(e.X), call(e.X, approximate="tanh")),
    ),
    _activation(
        "silu",
        "SiLU",
        lambda F, x: F.silu(x),
        aliases=("nn.silu", "swish", "Silu"),
        decompose=lambda o, x: o("multiply", x, o("sigmoid", x)),
    ),
    _activation("mish", "Mish", lambda F, x: F.mish(x), aliases=("nn.mish",)),
    _activation(
        "hardswish",
        "Hardswish",
        lambda F, x: F.hardswish(x),
        None,
        ("nn.hardswish",),
        (call(_WIDE),),
        lambda o, x: o("divide", o("multiply", x, o("nn.relu6", o("add", x, 3.0))), 6.0),
    ),
    _activation(
        "hardsigmoid",
        "Hardsigmoid",
        lambda F, x: F.hardsigmoid(x),
        None,
        ("nn.hardsigmoid",),
        (call(_WIDE),),
        lambda o, x: o("divide", o("nn.relu6", o("add", x, 3.0)), 6.0),
    ),
    # log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold.
    _activation(
        "softplus",
        "Softplus",
        lambda F, x, beta, threshold: F.softplus(x, beta, threshold),
        {
            "beta": AttrSpec(1.0, n.real, candidates=(1.0, 0.5, 2.0)),
            "threshold": AttrSpec(20.0, n.real, candidates=(20.0, 1.0)),
        },
        ("nn.softplus",),
        (call(e.X, beta=2, threshold=2.5),),
    ),
    # alpha has one element for each element of the axis, or one for all.
    OpSpec(
        "nn.prelu",
        "PReLU",
        ("data", "alpha"),
        _prelu,
        {"axis": AttrSpec(1, n.axis())},
        aliases=("PRelu",),
        examples=(call(e.IMAGE, e.GAMMA), call(e.NHWC, e.GAMMA, axis=-1), call(e.IMAGE, e.unit(1))),
    ),
    OpSpec(
        "nn.softmax",
        "Softmax",
        ("data",),
        lambda torch, x, axis: torch.softmax(x, axis),
        _AXIS,
        examples=(call(e.X),),
        torch_names="_softmax",
    ),
    OpSpec(
        "nn.log_softmax",
        "LogSoftmax",
        ("data",),
        lambda torch, x, axis: torch.log_softmax(x, axis),
        _AXIS,
        examples=(call(e.X, axis=1),),
        torch_names="_log_softmax",
    ),
    # In inference, where it changes nothing.
    OpSpec(
        "nn.dropout",
        "Dropout",
        ("data",),
        lambda torch, x, rate: x,
        {"rate": AttrSpec(0.5, n.real, candidates=(0.5, 0.1))},
        traits=Trait.ELEMENT_WISE,
        examples=(call(e.X, rate=0.3),),
        torch_names="native_dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout",
    ),
)
