"""Files of models that are broken, hostile, or something else: one line says what is wrong, and nothing is run."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gsl import Workload
from gsl.cli import exported, ir_modules, models
from gsl.cli.command import process_class
from gsl.errors import FrontEndError
from tests.cli.conftest import Run

PROGRAM = "models/model.json"
CODE = "__import__('os').system('touch exploded')"


def archive(change: dict[str, Any], saved: bytes) -> bytes:
    """A saved program, some records of which are others; a function changes what a record is."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved)) as old, zipfile.ZipFile(stream, "w") as new:
        root = old.namelist()[0].partition("/")[0]
        records = {name.partition("/")[2]: old.read(name) for name in old.namelist()}
        for short, content in change.items():
            records[short] = content(records[short]) if callable(content) else content
        for short, content in records.items():
            if content is not None:
                new.writestr(f"{root}/{short}", content)
    return stream.getvalue()


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    """What replaces a text in a record, where it has to be."""

    def change(content: bytes) -> bytes:
        assert old in content.decode()
        return content.decode().replace(old, new, 1).encode()

    return change


class Bomb:
    """What leaves a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return (open, ("exploded", "w"))


def pickled() -> bytes:
    stream = io.BytesIO()
    torch.save(Bomb(), stream)
    return stream.getvalue()


def expanding(saved: bytes) -> bytes:
    """An archive that says that one of its records is 2 TiB long."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        opened.writestr("archive/models/model.json", "{}")
        opened.getinfo("archive/models/model.json").file_size = 1 << 41
    return stream.getvalue()


def squeezed(content: bytes) -> Callable[[bytes], bytes]:
    """An archive with a compressed record of that content."""

    def made(saved: bytes) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as opened:
            opened.writestr("archive/models/model.json", content)
        return stream.getvalue()

    return made


