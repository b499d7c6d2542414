"""Builds a Python environment with real Relay: ``python tools/relay_env.py .venv-relay``.

Relay left TVM with version 0.20, and the package index has no older TVM for today's Pythons. The wheel of bitblas
contains one, 0.17, with LLVM. It is linked to libraries of CUDA, which are installed too, and to the driver, for which
a library of functions that fail is made where there is none. The environment's ``bin/relay-python`` is a Python with
all of that in its place.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints-relay.txt"
PYTHON = (3, 11)
"""The version of Python for which the wheel's TVM is known to work."""

PACKAGES = (
    "numpy", "torch", "cloudpickle", "decorator", "attrs", "psutil", "scipy", "typing_extensions", "tornado",
    "ml_dtypes", "packaging", "sympy", "pygraphviz", "pytest", "pytest-xdist", "hypothesis",
)  # fmt: skip
LIBRARIES = ("bitblas", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12")
"""The packages that are installed without their dependencies, which would be some gigabytes more."""

LAUNCHER = """#!/bin/sh
# A Python that finds TVM with Relay, and the libraries that it is linked to.
export LD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export TVM_LIBRARY_PATH="{tvm}/build"
export TOPHUB_LOCATION=NONE
exec "{python}" "$@"
"""


def main(where: str) -> None:
    """Build the environment in that folder, or bring it up to date."""
    if sys.version_info[:2] != PYTHON:
        _use_right_python(where)
    venv = Path(where).absolute()
    python = venv / "bin" / "python"
    if not python.exists():
        _run(sys.executable, "-m", "venv", venv)
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", CONSTRAINTS)
    _run(*pip, *PACKAGES)
    _run(*pip, "--no-deps", *LIBRARIES)
    _run(*pip, "--no-deps", "-e", ROOT)
    site = venv / "lib" / f"python{PYTHON[0]}.{PYTHON[1]}" / "site-packages"
    tvm = site / "bitblas" / "3rdparty" / "tvm"
    (site / "tvm.pth").write_text(f"{tvm / 'python'}\n")
    folders = [tvm / "build", *sorted(site.glob("nvidia/cuda_*/lib"))]
    if not _has_driver():
        folders.append(_stub_driver(tvm / "build" / "libtvm.so", venv / "lib" / "stubs"))
    launcher = venv / "bin" / "relay-python"
    launcher.write_text(LAUNCHER.format(libraries=":".join(map(str, folders)), tvm=tvm, python=python))
    launcher.chmod(0o755)
    _run(launcher, "-c", "import tvm.relay")


def _use_right_python(where: str) -> None:
    """Go on with the Python that the wheel needs, in the place of this one."""
    wanted = f"python{PYTHON[0]}.{PYTHON[1]}"
    path = shutil.which(wanted)
    if path is None:
        found = f"{sys.version_info[0]}.{sys.version_info[1]}"
        sys.exit(f"the Relay environment needs {wanted}, which is not on the PATH; this is Python {found}")
    os.execv(path, [path, __file__, where])


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _stub_driver(library: Path, folder: Path) -> Path:
    """A folder with a ``libcuda.so.1`` whose functions, those that the library needs, return an error."""
    symbols = _run("nm", "-D", "--undefined-only", library).split()
    names = {symbol.partition("@")[0] for symbol in symbols}
    functions = sorted(name for name in names if name.startswith("cu") and name[2:3].isupper())
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "cuda.c"
    # 100 is CUDA_ERROR_NO_DEVICE.
    source.write_text("".join(f"int {function}(void) {{ return 100; }}\n" for function in functions))
    _run("cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", source)
    return folder


def _run(*command: str | Path) -> str:
    """The output of a command; ends the program with its error where it fails."""
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: failed with {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
