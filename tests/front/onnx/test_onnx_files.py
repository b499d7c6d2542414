"""Models as files: read with care, and written whole or not at all."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.external_data_helper import set_external_data

from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError, PicklingError
from gsl.front.onnx.files import opened
from gsl.graph import PARAM
from gsl.onnx import Pass
from tests.front.onnx.onnx_helpers import check, model, workload

X = pat.Wildcard()
RELUS = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relus")


def proto(*args: str, **kwargs: str) -> onnx.ModelProto:
    return ir.to_proto(model(*args, **kwargs))


def external(folder: Path, location: str = "w.bin", data: bytes | None = None) -> Path:
    """A model whose weight lies in another file."""
    values = np.arange(6, dtype=np.float32)
    made = proto("a = Relu(x) b = Relu(a) y = Add(b, w)", more="float[2,3] w = {0, 1, 2, 3, 4, 5}")
    (weight,) = made.graph.initializer
    weight.ClearField("float_data")
    weight.raw_data = b""
    set_external_data(weight, location)
    weight.ClearField("raw_data")
    (folder / "w.bin").write_bytes(values.tobytes() if data is None else data)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_a_file_and_a_proto(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    wl = workload("a = Relu(x) y = Relu(a)")
    wl.save(path)
    assert [item.name for item in tmp_path.iterdir()] == ["model.onnx"]
    for source in (path, str(path), onnx.load(path)):
        again = Workload.from_onnx(source)
        assert again.text() == wl.text()
    assert Workload(onnx.load(path)).text() == wl.text()


def test_weights_in_other_files_are_not_copied(tmp_path: Path) -> None:
    path = external(tmp_path)
    wl = Workload.from_onnx(path)
    (weight,) = wl.params.values()
    assert isinstance(weight, ir.ExternalTensor)
    new = RELUS(wl)
    assert next(iter(new.params.values())) is weight
    wl.compare(new).check()
    (tmp_path / "other").mkdir()
    new.save(tmp_path / "other" / "new.onnx")
    assert sorted(item.name for item in (tmp_path / "other").iterdir()) == ["new.data", "new.onnx"]
    onnx.checker.check_model(str(tmp_path / "other" / "new.onnx"), full_check=True)
    wl.compare(Workload.from_onnx(tmp_path / "other" / "new.onnx")).check()
    # Also over the files from which it was read.
    new.save(path)
    wl.compare(Workload.from_onnx(path)).check()


def test_tensors_within_nodes_lie_in_other_files(tmp_path: Path) -> None:
    """Constants, and initialisers of a graph in a node: they run, and are saved with the model."""
    constant = "Constant <value = float[2,3] {0, 0, 0, 0, 0, 0}> ()"
    path = written(
        f"""k = {constant} a = Relu (x) b = Relu (a) d = Add (b, k)
        e = If (c) <then_branch = one () => (float[2,3] u) <float[2,3] w = {{0, 0, 0, 0, 0, 0}}> {{ u = Add (d, w) }},
                    else_branch = two () => (float[2,3] v) {{ l = {constant} v = Sub (d, l) }}> y = local.f (e)""",
        f'<domain: "local", opset_import: ["" : 22]> f (u) => (v) {{ m = {constant} v = Add (u, m) }}',
    )(tmp_path)
    native = ir.load(path)
    outside = ir.ExternalTensor("w.bin", 0, 24, ir.DataType.FLOAT, shape=ir.Shape([2, 3]), name="w")
    for graph in (native.graph, *native.graph.subgraphs(), *(each.graph for each in native.functions.values())):
        for value in graph.initializers.values():
            value.const_value = outside
        for node in graph:
            if node.op_type == "Constant":
                node.attributes.add(ir.AttrTensor("value", outside))
    (tmp_path / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    path.write_bytes(ir.to_proto(native).SerializeToString())
    x, by = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    new = RELUS(Workload.from_onnx(path))
    (tmp_path / "other").mkdir()
    new.save(tmp_path / "other" / "new.onnx")
    for wl in (new, Workload.from_onnx(tmp_path / "other" / "new.onnx")):
        for runtime in ("onnxruntime", "reference"):
            wl.build(runtime=runtime)
            np.testing.assert_array_equal(wl(np.array(True), x), x + 3 * by)
            np.testing.assert_array_equal(wl(np.array(False), x), x + by)


@pytest.mark.skipif(sys.platform != "linux", reason="files with holes, and the memory of a process, as Linux has them")
def test_large_weights_are_not_read(tmp_path: Path) -> None:
    """Three gigabytes in a file with a hole are opened and rewritten in the memory that a small model takes."""
    made = proto("a = Relu(x) b = Relu(a) y = Add(b, w)", more="float[2,3] w = {0, 1, 2, 3, 4, 5}")
    (weight,) = made.graph.initializer
    weight.ClearField("float_data")
    weight.dims[:] = [250_000_000, 3]
    weight.raw_data = b""
    set_external_data(weight, "w.bin")
    weight.ClearField("raw_data")
    del made.graph.value_info[:]
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(3_000_000_000)
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    before = resident()
    new = RELUS(Workload.from_onnx(tmp_path / "model.onnx"))
    assert new.trace.count() == 1
    assert isinstance(next(iter(new.params.values())), ir.ExternalTensor)
    assert resident() - before < 200_000_000


def resident() -> int:
    """The bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_cannot_be_saved_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    wl = workload("y = Add(x, w)", more="float[2,3] w = {0, 1, 2, 3, 4, 5}")
    wl.model.graph.initializers["w"].const_value = ir.ExternalTensor(
        "gone.bin", 0, 24, ir.DataType.FLOAT, shape=ir.Shape([2, 3]), name="w", base_dir=str(tmp_path)
    )
    with pytest.raises(FrontEndError, match="can't be saved"):
        wl.save(path)
    assert path.read_bytes() == b"before"
    assert [item.name for item in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none/model.onnx", "there is no folder"), ("folder", "is a folder"), ("pipe", "is a device or a pipe")],
)
def test_where_nothing_can_be_saved(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FrontEndError, match=f"the model can't be saved: .*{reason}"):
        workload("y = Relu(x)").save(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, real = tmp_path / "model.onnx", tmp_path / "real" / "mine.onnx"
    real.write_bytes(b"old")
    link.symlink_to(real)
    old = Workload.from_onnx(external(tmp_path))
    old.save(link)
    assert link.is_symlink()
    assert sorted(item.name for item in real.parent.iterdir()) == ["mine.data", "mine.onnx"]
    old.compare(Workload.from_onnx(link)).check()


def empty(folder: Path) -> Path:
    (folder / "empty.onnx").write_bytes(b"")
    return folder / "empty.onnx"


def cut(folder: Path) -> Path:
    path = folder / "cut.onnx"
    path.write_bytes(proto("a = Relu(x) y = Relu(a)").SerializeToString()[:-9])
    return path


def changed(change: Callable[[onnx.ModelProto], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        made = proto("a = Relu(x) y = Relu(a)")
        change(made)
        path = folder / "changed.onnx"
        path.write_bytes(made.SerializeToString())
        return path

    return make


def cycle(made: onnx.ModelProto) -> None:
    made.graph.node[0].input[0] = "y"


def twice(made: onnx.ModelProto) -> None:
    made.graph.node[1].output[0] = "a"
    made.graph.output[0].name = "a"


def nothing(made: onnx.ModelProto) -> None:
    made.graph.node[0].input[0] = "nobody"


def old(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 11


def future(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 999


def unnumbered(made: onnx.ModelProto) -> None:
    del made.opset_import[:]


def short(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[2, 3], float_data=[1.0]))


def short_and_large(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[200, 300], raw_data=b"1234"))


def untyped(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(onnx.TensorProto(name="w", dims=[2, 3], raw_data=b"1234"))


def negative(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[-2, 3], raw_data=b"1234"))


def doubled(made: onnx.ModelProto) -> None:
    for _ in range(2):
        made.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[1], float_data=[1.0]))


def sparse(made: onnx.ModelProto) -> None:
    values, places = (onnx.helper.make_tensor(name, kind, [1], [1]) for name, kind in (("s", 1), ("", 7)))
    made.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [2, 3]))
    made.graph.node[0].input[0] = "s"


