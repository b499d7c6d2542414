"""Large graphs and large weights: seconds and peak memory of each operator, from ten thousand to a million of them."""

from __future__ import annotations

import functools
import random
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule

from benchmarks.measure import Meter, in_process
from benchmarks.peers import absent
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


SHAPES = {**dict.fromkeys(("q", "k", "v", "o", "gate", "up", "down"), (16, 16)), "before": (16,), "after": (16,)}
"""The weights of a layer."""


class Unrolled:
    """A decoder of 60 layers with norms and activations that are written out, unrolled until it has so many calls.

    ``make`` makes a call of an operator, which is named as in torch, on values and numbers.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.made = 0
        """The number of the calls."""

    def call(self, name: str, *args: Any) -> Any:
        self.made += 1
        return self.make(name, *args)

    def run(self, x: Any, layers: list[list[Any]], count: int) -> Any:
        """The result for an input; the weights of each layer stand in the order of ``SHAPES``."""
        while True:
            for layer in layers:
                x = self.layer(x, dict(zip(SHAPES, layer)))
                if self.made >= count:
                    return x

    def layer(self, x: Any, weights: Mapping[str, Any]) -> Any:
        call, y = self.call, self.norm(x, weights["before"])
        q, k, v = (call("linear", y, weights[name]) for name in "qkv")
        mixed = call("mul", call("softmax", call("mul", q, k)), v)
        x = call("add", x, call("linear", mixed, weights["o"]))
        y = self.norm(x, weights["after"])
        opened = call("linear", y, weights["gate"])
        opened = call("mul", opened, call("sigmoid", opened))
        inner = call("mul", opened, call("linear", y, weights["up"]))
        return call("add", x, call("linear", inner, weights["down"]))

    def norm(self, x: Any, gain: Any) -> Any:
        mean = self.call("mean", self.call("pow", x, 2.0))
        root_of = self.call("rsqrt", self.call("add", mean, 1e-6))
        return self.call("mul", gain, self.call("mul", x, root_of))


def decoder(count: int) -> fx.GraphModule:
    """The decoder as a module of torch."""
    mode, graph, root = FakeTensorMode(), fx.Graph(), torch.nn.Module()
    wide, row = (mode.from_tensor(torch.empty(size)) for size in ((1, 16), (1, 1)))
    targets = {
        "linear": aten.linear.default, "softmax": aten.softmax.int, "sigmoid": aten.sigmoid.default,
        "mean": aten.mean.dim, "pow": aten.pow.Tensor_Scalar, "rsqrt": aten.rsqrt.default, "add": aten.add.Tensor,
        "mul": aten.mul.Tensor,
    }  # fmt: skip
    more = {"mean": ([-1], True), "softmax": (-1,)}

    def make(name: str, x: fx.Node, *args: Any) -> fx.Node:
        node = graph.call_function(targets[name], (x, *args, *more.get(name, ())))
        is_row = name == "mean" or (name != "mul" and x.meta["val"] is row)
        node.meta["val"] = row if is_row else wide
        return node

    def param(name: str, shape: tuple[int, ...]) -> fx.Node:
        root.register_parameter(name, torch.nn.Parameter(torch.rand(shape), requires_grad=False))
        node = graph.get_attr(name)
        node.meta["val"] = mode.from_tensor(torch.empty(shape))
        return node

    x = graph.placeholder("x")
    x.meta["val"] = wide
    layers = [[param(f"{name}{number}", shape) for name, shape in SHAPES.items()] for number in range(LAYERS)]
    graph.output((Unrolled(make).run(x, layers, count),))
    return _LazyGraphModule(root, graph)


def copy_of(module: fx.GraphModule) -> fx.Graph:
    """A copy of the graph by torch."""
    new = fx.Graph()
    new.graph_copy(module.graph, {})
    return new


def relax_decoder(count: int) -> tuple[Any, dict[str, Any]]:
    """The decoder as a module of Relax of so many bindings, and its weights."""
    from tvm import relax, runtime

    builder, ops = relax.BlockBuilder(), relax.op

    def tensor(name: str, *shape: int) -> Any:
        return relax.Var(name, relax.TensorType(list(shape), "float32"))

    @functools.cache
    def number(value: float) -> Any:
        return relax.const(value, "float32")

    def make(name: str, *args: Any) -> Any:
        given = [number(arg) if isinstance(arg, float) else arg for arg in args]
        if name == "linear":
            decoder.made += 1
            given[1] = builder.emit(ops.permute_dims(given[1]))
        return builder.emit(functions[name](*given))

    functions: dict[str, Any] = {
        "linear": ops.matmul, "softmax": ops.nn.softmax, "sigmoid": ops.sigmoid, "pow": ops.power, "rsqrt": ops.rsqrt,
        "mean": lambda x: ops.mean(x, [-1], keepdims=True), "add": ops.add, "mul": ops.multiply,
    }  # fmt: skip
    decoder = Unrolled(make)
    x = tensor("x", 1, 16)
    layers = [[tensor(f"{name}{number}", *shape) for name, shape in SHAPES.items()] for number in range(LAYERS)]
    weights = [weight for layer in layers for weight in layer]
    with builder.function("main", [x, *weights], attrs={"num_input": 1}):
        with builder.dataflow():
            result = builder.emit_output(decoder.run(x, layers, count))
        builder.emit_func_output(result)
    values = {str(weight.name): torch.rand([int(size) for size in weight.ty.shape.values]) for weight in weights}
    return builder.get(), {name: runtime.tensor(value.numpy()) for name, value in values.items()}


def copy_of_relax(module: Any) -> Any:
    """A copy of the function by TVM, with variables and calls of its own."""
    from tvm.relax.utils import copy_with_new_vars

    return copy_with_new_vars(module["main"])


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


def on_relax_decoder(size: int) -> Found:
    """The same on the decoder in Relax."""
    module, weights = relax_decoder(size)
    rules = RuleSet(dict.fromkeys((*NORMAL, *IDIOMS)))
    return _found(size, rules, lambda: Workload.from_relax(module, weights), lambda: copy_of_relax(module))


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
    start = time.process_time()
    paused_collector(copy)()
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
    "decoder of 60 layers, unrolled (Relax)": on_relax_decoder,
    "circuit of random gates (nodes)": on_circuit,
}


def run(meter: Meter, largest: int) -> Section:
    """The graphs at all sizes, and weights of 20 GB."""
    section = Section("Large graphs and weights")
    rows = []
    for name, system in SYSTEMS.items():
        if system is on_relax_decoder and (reason := absent("Relax")):
            section.add(f"{name}: not measured, {reason}.")
            continue
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
        56 rules of `NORMAL` and `IDIOMS` on the decoders, thirty laws on the gates. *each*: of an operator of the graph
        that was given. *× the smallest*: microseconds of an operator, by those in the smallest graph. *× a copy*: by
        what copying the native graph takes in its own terms (`fx.Graph.graph_copy`, Relax's `copy_with_new_vars`, a
        loop in Python). The peak is that of the process, torch and the graph that was given included; before loading,
        it is taken off in the last column. A million is measured with `--largest 1000000`."""
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
