"""Rules of onnxscript's rewriter on the models of onnxscript's own tests: is as much rewritten here as there?

``python -m benchmarks.onnxscript_tests CHECKOUT`` runs the rewriter's tests of a checkout of onnxscript's sources; the
wheel has none of them, and they need ``pip install parameterized``. Whenever a test applies rules to a model, GSL
applies the rules of `gsl.exchange.from_onnxscript` to a copy of it. Counted are rewrites; where onnxruntime can run the
model, numbers before and after are compared. ``--only`` takes parts of paths. Results go to a file of lines in JSON,
and with ``--page`` from there to a page.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir
from onnxscript.rewriter import RewriteRuleSet

from benchmarks.limit import Late, limited
from benchmarks.section import table
from gsl import Workload
from gsl.errors import GSLError
from gsl.exchange import from_onnxscript
from gsl.exchange.imported import ImportedRules
from gsl.graph import SymDim, TensorType

LINES: Final = Path(__file__).with_name("onnxscript_tests.jsonl")
SECONDS: Final = 120
"""The time after which GSL's part of one application is given up."""
LARGE: Final = 1 << 20
"""The number of elements of its weights from which a model is not run."""


@dataclass(frozen=True)
class Applied:
    """The result of one application of rules to a model by a test."""

    test: str
    rules: tuple[str, ...]
    theirs: int
    """The rewrites of onnxscript."""
    ours: int
    """The rewrites of GSL; -1 if it took too long."""
    reason: str = ""
    """The report of GSL where the numbers differ."""
    numbers: str = ""
    """``same``, ``wrong``, or why GSL's result was not run."""

    @property
    def is_same(self) -> bool:
        return self.ours == self.theirs


# ---------------------------------------------------------------- tests


class Recorder:
    """Applies with GSL what tests apply with onnxscript."""

    def __init__(self) -> None:
        self.found: list[Applied] = []
        self.test = ""
        self._own: dict[Any, tuple[ImportedRules, Any]] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which each call of ``RewriteRuleSet.apply_to_model`` is recorded."""
        original = RewriteRuleSet.apply_to_model

        def apply_to_model(rules: Any, model: ir.Model, **options: Any) -> int:
            if options.get("tracer") is not None:
                return original(rules, model, **options)
            copy = model.clone()
            count = original(rules, model, **options)
            self.found.append(self._applied(rules, copy, count))
            return count

        RewriteRuleSet.apply_to_model = apply_to_model  # type: ignore[method-assign]
        try:
            yield
        finally:
            RewriteRuleSet.apply_to_model = original  # type: ignore[method-assign]

    def _applied(self, rules: Any, model: ir.Model, theirs: int) -> Applied:
        names = tuple([str(rule.name or rule._replacement_pattern._function.__name__) for rule in rules.rules])
        try:
            with limited(SECONDS):
                return Applied(self.test, names, theirs, *self._rewritten(rules, model, theirs))
        except Late as error:
            return Applied(self.test, names, theirs, -1, str(error))

    def _rewritten(self, rules: Any, model: ir.Model, theirs: int) -> tuple[int, str, str]:
        key = tuple(map(id, rules.rules))
        if key not in self._own:
            self._own[key] = from_onnxscript(rules.rules), rules  # kept, so that no other rule gets its address
        own = self._own[key][0]
        try:
            wl = Workload.from_onnx(model)
            new = own(wl, iterative=True)
        except GSLError as error:
            return 0, f"{type(error).__name__}: {error}", ""
        count = new.trace.count()
        reasons = [*own.refused.values(), *(reasons_in(str(own.explain(new))) if count < theirs else ())]
        return count, "; ".join(dict.fromkeys(reasons)), compared(wl, new) if count else ""


def reasons_in(explanation: str) -> list[str]:
    """The reasons for which matches are refused."""
    return re.findall(r"^ *refused at [^:]*: (.*)$", explanation, re.MULTILINE) or ["no match"]


def compared(old: Workload, new: Workload) -> str:
    """``same`` or ``wrong``, or why it can't be told: an input may be a shape."""
    if sum(math.prod(value.shape) for value in old.params.values()) > LARGE:
        return "large weights"
    types = [type for type in old.inputs.values() if isinstance(type, TensorType)]
    sizes = {str(size): 4 for type in types for size in type.shape if isinstance(size, SymDim)}
    try:
        inputs = old.random_inputs(sizes=sizes)
        results = old.build()(*inputs)
        for result, node in zip(results if isinstance(results, tuple) else (results,), old.graph.outputs):
            declared = node.type.shape if isinstance(node.type, TensorType) else ()
            if any(isinstance(size, int) and size != own for size, own in zip(declared, result.shape)):
                return "the test's model does not compute what it declares for random inputs"
    except Exception as error:  # whatever runs models finds wrong with that of the test
        return f"the test's model does not run: {str(error).splitlines()[0]}"
    try:
        return "same" if old.compare(new, sizes=sizes) else "wrong"
    except Exception as error:
        return f"the result does not run: {str(error).splitlines()[0]}"


