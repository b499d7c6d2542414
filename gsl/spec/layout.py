"""Layouts in the meaning of operators: permutations, and padding that torch's operators don't take."""

from __future__ import annotations

from typing import Any


def permuted(tensor: Any, source: str, target: str) -> Any:
    """A tensor of one layout in another with the same letters. ValueError if it has another rank."""
    if tensor.dim() != len(source):
        raise ValueError(f"expected a tensor of layout {source}, found {tensor.dim()} dimensions")
    return tensor if source == target else tensor.permute([source.index(letter) for letter in target])


def spatial(count: int) -> str:
    """The letters of the last ``count`` spatial axes: ``"HW"`` for two."""
    return "DHW"[-count:]


def padded(torch: Any, tensor: Any, padding: tuple[int, ...], value: float = 0.0) -> Any:
    """A tensor with its last axes padded; ``padding`` is that before each of them, then that after each."""
    count = len(padding) // 2
    pairs = [side for axis in reversed(range(count)) for side in (padding[axis], padding[count + axis])]
    return torch.nn.functional.pad(tensor, pairs, value=value)
