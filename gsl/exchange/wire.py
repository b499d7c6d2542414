"""Reading the wire format of protocol buffers, with the place of every value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gsl.errors import ExchangeError

VARINT, LENGTH = 0, 2
_WIRE_TYPES = {0: "a varint", 1: "64 bits", 2: "a length and bytes", 3: "the start of a group", 4: "the end of a group",
               5: "32 bits"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the file that holds one message, and its name in errors."""

    start: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class Layout:
    """A kind of message: the name and wire type of each field by its number."""

    name: str
    fields: Mapping[int, tuple[str, int]]


class Reader:
    """Reads messages from bytes. ExchangeError with the byte at which they are malformed."""

    def __init__(self, data: bytes, file: str) -> None:
        self.data = data
        self.file = file

    def error(self, offset: int, what: str, problem: str) -> ExchangeError:
        """The error of a problem at a byte of the file."""
        return ExchangeError(f"{self.file}: byte {offset}: {what}: {problem}")

    def read(self, layout: Layout, span: Span) -> dict[str, list[tuple[int, int, int]]]:
        """The fields of a message by name, in order: the value (or the start) of each, its end, its own place."""
        found: dict[str, list[tuple[int, int, int]]] = {name: [] for name, _ in layout.fields.values()}
        offset = span.start
        while offset < span.end:
            place = offset
            key, offset = self._varint(offset, span, "the key of a field")
            number, wire = key >> 3, key & 7
            if number not in layout.fields:
                known = ", ".join(f"{n} ({name})" for n, (name, _) in layout.fields.items())
                raise self.error(place, span.what, f"{layout.name} has no field {number}: known are {known}")
            name, expected = layout.fields[number]
            if wire != expected:
                other = _WIRE_TYPES.get(wire, f"the unknown wire type {wire}")
                raise self.error(place, span.what, f"the field {name!r} is {_WIRE_TYPES[expected]}, found {other}")
            value, offset = self._varint(offset, span, f"the field {name!r}")
            if wire == VARINT:
                found[name].append((_int32(value), offset, place))
                continue
            if value > span.end - offset:
                raise self.error(
                    place, span.what, f"the field {name!r} has {value} bytes, but only {span.end - offset} are left"
                )
            found[name].append((offset, offset + value, place))
            offset += value
        return found

    def _varint(self, offset: int, span: Span, what: str) -> tuple[int, int]:
        """A number of variable length and where it ends."""
        value = 0
        for count in range(10):
            if offset + count >= span.end:
                raise self.error(offset, span.what, f"{what} is cut off")
            byte = self.data[offset + count]
            value |= (byte & 0x7F) << 7 * count
            if byte < 0x80:
                return value, offset + count + 1
        raise self.error(offset, span.what, f"{what} is a varint of more than 10 bytes")


def _int32(value: int) -> int:
    """The signed number of 32 bits that is written as a varint."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