def weights(saved: bytes) -> bytes:
    stream = io.BytesIO()
    torch.save({"w": torch.ones(2)}, stream)
    return stream.getvalue()


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda saved: b"", "is empty"),
    "text": (lambda saved: b"not an archive", "is not an archive that torch.export.save wrote, or only a part of one"),
    "truncated": (lambda saved: saved[: len(saved) // 2], "or only a part of one: File is not a zip file"),
    "an end alone": (lambda saved: saved[-22:], "or only a part of one: "),
    "half a program": (lambda saved: archive({PROGRAM: b"{"}, saved), "Expecting property name"),
    "deep": (lambda saved: archive({PROGRAM: b"[" * 100_000}, saved), "models/model.json: maximum recursion depth"),
    "another program": (lambda saved: archive({PROGRAM: b"[1, 2]"}, saved), "can't be read as a model of"),
    "no program": (lambda saved: archive({PROGRAM: None}, saved), "there is no program in it"),
    "weights": (weights, "weights or modules that torch.save or torch.jit.save wrote can't be rewritten: export"),
    "another version": (lambda saved: archive({"archive_version": b"99"}, saved), "version 99 does not match"),
    "a newer schema": (
        lambda saved: archive({PROGRAM: replaced('"major": 8', '"major": 800')}, saved),
        "does not match our current schema version",
    ),
    "a missing weight": (lambda saved: archive({"data/weights/weight_0": None}, saved), "there is no tensor weight_0"),
    "half a weight": (lambda saved: archive({"data/weights/weight_0": b"\0" * 8}, saved), "can't be read as a model"),
    "no list of weights": (lambda saved: archive({"data/weights/model_weights_config.json": b"7"}, saved),
                           "the list of its tensors can't be read"),
    "it expands": (expanding, f"would unpack to {1 << 41}, which is too much"),
    "many lists": (squeezed(b"[" + b"[]," * 10_000_000 + b"[]]"), "would unpack to 30000004, which is too much"),
}  # fmt: skip
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "pickled inputs": ({"data/sample_inputs/model.pt": pickled()}, "Weights only load failed"),
    "pickled weights": ({"data/weights/model.pt": pickled()}, "Weights only load failed"),
    "a pickled object": ({"data/constants/opaque_obj_0": pickled()}, "has pickled objects (archive/data/constants/"),
    "a pickled object of C++": ({"data/constants/custom_obj_0": pickled()}, "has pickled objects"),
    "an object among constants": (
        {"data/constants/model_constants_config.json": json.dumps({"config": {"c": {
            "path_name": "opaque_obj_/../weights/weight_0", "is_param": False, "use_pickle": True}}}).encode()},
        "has pickled objects (opaque_obj_/../weights/weight_0)"),
    "a size": ({PROGRAM: replaced('"as_int": 2', f'"as_expr": {{"expr_str": "{CODE}", "hint": null}}')},
               "a call of __import__('os').system"),
    "a guard": ({PROGRAM: replaced('"guards_code": []', f'"guards_code": ["{CODE}"]')}, "the attribute system"),
    "an operator": ({PROGRAM: replaced("torch.ops.aten.relu.default", "torch.os.system")},
                    "Operator '<built-in function system>' is not an allowed operator type"),
    "an input": ({PROGRAM: replaced('"name": "x"', f'"name": "x={CODE}"')}, "more than a name in"),
    "a keyword": ({PROGRAM: replaced('"name": "input"', f'"name": "input={CODE}, y"')}, "more than a name in"),
    "a factory": ({PROGRAM: lambda content: re.sub(
        rb'"in_spec": "(.*?[^\\])"', json.dumps({"in_spec": json.dumps([1, {
            "type": "collections.defaultdict", "context": json.dumps({"default_factory_module": "antigravity"})}])}
        ).encode()[1:-1].replace(b"\\", b"\\\\"), content)}, "more than names"),
}  # fmt: skip
"""What would be run, and what says that it is not."""


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_models(kind: str, here: Path, saved: bytes, gsl: Run) -> None:
    make, text = BROKEN[kind]
    (here / "broken.pt2").write_bytes(make(saved))
    refused(here, gsl, "broken.pt2", text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_models(kind: str, here: Path, saved: bytes, gsl: Run) -> None:
    change, text = HOSTILE[kind]
    (here / "broken.pt2").write_bytes(archive(change, saved))
    refused(here, gsl, "broken.pt2", text)


def refused(here: Path, gsl: Run, model: str, text: str) -> None:
    """One line says so, and nothing is left in the folder, neither by the command nor by the model."""
    before = {path.name for path in here.iterdir()}
    code, out, err = gsl("apply", "mine.py:swish", model, "-o", f"new{Path(model).suffix}", "--check")
    assert (code, out) == (2, ""), err
    assert err.startswith(f"gsl: error: {model} ")
    assert text in err
    assert err.count("\n") == 1
    assert {path.name for path in here.iterdir()} - {"__pycache__"} == before


@pytest.mark.parametrize("kind", ["pickled inputs", "a size"])
def test_what_is_refused_would_run(kind: str, here: Path, saved: bytes) -> None:
    """What the command guards against: the loader of torch by itself runs it."""
    path = here / "broken.pt2"
    path.write_bytes(archive(HOSTILE[kind][0], saved))
    with pytest.raises(Exception):  # noqa: B017, PT011
        torch.export.load(path)
    assert (here / "exploded").exists()


class Sizes(nn.Module):
    """A program with sizes and guards of many kinds."""

    def forward(self, x: torch.Tensor, *, pair: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        half = x[:, : x.shape[1] // 2] * x.shape[0]
        return {"a b": half, "rest": x.reshape(-1, x.shape[1] * 2 // 2) + pair["left side"], "where": x.nonzero()}


def test_sizes_and_guards_are_read(here: Path, gsl: Run) -> None:
    dims = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    shapes = {"x": dims, "pair": {"left side": dims}}
    pair = {"left side": torch.randn(4, 6)}
    program = torch.export.export(Sizes(), (torch.randn(4, 6),), {"pair": pair}, dynamic_shapes=shapes)
    assert program._guards_code
    torch.export.save(program, here / "sizes.pt2")
    code, _, err = gsl("apply", "mine.py:swish", "sizes.pt2", "-o", "new.pt2", "--check")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("text", "key", "wrong"),
    [
        ("Max(Integer(1), FloorDiv(Symbol('s27', positive=True, integer=True), Integer(2)))", "expr_str", None),
        ("Pow(Symbol('s0'), Integer(2))", "expr_str", None),
        ("s0 // 2 + 3*s1**2", "expr_str", None),
        ("GreaterThan(Symbol('u0', integer=True), Integer(0))", "expr_str", None),
        ("L['x'].size()[1] != max(1, L['d']['a b'].size()[1] // 2)", "guards_code", None),
        ("L['x'].dtype == torch.float32 and not L['flag']", "guards_code", None),
        ("math.floor(L['x']) == 3 or math.isnan(L['x'])", "guards_code", None),
        ("eval('1')", "expr_str", "a call of eval"),
        ("S('1')", "expr_str", "a call of S"),
        ("Integer('1')", "expr_str", "a text in a call of Integer"),
        ("Symbol('f(x)')", "expr_str", "the text 'f(x)'"),
        ("x.y", "expr_str", "code (Attribute)"),
        ("[x for x in y]", "expr_str", "code (ListComp)"),
        ("(lambda: 1)", "guards_code", "code (Lambda)"),
        ("L['x'].__class__", "guards_code", "the attribute __class__"),
        ("torch.os", "guards_code", "the attribute os"),
        ("math.os", "guards_code", "the attribute os"),
        ("open('x')", "guards_code", "a call of open"),
        ("f''", "guards_code", "code (JoinedStr)"),
        ("x; y", "expr_str", "no expression"),
        ("ｅval(x)", "expr_str", "a letter that is not ASCII"),
        ("9" * 30_000, "expr_str", "an expression of 30000 characters"),
        ("(" * 1000, "expr_str", "no expression"),
        ("9**9**9", "expr_str", "a power of a power"),
        ("Pow(Integer(9), Integer(99999999))", "expr_str", "a large exponent"),
        ("Pow(Pow(Integer(9), Integer(64)), Integer(64))", "expr_str", "a power of a power"),
        ("1 << 99999999", "guards_code", "a large exponent"),
    ],
)  # fmt: skip
def test_expressions(text: str, key: str, wrong: str | None) -> None:
    assert exported.complaint(text, key) == wrong


def twice(saved: bytes) -> bytes:
    """An archive with two records of one name but for a capital, of which readers take one or the other."""
    stream = io.BytesIO(saved)
    with zipfile.ZipFile(stream, "a") as opened:
        opened.writestr(opened.namelist()[0].replace("archive/", "Archive/"), "{}")
    return stream.getvalue()


def behind(saved: bytes) -> bytes:
    """An archive behind another one, which only Python reads."""
    return archive({PROGRAM: replaced("aten.relu.default", "aten.tanh.default")}, saved) + saved


@pytest.mark.parametrize(("make", "text"), [(twice, "its records can be read in two ways"), (behind, "can't be read")])
def test_an_archive_for_two_readers(
    make: Callable[[bytes], bytes], text: str, here: Path, saved: bytes, gsl: Run
) -> None:
    (here / "broken.pt2").write_bytes(make(saved))
    refused(here, gsl, "broken.pt2", text)


def test_what_another_module_defines(here: Path, gsl: Run) -> None:
    """A class and an operator, of models that another process saved."""
    for name, text in {"shapes": CLASS, "definitions": OPERATOR, "save": SAVE}.items():
        (here / f"{name}.py").write_text(text)
    saving = process_class()(target=runpy.run_path, args=("save.py",))
    saving.start()
    saving.join()
    assert saving.exitcode == 0
    code, out, err = gsl("unread", "doubled.pt2")
    assert (code, out) == (2, "")
    assert err == ("gsl: error: doubled.pt2 needs the operator gsl_elsewhere::doubled: "
                   "give --import with the module that defines it\n")  # fmt: skip
    code, out, err = gsl("match", "mine.py", "own.pt2")
    assert (code, out, err) == (2, "", "gsl: error: own.pt2 needs the class shapes.Pair: give --import shapes\n")
    code, out, err = gsl("match", "mine.py", "own.pt2", "--import", "shapes")
    assert (code, err) == (0, "")
    code, out, err = gsl("match", "mine.py", "own.pt2", "--import", "shpaes")
    assert (code, err) == (2, "gsl: error: --import shpaes: ModuleNotFoundError: No module named 'shpaes' "
                           "(--traceback shows where)\n")  # fmt: skip


CLASS = """\
import torch
from dataclasses import dataclass

@dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor

torch.export.register_dataclass(Pair, serialized_type_name="shapes.Pair")
"""
OPERATOR = """\
import torch

@torch.library.custom_op("gsl_elsewhere::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def _(x):
    return torch.empty_like(x)
"""
SAVE = """\
import sys
sys.path.insert(0, "")
import definitions, shapes, torch

class Two(torch.nn.Module):
    def forward(self, x):
        return shapes.Pair(x.relu(), x)

class Doubled(torch.nn.Module):
    def forward(self, x):
        return definitions.doubled(x).relu()

for name, model in {"own": Two(), "doubled": Doubled()}.items():
    torch.export.save(torch.export.export(model, (torch.randn(2),)), f"{name}.pt2")
"""


# Places


@contextmanager
def nobody(here: Path) -> Iterator[None]:
    """While it lasts, the process has no more rights than anybody, as permissions mean nothing to root."""
    for folder in (here, *here.parents[:3]):
        folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_folder(here: Path, gsl: Run) -> None:
    (here / "folder.pt2").mkdir()
    code, _, err = gsl("match", "mine.py", "folder.pt2")
    assert code == 2
    assert err.startswith("gsl: error: folder.pt2 has no model: the name of one ends in .pt2")


@pytest.mark.parametrize(
    "command",
    [
        ["match", "mine.py", ""], ["apply", "mine.py", "model.pt2", "-o", ""], ["apply", "mine.py", "", "-o", "new"],
        ["optimize", "", "-o", "new.pt2"], ["draw", "model.pt2", "-o", ""],
        ["match", "mine.py", "model.pt2", "--params", ""],
    ],
)  # fmt: skip
def test_no_name_is_no_folder(command: list[str], here: Path, gsl: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """As of a variable of the shell that is not set: it would stand for the folder in which the command is run."""
    before = sorted(here.iterdir())
    with pytest.raises(SystemExit, match="2"):
        gsl(*command)
    assert "expected the name of a file or folder, found an empty text" in capfd.readouterr().err
    assert sorted(here.iterdir()) == before


def test_a_folder_that_may_not_be_read(here: Path, gsl: Run) -> None:
    (here / "folder").mkdir(0)
    with nobody(here):
        code, _, err = gsl("match", "mine.py", "folder")
    assert (code, err) == (2, "gsl: error: folder can't be read: Permission denied\n")


def test_a_file_that_may_not_be_read(here: Path, gsl: Run) -> None:
    (here / "model.pt2").chmod(0)
    (here / "secret.py").touch(0)
    with nobody(here):
        code, _, err = gsl("match", "mine.py", "model.pt2")
        assert (code, err) == (2, "gsl: error: model.pt2 can't be read: Permission denied (--traceback shows where)\n")
        code, _, err = gsl("list", "secret.py")
    assert (code, err) == (2, "gsl: error: secret.py can't be read: Permission denied (--traceback shows where)\n")


def test_a_folder_that_may_not_be_written(here: Path, gsl: Run) -> None:
    (here / "folder").mkdir(0o555)
    with nobody(here):
        code, _, err = gsl("apply", "mine.py", "model.pt2", "-o", "folder/new.pt2")
    assert (code, err) == (2, "gsl: error: folder: no permission to write there\n")


def test_a_name_that_is_too_long(here: Path, gsl: Run) -> None:
    code, _, err = gsl("apply", "mine.py", "model.pt2", "-o", f"{'n' * 300}.pt2")
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith("… can't be written: File name too long\n")
    code, _, err = gsl("apply", "mine.py", f"{'n' * 300}.pt2", "-o", "new.pt2")
    assert (code, err.count("\n")) == (2, 1)
    assert "can't be read: File name too long" in err


def test_torch_could_not_write_a_model(here: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed\nand more")

    monkeypatch.setattr(torch.export, "save", fails)
    code, _, err = gsl("apply", "mine.py:swish", "model.pt2", "-o", "new.pt2")
    assert (code, err.count("\n")) == (2, 1)
    assert "new.pt2 can't be written: torch could not write the whole file: Pytorch" in err
    assert not [*here.glob("*new*")]


def test_a_model_without_example_inputs() -> None:
    with pytest.raises(FrontEndError, match=r"ReLU can't be called with these example inputs: missing .*'input'; give"):
        Workload.from_torch(nn.ReLU())


def test_a_model_that_does_not_take_the_example_inputs() -> None:
    with pytest.raises(FrontEndError, match=r"export Linear with these example inputs: .*\[2, 5\].*; give") as caught:
        Workload.from_torch(nn.Linear(4, 4), torch.ones(2, 5))
    assert isinstance(caught.value.__cause__, RuntimeError)


# TVM


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (here / "module.json").write_bytes((Path(__file__).parent / "data" / "dense.json").read_bytes())
    monkeypatch.setattr(ir_modules, "cannot_save", lambda: False)
    return here


BROKEN_MODULES = {
    "text": ("nonsense", "can't be read as a model of tvm.ir.save_json: Expecting value"),
    "truncated": ('{"root_index": 0, "nodes": [{"type"', "can't be read as a model of tvm.ir.save_json: "),
    "a list": ("[1]", "can't be read as a module of TVM: it has no list of nodes"),
    "a number": ('{"root_index": 0, "nodes": [{"type": "int", "data": 3}]}', "has a int in it; expected an IRModule"),
    "deep": ("[" * 100_000, "can't be read as a model of tvm.ir.save_json: maximum recursion depth"),
    "no such node": ('{"root_index": 5, "nodes": []}', "invalid node index 5"),
    "a node in itself": ('{"root_index": 0, "nodes": [{"type": "ffi.Array", "data": [0]}]}', "TVM crashes when it"),
    "compiled": ('{"root_index": 0, "nodes": [{"type": "ffi.Module", "data": "AA=="}]}', "has compiled code in it"),
    "no text": ("\udcff\udcfe", "can't be read as a model of tvm.ir.save_json: 'utf-8' codec can't decode"),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", BROKEN_MODULES)
def test_broken_modules(kind: str, module: Path, gsl: Run) -> None:
    content, text = BROKEN_MODULES[kind]
    (module / "module.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    refused(module, gsl, "module.json", text)


def test_modules_of_tvm_at_once(module: Path, gsl: Run) -> None:
    (module / "second.json").write_bytes((module / "module.json").read_bytes())
    code, out, err = gsl("match", "rules:BOOK", "module.json", "second.json", "--jobs", "2")
    assert (code, out.splitlines()[-1]) == (1, "2 models: 2 without a match"), err


def objects() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, w=np.array([Bomb()], dtype=object))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (lambda: b"", "weights.npz is empty"),
        (lambda: b"PK\3\4", "weights.npz is not an archive of arrays that numpy.savez wrote, or only a part of one"),
        (lambda: expanding(b""), f"would unpack to {1 << 41}, which is too much"),
        (objects, "Object arrays cannot be loaded when allow_pickle=False"),
    ],
    ids=["empty", "truncated", "it expands", "pickled"],
)
def test_broken_weights(content: Callable[[], bytes], text: str, module: Path, gsl: Run) -> None:
    (module / "weights.npz").write_bytes(content())
    code, _, err = gsl("match", "mine.py", "module.json", "--params", "weights.npz")
    assert code == 2
    assert text in err
    assert err.count("\n") == 1
    assert not (module / "exploded").exists()


def test_a_format_without_its_package(here: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path, values: Any) -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    known = models.FORMATS[".pt2"]
    monkeypatch.setitem(models.FORMATS, ".pt2", models.Format(known.title, known.package, missing, known.write))  # type: ignore[index]
    code, _, err = gsl("match", "mine.py", "model.pt2")
    assert (code, err) == (2, "gsl: error: model.pt2 needs torch: pip install torch (--traceback shows where)\n")
