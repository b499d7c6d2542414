"""The front end for torch: traced graphs (``torch.fx``) and exported programs (``torch.export``)."""

from gsl.errors import missing_package

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _error:
    raise missing_package(_error) from _error

from gsl.front.fx.program import (
    ExportProgram,
    GraphModuleProgram,
    from_exported,
    from_graph_module,
    from_model,
    program,
)

__all__ = ["ExportProgram", "GraphModuleProgram", "from_exported", "from_graph_module", "from_model", "program"]
