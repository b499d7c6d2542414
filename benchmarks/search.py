"""The searches of `gsl.optimize` on the graphs of TENSAT's paper, with the rules of a file of TASO's.

``python -m benchmarks.search graph_subst.pb`` prints a table. Costs are analytic, for one thread. The graphs are after
those of Y. Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021: a recurrent cell, the
attention of BERT, and convolutional networks without batch norm.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.section import table
from gsl import RuleSet, Workload, rules_from_taso
from gsl.cost import Backtrack, Clock, Greedy, Space, Walk, model_of
from gsl.errors import FixpointError
from gsl.pause import paused_collector


def conv(ins: int, outs: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size of what it strides over."""
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
    return nn.Conv2d(ins, outs, sizes, stride, (sizes[0] // 2, sizes[1] // 2), groups=groups, bias=False)


class NasRNN(nn.Module):
    """The recurrent cell that a search for architectures found, over five steps."""

    def __init__(self, steps: int = 5, size: int = 512) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(size, size) / size**0.5) for _ in range(16 * steps)])
        self.start = nn.Parameter(torch.randn(1, size))

    def forward(self, *inputs: Tensor) -> Tensor:
        state, weights = self.start, iter(self.weights)
        sigmoid, tanh, relu = torch.sigmoid, torch.tanh, torch.relu
        for x in inputs:
            t = [x @ next(weights) + state @ next(weights) for _ in range(8)]
            first, second = relu(t[0]) + sigmoid(t[3]), sigmoid(t[1]) + tanh(t[2])
            third, fourth = sigmoid(t[4]) * tanh(t[5]), sigmoid(t[6]) * relu(t[7])
            left = tanh(first) * tanh(fourth)
            state = tanh(tanh(sigmoid(second) + tanh(third)) * tanh(left))
        return state


