"""Large graphs and large weights: seconds and peak memory of each operator, from ten thousand to a million of them."""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule

from benchmarks.measure import Meter
from benchmarks.section import Goal, Section, times
from gsl import RuleSet, Subst, Workload, pat
from gsl.pause import paused_collector
from gsl.rules import BOOK, IDIOMS, NORMAL

SIZES = (10_000, 100_000, 1_000_000)
LAYERS, WIDTH = 60, 64
BYTES, SECONDS = 4e9, 60.0
"""The goals for a million operators."""
aten = torch.ops.aten


@dataclass(frozen=True)
class Found:
    """The time and memory of the rules on one graph, in a process of its own."""

    size: int
    copying: float
    """The seconds that a copy of the native graph takes, by its own framework."""
    seconds: float
    """The seconds of loading, of rounds until nothing matches, and of writing the new graph."""
    native: int
    """The bytes of the process with its native graph."""
    peak: int
    """The most bytes of the process."""
    rewrites: int
    rounds: int


# ---------------------------------------------------------------- a decoder


def decoder(count: int) -> fx.GraphModule:
    """A decoder of 60 layers with norms and activations that are written out, unrolled until it has so many calls."""
    mode, graph, root = FakeTensorMode(), fx.Graph(), torch.nn.Module()
    wide, row, weight, scale = (mode.from_tensor(torch.empty(size)) for size in ((1, 16), (1, 1), (16, 16), (16,)))
    made = 0

    def call(target: Any, *args: Any, value: Any = wide) -> fx.Node:
        nonlocal made
        made += 1
        node = graph.call_function(target, args)
        node.meta["val"] = value
        return node

    def param(name: str, value: Any) -> fx.Node:
        root.register_parameter(name, torch.nn.Parameter(torch.rand(value.shape), requires_grad=False))
        node = graph.get_attr(name)
        node.meta["val"] = value
        return node

    def norm(x: fx.Node, gain: fx.Node) -> fx.Node:
        mean = call(aten.mean.dim, call(aten.pow.Tensor_Scalar, x, 2), [-1], True, value=row)
        root_of = call(aten.rsqrt.default, call(aten.add.Tensor, mean, 1e-6, value=row), value=row)
        return call(aten.mul.Tensor, gain, call(aten.mul.Tensor, x, root_of))

    x = graph.placeholder("x")
    x.meta["val"] = wide
    shapes = {**dict.fromkeys(("q", "k", "v", "o", "gate", "up", "down"), weight), "before": scale, "after": scale}
    layers = [[param(f"{name}{number}", value) for name, value in shapes.items()] for number in range(LAYERS)]
    while made < count:
        for q, k, v, o, gate, up, down, before, after in layers:
            y = norm(x, before)
            product = call(aten.mul.Tensor, call(aten.linear.default, y, q), call(aten.linear.default, y, k))
            mixed = call(aten.mul.Tensor, call(aten.softmax.int, product, -1), call(aten.linear.default, y, v))
            x = call(aten.add.Tensor, x, call(aten.linear.default, mixed, o))
            y = norm(x, after)
            opened = call(aten.linear.default, y, gate)
            opened = call(aten.mul.Tensor, opened, call(aten.sigmoid.default, opened))
            inner = call(aten.mul.Tensor, opened, call(aten.linear.default, y, up))
            x = call(aten.add.Tensor, x, call(aten.linear.default, inner, down))
            if made >= count:
                break
    graph.output((x,))
    return _LazyGraphModule(root, graph)


def copy_of(module: fx.GraphModule) -> fx.Graph:
    """A copy of the graph by torch."""
    new = fx.Graph()
    new.graph_copy(module.graph, {})
    return new


# ---------------------------------------------------------------- a circuit


class Gate:
    """A gate of a circuit."""

    __slots__ = ("inputs", "kind")

    def __init__(self, kind: str, inputs: tuple[Gate, ...]) -> None:
        self.kind = kind
        self.inputs = inputs


