"""Relay: the cases of the first GSL, timed with whichever GSL is imported.

It is a program of its own: Relay needs an environment of its own, and both GSLs are packages of one name. What is
common to both notations is written once. Each line that it reads names a case; each line that it writes is the answer
in JSON: ``seconds`` of the processor, ``calls`` in the graph, ``changed``; or ``error``.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay import testing

import gsl
from gsl import Subst, op, pat

IS_FIRST = not hasattr(gsl, "RuleSet")
"""True if the first GSL is imported: https://github.com/wzh99/GSL."""
NAMED = {"parallel_two_dense": "parallel_dense", "conv_multiply": "conv_mul", "transpose_transpose": "trans_trans"}
"""The names of the first GSL's rules where they are others."""


# ---------------------------------------------------------------- graphs


def module_of(body: Any) -> Any:
    """The module of an expression, with types."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))


def dense(count: int) -> Any:
    """So many dense layers of one tensor."""
    x = relay.var("x", shape=(4, 8))
    return module_of(relay.Tuple([relay.nn.dense(x, relay.var(f"w{n}", shape=(8, 8))) for n in range(count)]))


def blocks(count: int) -> Any:
    """A chain of blocks, each the sum of two convolutions of one tensor."""
    x = relay.var("x", shape=(1, 4, 8, 8))
    for number in range(count):
        weights = [relay.var(f"{name}{number}", shape=(4, 4, 3, 3)) for name in "ab"]
        x = relay.add(*[relay.nn.conv2d(x, weight, padding=(1, 1)) for weight in weights])
    return module_of(x)


def convs(count: int) -> Any:
    """So many convolutions of one tensor, each with another padding."""
    x, weights = relay.var("x", shape=(1, 4, 8, 8)), [relay.var(f"w{n}", shape=(4, 4, 3, 3)) for n in range(count)]
    layers = [relay.nn.conv2d(x, weight, padding=(number, 1)) for number, weight in enumerate(weights)]
    return module_of(relay.Tuple(layers))


def chain(count: int, links: Sequence[str] = ("exp", "sqrt", "negative", "abs")) -> Any:
    """So many element-wise operators in a row."""
    x = relay.var("x", shape=(4, 8))
    for number in range(count):
        x = getattr(relay, links[number % len(links)])(x)
    return module_of(x)


def turns(count: int) -> Any:
    """A chain of two operators in turns."""
    return chain(count, ("exp", "sqrt"))


def inception(_: int) -> Any:
    """TVM's own inception_v3, which has one size."""
    return testing.inception_v3.get_workload(num_classes=10)[0]


# ---------------------------------------------------------------- rules


def book(name: str) -> Any:
    """A rule of the book."""
    if not IS_FIRST:
        return importlib.import_module("gsl.rules").RULES[name.replace("_", "-")]
    if name == "parallel_dense_variadic":
        return _first_dense()
    return getattr(importlib.import_module("rule"), NAMED.get(name, name))()


def _first_dense() -> Any:
    """The variadic rule of dense layers as the first GSL takes it: its own refers to a node that is not there yet."""
    attr: Any = importlib.import_module("gsl.attr")
    x, w1 = pat.Wildcard(), pat.Variable()
    w = pat.Variable(shape=(None, w1.shape[1]))
    layer = op.Dense(x, w)
    source: Any = pat.Variadic(layer, templates=[layer, w], first=[op.Dense(x, w1), w1], min_len=2)
    i, j = attr.Symbol(), attr.Symbol()
    weight = source(w, i)
    whole = op.Dense(x, op.Concatenate(pat.Variadic(weight, templates=[weight], index=i, length=source.length), axis=0))
    cuts = attr.Variadic(
        lambda n: attr.ReduceIndexed(attr.BinaryOp.ADD, lambda k: source(w, k).shape[0], n + 1),
        length=source.length - 1,
    )
    field = op.Split(whole, axis=-1, indices_or_sections=cuts)[j]
    return Subst(source, pat.Variadic(field, templates=[field], index=j))


