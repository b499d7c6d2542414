"""The front end for Relax, the graph language of TVM."""

from gsl.errors import MissingPackageError, missing_package

try:
    import torch as _torch  # noqa: F401
    import tvm.relax as _relax  # noqa: F401
except ModuleNotFoundError as _error:
    raise missing_package(_error) from _error

try:
    import tvm_ffi as _tvm_ffi  # noqa: F401
except ModuleNotFoundError as _error:
    raise MissingPackageError(
        "graphs of Relax need a TVM of version 0.27 or newer; what an older one has is Relay: load its modules with "
        "Workload.from_relay"
    ) from _error

from gsl.front.relax.program import RelaxProgram, from_expr, from_module

__all__ = ["RelaxProgram", "from_expr", "from_module"]
