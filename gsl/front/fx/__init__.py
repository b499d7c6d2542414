"""The front end for torch: traced graphs (``torch.fx``) and exported programs (``torch.export``)."""

from gsl.front.fx.program import (
    ExportedProgramProgram,
    GraphModuleProgram,
    from_exported,
    from_graph_module,
    from_model,
    program,
)

__all__ = [
    "ExportedProgramProgram", "GraphModuleProgram", "from_exported", "from_graph_module", "from_model", "program",
]  # fmt: skip