def trained(made: onnx.ModelProto) -> None:
    made.training_info.add().algorithm.name = "step"


def written(main: str, functions: str = "") -> Callable[[Path], Path]:
    """A model as text, with an ``If`` or functions."""
    def make(folder: Path) -> Path:
        head = '<ir_version: 10, opset_import: ["" : 22, "local" : 1]> main (bool c, float[2,3] x) => (float[2,3] y)'
        path = folder / "written.onnx"
        path.write_bytes(onnx.parser.parse_model(f"{head} {{ {main} }} {functions}").SerializeToString())
        return path

    return make


BRANCH = """{0} = If (c) <then_branch = one () => (float[2,3] u) {{ u = Relu ({1}) }},
                          else_branch = two () => (float[2,3] v) {{ v = Abs (x) }}> {2}"""
FUNCTION = '<domain: "local", opset_import: ["" : 22, "local" : 1]> {0} (u) => (v) {{ v = {1} }}'

HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no file": (lambda folder: folder / "none.onnx", "there is no such file"),
    "a folder": (lambda folder: folder, "this is no file"),
    "an empty file": (empty, "it holds no model of ONNX: the model has no graph"),
    "cut": (cut, "it holds no model"),
    "a cycle": (changed(cycle), "uses 'y' before it is computed"),
    "two values of a name": (changed(twice), "'a'"),
    "nobody computes it": (changed(nothing), "uses 'nobody' before"),
    "too old": (changed(old), "version 11 of ONNX's operators; those from 13"),
    "too new": (changed(future), "version 999"),
    "no version": (changed(unnumbered), "does not tell the version"),
    "data that don't fit": (changed(short), "the data of tensor 'w' don't fit"),
    "large data that don't fit": (changed(short_and_large), "the data of tensor 'w' don't fit"),
    "a tensor of no dtype": (changed(untyped), "the dtype UNDEFINED"),
    "a negative size": (changed(negative), "the shape [-2,3]"),
    "two initialisers of a name": (changed(doubled), "two initialisers of the name 'w'"),
    "a sparse initialiser": (changed(sparse), "the initialiser 's' is sparse"),
    "how it is trained": (changed(trained), "training_info"),
    "nobody computes it, inside": (written(BRANCH.format("y", "nobody", "")), "uses 'nobody' before"),
    "too early, inside": (written(BRANCH.format("t", "y", "y = Relu (t)")), "TopologicalSortPass"),
    "too early, for several results": (
        written("y, z = Split <axis = 0> (x, s) s = Constant <value = int64[2] {1, 1}> ()"), "uses 's' before"
    ),
    "a cycle inside": (written(BRANCH.format("y", "u", "")), "uses 'u' before"),
    "nobody computes it, in a function": (
        written("y = local.f (x)", FUNCTION.format("f", "Relu (w)")), "uses 'w' before"
    ),
    "a function that calls itself": (
        written("y = local.f (x)", FUNCTION.format("f", "local.g (u)") + FUNCTION.format("g", "local.f (u)")),
        "of the model calls itself",
    ),
    "two functions of a name": (
        written("y = local.f (x)", FUNCTION.format("f", "Relu (u)") * 2), "two functions of the name"
    ),
    "outside of the folder": (lambda folder: external(folder, "../w.bin"), "outside of the folder"),
    "an absolute path": (lambda folder: external(folder, "/etc/hostname"), "outside of the folder"),
    "no data": (lambda folder: external(folder, "v.bin"), "there is no such file"),
    "too few data": (lambda folder: external(folder, data=b"1234"), "24 bytes of it are not to be found"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str, tmp_path: Path) -> None:
    make, message = HOSTILE[name]
    path = make(tmp_path)
    with pytest.raises(FrontEndError) as caught:
        Workload.from_onnx(path).text()
    assert message in str(caught.value)
    try:
        model = opened(path)
    except FrontEndError:
        return
    for rules in (RELUS, Subst(op.Acosh(op.Asinh(X)), X, name="never")):
        with pytest.raises(FrontEndError) as by_pass:  # which checks what it is given on the way
            Pass(rules)(model)
        assert str(by_pass.value) == str(caught.value)


