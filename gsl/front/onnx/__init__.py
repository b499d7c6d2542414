"""The front end for models of ONNX, by way of ``onnx_ir``."""

from gsl.errors import missing_package

try:
    import onnx as _onnx  # noqa: F401
    import onnx_ir as _onnx_ir  # noqa: F401
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _error:
    raise missing_package(_error) from _error

from gsl.front.onnx.program import OnnxProgram, from_onnx, program

__all__ = ["OnnxProgram", "from_onnx", "program"]
