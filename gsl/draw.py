"""The drawing of a view with graphviz: calls as boxes, weights small, what rules made outlined.

A region of a view is drawn with its neighbours: what matched in colour, what is beside it in grey.
"""

from __future__ import annotations

import html
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsl.errors import WorkloadError
from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Graph, Node, op_name
from gsl.graph.text import Hide, attribute_texts, hide_none, is_scalar, node_names, value_text
from gsl.spec import TABLE

if TYPE_CHECKING:
    import graphviz

FORMATS = ("svg", "png", "pdf", "dot")

_SMALL = {"fontsize": "9", "height": "0.2", "margin": "0.05,0.02"}
_STYLES: Mapping[str, Mapping[str, str]] = {
    INPUT: {"shape": "box", "style": "rounded,filled", "fillcolor": "#d9ead3"},
    PARAM: {"shape": "box", "style": "rounded,filled", "fillcolor": "#f3f3f3", "color": "#bbbbbb", **_SMALL},
    CONST: {"shape": "box", "style": "rounded,filled", "fillcolor": "#fff7dc", "color": "#bbbbbb", **_SMALL},
    TUPLE: {"shape": "plaintext", "style": "", **_SMALL},
    GETITEM: {"shape": "plaintext", "style": "", **_SMALL},
    "call": {"shape": "box", "style": "filled", "fillcolor": "#e4edf7"},
    "opaque": {"shape": "box", "style": "filled,dashed", "fillcolor": "#fafafa"},
    "output": {"shape": "box", "style": "rounded,filled", "fillcolor": "#ead9ef"},
}
_NEW = {"color": "#d9822b", "penwidth": "2"}
_MATCHED = {"fillcolor": "#fbd9a5", "style": "filled", "color": "#c77d1a", "fontcolor": "black"}
_BOUND = {"color": "#c77d1a"}
_BESIDE = {"fontcolor": "#8a8a8a", "color": "#c4c4c4", "fillcolor": "#fafafa"}
_EFFECT_COLOR = "#b03a2e"


def digraph(
    graph: Graph,
    *,
    name: str = "graph",
    params: bool = True,
    highlight: Mapping[Node, str] | None = None,
    hide: Hide = hide_none,
) -> graphviz.Digraph:
    """The drawing of a view. WorkloadError where the Python package graphviz is missing, or a node is not of the view.

    ``params=False`` leaves weights out; ``highlight`` fills nodes with a colour; ``hide`` leaves attributes out.
    """
    drawing = _empty(name)
    import graphviz

    colours = highlight or {}
    ids = {node: f"n{number}" for number, node in enumerate(graph.nodes)}
    names = node_names(graph)
    for node in colours:
        if node not in ids:
            raise WorkloadError(f"the node {node} to be highlighted is not in the view; take it from wl.graph")
    for node in graph.nodes:
        if _shown(node, params):
            style = _style(node)
            if node in colours:
                style |= {"fillcolor": colours[node], "style": "filled"}
            label = graphviz.escape(_label(node, names[node], hide))
            drawing.node(ids[node], label, tooltip=graphviz.escape(_tooltip(node, names[node])), **style)
            for operand in node.operands:
                if _shown(operand, params):
                    drawing.edge(ids[operand], ids[node])
            for dep in node.deps:
                drawing.edge(ids[dep], ids[node], style="dotted")
    for number, output in enumerate(graph.outputs):
        label = "output" if len(graph.outputs) == 1 else f"output {number}"
        drawing.node(f"out{number}", label, **_STYLES["output"])
        if _shown(output, params):
            drawing.edge(ids[output], f"out{number}")
    return drawing


def region(
    bound: Mapping[Node, str],
    covered: Iterable[Node],
    outputs: Iterable[Node] = (),
    *,
    name: str = "match",
    hide: Hide = hide_none,
) -> graphviz.Digraph:
    """The drawing of a part of a view with its neighbours, as which a match is shown.

    ``bound`` gives for every node what is written in it, the pattern that it matched; ``covered`` are those to be
    filled, ``outputs`` those with a thick outline. WorkloadError where the Python package graphviz is missing.
    """
    drawing = _empty(name)
    import graphviz

    inside, ends = dict.fromkeys(covered), set(outputs)
    own = dict.fromkeys((*bound, *inside))
    near = dict.fromkeys(n for node in inside for n in (*node.operands, *node.users) if n not in own)
    nodes = sorted((*own, *near), key=lambda node: node.index)
    ids = {node: f"n{number}" for number, node in enumerate(nodes) if not is_scalar(node)}
    for node, key in ids.items():
        style, lines = _style(node), [_label(node, node.name, hide)]
        if node in inside:
            style |= {**_MATCHED, "penwidth": "2.5" if node in ends else "1"}
        else:
            style |= _BOUND if node in own else _BESIDE
        if bound.get(node):
            lines.append(f"‹{bound[node]}›")
        drawing.node(key, graphviz.escape("\n".join(lines)), tooltip=graphviz.escape("%" + node.name), **style)
    for node, key in ids.items():
        for operand in node.operands:
            if operand in ids and (node in inside or operand in inside):
                drawing.edge(ids[operand], key, **({} if node in own and operand in own else {"color": "#c4c4c4"}))
    return drawing