def matching() -> Any:
    """A rule that fits a chain at each fourth operator."""
    x = pat.Wildcard()
    return Subst(op.Abs(pat.Call("negative", x)), op.Abs(x))


def absent() -> Any:
    """A rule both operators of which a chain has, but not in this order."""
    x = pat.Wildcard()
    return Subst(op.Exp(op.Exp(x)), op.Exp(x))


def nested(depth: int = 14) -> Any:
    """Alternatives within alternatives, each of which fits a chain of its two operators, but for the innermost."""
    leaf = pat.Wildcard()
    x: Any = op.Abs(leaf)
    for _ in range(depth):
        x = pat.Alt(op.Exp(x), op.Sqrt(x))
    return Subst(op.Exp(x), op.Exp(leaf))


# ---------------------------------------------------------------- cases


def rule_of(name: str) -> Any:
    """A rule of the book, or one of those above."""
    return MADE[name]() if name in MADE else book(name)


@lru_cache(maxsize=1)
def subject(kind: str, count: int = 0) -> tuple[Any, dict[str, Any]]:
    """A graph as a module, and random weights for all its variables but the input."""
    module = GRAPHS[kind](count)
    random = np.random.default_rng(0)
    shapes = {str(var.name_hint): tuple(map(int, var.checked_type.shape)) for var in module["main"].params}
    inputs = ("x", "data")
    return module, {name: random.random(shape, "float32") for name, shape in shapes.items() if name not in inputs}


GRAPHS: dict[str, Callable[[int], Any]] = {
    "dense": dense, "blocks": blocks, "convs": convs, "chain": chain, "turns": turns, "inception": inception
}  # fmt: skip
MADE: dict[str, Callable[[], Any]] = {"matching": matching, "absent": absent, "nested": nested}


class _Kept(dict):  # type: ignore[type-arg]
    """The types of the first GSL, which deletes one that it still needs where TVM keeps an expression as it was."""

    def __delitem__(self, key: Any) -> None:
        pass


def runs(name: str) -> Iterator[dict[str, Any]]:
    """The answers of one run of a case after the other, each on a fresh workload.

    A case is the kind of a graph, its size where it has one, and a rule: ``"chain 400 matching"``.
    """
    kind, *size, rule_name = name.split()
    module, weights = subject(kind, *map(int, size))
    rule = rule_of(rule_name)
    seconds, new, old = _timed(rule, module, weights)
    told = {"calls": calls(module), "changed": not tvm.ir.structural_equal(new, old)}
    while True:
        yield {"seconds": seconds, **told}
        rule = rule_of(rule_name) if IS_FIRST else rule
        seconds, _, _ = _timed(rule, module, weights)


def _timed(rule: Any, module: Any, weights: dict[str, Any]) -> tuple[float, Any, Any]:
    """The seconds that a rule takes on a fresh workload, and the modules after it and before it."""
    workload = gsl.Workload(module, weights)
    gc.collect()
    start = time.process_time()
    new = rule(workload, fold_params=False).mod
    return time.process_time() - start, new, workload.mod


def calls(module: Any) -> int:
    """The number of calls of a module."""
    found: list[Any] = []
    relay.analysis.post_order_visit(
        module["main"], lambda expr: found.append(expr) if isinstance(expr, relay.Call) else None
    )
    return len(found)


def main() -> None:
    """Answer line by line."""
    if IS_FIRST:
        sys.setrecursionlimit(100_000)
        mapper = importlib.import_module("gsl.rewrite")._TypeMapper
        made = mapper.__init__

        def keep(self: Any) -> None:
            made(self)
            self.ty_map = _Kept()

        mapper.__init__ = keep
    known: tuple[str, Iterator[dict[str, Any]]] = "", iter(())
    for line in sys.stdin:
        name = line.strip()
        try:
            known = known if known[0] == name else (name, runs(name))
            answer = next(known[1])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:60]}"}
            known = "", iter(())
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
