"""Rules that make one module of a convolution or dense layer and the calls that follow it, in traced graphs.

One table: the kinds of layers, and what may follow them. A batch norm is absorbed into the weights; an addition and an
activation become part of the module, which is one of ``gsl.modules``, or torch's plain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gsl import op, pat
from gsl.graph import dtype_name
from gsl.match import Match
from gsl.rewrite import RuleSet, Subst
from gsl.rules.common import channels_first, weight


@dataclass(frozen=True)
class Layer:
    """A kind of layer: its module in torch, its operator, and the layouts that a kernel may have."""

    module: str
    operator: str
    kernel: tuple[str, ...] = ()

    @property
    def transposed(self) -> bool:
        """True if the input channels are the first axis of the weight."""
        return self.operator.endswith("_transpose")


LAYERS: dict[str, Layer] = {
    "conv2d": Layer("Conv2d", "nn.conv2d", ("OIHW",)),
    "conv-transpose2d": Layer("ConvTranspose2d", "nn.conv2d_transpose", ("IOHW",)),
    "conv3d": Layer("Conv3d", "nn.conv3d", ("OIDHW",)),
    "linear": Layer("Linear", "nn.dense"),
}
"""The layers, by their names in the names of the rules."""

FOLLOWERS: tuple[str, ...] = ("bn", "relu", "add", "bn-relu", "bn-add", "add-relu", "bn-add-relu")
"""The operators that may follow a layer; ``relu`` stands for the activations."""

ACTIVATIONS: dict[str, str] = {"nn.relu": "relu", "nn.relu6": "relu6"}
"""The activations, with their names in ``gsl.modules``."""

NORMS = frozenset(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"))


class UnreadNorm(pat.OpClass):
    """The batch norms that are loaded as modules, because they use the statistics of the batch."""

    def __init__(self) -> None:
        super().__init__("a batch norm in training", None)

    def accepts(self, op: Any) -> bool:
        return isinstance(op, type) and op.__name__ in NORMS and op.__module__.startswith("torch.nn.")


class ModuleFusion:
    """One entry of the table: the patterns of its rule, the conditions, and the module that is made of a match."""

    def __init__(self, layer: Layer, followers: Sequence[str]) -> None:
        self.layer = layer
        self.x, self.w, self.b, self.other = pat.Wildcard(), pat.Param(), weight(), pat.Wildcard()
        self.statistics = tuple(weight() for _ in range(4))
        self.product = pat.Call(layer.operator, self.x, self.w, out_dtype="")
        self.biased = op.BiasAdd(self.product, self.b)
        self.norm: pat.Pattern | None = None
        self.unread: pat.Pattern | None = None
        self.sum: pat.Pattern | None = None
        self.activation: pat.Pattern | None = None
        result = _passed_on(self.biased | self.product)
        if "bn" in followers:
            self.norm = op.BatchNorm(result, *self.statistics)
            self.unread = pat.Call(UnreadNorm(), result)
            result = _passed_on(self.norm | self.unread)
        if "add" in followers:
            self.sum = op.Add(result, self.other)
            result = _passed_on(self.sum)
        if "relu" in followers:
            self.activation = pat.Call(pat.OneOf(*ACTIVATIONS), result)
            result = _passed_on(self.activation)
        self.source = result

    def rule(self, name: str, doc: str) -> Subst:
        """The rule, with that name and text."""
        conditions: list[Any] = [self.in_inference, self.is_apart, self.has_module, self.is_absorbed, self.is_equal]
        if self.layer.kernel:
            conditions.append(channels_first(self.product, self.layer.kernel))
        operands = (self.x,) if self.sum is None else (self.x, self.other)
        target = pat.Module(self.fused, *operands)
        return Subst(self.source, target, where=conditions, name=name, doc=doc, extern_use=False)

    # ------------------------------------------------------------ conditions

    def in_inference(self, match: Match) -> bool | str:
        """True if nothing that was matched belongs to a module in training mode; the reason if something does."""
        from torch import fx

        from gsl.front.fx.handle import in_training, native_of

        for node in match.inner:
            native: object = native_of(node)
            if native is None:
                continue
            if not isinstance(native, fx.Node):
                return "modules are called by traced graphs of torch only"
            if in_training(native):
                return f"%{node.name} is in training mode: call eval() on the module first"
        if self.unread is not None and self.unread in match:
            return f"%{match[self.unread].name} has no running statistics"
        return True

    def is_apart(self, match: Match) -> bool | str:
        """True if the match is not one module already, and no part of a module that was fused with another layer; the
        reason if not."""
        from gsl.front.fx.handle import called, native_of
        from gsl.modules import FusedModule

        own = native_of(match[self.product])
        natives = {native_of(node) for node in match.inner}
        if natives == {own} and own is not None:
            return f"%{match.outputs[0].name} is one module already"
        for native in natives - {own, None}:
            assert native is not None
            if isinstance(called(native), FusedModule):
                return f"%{native.name} is one module with another layer already"
        return True

    def has_module(self, match: Match) -> bool | str:
        """True if a module of torch can be the layer; the reason if none can."""
        product = match[self.product]
        if self.layer.kernel and self._padding(match) is None:
            return f"%{product.name} pads with {product.attrs['padding']}, which no {self.layer.module} does"
        if not match[self.w].attrs["value"].is_floating_point():
            return f"%{match[self.w].name} has no floating-point dtype"
        if self.biased in match and not self._is_channel(match, match[self.biased].attrs["axis"]):
            return f"%{match[self.biased].name} adds its bias to another axis than that of the channels"
        return True

    def is_absorbed(self, match: Match) -> bool | str:
        """True if the batch norm is over the channels, and computed in the dtype of the weights; the reason if not."""
        if self.norm is None:
            return True
        norm, weights = match[self.norm], [self.w, *self.statistics, *([self.b] if self.biased in match else [])]
        dtypes = {dtype_name(match[each].attrs["value"].dtype) for each in weights}
        if not self._is_channel(match, norm.attrs["axis"]):
            return f"%{norm.name} normalises another axis than that of the channels, or one of unknown number"
        if len(dtypes) > 1 or not dtypes < {"float32", "float64"}:
            return f"the weights are {' and '.join(sorted(dtypes))}, expected all float32 or all float64"
        return True

    def is_equal(self, match: Match) -> bool | str:
        """True if the addition is of two tensors of equal type; the reason if not."""
        if self.sum is None:
            return True
        other, whole = match[self.other], match[self.sum]
        if other in match.inner:
            return f"%{whole.name} adds the result of the layer to itself"
        if other.type is None or whole.type is None:
            return "the types of what is added are not known: give example inputs when loading"
        own = next(operand for operand in whole.operands if operand is not other)
        if not own.type == other.type == whole.type:
            return f"%{whole.name} adds {own.type} and {other.type}, expected equal types"
        return True

    def _is_channel(self, match: Match, axis: Any) -> bool:
        """True if an axis of the layer's result is that of the channels."""
        if self.layer.kernel:
            return bool(axis == 1)
        ndim = match[self.product].ndim
        return axis == -1 or (ndim is not None and axis == ndim - 1)

    def _padding(self, match: Match) -> Any:
        """The padding as a module takes it, ``None`` if it takes no such padding."""
        attrs = match[self.product].attrs
        given = attrs["padding"]
        before, after = given[: len(given) // 2], given[len(given) // 2 :]
        if before == after:
            return before
        sizes = [d * (k - 1) for d, k in zip(attrs["dilation"], match[self.w].attrs["value"].shape[2:])]
        same = (tuple([size // 2 for size in sizes]), tuple([size - size // 2 for size in sizes]))
        strides = all(stride == 1 for stride in attrs["strides"])
        return "same" if (before, after) == same and strides and not self.layer.transposed else None

    # ------------------------------------------------------------ the module

    def fused(self, match: Match) -> Any:
        """The module of a match, in inference, with the weights of the layer, or those into which the batch norm was
        folded."""
        import torch
        from torch import nn

        from gsl.modules import FUSIONS, Fusion

        activation = None if self.activation is None else ACTIVATIONS[str(match[self.activation].op)]
        kind: Any = FUSIONS[Fusion(getattr(nn, self.layer.module), self.sum is not None, activation)]
        weight = match[self.w].attrs["value"]
        bias = match[self.b].attrs["value"] if self.biased in match else None
        grad = isinstance(weight, nn.Parameter) and weight.requires_grad
        if self.norm is not None:
            with torch.no_grad():
                weight, bias = self._absorbed(match, weight, bias)
        # Without memory, nothing is drawn for weights that are replaced.
        module = kind(**self._arguments(match), bias=bias is not None, device="meta")
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None:
                setattr(module, name, value if isinstance(value, nn.Parameter) else nn.Parameter(value, grad))
        return module.eval()

    def _absorbed(self, match: Match, weight: Any, bias: Any) -> tuple[Any, Any]:
        """The weight and bias with which the layer computes the result of the batch norm."""
        import torch

        assert self.norm is not None
        attrs = match[self.norm].attrs
        gamma, beta, mean, var = (match[each].attrs["value"].double() for each in self.statistics)
        factor = torch.rsqrt(var + attrs["epsilon"])
        if attrs["scale"]:
            factor = factor * gamma
        shift = -mean if bias is None else bias.double() - mean
        offset = shift * factor + beta if attrs["center"] else shift * factor
        if self.layer.transposed:
            # The kernel is (in, out / groups, …): its output channels lie group by group.
            groups = match[self.product].attrs["groups"]
            shape = (groups, weight.shape[0] // groups, *weight.shape[1:])
            scaled = weight.double().reshape(shape) * factor.reshape(groups, 1, -1, *(1,) * (weight.ndim - 2))
        else:
            scaled = weight.double() * factor.reshape(-1, *(1,) * (weight.ndim - 1))
        return scaled.reshape(weight.shape).to(weight.dtype), offset.to(weight.dtype)

    def _arguments(self, match: Match) -> dict[str, Any]:
        """The arguments of the layer's constructor."""
        attrs, shape = match[self.product].attrs, match[self.w].attrs["value"].shape
        if not self.layer.kernel:
            return {"in_features": shape[1], "out_features": shape[0]}
        groups, transposed = attrs["groups"], self.layer.transposed
        own, per_group = shape[0], shape[1] * groups
        more = {"output_padding": attrs["output_padding"]} if transposed else {}
        return {
            "in_channels": own if transposed else per_group, "out_channels": per_group if transposed else own,
            "kernel_size": tuple(shape[2:]), "stride": attrs["strides"], "padding": self._padding(match),
            "dilation": attrs["dilation"], "groups": groups, **more,
        }  # fmt: skip


def _passed_on(result: pat.Pattern) -> pat.Pattern:
    """A result, or a copy of it: the remains of modules that do nothing in a program without observers."""
    return pat.Maybe(op.Copy(result), on=result)


def _algebra(layer: str, followers: Sequence[str]) -> str:
    """The algebra of the calls that a rule fuses."""
    text = f"{layer}(x, w)"
    for follower in followers:
        text = f"{text} + y" if follower == "add" else f"{follower}({text})"
    return text


def _rule(layer: str, followers: str) -> Subst:
    parts = followers.split("-")
    doc = (
        f"{_algebra(layer, parts)} = one module\n\n"
        "In a traced module in eval mode, where nothing else uses what lies between; what is added has the result's "
        "type. With relu6, too."
    )
    return ModuleFusion(LAYERS[layer], parts).rule(f"{layer}-{followers}", doc)


MODULE_FUSION = RuleSet(
    [_rule(layer, followers) for layer in LAYERS for followers in FOLLOWERS], strategy="largest"
)
"""Every layer with everything that may follow it; the largest match is fused first."""
