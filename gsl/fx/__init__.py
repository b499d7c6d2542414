"""Rules at work inside torch: a back end for ``torch.compile``, and passes for traced graphs and for inductor."""

from gsl.errors import missing_package

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _error:
    raise missing_package(_error) from _error

from gsl.fx.backend import Backend, torch_backend
from gsl.fx.passes import GraphExplanations, Pass, PassList, PassRecord, is_training

__all__ = ["Backend", "GraphExplanations", "Pass", "PassList", "PassRecord", "is_training", "torch_backend"]
