"""Draws the pictures of the README and the pages, into ``docs/pictures``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from gsl import Subst, Workload, attr_eq, op, pat
from gsl.draw import Drawing

FOLDER = Path(__file__).resolve().parent / "pictures"
_MARKUP = re.compile(r"<[^>]*>")


class TwoBranches(nn.Module):
    """The model of the README."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.right = nn.Conv2d(2, 4, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) + self.right(x)


class Block(nn.Module):
    """The model of the tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.project = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        y = y * torch.sigmoid(y)
        return self.project(y.mean((2, 3)))


def two_branches() -> Drawing:
    """Two convolutions that become one."""
    x, w1 = pat.Wildcard(), pat.Variable()
    conv1, conv2 = op.Conv2D(x, w1), op.Conv2D(x, w2 := pat.Variable(shape=w1.shape))
    rule = Subst(conv1 + conv2, conv1.like(x, w1 + w2), where=attr_eq(conv1, conv2), name="two convolutions")
    wl = Workload.from_torch(TwoBranches(), (torch.randn(1, 2, 8, 8),), name="two branches")
    return wl.before_after(rule(wl))


def _swish() -> tuple[Subst, Workload]:
    x = pat.Wildcard()
    rule = Subst(x * op.Sigmoid(x), op.SiLU(x), name="swish")
    return rule, Workload.from_torch(Block().eval(), (torch.randn(2, 3, 16, 16),), name="block")


def swish() -> Drawing:
    """A product with a sigmoid that becomes one call."""
    rule, wl = _swish()
    return wl.before_after(rule(wl))


def swish_rule() -> Drawing:
    """The rule itself."""
    return _swish()[0].visualize()


def explanation() -> Drawing:
    """A pattern beside the part of the graph that comes nearest."""
    x, w = pat.Wildcard(), pat.Param()
    dense = op.Dense(op.Mean(x, axis=(1, 2)), w)
    other = Subst(dense, dense.like(x, w), name="another axis")
    return other.explain(_swish()[1]).visualize()


PICTURES: tuple[Callable[[], Drawing], ...] = (two_branches, swish, swish_rule, explanation)


def texts(svg: str) -> list[str]:
    """The texts of a drawing. Where they stand depends on the fonts of the machine."""
    return [text for text in map(str.strip, _MARKUP.sub("\n", svg).splitlines()) if text]


def drawn() -> Iterator[tuple[Path, str]]:
    """The files of the pictures with what they should have in them."""
    for draw in PICTURES:
        yield FOLDER / f"{draw.__name__}.svg", draw().svg


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, svg in drawn():
        if not path.exists() or texts(path.read_text(encoding="utf-8")) != texts(svg):
            path.write_text(svg, encoding="utf-8")
