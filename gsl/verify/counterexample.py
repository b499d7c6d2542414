"""The smallest instance on which a rule fails (the decisions of one on which it does, made simpler, and then its
values), and a program in torch alone that runs both sides of it, and shows where they differ."""

from __future__ import annotations

import builtins
import keyword
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Graph, Node, TensorType, dtype_name
from gsl.graph.text import node_names
from gsl.spec import packed
from gsl.verify.choices import Choices, Dead, Drawn
from gsl.verify.models import comparison_on
from gsl.verify.models.program import domains_of, written_out
from gsl.verify.search import Outcome

MOST_TRIED = 300
"""The largest number of instances that are tried from one start."""
MOST_VALUES = 150
"""The largest number of times that simpler values are tried."""
BLOCKS = (8, 4, 2, 1)
"""The numbers of decisions that are left out at once."""


# ---------------------------------------------------------------- decisions


class Shrinking:
    """The search for the smallest failing instance, from one on which a rule fails.

    Of instances of one size, that of the simpler decisions is the smaller: of fewer, or of as many whose first one that
    differs is less. Where an instance takes more decisions than a tape has, the others are the simplest.
    """

    def __init__(
        self, tape: Sequence[int], generate: Callable[[Choices], Graph], attempt: Callable[[Graph], Outcome],
        first: Outcome,
    ) -> None:  # fmt: skip
        self.tape = tuple(tape)
        self.generate = generate
        self.attempt = attempt
        self.best = first
        self.size = size_of(first)[:-1]
        self.tapes: set[tuple[int, ...]] = set()
        """The tapes that were tried."""
        self.graphs: dict[str, Outcome | None] = {str(first.before): first}
        """The graphs that were tried, by text, with their outcomes if the rule fails on them."""

    def run(self) -> Outcome:
        """The smallest failing instance that is found."""
        while len(self.tapes) < MOST_TRIED and any(map(self._shorter, (_alike, _without, _lower, _lower_and_without))):
            pass
        return self.best

    def _shorter(self, candidates: Callable[[tuple[int, ...]], Iterator[tuple[int, ...]]]) -> bool:
        """True if the rule fails on a smaller instance of one of the candidates, which is then the best."""
        found, again = False, True
        while again:
            again = any(self._fails(tape) for tape in candidates(self.tape))
            found |= again
        return found

    def _fails(self, tape: tuple[int, ...]) -> bool:
        """True if the rule fails on the instance of these decisions, and it is smaller than the best."""
        if tape in self.tapes or len(self.tapes) >= MOST_TRIED:
            return False
        self.tapes.add(tape)
        taken: list[int] = []

        def draw(most: int) -> int:
            place = len(taken)
            taken.append(min(most, tape[place]) if place < len(tape) else 0)
            return taken[-1]

        try:
            graph = self.generate(Drawn(draw))
        except Dead:
            return False
        found = self._outcome(graph)
        if found is None:
            return False
        size = size_of(found)[:-1]
        if (size, len(taken), taken) >= (self.size, len(self.tape), [*self.tape]):
            return False
        self.best, self.size, self.tape = found, size, tuple(taken)
        return True

    def _outcome(self, graph: Graph) -> Outcome | None:
        """The outcome of a graph, if the rule fails on it."""
        text = str(graph)
        if text not in self.graphs:
            found = self.attempt(graph)
            self.graphs[text] = found if found.status == "different" else None
        return self.graphs[text]


