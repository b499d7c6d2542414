"""Drawings: what they show, how they are written, and that everything that can be shown draws itself."""

from __future__ import annotations

import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gsl import Match, RuleSet, Subst, Workload, is_op, op, pat, wildcard
from gsl.draw import (
    Box,
    Diagram,
    Drawing,
    Edge,
    Figure,
    Mark,
    Options,
    Panel,
    Style,
    before_after,
    boxes,
    check_expanded,
    clipped,
    diagram,
    wrapped,
)  # fmt: skip
from gsl.draw.labels import PALETTE, tint
from gsl.draw.scopes import by_weights
from gsl.errors import MissingPackageError, WorkloadError
from gsl.graph import Graph, Node
from gsl.rules import RULES
from tests.helpers.drawings import SVG, texts, view
from tests.helpers.graphs import Builder, graph


def drawn(view: Graph, **options: Any) -> list[str]:
    """The lines of text in the drawing of a view."""
    return texts(Drawing(Figure("view", (Panel("", diagram(view, Options(**options))),))).svg)


def found(rule: Subst) -> Match:
    return next(rule.match(view()))


# Text and edges -----------------------------------------------------------------------------------------------------


def test_long_texts_are_cut_and_broken() -> None:
    assert clipped("abcdef", 4) == "abc…"
    assert clipped("abcd", 4) == "abcd"
    assert wrapped("one two three", 8) == ["one two", "  three"]
    assert wrapped("a b c d", 1, lines=2)[-1].endswith(" …")


def test_an_edge_that_would_be_too_long_is_a_name() -> None:
    def make(b: Builder) -> Node:
        first = node = b.call("exp", b.input("x", 4))
        for _ in range(60):
            node = b.call("nn.relu", node)
        return b.call("add", node, first)

    assert "from %exp" in drawn(graph(make))


# What is drawn ----------------------------------------------------------------------------------------------------


def test_what_matched_is_coloured_and_labelled_with_its_pattern() -> None:
    x = wildcard()
    svg = found(Subst(op.ReLU(op.Conv2D(x, pat.Param())), x)).visualize().svg
    shown = texts(svg)
    for text in ("‹nn.conv2d(Wildcard, Param)›", "‹Wildcard›", "replaced", "covered", "bound by ‹a pattern›",
                 "beside the match", "add(·, 2.0)"):  # fmt: skip
        assert text in shown
    assert "exp" not in shown  # a user of a leaf is no neighbour
    # conv2d and relu are filled, and the two of the legend.
    assert svg.count('fill="#fbd9a5"') == 4


def test_use_relations_are_not_labels() -> None:
    shown = texts(found(Subst(is_op("nn.conv2d") ^ is_op("nn.relu"), lambda m: list(m.outputs))).visualize().svg)
    assert "‹nn.relu(...)›" in shown
    assert not [text for text in shown if "^" in text or " > " in text]


def test_long_patterns_are_cut() -> None:
    x = wildcard()
    rule = Subst(op.Add(op.ReLU(op.Conv2D(x, pat.Param(shape=(None, None, 1, 1)))), 2.0), x)
    assert [text for text in texts(found(rule).visualize().svg) if text.endswith("…›")]


def test_drawings_are_the_same_every_time_and_safe_to_embed() -> None:
    def make(b: Builder) -> Node:
        return b.call("exp", b.input("<script>&'\"", 4))

    first, second = (Drawing(Figure("a<b", (Panel("", diagram(graph(make), Options())),))).svg for _ in range(2))
    assert first == second
    assert "<script>" not in first
    assert "<script>&'\"" in texts(first)


def test_a_text_of_any_kind_is_drawn() -> None:
    """What Graphviz takes for an escape, for markup or for an entity, and what XML has no form for."""
    for text in ("\\N \\n \\", "<b>", "a & b &lt; &#9;", '"quoted"', "\x00\x1b", "", " ", "„…×日本😀", "-->", 'id="x"'):
        hints = Box(1, (text, text), hint=f"{text}\n{text}", marks=(Mark(text, PALETTE[0]),))
        frame = Box("frame", (text,), inside=(Box(2, (text,)),), marks=(Mark(text, PALETTE[1]),))
        made = Diagram((hints, frame), (Edge(1, 2, label=text),))
        svg = Drawing(Figure(text, (Panel(text, made, (text,)), Panel("p", made)), notes=(text,))).svg
        plain = "".join(c if c >= " " else "�" for c in text)
        assert any(plain.strip() in shown for shown in texts(svg)), text
        title = next(ElementTree.fromstring(svg).iter(f"{SVG}title"))
        assert (title.text or "").strip() == plain.strip()