def save(drawing: graphviz.Digraph, path: str | Path, *, stacklevel: int = 2) -> Path:
    """Write a drawing in the format of the path's suffix; returns where it was written.

    Without graphviz's program ``dot``, that is the text of the drawing, beside the path, and a warning says so.
    """
    from graphviz import ExecutableNotFound

    path = Path(path)
    format = path.suffix[1:].lower()
    if format not in FORMATS:
        known = ", ".join(f".{known}" for known in FORMATS)
        raise WorkloadError(f"can't write a drawing to {path.name!r}: its suffix should be one of {known}")
    if format != "dot":
        try:
            path.write_bytes(drawing.pipe(format=format))
            return path
        except ExecutableNotFound:
            wanted, path = path, path.with_suffix(".dot")
            warnings.warn(
                f"the program 'dot' was not found, so the drawing was written as text to {path}; "
                f"install graphviz to get {wanted}",
                stacklevel=stacklevel + 1,
            )
    path.write_text(drawing.source, encoding="utf-8")
    return path


def svg(drawing: graphviz.Digraph) -> str | None:
    """A drawing as SVG text, or ``None`` where graphviz's program ``dot`` is missing."""
    from graphviz import ExecutableNotFound

    try:
        rendered: str = drawing.pipe(format="svg", encoding="utf-8")
    except ExecutableNotFound:
        return None
    # The XML prolog has no place inside of an HTML page.
    return rendered[rendered.index("<svg"):]


def page(make: Callable[[], graphviz.Digraph], fallback: str) -> str:
    """What a notebook shows: the drawing that a function makes, or a text where there is no graphviz."""
    try:
        drawn = svg(make())
    except WorkloadError:
        drawn = None
    return pre(fallback) if drawn is None else drawn


def pre(text: str) -> str:
    """A text as HTML that keeps its lines."""
    return f"<pre>{html.escape(text)}</pre>"


def hide_defaults(node: Node, name: str, value: Any) -> bool:
    """True for an attribute that a reader can do without: derived, or equal to the operator's default."""
    spec = TABLE.get(node.op) if isinstance(node.op, str) else None
    if spec is None or name not in spec.attrs:
        return value is None
    attribute = spec.attrs[name]
    if attribute.derive is not None:
        return True
    try:
        default = spec.normalise(name, attribute.default, tuple(operand.type for operand in node.operands))
    except ValueError:
        return False
    return type(default) is type(value) and bool(default == value)


def hide_nothing(node: Node, name: str, value: Any) -> bool:
    """False: every attribute is shown."""
    return False


def _empty(name: str) -> graphviz.Digraph:
    try:
        import graphviz
    except ImportError as error:
        raise WorkloadError("drawing needs the Python package graphviz: pip install graphviz") from error
    return graphviz.Digraph(
        graphviz.escape(name),
        graph_attr={"rankdir": "TB", "ranksep": "0.3", "nodesep": "0.2"},
        node_attr={"fontname": "Helvetica", "fontsize": "11", "color": "#8899aa", "height": "0.3"},
        edge_attr={"color": "#667788", "arrowsize": "0.6"},
    )


def _shown(node: Node, params: bool) -> bool:
    return not is_scalar(node) and (params or node.op != PARAM)


def _style(node: Node) -> dict[str, Any]:
    kind = "opaque" if node.opaque else str(node.op)
    style = dict(_STYLES.get(kind, _STYLES["call"]))
    if node.effect is not None:
        style["color"] = _EFFECT_COLOR
    return style | _NEW if node.origin is not None else style


def _label(node: Node, name: str, hide: Hide) -> str:
    """Lines: the operator with scalar operands, its attributes, its type; for a leaf, its name and type."""
    if node.op == TUPLE:
        return "tuple"
    if node.op == GETITEM:
        return f"[{value_text(node.attrs['index'])}]"
    type = [] if node.type is None else [str(node.type)]
    if node.op in (INPUT, PARAM, CONST):
        return "\n".join([name, *type])
    title = op_name(node.op)
    if any(is_scalar(operand) for operand in node.operands):
        operands = [value_text(o.attrs["value"]) if is_scalar(o) else "·" for o in node.operands]
        title += f"({', '.join(operands)})"
    if node.effect is not None:
        title += f" !{node.effect.value}"
    return "\n".join([title, *attribute_texts(node, hide=hide), *type])


def _tooltip(node: Node, name: str) -> str:
    return f"%{name}" if node.origin is None else f"%{name}, made by the rule {node.origin.rule}"