def circuit(count: int) -> list[Gate]:
    """Random gates in layers of 64."""
    drawn = random.Random(0)
    layer = [Gate("input", ()) for _ in range(WIDTH)]
    for _ in range(count // WIDTH):
        kinds = [drawn.choice(("and", "or", "xor", "not", "nand", "buf")) for _ in range(WIDTH)]
        others = [layer[drawn.randrange(WIDTH)] for _ in range(WIDTH)]
        layer = [
            Gate(kind, (own,) if kind in ("not", "buf") else (own, other))
            for kind, own, other in zip(kinds, layer, others)
        ]
    return layer


def gates_below(outputs: list[Gate]) -> list[Gate]:
    """All gates, inputs first."""
    found: dict[Gate, None] = {}
    stack = list(outputs)
    while stack:
        gate = stack[-1]
        waiting = [each for each in gate.inputs if each not in found]
        if waiting:
            stack += waiting
        else:
            found[stack.pop()] = None
    return list(found)


def copied(outputs: list[Gate]) -> list[Gate]:
    """A copy of a circuit."""
    new: dict[Gate, Gate] = {}
    for gate in gates_below(outputs):
        new[gate] = Gate(gate.kind, tuple([new[each] for each in gate.inputs]))
    return [new[gate] for gate in outputs]


def algebra() -> RuleSet:
    """Thirty laws of gates, from left to right."""
    a, b = pat.Wildcard(), pat.Wildcard()

    def gate(kind: str) -> Callable[..., pat.Pattern]:
        return lambda *inputs: pat.Call(pat.OpName(kind), *inputs)

    conj, disj, xor, inv, nand, buf = map(gate, ("and", "or", "xor", "not", "nand", "buf"))
    laws = [
        (inv(inv(a)), a), (buf(a), a), (nand(a, b), inv(conj(a, b))), (conj(a, a), a), (disj(a, a), a),
        (conj(inv(a), inv(b)), inv(disj(a, b))), (disj(inv(a), inv(b)), inv(conj(a, b))),
        (xor(inv(a), inv(b)), xor(a, b)), (xor(inv(a), b), inv(xor(a, b))), (xor(a, inv(b)), inv(xor(a, b))),
        (conj(a, disj(a, b)), a), (conj(a, disj(b, a)), a), (conj(disj(a, b), a), a), (conj(disj(a, b), b), b),
        (disj(a, conj(a, b)), a), (disj(a, conj(b, a)), a), (disj(conj(a, b), a), a), (disj(conj(a, b), b), b),
        (conj(conj(a, b), a), conj(a, b)), (conj(conj(a, b), b), conj(a, b)), (disj(disj(a, b), a), disj(a, b)),
        (disj(disj(a, b), b), disj(a, b)), (xor(xor(a, b), b), a), (xor(xor(a, b), a), b), (xor(a, xor(a, b)), b),
        (xor(a, xor(b, a)), b), (conj(inv(a), disj(a, b)), conj(inv(a), b)),
        (conj(inv(a), conj(a, b)), conj(a, inv(a))),
        (disj(inv(a), conj(a, b)), disj(inv(a), b)), (disj(inv(a), disj(a, b)), disj(a, inv(a))),
    ]  # fmt: skip
    return RuleSet([Subst(source, target, name=f"law {number}") for number, (source, target) in enumerate(laws, 1)])


# ---------------------------------------------------------------- runs, each in a process of its own


def resident() -> int:
    """The bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def on_decoder(size: int) -> Found:
    """The normal form and the idioms on the decoder."""
    module = decoder(size)
    rules = RuleSet(dict.fromkeys((*NORMAL, *IDIOMS)))
    return _found(size, rules, lambda: Workload.from_fx(module), lambda: copy_of(module))


def on_circuit(size: int) -> Found:
    """The laws of gates on the circuit; the objects are read when the workload is made."""
    outputs = circuit(size)
    return _found(size, algebra(), lambda: circuit_workload(outputs), lambda: copied(outputs))


def circuit_workload(outputs: list[Gate]) -> Workload:
    """The workload of a circuit."""

    def rebuild(op: Any, inputs: Any, attrs: Any, old: Any) -> Gate:
        return Gate(op, tuple(inputs))

    return Workload.from_nodes(outputs, operands=lambda gate: gate.inputs, op=lambda gate: gate.kind, rebuild=rebuild)


def _found(size: int, rules: RuleSet, workload: Callable[[], Workload], copy: Callable[[], object]) -> Found:
    native, start = resident(), time.process_time()
    new = rules(workload(), iterative=True)
    seconds = time.process_time() - start
    peak = max(native, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)  # the kernel may count late
    with paused_collector():
        start = time.process_time()
        copy()
        copying = time.process_time() - start
    rounds = new.trace.firings[-1].round
    return Found(size, copying, seconds, native, peak, new.trace.count(), rounds)


def on_disk(size: int) -> tuple[int, int, int]:
    """The bytes of weights in files, of those that a run of the book over them read, and the rewrites."""
    with tempfile.TemporaryDirectory() as folder:
        layers = [torch.nn.Linear(1, 1, bias=False) for _ in range(10)]
        for number, layer in enumerate(layers):
            path = Path(folder, str(number))
            with open(path, "wb") as file:
                file.truncate(size * size * 4)
            values = torch.from_file(str(path), shared=False, size=size * size, dtype=torch.float32).view(size, size)
            layer.weight = torch.nn.Parameter(values, requires_grad=False)
        model = torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.Dropout())]).eval()
        workload = Workload.from_torch(model, (torch.empty(1, size),))
        before = resident()
        new = RuleSet(dict.fromkeys((*BOOK, *NORMAL)))(workload, iterative=True)
        return 10 * size * size * 4, resident() - before, new.trace.count()


SYSTEMS: dict[str, Callable[[int], Found]] = {
    "decoder of 60 layers, unrolled (FX)": on_decoder,
    "circuit of random gates (nodes)": on_circuit,
}


def in_process(function: Callable[[int], Any], size: int) -> Any:
    """The result of a function in a fresh process, whose peak of memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, size).result()


