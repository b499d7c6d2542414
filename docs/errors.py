"""Writes docs/errors.md: every class of errors and warnings, with messages as they are really raised."""

from __future__ import annotations

import inspect
import os
import tempfile
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsl import errors

HERE = Path(__file__).resolve().parent
SETUP = """
import torch
from pathlib import Path
from gsl import *

x, w = pat.Wildcard(), pat.Variable()

def workload(function, *shapes):
    class Module(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)
    return Workload.from_torch(Module(), tuple(torch.randn(shape) for shape in shapes))
"""
"""The names that each example finds."""


@dataclass(frozen=True)
class Example:
    """Code that ends in an error or a warning of a class, and the way out."""

    code: str
    mend: str


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "PatternError": (
        Example("op.Conv2D(x)", "Give every operand; [the operators](operators.md) lists them."),
        Example(
            "Subst(op.ReLU(x), op.Tanh(pat.Wildcard()), name='unbound')",
            "A target is made of what the source binds: use the same pattern object on both sides.",
        ),
        Example("is_op('nn.conv2')", "Use one of the names that are suggested."),
        Example(
            "pat.Variadic(op.ReLU(x), templates=[w])",
            "A template is a part of the field, so that each instance has one.",
        ),
    ),
    "PicklingError": (
        Example(
            "import pickle\npickle.dumps(Subst(op.ReLU(x), x, where=lambda match: True, name='positive'))",
            "Give the function a name, at the top of a module that the other process can import.",
        ),
    ),
    "PatternTypeError": (
        Example(
            "if x.shape == w.shape:\n    pass",
            "Comparisons of patterns and attributes are conditions of the rule: give them to `where=`.",
        ),
        Example("op.ReLU('x')", "Operands are patterns or numbers."),
    ),
    "UnknownAttributeError": (
        Example("op.Conv2D(x, w).stride", "The canonical attributes are those of the message, whatever the framework."),
    ),
    "RewriteError": (
        Example(
            "rule = Subst(op.ReLU(x), x, where=lambda match: match[x].shape[7] == 1, name='axis 7')\n"
            "rule(workload(torch.relu, (2, 3)))",
            "Mend the function; what it may ask of a match is in [the language](language.md#matches).",
        ),
        Example(
            "BOOK = RuleSet([Subst(op.ReLU(op.ReLU(x)), op.ReLU(x))])\nBOOK(torch.nn.ReLU())",
            "Make a workload of the model first.",
        ),
    ),
    "FixpointError": (
        Example(
            "there = Subst(op.ReLU(x), op.Tanh(x), name='there')\n"
            "back = Subst(op.Tanh(x), op.ReLU(x), name='back')\n"
            "RuleSet([there, back])(workload(torch.relu, (2,)), iterative=True)",
            "Leave out one of the rules of the circle, or let its source exclude what another one makes.",
        ),
    ),
    "ReplayError": (
        Example(
            "rule = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name='relu-relu')\n"
            "trace = rule(workload(lambda a: torch.relu(torch.relu(a)), (2,))).trace\n"
            "trace.replay(workload(torch.tanh, (2,)))",
            "Replay a trace on the workload on which it was made, or on an equal one.",
        ),
    ),
    "FrontEndError": (
        Example("Workload(3)", "Give one of the kinds of graphs that are named."),
    ),
    "ExchangeError": (
        Example(
            "Path('rules.pb').write_bytes(b'no rules')\nrules_from_taso('rules.pb')",
            "The file is damaged, or not of this format; the place is that of the first byte that does not fit.",
        ),
    ),
    "RuleFileError": (
        Example(
            "Path('fusion.yaml').write_text('conv_relu:\\n  pattern:\\n    conv: {op_type: conv2d, chlid: relu}\\n"
            "    relu: {op_type: relu}\\n')\nRuleSet.from_yaml('fusion.yaml')",
            "Mend the key at the line and column of the message.",
        ),
    ),
    "WorkloadError": (
        Example(
            "workload(torch.relu, (2, 3))(torch.randn(2, 3), torch.randn(2, 3))",
            "Call a workload as the model that it was made of.",
        ),
        Example(
            "workload(torch.relu, (2, 3)).compare(workload(torch.relu, (2, 4)))",
            "Compare workloads of the same inputs.",
        ),
    ),
    "DroppedAttributeWarning": (
        Example(
            "Subst(op.ReLU(op.Conv2D(x, w)), op.Conv2D(x, w), name='forgets')",
            "Rebuild the call with `conv.like(x, w)`, or name the attributes in the source. Matches in which one "
            "of them would change are refused.",
        ),
    ),
    "UntypedWarning": (
        Example(
            "module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()))\n"
            "Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name='relu-relu')(Workload.from_fx(module))",
            "Give example inputs when the graph is loaded: `Workload.from_fx(module, inputs)`.",
        ),
    ),
}  # fmt: skip
"""The examples of each class."""
WITHOUT = {
    "GSLError": "Catch this one to catch all.",
    "EvaluationError": "Raised inside of conditions: what has no value is no match, and `explain` shows it.",
    "UndecidableError": "A condition of this kind does not match, and `explain` shows it.",
    "MissingPackageError": "Install the package that the message names.",
    "NotRewrittenWarning": "Given by `gsl.torch_backend`: what is compiled is right, but not rewritten. `strict=True` "
    "makes it an error.",
    "RefusedRulesWarning": "`rules_from_taso(path).refused` lists them with their reasons.",
}
"""The classes of which no example is run, with what there is to say instead."""


def message(example: Example) -> str:
    """The error or the first warning with which an example ends, as it is printed. ValueError if it does not."""
    namespace: dict[str, Any] = {"__name__": "example"}
    with warnings.catch_warnings(record=True) as caught:
        exec(compile(SETUP, "setup.py", "exec"), namespace)
        warnings.simplefilter("always")
        try:
            exec(compile(example.code, "example.py", "exec"), namespace)
        except errors.GSLError as error:
            return f"{type(error).__name__}: {error}"
    for warning in caught:
        if issubclass(warning.category, UserWarning) and hasattr(errors, warning.category.__name__):
            return f"{warning.category.__name__}: {warning.message}"
    raise ValueError(f"nothing is wrong with {example.code}")


def classes() -> dict[str, type[Exception]]:
    """All classes of errors and warnings, bases first."""
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }


def page() -> str:
    """The whole page."""
    lines = [
        "# Errors and warnings\n\n"
        "Every message says what was expected, what was found, where it was written and how to mend it. All errors are "
        "`gsl.errors.GSLError`; those that stand for one of Python's are that one too. Whatever fails, the workload is "
        "as it was. The messages below are real ones: this page is written by `python docs/errors.py`, which runs the "
        "examples.\n\n"
        f"Before each example:\n\n```py{SETUP}```\n"
    ]
    with tempfile.TemporaryDirectory() as folder:
        here = Path.cwd()
        os.chdir(folder)
        try:
            for name, kind in classes().items():
                bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
                lines.append(f"\n## {name}\n\n{inspect.getdoc(kind)} A subclass of {bases}.\n")
                for example in EXAMPLES.get(name, ()):
                    text = textwrap.dedent(message(example))
                    lines.append(f"\n```py\n{example.code}\n```\n\n```text\n{text}\n```\n\n{example.mend}\n")
                if name in WITHOUT:
                    lines.append(f"\n{WITHOUT[name]}\n")
        finally:
            os.chdir(here)
    return "".join(lines)


if __name__ == "__main__":
    (HERE / "errors.md").write_text(page(), encoding="utf-8")
