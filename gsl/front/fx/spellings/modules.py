"""Modules as calls of the functions that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from gsl.front.fx.spellings.table import resolve
from gsl.front.fx.tree import Weight


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """The function that a module calls with its input, its weights, and its own attributes.

    ``weights`` and ``attributes`` are words ``parameter`` or ``parameter=name on the module``.
    """

    function: str
    weights: str = ""
    attributes: str = ""

    def call(self, module: nn.Module) -> tuple[Any, dict[str, Any]]:
        """The function, and all its arguments but the input."""
        kwargs: dict[str, Any] = {}
        for parameter, name in _pairs(self.weights):
            kwargs[parameter] = None if getattr(module, name) is None else Weight(name)
        for parameter, name in _pairs(self.attributes):
            kwargs[parameter] = getattr(module, name)
        return resolve(self.function), kwargs


    def any_call(self, attributes: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The same for a module in inference of which only some attributes are known."""
        kwargs: dict[str, Any] = {parameter: Weight(name) for parameter, name in _pairs(self.weights)}
        for parameter, name in _pairs(self.attributes):
            if name == "training":
                kwargs[parameter] = False
            elif name in attributes:
                kwargs[parameter] = attributes[name]
        return resolve(self.function), kwargs


def _pairs(words: str) -> list[tuple[str, str]]:
    return [(parameter, name or parameter) for parameter, _, name in (word.partition("=") for word in words.split())]


_CONV = "stride padding dilation groups"
_CONV_TRANSPOSE = "stride padding output_padding groups dilation"
_STATISTICS = "running_mean running_var weight bias"

ROWS: Final[Mapping[type[nn.Module], ModuleRow]] = {
    nn.Linear: ModuleRow("F.linear", "weight bias"),
    nn.Conv1d: ModuleRow("F.conv1d", "weight bias", _CONV),
    nn.Conv2d: ModuleRow("F.conv2d", "weight bias", _CONV),
    nn.Conv3d: ModuleRow("F.conv3d", "weight bias", _CONV),
    nn.ConvTranspose1d: ModuleRow("F.conv_transpose1d", "weight bias", _CONV_TRANSPOSE),
    nn.ConvTranspose2d: ModuleRow("F.conv_transpose2d", "weight bias", _CONV_TRANSPOSE),
    nn.ConvTranspose3d: ModuleRow("F.conv_transpose3d", "weight bias", _CONV_TRANSPOSE),
    nn.BatchNorm1d: ModuleRow("F.batch_norm", _STATISTICS, "eps training"),
    nn.BatchNorm2d: ModuleRow("F.batch_norm", _STATISTICS, "eps training"),
    nn.BatchNorm3d: ModuleRow("F.batch_norm", _STATISTICS, "eps training"),
    nn.SyncBatchNorm: ModuleRow("F.batch_norm", _STATISTICS, "eps training"),
    nn.LayerNorm: ModuleRow("F.layer_norm", "weight bias", "normalized_shape eps"),
    nn.RMSNorm: ModuleRow("F.rms_norm", "weight", "normalized_shape eps"),
    nn.GroupNorm: ModuleRow("F.group_norm", "weight bias", "num_groups eps"),
    nn.InstanceNorm1d: ModuleRow("F.instance_norm", _STATISTICS, "eps"),
    nn.InstanceNorm2d: ModuleRow("F.instance_norm", _STATISTICS, "eps"),
    nn.InstanceNorm3d: ModuleRow("F.instance_norm", _STATISTICS, "eps"),
    nn.Embedding: ModuleRow("F.embedding", "weight", "padding_idx max_norm norm_type scale_grad_by_freq sparse"),
    nn.Dropout: ModuleRow("F.dropout", "", "p training"),
    nn.Dropout1d: ModuleRow("F.dropout1d", "", "p training"),
    nn.Dropout2d: ModuleRow("F.dropout2d", "", "p training"),
    nn.Dropout3d: ModuleRow("F.dropout3d", "", "p training"),
    nn.AlphaDropout: ModuleRow("F.alpha_dropout", "", "p training"),
    nn.ReLU: ModuleRow("F.relu"),
    nn.ReLU6: ModuleRow("F.relu6"),
    nn.LeakyReLU: ModuleRow("F.leaky_relu", "", "negative_slope"),
    nn.PReLU: ModuleRow("F.prelu", "weight"),
    nn.ELU: ModuleRow("F.elu", "", "alpha"),
    nn.SELU: ModuleRow("F.selu"),
    nn.GELU: ModuleRow("F.gelu", "", "approximate"),
    nn.SiLU: ModuleRow("F.silu"),
    nn.Mish: ModuleRow("F.mish"),
    nn.Sigmoid: ModuleRow("torch.sigmoid"),
    nn.Tanh: ModuleRow("torch.tanh"),
    nn.Hardswish: ModuleRow("F.hardswish"),
    nn.Hardsigmoid: ModuleRow("F.hardsigmoid"),
    nn.Hardtanh: ModuleRow("F.hardtanh", "", "min=min_val max=max_val"),
    nn.Softplus: ModuleRow("F.softplus", "", "beta threshold"),
    nn.Softmax: ModuleRow("F.softmax", "", "dim"),
    nn.LogSoftmax: ModuleRow("F.log_softmax", "", "dim"),
    nn.MaxPool1d: ModuleRow("F.max_pool1d", "", "kernel_size stride padding dilation ceil_mode return_indices"),
    nn.MaxPool2d: ModuleRow("F.max_pool2d", "", "kernel_size stride padding dilation ceil_mode return_indices"),
    nn.MaxPool3d: ModuleRow("F.max_pool3d", "", "kernel_size stride padding dilation ceil_mode return_indices"),
    nn.AvgPool1d: ModuleRow("F.avg_pool1d", "", "kernel_size stride padding ceil_mode count_include_pad"),
    nn.AvgPool2d: ModuleRow(
        "F.avg_pool2d", "", "kernel_size stride padding ceil_mode count_include_pad divisor_override"
    ),
    nn.AvgPool3d: ModuleRow(
        "F.avg_pool3d", "", "kernel_size stride padding ceil_mode count_include_pad divisor_override"
    ),
    nn.AdaptiveAvgPool1d: ModuleRow("F.adaptive_avg_pool1d", "", "output_size"),
    nn.AdaptiveAvgPool2d: ModuleRow("F.adaptive_avg_pool2d", "", "output_size"),
    nn.AdaptiveAvgPool3d: ModuleRow("F.adaptive_avg_pool3d", "", "output_size"),
    nn.AdaptiveMaxPool1d: ModuleRow("F.adaptive_max_pool1d", "", "output_size return_indices"),
    nn.AdaptiveMaxPool2d: ModuleRow("F.adaptive_max_pool2d", "", "output_size return_indices"),
    nn.AdaptiveMaxPool3d: ModuleRow("F.adaptive_max_pool3d", "", "output_size return_indices"),
    nn.Identity: ModuleRow("torch.clone"),
    nn.Flatten: ModuleRow("torch.flatten", "", "start_dim end_dim"),
    nn.Unflatten: ModuleRow("torch.unflatten", "", "dim sizes=unflattened_size"),
    **{
        getattr(nn, f"{kind}Pad{rank}d"): ModuleRow("F.pad", "", "pad=padding value")
        for kind in ("Zero", "Constant")
        for rank in (1, 2, 3)
    },
}
"""Exact types: a subclass may do something else."""

_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(module: nn.Module) -> bool:
    """True if calling the module computes the function of its type, and does nothing else."""
    if "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS):
        return False
    return getattr(module, "padding_mode", "zeros") == "zeros"