def run(meter: Meter, largest: int) -> Section:
    """Both graphs at all sizes, and weights of 20 GB."""
    section = Section("Large graphs and weights")
    rows = []
    for name, system in SYSTEMS.items():
        known: list[Found] = []
        for size in SIZES:
            if size <= largest:
                known.append(in_process(system, size))
                print(f"{name}: {known[-1]}", flush=True)
        rows += [_row(name, each, known[0]) for each in known]
        section.sharper += [_goal(name, known[-1])] if known else []
    head = ["graph", "operators", "rewrites", "rounds", "seconds", "µs each", "× the smallest", "× a copy",
            "peak, GB", "KB each, without the graph itself"]  # fmt: skip
    section.table(head, rows)
    section.add(
        """Loading, rules until nothing matches, and the new graph, in processor seconds, each in a process of its own:
        56 rules of `NORMAL` and `IDIOMS` on the decoder, thirty laws on the gates. *each*: of an operator of the graph
        that was given. *× the smallest*: microseconds of an operator, by those in the smallest graph. *× a copy*: by
        what copying the native graph takes in its own terms (`fx.Graph.graph_copy`; a loop in Python). The peak is that
        of the process, torch and the graph that was given included; before loading, it is taken off in the last
        column. A million is measured with `--largest 1000000`."""
    )
    size, grown, rewrites = in_process(on_disk, 22_400)
    more = f"{grown / 1e6:.1f} MB"
    section.add(
        f"""Weights of {size / 1e9:.0f} GB in files, mapped: {rewrites} rewrites by `BOOK` and `NORMAL`, by which the
        process grew by {more}."""
    )
    section.sharper.append(Goal("rules on 20 GB of mapped weights", "no weight is loaded", f"{more} more", grown < 5e7))
    return section


def _row(name: str, found: Found, first: Found) -> list[str]:
    each, least = found.seconds / found.size, first.seconds / first.size
    return [
        name, f"{found.size:,}", f"{found.rewrites:,}", str(found.rounds), f"{found.seconds:.2f}", f"{each * 1e6:.0f}",
        times(each / least), times(found.seconds / found.copying), f"{found.peak / 1e9:.2f}",
        f"{(found.peak - found.native) / found.size / 1e3:.2f}",
    ]  # fmt: skip


def _goal(name: str, found: Found) -> Goal:
    reached = found.seconds <= SECONDS and found.peak <= BYTES if found.size == SIZES[-1] else None
    return Goal(f"{name}, a million operators", "under 60 s and 4 GB",
                f"{found.seconds:.0f} s, {found.peak / 1e9:.2f} GB for {found.size:,}", reached)  # fmt: skip
