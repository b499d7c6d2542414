"""The front end for torch: traced graphs (``torch.fx``) and exported programs (``torch.export``)."""

from gsl.front.fx.program import (
    ExportProgram,
    GraphModuleProgram,
    from_exported,
    from_graph_module,
    from_model,
    program,
)

__all__ = ["ExportProgram", "GraphModuleProgram", "from_exported", "from_graph_module", "from_model", "program"]