def test_the_mouse_finds_all_that_is_known_of_a_node() -> None:
    svg = Drawing(Figure("f", (Panel("", Diagram((Box(1, ("x",), hint="a \\N <b> &lt;\nc"),))),))).svg
    hints = [link.get("{http://www.w3.org/1999/xlink}title") for link in ElementTree.fromstring(svg).iter(f"{SVG}a")]
    assert hints == ["a \\N <b> &lt;\nc"]
    assert len(list(ElementTree.fromstring(svg).iter(f"{SVG}title"))) == 1  # others would hide the hints


def test_an_edge_goes_through_frames_to_its_ends() -> None:
    source = Drawing(Figure("f", (Panel("", diagram(modules(1), Options(depth=2))),))).source
    labels = re.findall(r"^(n\d+) \[label=<(.*)>, style", source, re.MULTILINE)
    names = {name: re.findall(r"[^<>]+(?=<|$)(?![^<>]*>)", label)[0] for name, label in labels}
    edges = {(names[tail], names[head]) for tail, head in re.findall(r"^(n\d+) -> (n\d+)", source, re.MULTILINE)}
    assert ("nn.relu", "nn.dense") in edges
    assert ("add", "output") in edges


def test_panels_stand_side_by_side() -> None:
    panels = tuple(Panel(title, Diagram((Box(0, ("a",)), Box(1, ("b",))))) for title in ("one", "two", "three"))
    svg = Drawing(Figure("f", panels)).svg
    places = {"".join(text.itertext()): (float(text.get("x", 0)), float(text.get("y", 0)))
              for text in ElementTree.fromstring(svg).iter(f"{SVG}text")}  # fmt: skip
    assert places["one"][0] < places["two"][0] < places["three"][0]
    assert places["one"][1] == places["two"][1] == places["three"][1]


def test_a_drawing_gets_smaller_on_a_page_with_less_room() -> None:
    drawing = found(Subst(is_op("exp"), lambda m: list(m.outputs))).visualize()
    shown = str(drawing._repr_svg_())
    assert re.match(r'<svg role="img" width="[\d.]+" style="max-width:max\(100%,\d+px\);height:auto" height=', shown)
    assert " viewBox=" in shown


def test_a_file_tells_its_size_to_readers_that_know_no_styles() -> None:
    """Of a style ``height:auto``, CairoSVG and Inkscape make a height of nothing."""
    root = ElementTree.fromstring(found(Subst(is_op("exp"), lambda m: list(m.outputs))).visualize().svg)
    assert float(root.get("width", 0)) > 0
    assert float(root.get("height", 0)) > 0
    assert root.get("style") is None


@pytest.mark.parametrize("mark", [None, Mark("12", "#e69f00")], ids=["plain", "marked"])
def test_a_swatch_keeps_its_width_beside_a_long_note(mark: Mark | None) -> None:
    style = Style(fill="#f8e2b2", stroke="#e69f00", width=2)
    panels = (Panel("", Diagram((Box(0, ("a",)),))),)
    svg = Drawing(Figure("f", panels, ((style, mark, "a rule"),), ("a note of many words " * 9,))).svg
    (swatch,) = (part for part in ElementTree.fromstring(svg).iter(f"{SVG}polygon") if part.get("fill") == style.fill)
    across = [float(point.split(",")[0]) for point in str(swatch.get("points")).split()]
    assert 10 < max(across) - min(across) <= 20


def test_nothing_is_written_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert found(Subst(is_op("exp"), lambda m: list(m.outputs))).visualize().svg
    large = Diagram(tuple(Box(n, ("x",)) for n in range(1500)))
    assert Drawing(Figure("large", (Panel("", large),))).svg
    print("here", file=sys.stderr)
    assert capfd.readouterr() == ("", "here\n")


def test_no_program_of_graphviz_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    drawing = found(Subst(is_op("exp"), lambda m: list(m.outputs))).visualize(tmp_path / "match.png")
    assert (tmp_path / "match.png").read_bytes().startswith(b"\x89PNG")
    assert drawing.svg.startswith("<svg")


