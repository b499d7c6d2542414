"""Attention layers that are found in architectures of ``transformers``, by architecture, form and variant.

``python -m benchmarks.attention bert llama`` looks at some architectures, without names at all of them. Each is run in
four variants (with a padding mask and without, one and two rows), each of these in four forms: as exported, decomposed,
captured by ``torch.compile``, and imported into Relax from the export. Beside them stands how many layers inductor's
own passes find in the same model. ``--batch``, ``--mask`` and ``--form`` choose some of these, e. g. ``--batch 1 --mask
padding --form compiled``. Results go to a file of lines in JSON after each architecture, and from there to the page: a
run that was stopped goes on where it was when it is started again, and takes no results twice.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import gsl
from benchmarks.architectures import Example, example, names
from benchmarks.limit import Late, limited
from gsl import Workload
from gsl.rules import IDIOMS

PAGE = Path(__file__).with_name("ATTENTION.md")
LINES = Path(__file__).with_name("attention.jsonl")
MASKS = {"none": False, "padding": True}
"""Masks that a model is given, by name: True for a padding mask."""
VARIANTS = {"plain, 2": (False, 2), "masked, 2": (True, 2), "plain, 1": (False, 1), "masked, 1": (True, 1)}
"""The variants: True for a padding mask, and the number of rows."""
TOLERANCE = 1e-4
"""The largest error of an output, relative to its largest element."""
ATTENTION = "nn.attention"
SECONDS = 120
"""The limit for one architecture in one form."""


@dataclass(frozen=True)
class Found:
    """The layers found of an architecture in one variant and form; ``error`` is None where no numbers were compared."""

    name: str
    variant: str
    form: str
    layers: int
    found: int = 0
    others: int = 0
    """Layers that are no plain attention: with a cap, or a sink."""
    error: float | None = None
    reason: str = ""
    """The reason why there is no result."""

    @property
    def wrong(self) -> bool:
        """True if something was found that is no attention, or the numbers changed."""
        return self.found > self.layers or (self.error is not None and not self.error <= TOLERANCE)


# ---------------------------------------------------------------- forms


def found_in(before: Workload) -> tuple[int, Workload]:
    """The layers of plain attention that are found in a workload, without those with a sink; and what becomes of it."""
    after = IDIOMS(before, iterative=True)
    counts = [int(wl.op_counts().get(ATTENTION, 0)) for wl in (before, after)]
    return counts[1] - counts[0] - after.trace.count("attention-sink"), after


def in_export(program: Any, given: Example) -> tuple[int, Sequence[torch.Tensor]]:
    """The layers found in an exported program, and the outputs of what became of it."""
    number, after = found_in(Workload.from_exported(program))
    return number, after.exported.module()(*given.inputs)


def in_compiled(given: Example) -> tuple[int, Sequence[torch.Tensor]]:
    """The layers found in the graphs that ``torch.compile`` captures, and the outputs of the compiled model.

    A graph that runs for several layers counts as often.
    """
    torch._dynamo.reset()
    known, ran = 0, 0

    def counted(module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        nonlocal known
        own = sum(trace.count("attention") + 2 * trace.count("attention-of-two") for trace in backend.traces[known:])
        known = len(backend.traces)

        def run(*tensors: Any) -> Any:
            nonlocal ran
            ran += own
            return module.forward(*tensors)

        return run

    backend = gsl.torch_backend(IDIOMS, then=counted, iterative=True)
    outputs = torch.compile(given.model, backend=backend, dynamic=False)(*given.inputs)
    return ran, outputs


def in_relax(program: Any) -> int:
    """The layers found in the Relax module that is imported from an exported program."""
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    mod, params = relax.frontend.detach_params(from_exported_program(program, keep_params_as_input=True))
    return found_in(Workload.from_relax(mod, params))[0]


def by_inductor(given: Example) -> int:
    """The layers that inductor's own passes find in the graphs that it would compile for inference."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.utils import counters
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    def passes(module: torch.fx.GraphModule, inputs: Any) -> Any:
        joint_graph_passes(module)
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    counters.clear()
    backend = aot_autograd(fw_compiler=passes, inference_compiler=passes, decompositions=select_decomp_table())
    torch.compile(given.model, backend=backend, dynamic=False)(*given.inputs)
    return int(counters["inductor"]["fuse_attention"])


# ---------------------------------------------------------------- running