def test_attributes_of_another_kind_are_not_read() -> None:
    made = proto("y = Softmax<axis: int = 1>(x)")
    made.graph.node[0].attribute[0].CopyFrom(onnx.helper.make_attribute("axis", "one"))
    assert [str(node.op) for node in Workload(made).graph] == ["input", "onnx::Softmax"]
    made = proto("y = Clip(x, x, x, x, x)")
    assert [str(node.op) for node in Workload(made).graph] == ["input", "onnx::Clip"]


def test_saved_models_are_valid(tmp_path: Path) -> None:
    wl = RELUS(workload("a = Relu(x) b = Relu(a) y = Exp(b)"))
    wl.save(tmp_path / "new.onnx")
    check(Workload.from_onnx(tmp_path / "new.onnx").model)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_is_a_workload_of_its_own(way: str, tmp_path: Path) -> None:
    """Also of a long model, and of one whose weights lie in another file, which may be gone then."""
    calls = " ".join(f"v{number + 1} = Abs(v{number})" for number in range(2000))
    example = np.ones((2, 3), np.float32)
    long = Workload.from_onnx(model(f"v0 = Relu(x) {calls} a = Relu(v2000) y = Relu(a)"), [example])
    outside = Workload.from_onnx(external(tmp_path))
    for wl in (long, RELUS(long), outside):
        expected = wl(example)
        new = copy.deepcopy(wl) if way == "deepcopy" else pickle.loads(pickle.dumps(wl))
        if wl is outside:
            (tmp_path / "w.bin").unlink()
        assert (new.name, new.text()) == (wl.name, wl.text())
        assert (new.example_inputs is None) == (wl is outside)
        np.testing.assert_array_equal(new(example), expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [3, 3000])
