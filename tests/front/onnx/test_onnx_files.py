"""Models as files: read with care, and written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.external_data_helper import set_external_data

from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError
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


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no file": (lambda folder: folder / "none.onnx", "there is no such file"),
    "a folder": (lambda folder: folder, "there is no such file"),
    "cut": (cut, "it holds no model"),
    "a cycle": (changed(cycle), "uses 'y' before it is computed"),
    "two values of a name": (changed(twice), "'a'"),
    "nobody computes it": (changed(nothing), "uses 'nobody' before"),
    "too old": (changed(old), "version 11 of ONNX's operators; those from 13"),
    "too new": (changed(future), "version 999"),
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
        Workload.from_onnx(path)
    assert message in str(caught.value)


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