def error_of(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest error of the outputs, each relative to its largest element."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if b.is_floating_point() and b.numel():
            worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return worst


def look(name: str, variant: str, forms: Sequence[str]) -> list[Found]:
    """The layers found of an architecture in a variant, in some forms; a result without a form is for all of them."""
    mask, batch = VARIANTS[variant]
    try:
        with limited(SECONDS):
            given = example(name, batch=batch, mask=mask)
            layers = given.layers()
            expected = given.model(*given.inputs)
    except (Exception, Late) as error:
        return [Found(name, variant, "", 0, reason=_text(error))]
    if not layers.plain and not layers.others:
        return [Found(name, variant, "", 0, reason="no attention")]
    programs: dict[str, Any] = {}

    def exported() -> Any:
        if "exported" not in programs:
            programs["exported"] = torch.export.export(given.model, given.inputs, strict=False)
        return programs["exported"]

    ways: Mapping[str, Callable[[], Any]] = {
        "exported": lambda: in_export(exported(), given),
        "decomposed": lambda: in_export(exported().run_decompositions(), given),
        "compiled": lambda: in_compiled(given),
        "relax": lambda: (in_relax(exported()), None),
        "inductor": lambda: (by_inductor(given), None),
    }
    results = []
    others = sum(layers.others.values())
    for form in forms:
        try:
            with limited(SECONDS):
                number, outputs = ways[form]()
            error = None if outputs is None else error_of(outputs, expected)
            results.append(Found(name, variant, form, layers.plain, number, others, error))
        except (Exception, Late) as failure:
            results.append(Found(name, variant, form, layers.plain, 0, others, reason=_text(failure)))
    return results


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


FORMS = ("exported", "decomposed", "compiled", "relax", "inductor")


def main(arguments: list[str] | None = None) -> None:
    """Look at the architectures that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures; all of them unless given")
    parser.add_argument("--form", action="append", choices=FORMS, help="this form; may be given again")
    parser.add_argument("--batch", action="append", type=int, choices=(1, 2), help="so many rows; may be given again")
    parser.add_argument("--mask", action="append", choices=MASKS, help="with this mask; may be given again")
    parser.add_argument("--lines", type=Path, default=LINES, help="the file of results, to which a run adds")
    parser.add_argument("--page", type=Path, help="where to write the page")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    known = read(options.lines) if options.lines.exists() else []
    done = {(each.name, each.variant, each.form) for each in known}
    for variant in variants(options.mask or MASKS, options.batch or (1, 2)):
        for name in options.names or names():
            forms = [form for form in options.form or FORMS if (name, variant, form) not in done]
            if not forms or (name, variant, "") in done:
                continue
            with torch.no_grad():
                results = look(name, variant, forms)
            with options.lines.open("a", encoding="utf-8") as file:
                for each in results:
                    file.write(json.dumps(asdict(each)) + "\n")
                    print(shown(each), flush=True)
            known += results
    if options.page is not None:
        options.page.write_text(page(known), encoding="utf-8")


def variants(masks: Iterable[str], batches: Iterable[int]) -> list[str]:
    """The variants with one of the masks and one of the numbers of rows."""
    wanted = {(MASKS[mask], batch) for mask in masks for batch in batches}
    return [variant for variant, given in VARIANTS.items() if given in wanted]


def shown(found: Found) -> str:
    """A result in a line."""
    what = found.reason or f"{found.found} of {found.layers}" + (" WRONG" if found.wrong else "")
    return f"{found.name:28} {found.variant:10} {found.form:11} {what}"


def read(path: Path) -> list[Found]:
    """The results in a file."""
    return [Found(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


# ---------------------------------------------------------------- the page


HEAD = f"""# Attention that is found

Made by `python -m benchmarks.attention --page benchmarks/ATTENTION.md`, of architectures of `transformers` with
`attn_implementation="eager"`, tiny and with random weights. Layers are counted while a model runs, from the calls of
torch, if an output is computed from them; layers with a cap or a sink are no plain attention, and are not counted:
models that have no others are here with 0 layers. *Wrong* are models in which more is found than there is, or whose
numbers differ by more than {TOLERANCE:g} of the largest; in Relax and by inductor, where layers are only counted, the
former. What can't be exported, captured or imported at all is left out, and named below.
"""


def page(results: Sequence[Found]) -> str:
    """The results as tables: a row for each variant and form, and one for each architecture that misses some."""
    ran = [each for each in results if each.form and (each.layers or each.others)]
    lines = [
        HEAD,
        "| variant | form | architectures | layers | found | share | wrong |",
        "| --- | --- |" + " ---: |" * 5,
    ]
    for variant in VARIANTS:
        for form in FORMS:
            some = [each for each in ran if (each.variant, each.form) == (variant, form) and not each.reason]
            if not some:
                continue
            layers, found = sum(each.layers for each in some), sum(min(each.found, each.layers) for each in some)
            wrong = sum(each.wrong for each in some) if form != "inductor" else sum(e.found > e.layers for e in some)
            row = (variant, form, len(some), layers, found, f"{found / layers:.1%}" if layers else "", wrong)
            lines.append("| " + " | ".join(map(str, row)) + " |")
    lines += ["", "## Not found", "", "| architecture | variant and form: found of layers |", "| --- | --- |"]
    missed: dict[str, list[str]] = {}
    for each in ran:
        if not each.reason and each.form != "inductor" and each.found < each.layers:
            missed.setdefault(each.name, []).append(f"{each.variant}, {each.form}: {each.found} of {each.layers}")
    lines += [f"| {name} | {'; '.join(where)} |" for name, where in sorted(missed.items())]
    lines += ["", "## No result", "", "| architecture | form | reason |", "| --- | --- | --- |"]
    failed = {(each.name, each.form): each.reason for each in ran if each.reason}
    lines += [f"| {name} | {form} | {reason.replace('|', '/')} |" for (name, form), reason in sorted(failed.items())]
    lines += ["", "## By architecture", "", f"Found in the variant {next(iter(VARIANTS))!r}.", ""]
    lines += ["| architecture | layers | " + " | ".join(FORMS) + " |", "| --- |" + " ---: |" * (len(FORMS) + 1)]
    table: dict[str, dict[str, Found]] = {}
    for each in ran:
        if each.variant == next(iter(VARIANTS)):
            table.setdefault(each.name, {})[each.form] = each
    for name, row in sorted(table.items()):
        cells = ["" if form not in row else "no result" if row[form].reason else str(row[form].found) for form in FORMS]
        lines.append(f"| {name} | {next(iter(row.values())).layers} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