def test_without_the_package_there_is_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    rule = Subst(is_op("exp"), lambda m: list(m.outputs))
    for shown in (found(rule), rule, found(rule).visualize()):
        assert shown._repr_svg_() is None
    assert rule.explain(view())._repr_html_().startswith("<pre>")
    assert found(rule).visualize(tmp_path / "match.dot").source.startswith("digraph")
    for suffix in (".svg", ".png", ".pdf"):
        with pytest.raises(MissingPackageError, match=r"pip install 'gsl\[viz\]'"):
            found(rule).visualize(tmp_path / f"match{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == ["match.dot"]


@pytest.mark.parametrize(
    ("suffix", "magic"),
    [(".svg", b"<svg"), (".dot", b'digraph "match"'), (".PNG", b"\x89PNG"), (".pdf", b"%PDF")],
)
def test_a_drawing_is_written(tmp_path: Path, suffix: str, magic: bytes) -> None:
    match = found(Subst(is_op("exp"), lambda m: list(m.outputs)))
    path = tmp_path / f"match{suffix}"
    path.write_text("old")
    match.visualize(path)
    assert path.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [path]


def test_drawings_of_several_threads() -> None:
    drawings = [RULES[name].visualize() for name in ("conv-batch-norm", "parallel-conv-bias-variadic")] * 4
    wanted = [drawing.svg for drawing in drawings]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda drawing: Drawing(drawing.figure).svg, drawings)) == wanted


def test_traces_keep_their_lines() -> None:
    x = wildcard()
    _, trace = RuleSet([Subst(op.Exp(x), op.ReLU(x), name="r")]).apply(view())
    assert trace._repr_html_() == f"<pre>{trace}</pre>".replace("->", "-&gt;")


# Before and after -------------------------------------------------------------------------------------------------

X = wildcard()
FIRST = Subst(op.ReLU(op.Conv2D(X, pat.Param())), op.Sigmoid(op.Tanh(X)), name="first")
SECOND = Subst(op.Exp(X), op.Exp(op.Exp(X)), name="second")


def marks(svg: str) -> list[str]:
    return [text for text in texts(svg) if re.fullmatch(r"\d( ×\d+)?", text)]


def test_before_and_after_are_coloured_by_rule() -> None:
    before = view()
    after, trace = RuleSet([FIRST, SECOND]).apply(before)
    drawing = before_after(before, after, trace, options=Options())
    svg = drawing.svg
    shown = texts(svg)
    for text in ("before: 5 operators", "after: 7 operators", "first, once", "second, once"):
        assert text in shown
    # Two nodes before and two after of the first, one and two of the second, and one of each in the legend.
    assert marks(svg).count("1") == 5
    assert marks(svg).count("2") == 4
    assert svg.count(f'fill="{tint(PALETTE[0])}"') == 5
    assert svg.count(f'fill="{tint(PALETTE[1])}"') == 4


def test_what_no_rule_touched_has_no_colour() -> None:
    before = view()
    after, trace = RuleSet([Subst(op.Cos(X), X, name="none")]).apply(before)
    drawing = before_after(before, after, trace, options=Options())
    assert marks(drawing.svg) == []
    assert "no rule fired" in texts(drawing.svg)
    assert marks(before_after(before, after, None, options=Options()).svg) == []


def test_a_name_that_is_used_again_is_not_the_node_that_had_it() -> None:
    # The second rule matches what the first one made, which may be called like a node that is gone.
    rules = RuleSet([Subst(op.Exp(X), op.Tanh(X), name="a"), Subst(op.Tanh(X), op.Cos(X), name="b")])
    before = graph(lambda b: b.call("exp", b.input("x", 4)))
    after, trace = rules.apply(before, iterative=True)
    drawing = before_after(before, after, trace, options=Options())
    assert marks(drawing.svg) == ["1", "2", "1", "2"]  # before, after, legend


def test_colours_are_told_apart_without_seeing_them() -> None:
    for colour in PALETTE:
        red, green, blue = (int(tint(colour)[place : place + 2], 16) for place in (1, 3, 5))
        assert 0.299 * red + 0.587 * green + 0.114 * blue > 150  # black text is read on it
    names = ("exp", "tanh", "cos", "sin", "abs", "sqrt", "erf", "log")
    rules = [Subst(pat.Call(name, X), X, name=name) for name in names]
    before = graph(lambda b: [b.call(rule.name, b.input("x", 4)) for rule in rules])
    after, trace = RuleSet(rules).apply(before)
    found = marks(before_after(before, after, trace, options=Options()).svg)
    assert sorted(set(found)) == list("12345678")  # more rules than colours


# Modules ----------------------------------------------------------------------------------------------------------


def modules(layers: int, odd: int | None = None) -> Graph:
    """Layers of two dense calls and a residual sum; one of them may be another."""

    def make(b: Builder) -> Node:
        x = b.call("exp", b.call("nn.dense", b.input("x", 2, 4), b.param("embed.table.weight", 4, 4)))
        for i in range(layers):
            up = b.call("nn.dense", x, b.param(f"body.layer.{i}.up.weight", 8, 4))
            act = b.call("tanh" if i == odd else "nn.relu", up)
            down = b.call("nn.dense", act, b.param(f"body.layer.{i}.down.weight", 4, 8))
            x = b.call("add", down, b.call("nn.dense", x, b.param(f"body.layer.{i}.skip.weight", 4, 4)))
        return x

    return graph(make)


