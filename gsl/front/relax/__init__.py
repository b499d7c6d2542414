"""The front end for Relax, the graph language of TVM."""

from gsl.front.relax.program import RelaxProgram, from_expr, from_module, program

__all__ = ["RelaxProgram", "from_expr", "from_module", "program"]