class Bert(nn.Module):
    """Eight layers of attention without its softmax, as TASO has them."""

    def __init__(self, layers: int = 8, size: int = 1024) -> None:
        super().__init__()
        self.size = size
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(size, size) / size**0.5) for _ in range(4 * layers)])

    def forward(self, x: Tensor) -> Tensor:
        x, total, weights = torch.relu(x), None, iter(self.weights)
        for q, k, v, last in zip(weights, weights, weights, weights):
            heads = [(x @ weight).reshape(64, 16, self.size // 16).permute(1, 0, 2) for weight in (q, k, v)]
            mixed = (heads[0] @ heads[1] @ heads[2]).permute(1, 0, 2).reshape(64, self.size)
            x, total = x @ last, mixed if total is None else total + mixed
        assert total is not None
        return total


class ResNeXt(nn.Module):
    """ResNeXt-50 with 32 groups."""

    def __init__(self, layers: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.stem, self.blocks = conv(3, 64, 7, 2), nn.ModuleList()
        ins = 64
        for number, count in enumerate(layers):
            outs = 128 << number
            for block in range(count):
                stride = 2 if block == 0 and number else 1
                parts = [conv(ins, outs, 1), conv(outs, outs, 3, stride, 32), conv(outs, 2 * outs, 1)]
                self.blocks.append(nn.ModuleList([*parts, *([conv(ins, 2 * outs, 1, stride)] if block == 0 else [])]))
                ins = 2 * outs

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        for block in self.blocks:
            down, middle, up, *beside = block.children()
            y = up(torch.relu(middle(torch.relu(down(x)))))
            x = torch.relu(y + (beside[0](x) if beside else x))
        return x


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1."""

    SIZES = (64, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128), (256, 48, 192), (384, 48, 192), (384, 64, 256)

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 64, 3, 2, bias=False), conv(512, 1000, 1)
        self.fires = nn.ModuleList([
            nn.ModuleList([conv(ins, mid, 1), conv(mid, outs, 1), conv(mid, outs, 3)])
            for ins, mid, outs in (*self.SIZES, (512, 64, 256))
        ])  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.stem(x)), 3, 2)
        for number, fire in enumerate(self.fires):
            squeeze, small, large = fire.children()
            y = torch.relu(squeeze(x))
            x = torch.cat([torch.relu(small(y)), torch.relu(large(y))], 1)
            x = F.max_pool2d(x, 3, 2) if number in (1, 3) else x
        return F.avg_pool2d(torch.relu(self.last(x)), 13)


def vgg() -> nn.Module:
    """The convolutions of VGG-19."""
    layers: list[nn.Module] = []
    ins = 3
    for outs, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [conv(ins, outs, 3), nn.ReLU()]
            ins = outs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


class Inception(nn.Module):
    """The first three blocks of Inception-v3 in which branches meet."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([
            nn.ModuleList([nn.Sequential(*self._branch(sizes)) for sizes in (
                ((ins, 64, 1),), ((ins, 48, 1), (48, 64, 5)), ((ins, 64, 1), (64, 96, 3), (96, 96, 3)),
                ((ins, pool, 1),),
            )])
            for ins, pool in ((192, 32), (256, 64), (288, 64))
        ])  # fmt: skip

    @staticmethod
    def _branch(sizes: tuple[tuple[int, int, int], ...]) -> Iterator[nn.Module]:
        for size in sizes:
            yield from (conv(*size), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            *branches, pooled = block.children()
            x = torch.cat([*[branch(x) for branch in branches], pooled(F.avg_pool2d(x, 3, 1, 1))], 1)
        return x


class NasNet(nn.Module):
    """Three normal cells of NasNet-A: sums of separable convolutions and pools of two inputs."""

    def __init__(self, cells: int = 3, size: int = 48) -> None:
        super().__init__()
        self.cells = nn.ModuleList()
        widths = [size, size, *[6 * size] * cells]
        for before, last in list(pairwise(widths))[:cells]:
            parts = [conv(before, size, 1), conv(last, size, 1)]
            kernels = (3, 5, 5, 3, 3)
            parts += [part for kernel in kernels for part in (conv(size, size, kernel, 1, size), conv(size, size, 1))]
            self.cells.append(nn.ModuleList(parts))

    def forward(self, x: Tensor) -> Tensor:
        before, last = x, x
        for cell in self.cells:
            first, second, *parts = cell.children()
            p, h = first(torch.relu(before)), second(torch.relu(last))
            separable = [lambda v, a=a, b=b: b(a(torch.relu(v))) for a, b in zip(parts[::2], parts[1::2])]
            pool = F.avg_pool2d(h, 3, 1, 1), F.avg_pool2d(p, 3, 1, 1)
            sums = [separable[0](h) + h, separable[1](h) + separable[2](p), pool[0] + p, pool[1] + pool[1],
                    separable[3](p) + separable[4](p)]  # fmt: skip
            before, last = last, torch.cat([*sums, h], 1)
        return last


def _image(channels: int, size: int) -> tuple[Tensor, ...]:
    return (torch.randn(1, channels, size, size),)


GRAPHS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "NasRNN": lambda: (NasRNN(), tuple(torch.randn(1, 512) for _ in range(5))),
    "BERT": lambda: (Bert(), (torch.randn(64, 1024),)),
    "ResNeXt-50": lambda: (ResNeXt(), _image(3, 224)),
    "NasNet-A": lambda: (NasNet(), _image(48, 28)),
    "SqueezeNet": lambda: (SqueezeNet(), _image(3, 224)),
    "VGG-19": lambda: (vgg(), _image(3, 224)),
    "Inception-v3": lambda: (Inception(), _image(192, 35)),
}
"""Each model, with its inputs."""


@dataclass(frozen=True)
class Outcome:
    """The results of the searches for a graph, and the speed of backtracking."""

    graph: str
    nodes: int
    before: float
    greedy: float | None
    """``None`` where the rules go round in circles, if all are applied."""
    backtrack: float
    agrees: bool
    built: int
    priced_per_second: float
    """The rate on the walk's first programs, in seconds of the processor."""

    def row(self) -> list[str]:
        """The line of a table."""
        greedy = "goes round" if self.greedy is None else f"{self.greedy / self.before:.3f}"
        return [self.graph, str(self.nodes), f"{self.before * 1e3:.2f} ms", greedy,
                f"{self.backtrack / self.before:.3f}", "yes" if self.agrees else "NO", f"{self.built:,}",
                f"{self.priced_per_second:,.0f}"]  # fmt: skip


HEAD = ["graph", "nodes", "cost", "greedy", "backtrack", "numbers agree", "programs built", "steps priced per second"]
FIRST = 150
"""The number of programs of which the rate is told: while there are many steps from each."""


def measure(name: str, rules: RuleSet, seconds: float) -> Outcome:
    """Both searches on a graph."""
    model, inputs = GRAPHS[name]()
    workload = Workload.from_torch(model.eval(), inputs)
    space = Space(workload, [rules], model_of("analytic", threads=1))
    before = space.original.costs.total
    try:
        greedy: float | None = Greedy().run(space, Clock(seconds), lambda what: None).best.costs.total
    except FixpointError:
        greedy = None
    best = Backtrack().run(space, Clock(seconds), lambda what: None).best
    rate, built = 0.0, 0
    for steps in (FIRST, FIRST, None):  # functions for the rules are written in the first one
        walk, start = Walk(space), time.process_time()
        paused_collector(walk.run)(Clock(seconds), lambda what: None, steps)
        rate = walk.priced / (time.process_time() - start) if steps else rate
        built = walk.built
    agrees = workload.compare(best.workload).passed
    return Outcome(name, len(workload.graph), before, greedy, best.costs.total, agrees, built, rate)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("rules", help="a file of TASO's rules, graph_subst.pb")
    parser.add_argument("--graph", action="append", choices=list(GRAPHS), help="this graph; may be given again")
    parser.add_argument("--seconds", type=float, default=20.0, help="the budget of each search")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rules = rules_from_taso(options.rules)
    print(f"{len(list(rules))} rules; costs after a search as shares of the cost before\n")
    rows = [measure(name, rules, options.seconds).row() for name in options.graph or GRAPHS]
    print(table(HEAD, rows))


if __name__ == "__main__":
    main()