def _without(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape without its end, and without some of its decisions; then with the simplest ones in their place."""
    yield ()
    yield tape[: len(tape) // 2]
    for count in BLOCKS:
        for start in range(0, len(tape), count):
            yield tape[:start] + tape[start + count :]
    for count in BLOCKS:
        for start in range(0, len(tape), count):
            if any(tape[start : start + count]):
                yield tape[:start] + (0,) * len(tape[start : start + count]) + tape[start + count :]


def _lower(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape with one decision halved, or less by one."""
    for place, value in enumerate(tape):
        for lower in dict.fromkeys((value // 2, value - 1)):
            if 0 < lower < value:
                yield (*tape[:place], lower, *tape[place + 1 :])


def _alike(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape with all decisions of one value lower: sizes that have to be equal."""
    for value in sorted({value for value in tape if value and tape.count(value) > 1}, reverse=True):
        for lower in dict.fromkeys((0, 1, value // 2, value - 1)):
            if lower < value:
                yield tuple([lower if each == value else each for each in tape])


def _lower_and_without(tape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The tape with one decision less by one, and without one that follows it: a rank and a size."""
    for place, value in enumerate(tape):
        for other in range(place + 1, min(place + 5, len(tape))) if value else ():
            yield (*tape[:place], value - 1, *tape[place + 1 : other], *tape[other + 1 :])


def size_of(outcome: Outcome) -> tuple[int, int, int, str]:
    """The size of an instance: its nodes, then its elements, then the text that stands for both sides."""
    nodes = outcome.before.nodes
    shapes: list[Any] = [node.type.shape for node in nodes if isinstance(node.type, TensorType)]
    text = str(outcome.before)
    return len(nodes), sum(map(math.prod, shapes)), len(text), text


# ---------------------------------------------------------------- values


SIMPLE = (0, 1, -1, 2, -2, 0.5)
"""The values that stand in for others, the simplest first."""


def with_simple_values(outcome: Outcome) -> Outcome:
    """The outcome on simpler values of the leaves, on which the same outputs differ in the same way."""
    comparison = outcome.comparison
    if outcome.after is None or not comparison.inputs:
        return outcome
    compare_on = comparison_on(outcome.before, outcome.after, comparison)
    if compare_on(comparison.inputs) is None:  # a difference that is small beside the values
        return outcome
    tried, domains = 0, domains_of(outcome.before)
    for name, tensor in comparison.inputs.items():
        for place in _places(tensor):
            for value in _simpler(comparison.inputs[name][place]):
                if tried == MOST_VALUES:
                    break
                tried += 1
                changed = comparison.inputs[name].clone()
                changed[place] = value
                if name in domains and domains[name].outside(changed) is not None:
                    continue
                found = compare_on({**comparison.inputs, name: changed})
                if found is not None:
                    comparison = found
                    break
    return replace(outcome, comparison=comparison)


def _places(tensor: Any) -> Iterator[Any]:
    """All of a tensor, then its elements."""
    yield ...
    if tensor.numel() > 1:
        yield from product(*map(range, tensor.shape))


def _simpler(part: Any) -> Iterator[Any]:
    """Simpler values than that of an element, or than those of several."""
    import torch

    options = (False,) if str(part.dtype) == "torch.bool" else SIMPLE[: None if part.dtype.is_floating_point else -1]
    first = part.reshape(-1)[:1].tolist() if part.numel() else []
    own = options.index(first[0]) if part.numel() == 1 and first[0] in options else len(options)
    yield from options[:own]
    size = abs(first[0]) if part.numel() == 1 else 0
    if 8 < size < math.inf:
        power = math.floor(math.log2(size))
        powers = (math.copysign(2**power, first[0]), math.copysign(2 ** (power + 1), first[0]))
        limits = (torch.finfo if part.dtype.is_floating_point else torch.iinfo)(part.dtype)
        yield from (number for number in powers if limits.min <= number <= limits.max)
    if part.dtype.is_floating_point and bool((part != part.trunc()).any()):
        yield part.trunc()


# ---------------------------------------------------------------- programs


_SHOW = '''\
for number, (a, b) in enumerate(zip(source({leaves}), target({leaves}))):
    print(f"output {{number}} of the source:", a, f"and of the target:", b, sep="\\n")
    assert a.shape == b.shape, f"output {{number}} has another shape: {{tuple(a.shape)}} and {{tuple(b.shape)}}"
    assert a.dtype == b.dtype, f"output {{number}} has another dtype: {{a.dtype}} and {{b.dtype}}"
    torch.testing.assert_close(b, a, rtol={rtol}, atol={atol}, equal_nan=True)
'''


def code(before: Graph, after: Graph, inputs: Mapping[str, Any] | None) -> str:
    """The program; running it raises where the two sides differ. ValueError for a graph that torch can't express.

    Floats are float64 in it where that shows the difference, for then no rounding is in the way. Operators of users are
    written out.
    """
    before, after = written_out(before), written_out(after)
    wide = _code(before, after, inputs, wide=True)
    if _shows(wide):
        return wide
    for tight in (False, True):  # a difference of a cast there and back may be below what is rounding elsewhere
        narrow = _code(before, after, inputs, wide=False, tight=tight)
        if _shows(narrow):
            return narrow
    return wide


def _shows(program: str) -> bool:
    """True if a run of the program shows the difference: by an assertion that fails, or by another error."""
    import contextlib
    import io

    scope: dict[str, Any] = {"__name__": "counterexample"}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(program, scope)
    except Exception:
        return True
    return False


def _code(
    before: Graph, after: Graph, inputs: Mapping[str, Any] | None, *, wide: bool, tight: bool = True
) -> str:
    import torch

    names = _names(before, after)
    leaves = [node for node in before.nodes if node.op in (INPUT, PARAM)]
    own = [names[node] for node in leaves]
    lines = ["import operator", "", "import torch", ""]
    for node in leaves:
        value = (inputs or {}).get(node.name)
        lines.append(f"{names[node]} = {_tensor_text(node.type, value, wide)}")
    rtol, atol = ("1e-9", "1e-12") if tight else ("1e-5", "1e-6")
    for title, graph in (("source", before), ("target", after)):
        lines += ["", "", f"def {title}({', '.join(own)}):"]
        lines += [f"    {line}" for line in _body(torch, graph, names, wide)]
    lines += ["", "", _SHOW.format(leaves=", ".join(own), rtol=rtol, atol=atol)]
    return "\n".join(lines)


def _names(before: Graph, after: Graph) -> dict[Node, str]:
    """A Python name for each node; leaves of one name are one value."""
    taken = {*dir(builtins), *keyword.kwlist, "torch", "operator", "source", "target"}
    names: dict[Node, str] = {}
    for graph in (before, after):
        for node, name in node_names(graph).items():
            names[node] = f"{name}_" if name in taken else name
    return names


def _body(torch: Any, graph: Graph, names: Mapping[Node, str], wide: bool) -> Iterator[str]:
    from gsl.front.fx import spellings
    from gsl.front.fx.spellings.linear import plain
    from gsl.front.fx.spellings.table import Native
    from gsl.front.fx.write import stand_in, type_of

    def text(value: Any) -> str:
        match value:
            case Native():
                arguments = [text(arg) for arg in value.args]
                arguments += [f"{key}={text(arg)}" for key, arg in value.kwargs.items()]
                if isinstance(value.target, str):
                    return f"{arguments[0]}.{value.target}({', '.join(arguments[1:])})"
                return f"{_function(torch, value.target)}({', '.join(arguments)})"
            case Node():
                return _operand(value)
            case torch.dtype():
                return _dtype(dtype_name(value), wide)
            case tuple():
                return f"({', '.join(map(text, value))}{',' * (len(value) == 1)})"
            case list():
                return f"[{', '.join(map(text, value))}]"
            case slice():
                return f"slice({text(value.start)}, {text(value.stop)}, {text(value.step)})"
        return _number_text(value)

    def _operand(node: Node) -> str:
        if node.op == CONST:
            value = node.attrs["value"]
            return text(value) if not hasattr(value, "shape") else names[node]
        if node.op == TUPLE:
            return text(tuple(node.operands))
        return names[node]

    for node in graph.nodes:
        if node.op == CONST and hasattr(node.attrs["value"], "shape"):
            yield f"{names[node]} = {_tensor_text(node.type, node.attrs['value'], wide)}"
        elif node.op == GETITEM:
            yield f"{names[node]} = {_operand(node.operands[0])}[{node.attrs['index']}]"
        elif node.op not in (INPUT, PARAM, CONST, TUPLE):
            operands = tuple([stand_in(operand) for operand in node.operands])
            op = str(node.op)
            if op in packed.NAMES:  # torch alone has no such kernels
                call = plain(op, node.attrs, operands, type_of)
            else:
                call = spellings.write(op, node.attrs, operands, type_of, "torch")
            yield f"{names[node]} = {text(call)}"
    yield f"return [{', '.join(map(_operand, graph.outputs))}]"


def _dtype(name: str, wide: bool) -> str:
    return f"torch.{'float64' if wide and 'float' in name else name}"


def _function(torch: Any, target: Any) -> str:
    """A name under which a program finds a function."""
    name = getattr(target, "__name__", "")
    for prefix, space in (
        ("torch.nn.functional.", torch.nn.functional), ("torch.", torch), ("operator.", operator),
        ("torch.special.", torch.special), ("torch.linalg.", torch.linalg), ("", builtins),
    ):  # fmt: skip
        if getattr(space, name, None) is target:
            return prefix + name
    if callable(target) and getattr(torch.Tensor, name, None) is target:
        return f"torch.Tensor.{name}"
    raise ValueError(f"{target} has no name in torch")


def _tensor_text(kind: Any, value: Any, wide: bool) -> str:
    assert isinstance(kind, TensorType)
    dtype = _dtype(kind.dtype, wide)
    if value is None:
        return f"torch.ones({kind.shape!r}, dtype={dtype})"
    items = value.reshape(-1).tolist()
    flat = f"torch.tensor([{', '.join(map(_number_text, items))}], dtype={dtype})"
    return flat if kind.shape == (len(items),) else f"{flat}.reshape({kind.shape!r})"


def _number_text(value: Any) -> str:
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
