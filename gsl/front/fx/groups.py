"""Outlined groups in torch: a submodule that is a graph of its own, and the call of it.

A ``GraphModule`` calls the submodule like any other. An exported program may not call modules; there the call is
``invoke_subgraph``, torch's operator for that, which always returns a tuple. The name and the attributes of a group
stand in the metadata of its call, in torch's place for what users add (``custom``), which is saved with an exported
program.
"""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from gsl.errors import FrontEndError
from gsl.front.fx.handle import attribute
from gsl.front.fx.parameters import ModuleParameterStore
from gsl.front.fx.plan import is_written, plan_anew
from gsl.front.fx.spellings.table import Dialect
from gsl.graph import CONST, INPUT, TUPLE, Node, TupleType, op_name
from gsl.graph.subgraph import Subgraph

if TYPE_CHECKING:
    from gsl.front.fx.write import FxWriter

KEY: Final = "gsl_group"
"""The metadata key under which a call names its group."""

INVOKE: Final = torch.ops.higher_order.invoke_subgraph


def is_group(node: fx.Node) -> bool:
    """True for the call of an outlined group."""
    return KEY in (node.meta.get("custom") or {})


def module_of(node: fx.Node, root: torch.nn.Module) -> fx.GraphModule | None:
    """The graph of an outlined group that a native node calls; ``None`` if it does anything else."""
    if not is_group(node) or not (node.op == "call_module" or node.target is INVOKE):
        return None
    path = node.target if node.op == "call_module" else node.all_input_nodes[0].target
    module: Any = attribute(root, str(path))
    return module if isinstance(module, fx.GraphModule) else None


def operands_of(node: fx.Node) -> tuple[fx.Node, ...]:
    """The native operands of a call of an outlined group."""
    args = node.args if node.op == "call_module" else node.args[2:]
    return tuple([arg for arg in args if isinstance(arg, fx.Node)])


def number_of_fields(module: fx.GraphModule) -> int | None:
    """The number of values that an outlined group returns as a tuple; ``None`` if it returns one value as it is."""
    returned = module.graph.output_node().args[0]
    return len(returned) if isinstance(returned, (tuple, list)) else None


def label_of(node: fx.Node) -> tuple[str, dict[str, Any]]:
    """The name and the attributes of the group that a native node calls."""
    label = node.meta["custom"][KEY]
    return label["name"], _with(tuple, label["attrs"])


def check_group(group: Subgraph, operands: Sequence[Node], attrs: Mapping[str, Any], dialect: Dialect) -> None:
    """Raise FrontEndError for attributes of a group that can't be saved, and for tuples where torch takes tensors."""
    _check_attributes(group, attrs)
    if dialect == "torch":
        return
    taken = next((node for node in operands if isinstance(node.type, TupleType)), None)
    if taken is not None:
        raise FrontEndError(
            f"{group}: a group of aten operators takes tensors, and %{taken.name} is a tuple: let the rule match what "
            "makes it, or take its fields as they are"
        )
    outputs = group.body.outputs
    given = next((node for node in outputs if isinstance(node.type, TupleType)), None)
    if given is not None and len(outputs) > 1:
        raise FrontEndError(
            f"{group}: a group of aten operators returns tensors, and %{given.name} is a tuple among them: let the "
            "rule match its fields"
        )


def _check_attributes(group: Subgraph, attrs: Mapping[str, Any]) -> None:
    for name, value in attrs.items():
        if not _is_plain(value):
            raise FrontEndError(
                f"{group}: the attribute {name}={value!r} of a group must be made of numbers, strings, None, lists and "
                "mappings of strings"
            )


def _label(node: Node) -> dict[str, Any]:
    """The metadata of the call of a group."""
    return {KEY: {"name": op_name(node.op), "attrs": _with(list, dict(node.attrs))}}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _with(kind: Callable[[list[Any]], Any], value: Any) -> Any:
    """A value with sequences of one kind: lists in a saved program, and tuples in a view."""
    if isinstance(value, Mapping):
        return {key: _with(kind, item) for key, item in value.items()}
    return kind([_with(kind, item) for item in value]) if isinstance(value, (tuple, list)) else value


