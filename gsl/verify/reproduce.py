"""A counterexample as a program in torch alone, which runs both sides and shows where they differ."""

from __future__ import annotations

import builtins
import keyword
import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Graph, Node, TensorType
from gsl.graph.text import node_names
from gsl.spec import packed
from gsl.verify.models.program import written_out

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
    except AssertionError:
        return True
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
        lines.append(f"{names[node]} = {_tensor_text(torch, node.type, value, wide)}")
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
                return _dtype(str(value).removeprefix("torch."), wide)
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
            yield f"{names[node]} = {_tensor_text(torch, node.type, node.attrs['value'], wide)}"
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
    outputs = [f"{_operand(node)}" for node in graph.outputs]
    yield f"return [{', '.join(outputs)}]"


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


def _tensor_text(torch: Any, kind: Any, value: Any, wide: bool) -> str:
    assert isinstance(kind, TensorType)
    dtype = _dtype(kind.dtype, wide)
    if value is None:
        return f"torch.ones({kind.shape!r}, dtype={dtype})"
    items = value.reshape(-1).tolist()
    flat = f"torch.tensor([{', '.join(map(_number_text, items))}], dtype={dtype})"
    return flat if kind.shape == (len(items),) else f"{flat}.reshape({kind.shape!r})"


def _number_text(value: Any) -> str:
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
