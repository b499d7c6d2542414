"""Sets of numbers, of which the elements of a tensor are demanded to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

from gsl.errors import PatternError, located


@dataclass(frozen=True, slots=True, repr=False)
class Domain:
    """An interval of numbers, without 0 or with every ``step``-th number only, if so demanded."""

    low: float = -inf
    high: float = inf
    nonzero: bool = False
    step: int | None = None
    """The distance of the numbers from ``low`` on, where they are whole; ``None`` for all real numbers."""

    @staticmethod
    def of(given: Any) -> Domain:
        """The domain that ``values=`` names: a name, an interval ``(low, high)``, or a range of whole numbers.

        An end of an interval is part of it, and ``None`` where there is none. PatternError for anything else.
        """
        match given:
            case Domain():
                return given
            case str() if given in NAMES:
                return NAMES[given]
            case range() if len(given):
                return Domain(min(given), max(given), step=abs(given.step))
            case (low, high) if all(end is None or _is_number(end) for end in (low, high)):
                found = Domain(-inf if low is None else low, inf if high is None else high)
                if found.low <= found.high and (low, high) != (None, None):
                    return found
        names = ", ".join(map(repr, NAMES))
        raise PatternError(
            located(f"values= takes {names}, an interval (low, high) with an end that may be None, or a range that is "
                    f"not empty; got {given!r}")
        )  # fmt: skip

    def has(self, numbers: Any) -> Any:
        """True where a number, or an element of a tensor, is in the domain."""
        found = (numbers >= self.low) & (numbers <= self.high)
        if self.nonzero:
            found = found & (numbers != 0)
        return found if self.step is None else found & ((numbers + -self.low) % self.step == 0)

    def outside(self, value: Any) -> Any:
        """The first number of a literal or a tensor that is not in the domain; ``None`` if all are, or ``value`` is."""
        if not hasattr(value, "shape"):
            return None if value is None or self.has(value) else value
        wrong = value.reshape(-1)
        wrong = wrong[~self.has(wrong)]
        return wrong[0].item() if len(wrong) else None

    def mapped(self, tensor: Any) -> Any:
        """Numbers of the domain, one for each element of a tensor: itself where it is one, as a rule."""
        low, high = self.low, self.high
        if self.step is not None:
            return int(low) + self.step * (tensor.abs().floor() % (int(high - low) // self.step + 1))
        if -inf < low and high < inf:
            width = high - low
            place = (tensor - low).abs() % (2 * width) if width else tensor * 0
            tensor = (low + place.where(place <= width, 2 * width - place)).clamp(low, high)
        elif -inf < low:
            tensor = low + (tensor - low).abs()
        elif high < inf:
            tensor = high - (tensor - high).abs()
        return tensor.where(tensor != 0, 1) if self.nonzero else tensor

    @property
    def words(self) -> str:
        """The domain, as what is said of a tensor."""
        text = repr(self)
        return text.strip("'") if text.startswith("'") else f"in {text if self.step else f'[{text[1:-1]}]'}"

    def parts(self) -> Iterator[Any]:
        """The text in parts, see :mod:`gsl.attr.text`."""
        yield repr(self)

    def __repr__(self) -> str:
        for name, domain in NAMES.items():
            if domain == self:
                return repr(name)
        if self.step is not None:
            step = f", {self.step}" if self.step > 1 else ""
            return f"range({self.low}, {self.high + 1}{step})"
        return repr((None if self.low == -inf else self.low, None if self.high == inf else self.high))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not isnan(value)


NAMES = {"positive": Domain(low=0, nonzero=True), "nonnegative": Domain(low=0), "nonzero": Domain(nonzero=True)}
"""The domains that have a name."""