def are_fields(users: Iterable[fx.Node]) -> bool:
    """True if nothing but fields of a tuple is used."""
    return all(user.target is operator.getitem for user in users)


# ---------------------------------------------------------------- writing


def write_group(outer: FxWriter, node: Node) -> Any:
    """Write the call of a new group, and its graph: the native value of the call, or a tuple of them."""
    assert isinstance(node.op, Subgraph)
    check_group(node.op, node.operands, node.attrs, outer.dialect)
    operands = tuple([outer.value(operand) for operand in node.operands])
    module, values = _module(outer, node, operands)
    path = outer.parameters.add_graph(module, _path(node.op.name), outer.is_taken)
    if outer.dialect == "torch":
        call = outer.create("call_module", path, operands, {}, node.name, node)
        outer.fakes.set(call, values[0] if len(values) == 1 else values)
    else:
        reference = outer.add("get_attr", path, (), {}, outer.name(path))
        call = outer.create("call_function", INVOKE, (reference, path, *operands), {}, node.name, node)
        outer.fakes.set(call, values)
    call.meta["custom"] = {**call.meta.get("custom", {}), **_label(node)}
    if outer.dialect == "torch":
        return call
    fields = []
    for index, value in enumerate(values):
        field = outer.create("call_function", operator.getitem, (call, index), {}, "", node)
        outer.fakes.set(field, value)
        fields.append(field)
    return tuple(fields) if isinstance(node.type, TupleType) else fields[0]


def _module(outer: FxWriter, node: Node, operands: tuple[Any, ...]) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """The graph of a group, all of its nodes written anew, and the fake values of its outputs."""
    assert isinstance(node.op, Subgraph)
    body = node.op.body
    results: dict[Node, Any] = {}

    def value(view: Node) -> Any:
        if view.op == TUPLE:
            return tuple([value(operand) for operand in view.operands])
        return view.attrs["value"] if view.op == CONST else results[view]

    parameters = ModuleParameterStore(fx.GraphModule(torch.nn.Module(), fx.Graph(), class_name=_path(node.op.name)))
    inner = outer.inner(value, parameters)
    graph = inner.builder.graph
    for parameter, operand in zip([node for node in body.nodes if node.op == INPUT], operands):
        if not isinstance(operand, fx.Node):
            raise FrontEndError(f"{node.name}: the operand {operand!r} of a group is no tensor")
        results[parameter] = graph.placeholder(inner.name(parameter.name))
        inner.fakes.set(results[parameter], outer.fakes.values.value(operand))
        inner.sizes.note((results[parameter],))
    plan = plan_anew(body)
    for view in body.nodes:
        if is_written(view, plan):
            results[view] = inner.write(view, plan.joined.get(view))
    outputs = tuple([value(output) for output in body.outputs])
    if outer.dialect != "torch" and isinstance(node.type, TupleType) and len(outputs) == 1:
        outputs = _fields(inner, outputs[0], node.type)
    graph.output(outputs[0] if len(outputs) == 1 and outer.dialect == "torch" else outputs)
    graph.lint()
    module = parameters.finish(graph)
    module.recompile()
    return module, tuple([inner.fakes.values.value(output) for output in outputs])


def _fields(inner: FxWriter, whole: Any, type: TupleType) -> tuple[Any, ...]:
    """The fields of the tuple that a call within a group returns."""
    if isinstance(whole, tuple):
        return whole
    values = inner.fakes.values.value(whole)
    fields = []
    for place in range(len(type.fields)):
        name = inner.name("", "call_function", operator.getitem)
        fields.append(inner.add("call_function", operator.getitem, (whole, place), {}, name))
        inner.fakes.set(fields[-1], values[place])
    return tuple(fields)


def _path(name: str) -> str:
    """The name of a group as that of a submodule."""
    text = re.sub(r"\W+", "_", name)
    return f"_{text}" if text[:1].isdigit() or keyword.iskeyword(text) else text