def test_weights_tell_the_modules_where_nothing_else_does() -> None:
    paths = by_weights(modules(2))
    calls = {node.name: ".".join(path) for node, path in paths.items()}
    assert calls["dense"] == "embed.table"
    assert calls["dense_1"] == "body.layer.0.up"
    assert calls["relu"] == "body.layer.0"
    exported = graph(lambda b: b.call("nn.dense", b.input("x", 2, 4), b.param("p_body_layer_0_up_weight", 4, 4)))
    assert list(by_weights(exported).values()) == [("body", "layer", "0", "up")]


def test_equal_layers_are_one_box() -> None:
    shown = drawn(modules(12), depth=0)
    assert "body.layer.0 … 11 ×12" in shown
    assert "5 operators each" in shown
    assert "nn.dense ×3, nn.relu, add" in shown
    assert "tanh" not in " ".join(shown)


def test_a_layer_that_differs_is_a_box_of_its_own() -> None:
    shown = drawn(modules(6, odd=2), depth=1)
    for title in ("layer.0 … 1 ×2", "layer.2", "layer.3 … 5 ×3"):
        assert title in shown


def test_layers_with_other_numbers_or_attributes_are_not_equal() -> None:
    def make(b: Builder) -> Node:
        x = b.input("x", 2, 4)
        for i, (factor, alpha) in enumerate([(2.0, 0.1), (2.0, 0.1), (3.0, 0.1), (3.0, 0.2)]):
            dense = b.call("nn.dense", x, b.param(f"layer.{i}.weight", 4, 4))
            x = b.call("multiply", b.call("nn.leaky_relu", dense, alpha=alpha), factor)
        return x

    titles = [text for text in drawn(graph(make), depth=0) if text.startswith("layer.")]
    assert titles == ["layer.0 … 1 ×2", "layer.2", "layer.3"]


def test_depth_and_expand_open_modules() -> None:
    view = modules(4)
    closed, opened = (drawn(view, depth=depth) for depth in (0, 1))
    assert "nn.relu" not in closed
    assert {"nn.relu", "body.layer.0 … 3 ×4"} <= {*opened}
    for name in ("body.layer.0", "body.layer.2", "body.layer.*", "*.layer.*", "body", "body.layer"):
        assert "nn.relu" in drawn(view, depth=0, expand=(name,))
    assert drawn(view, depth=0, expand=("elsewhere",)) == closed
    assert len([text for text in drawn(view, depth="all") if text == "nn.relu"]) == 4


def test_a_module_to_be_open_that_there_is_not() -> None:
    options = Options(lambda node: ("layer", "0") if node.op == "tanh" else (), expand=("layer.*", "layer.1"))
    with pytest.raises(WorkloadError, match=r"there is no module 'layer.1'; did you mean 'layer.0' or 'layer'\?"):
        check_expanded(graph(lambda b: b.call("tanh", b.input("x", 2))), options)


@pytest.mark.parametrize("depth", [-1, 1.5, True, "deep", None])
def test_a_depth_that_there_is_not(depth: Any) -> None:
    with pytest.raises(WorkloadError, match="depth= is a number of levels from 0 on, 'auto' or 'all', got "):
        Options(depth=depth)


def test_a_large_view_is_drawn_by_its_modules() -> None:
    large = modules(40, odd=17)
    assert boxes(large, Options()) < 60
    assert boxes(large, Options(depth="all")) == 40 * 5 + 2
    assert "layer.0 … 16 ×17" in drawn(large)


def test_rewrites_are_counted_in_closed_modules() -> None:
    before = modules(4)
    after, trace = Subst(op.ReLU(X), op.Tanh(op.Tanh(X)), name="r").apply(before)
    options = Options(depth=0)
    assert sorted(marks(before_after(before, after, trace, options=options).svg)) == ["1", "1 ×4", "1 ×4"]
    # With a colour on one of them only, layers are not equal any more.
    second = Subst(op.ReLU(X), op.Tanh(X), name="r", where=lambda m: m.outputs[0].name == "relu_1")
    one, trace = second.apply(before)
    shown = texts(before_after(before, one, trace, options=Options(depth=1)).svg)
    assert shown.count("layer.2 … 3 ×2") == 2
    assert shown.count("1 ×1") == 4  # the layer, and the frame around all layers


