"""Models that run: by onnxruntime, or by the reference evaluator of onnx."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch

from gsl.errors import FrontEndError, MissingPackageError
from gsl.front.onnx.files import in_memory
from gsl.front.onnx.types import to_onnx

RUNTIMES: Final = ("onnxruntime", "reference")
LIMIT: Final = 1 << 30
"""The number of bytes of weights from which a model is handed over as files: one message holds two gigabytes."""

NodeFunction = Callable[..., Any]


def session(model: ir.Model, *, runtime: str | None = None, **options: Any) -> NodeFunction:
    """A callable that takes the inputs of a model in order and returns numpy arrays, a tuple if there are several.

    ``runtime`` is ``"onnxruntime"``, or ``"reference"``, which is taken where the first one is not installed, has no
    kernel for some dtype, or is older than the model's version of ONNX's operators. The options are attributes of
    onnxruntime's ``SessionOptions``, and ``providers``; it has as many threads as torch unless they are given
    (``intra_op_num_threads``).
    """
    if runtime is not None and runtime not in RUNTIMES:
        raise FrontEndError(f"runtime={runtime!r}: there are {', '.join(map(repr, RUNTIMES))}")
    installed = importlib.util.find_spec("onnxruntime") is not None
    if runtime == "onnxruntime" and not installed:
        raise MissingPackageError("models of ONNX are run by the package onnxruntime: pip install 'gsl[onnx]'")
    names = [value.name for value in model.graph.inputs]
    if runtime == "reference" or not installed:
        if options:
            raise FrontEndError(f"the reference evaluator takes no options, found {', '.join(options)}")
        return _reference(model, names)
    try:
        return _onnxruntime(model, names, **options)
    except _Lacking as error:
        if runtime is not None:
            raise FrontEndError(f"onnxruntime can't run the model: {error}") from error
        return _reference(model, names)


class _Lacking(Exception):
    """Onnxruntime can't compute a node for some dtype, or does not know the version of the operators."""


_LACKS: Final = ("NOT_IMPLEMENTED", "Current official support for domain")
"""Parts of the messages of onnxruntime about what it lacks."""


def _reference(model: ir.Model, names: Sequence[Any]) -> NodeFunction:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(ir.to_proto(in_memory(model)))

    def call(*values: Any) -> Any:
        return _results([np.asarray(value) for value in evaluator.run(None, _fed(names, values))])

    return call


def _onnxruntime(model: ir.Model, names: Sequence[Any], *, providers: Any = None, **options: Any) -> NodeFunction:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # it advises to optimise
    settings.intra_op_num_threads = torch.get_num_threads()
    for name, value in options.items():
        if not hasattr(settings, name):
            raise FrontEndError(f"onnxruntime's SessionOptions have no attribute {name!r}")
        setattr(settings, name, value)
    providers = ["CPUExecutionProvider"] if providers is None else providers

    def opened(source: Any) -> Any:
        try:
            return onnxruntime.InferenceSession(source, settings, providers=providers)
        except Exception as error:
            # Of the many errors of onnxruntime, the last line says what it is.
            reason = str(error).strip().splitlines()[-1]
            if any(words in reason for words in _LACKS):
                raise _Lacking(reason) from None
            raise FrontEndError(f"onnxruntime can't run the model: {reason}") from error

    if sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value) < LIMIT:
        machine = opened(ir.to_proto(in_memory(model)).SerializeToString())
    else:
        with tempfile.TemporaryDirectory(prefix="gsl_") as folder:
            ir.save(in_memory(model), Path(folder) / "model.onnx", external_data="model.onnx.data")
            machine = opened(str(Path(folder) / "model.onnx"))
    taken = {value.name for value in machine.get_inputs()} | {v.name for v in machine.get_overridable_initializers()}
    ends = (*machine.get_inputs(), *machine.get_outputs())
    wide = any("bfloat16" in value.type or "float8" in value.type for value in ends)

    def call(*values: Any) -> Any:
        fed = {name: value for name, value in _fed(names, values).items() if name in taken}
        if not wide:
            return _results(machine.run(None, fed))
        made = {name: _ort_value(value) for name, value in fed.items()}
        return _results([_array(value) for value in machine.run_with_ort_values(None, made)])

    return call


def _fed(names: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, (list, np.ndarray)) else _numpy(value)
            for name, value in zip(names, values)}  # fmt: skip


def _numpy(value: Any) -> Any:
    """A tensor of torch, or anything like it, as a numpy array."""
    return to_onnx(value).numpy() if hasattr(value, "detach") else np.asarray(value)


def _ort_value(array: Any) -> Any:
    """A value of onnxruntime, also of the dtypes that numpy itself does not have."""
    import onnxruntime

    if array.dtype.name.startswith(("bfloat16", "float8")):
        kind = ir.DataType.from_numpy(array.dtype)
        bits = array.view({1: np.uint8, 2: np.uint16}[array.dtype.itemsize])
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(bits), int(kind))
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _array(value: Any) -> Any:
    name = value.data_type()
    if "bfloat16" in name or "float8" in name:
        from torch.utils import dlpack

        return to_onnx(dlpack.from_dlpack(value._ortvalue.to_dlpack())).numpy()
    return value.numpy()


def _results(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)