def test_the_numbers_of_a_file_are_weights_without_a_warning(size: int, tmp_path: Path) -> None:
    """They may not be written; what is a few numbers may."""
    numbers = np.arange(size, dtype=np.float32)
    graph = ir.Graph([], [], nodes=[], initializers=[], opset_imports={"": 20}, name="g")
    weight = ir.Value(name="w", const_value=ir.Tensor(numbers, name="w"))
    graph.register_initializer(weight)
    graph.append(ir.node("Relu", [weight]))
    graph.outputs.append(graph[0].outputs[0])
    ir.save(ir.Model(graph, ir_version=10), tmp_path / "model.onnx")
    (found,) = [node.attrs["value"] for node in Workload.from_onnx(tmp_path / "model.onnx").graph if node.op == PARAM]
    np.testing.assert_array_equal(found.numpy(), numbers)


def test_a_model_that_is_no_message_is_not_pickled() -> None:
    wl = workload("y = Add(x, w)", more="float[2,3] w = {0, 1, 2, 3, 4, 5}")
    wl.model.graph.initializers["w"].const_value = ir.ExternalTensor(
        "gone.bin", 0, 24, ir.DataType.FLOAT, shape=ir.Shape([2, 3]), name="w"
    )
    with pytest.raises(PicklingError, match=r"can't be written as one message: .*gone\.bin"):
        pickle.dumps(wl)
