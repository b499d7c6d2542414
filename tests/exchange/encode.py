"""Writing TASO's format, for files that tests make themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gsl.exchange.taso import KEYS, TYPES


def varint(value: int) -> bytes:
    """A number as a varint; negative ones have ten bytes."""
    value &= 0xFFFFFFFFFFFFFFFF
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


@dataclass(frozen=True)
class Op:
    """An operator: its operands are pairs of an operator (or the negative number of an input) and a result."""

    type: str | int
    operands: Sequence[int | tuple[int, int]] = ()
    params: Mapping[str | int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        written = number(1, TYPES.index(self.type) if isinstance(self.type, str) else self.type)
        for operand in self.operands:
            operator, result = operand if isinstance(operand, tuple) else (operand, 0)
            written += message(2, number(1, operator) + number(2, result))
        for key, value in self.params.items():
            written += message(3, number(1, KEYS.index(key) if isinstance(key, str) else key) + number(2, value))
        return written


def rule(source: Sequence[Op], target: Sequence[Op], *outputs: tuple[int, int, int, int]) -> bytes:
    """A rule; an output is source operator, target operator, source result, target result."""
    content = b"".join(message(1, op.encode()) for op in source) + b"".join(message(2, op.encode()) for op in target)
    for output in outputs:
        content += message(3, b"".join(number(n, value) for n, value in enumerate(output, 1)))
    return message(1, content)