@pytest.mark.parametrize("seed", range(8))
def test_any_scopes_make_a_drawing(seed: int) -> None:
    """Modules may be entered again and again, in any order: a drawing is made of it all the same."""
    draw = random.Random(seed)

    def make(b: Builder) -> list[Node]:
        nodes = [b.input("x", 4)]
        for _ in range(40):
            kind, operands = draw.choice([("exp", 1), ("add", 2)])
            nodes.append(b.call(kind, *(draw.choice(nodes[-6:]) for _ in range(operands))))
        return nodes[-2:]

    view = graph(make)
    paths = {node: tuple(draw.choice("012") for _ in range(draw.randrange(4))) for node in view.nodes}
    for depth in (0, 1, 2, 3, "auto"):
        made = diagram(view, Options(paths.__getitem__, depth))
        assert Drawing(Figure("v", (Panel("", made),))).svg
        assert all(edge.tail != edge.head for edge in made.edges)


def test_a_path_that_is_none() -> None:
    with pytest.raises(WorkloadError, match=r"path= of Drawing.save is str \| Path, got 3 of type int"):
        Drawing(Figure("v", ())).save(3)  # type: ignore[arg-type]


def test_a_diagram_alone_has_no_clusters() -> None:
    made = diagram(graph(lambda b: b.call("nn.relu", b.input("x", 4))), Options())
    assert "subgraph" not in Drawing(Figure("v", (Panel("", made),))).source
    assert "subgraph" in Drawing(Figure("v", (Panel("title", made),))).source


@pytest.mark.long
def test_two_thousand_nodes_take_seconds() -> None:
    draw = random.Random(0)

    def make(b: Builder) -> Node:
        nodes = [b.input("x", 4)]
        for _ in range(2000):
            near, far = (min(int(draw.expovariate(rate)), len(nodes) - 1) for rate in (0.3, 0.01))
            nodes.append(b.call("add", nodes[-1 - near], nodes[-1 - far]))
        return nodes[-1]

    view = graph(make)
    start = time.process_time()
    svg = Drawing(Figure("large", (Panel("", diagram(view, Options(depth="all"))),))).svg
    assert time.process_time() - start < 15
    assert texts(svg).count("add") == 2000


# Workloads of torch -----------------------------------------------------------------------------------------------


def model(layers: int) -> Any:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return x + self.second(torch.relu(self.first(x)))

    return Workload.from_torch(nn.Sequential(*(Layer() for _ in range(layers))), (torch.randn(2, 4),), name="net")


@pytest.mark.torch
def test_torch_tells_the_modules() -> None:
    wl = model(3)
    assert "0 … 2 ×3" in texts(wl.visualize(depth=0).svg)
    # What a rewrite made is where that was which it replaced.
    new = Subst(op.ReLU(X), op.Tanh(op.Tanh(X)), name="r")(wl)
    assert "0 … 2 ×3" in texts(new.visualize(depth=0).svg)
    shown = texts(wl.before_after(new, depth=0).svg)
    assert shown.count("0 … 2 ×3") == 2
    assert shown.count("1 ×3") == 2
    assert "r, 3 times" in shown


@pytest.mark.torch
def test_the_modules_of_a_compiled_graph_are_read_as_those_of_others() -> None:
    fx = pytest.importorskip("torch.fx")
    from gsl.front.core.handle import Handle
    from gsl.front.fx.handle import FxReading, module_path

    up = ("layer", "0", "up")
    for written, path in (("L['self'].layer[0].up", up), ("layer.0.up", up), ("", ())):
        native = fx.Graph().placeholder("x")
        native.meta["nn_module_stack"] = {"outer": ("outer", object), "key": (written, object)}
        assert module_path(Node("exp", native=Handle(FxReading(native)))) == path


@pytest.mark.torch
def test_workloads_that_do_not_come_from_each_other_are_not_coloured() -> None:
    new = Subst(op.ReLU(X), op.Tanh(X), name="r")(model(2))
    shown = texts(model(1).before_after(new).svg)
    assert marks(model(1).before_after(new).svg) == []
    assert any("not coloured, as net does not come from net" in text for text in shown)


@pytest.mark.torch
def test_matches_are_coloured_before_they_are_rewritten() -> None:
    wl = model(2)
    rules = [Subst(op.ReLU(X), X, name="relu"), Subst(op.Dense(X, pat.Param()), X, name="dense")]
    shown = texts(wl.visualize(matches={rule.name: list(rule.match(wl)) for rule in rules}).svg)
    assert {"relu, 2 matches", "dense, 4 matches"} <= {*shown}
    assert shown.count("1") == 2 + 1
    assert shown.count("2") == 4 + 1
