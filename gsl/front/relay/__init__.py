"""The front end for Relay, which TVM had up to version 0.19."""

from gsl.errors import MissingPackageError, missing_package

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _error:
    raise missing_package(_error) from _error

try:
    import tvm.relay as _relay  # noqa: F401
except ModuleNotFoundError as _error:
    raise MissingPackageError(
        "graphs of Relay need a TVM that has it, which is one before version 0.20; "
        "what a newer one has is Relax: load its modules with Workload.from_relax"
    ) from _error

from gsl.front.relay.program import RelayProgram, from_expr, from_module

__all__ = ["RelayProgram", "from_expr", "from_module"]
