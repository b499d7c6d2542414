"""The systems: each makes its own graph and its own rules of the same terms."""

from __future__ import annotations

import importlib.metadata
import importlib.util

NEEDED = {
    "tinygrad": ("tinygrad", "tinygrad"),
    "onnxscript": ("onnxscript", "onnxscript"),
    "Relax": ("tvm", "apache-tvm"),
}
"""The requirement of a system besides torch: the module, and the distribution it comes in."""
DISTRIBUTIONS = ("torch", "transformers", "tinygrad", "onnxscript", "onnx", "apache-tvm", "matplotlib")


def absent(system: str) -> str | None:
    """The reason why a system is left out; ``None`` if it is installed."""
    module, distribution = NEEDED[system]
    return None if importlib.util.find_spec(module) else f"{distribution} is not installed"


def versions() -> dict[str, str]:
    """The versions of what is compared; those that are not installed are told."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