def cases(suite: Iterable[Any]) -> Iterator[unittest.TestCase]:
    """The tests of a suite, which may hold suites."""
    for part in suite:
        yield from cases(part) if isinstance(part, unittest.TestSuite) else (part,)


def run(path: Path, title: str, recorder: Recorder) -> int:
    """The number of tests of a file, all run."""
    spec = importlib.util.spec_from_file_location(f"onnxscript_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = list(cases(unittest.defaultTestLoader.loadTestsFromModule(module)))
    for case in tests:
        recorder.test = f"{title}::{case.id().split('.', 1)[1]}"
        result = unittest.TestResult()
        case.run(result)
        for _, trace in (*result.errors, *result.failures):
            print(f"{recorder.test} fails: {trace.splitlines()[-1]}", file=sys.stderr)
    return len(tests)


# ---------------------------------------------------------------- the page


HEAD: Final = """# Rules of onnxscript's rewriter on the models of onnxscript's own tests

Made by `python -m benchmarks.onnxscript_tests CHECKOUT --page benchmarks/ONNXSCRIPT.md`. A row of the first table is a
folder of tests; *applied* is how often they apply a list of rules to a model, *same* how often as many rewrites come of
it here. *Runs* is how often onnxruntime runs GSL's result, and *wrong* how often numbers differ.
"""
FOLDERS: Final = {
    "rules/fusion": "fusions", "rules/": "rules", "ort_fusions": "fusions for onnxruntime",
    "": "the rewriter itself",
}  # fmt: skip
WHY: Final = (
    ("makes a function of the model", "`as_function=True` is not taken over"),
    ("by the beginning of their names", "names of operators by their beginning are not taken over"),
    ("is not a constant", "a constant that is an input of the model, too, is no constant"),
    ("but its replacement", "the match is refused, because a size is unknown on one side, or has another name there"),
    ("takes longer than", "given up for time"),
    ("no match", "no match"),
)  # fmt: skip
MORE: Final = "more is rewritten"


def why(applied: Applied) -> str:
    """The kind of difference."""
    if applied.ours > applied.theirs:
        return MORE
    known = (title for part, title in WHY if part in applied.reason)
    return next(known, applied.reason.partition(";")[0] or "no match")


def page(found: Sequence[Applied]) -> str:
    """The results as tables."""
    rows = []
    left = list(found)
    for folder, title in FOLDERS.items():
        some = [each for each in left if each.test.startswith(folder)]
        left = [each for each in left if each not in some]
        same = sum(each.is_same for each in some)
        numbers = Counter(each.numbers for each in some)
        share = f"{same / len(some):.1%}" if some else ""
        rows.append((title, str(len(some)), str(same), share, str(numbers["same"] + numbers["wrong"]),
                     str(numbers["wrong"])))  # fmt: skip
    kinds = Counter(why(each) for each in found if not each.is_same)
    differing = [(f"`{each.test}`", ", ".join(dict.fromkeys(each.rules[:3])) + (", …" if len(each.rules) > 3 else ""),
                  str(each.theirs), str(max(each.ours, 0)), why(each).replace("|", "/"))
                 for each in found if not each.is_same]  # fmt: skip
    parts = [
        HEAD,
        table(("tests of", "applied", "same", "share", "runs", "wrong"), rows),
        "\n## What differs\n",
        table(("reason", "times"), [(kind.replace("|", "/"), str(count)) for kind, count in kinds.most_common()]),
        "\n## Each difference\n",
        table(("test", "rules", "there", "here", "reason"), differing),
    ]
    return "\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tests of a checkout, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a folder with onnxscript's sources")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the paths of tests")
    parser.add_argument("--lines", type=Path, default=LINES, help="the file of results")
    parser.add_argument("--page", type=Path, help="the page to write")
    options = parser.parse_args(arguments)
    root = options.checkout / "onnxscript" / "rewriter"
    recorder = Recorder()
    with recorder.listening(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in sorted(root.rglob("*_test.py")):
            title = path.relative_to(root).as_posix()
            if any(part in title for part in options.only):
                before = len(recorder.found)
                tests = run(path, title, recorder)
                new = recorder.found[before:]
                print(f"{title}: {tests} tests, {sum(each.is_same for each in new)} of {len(new)} the same", flush=True)
    options.lines.write_text("".join(json.dumps(asdict(each)) + "\n" for each in recorder.found), encoding="utf-8")
    if options.page is not None:
        options.page.write_text(page(recorder.found), encoding="utf-8")


if __name__ == "__main__":
    main()
