"""Gains of rules on models of their usual width on this machine, beside `fuse` of torch.fx, and `torch.compile` with
and without freezing: with a few layers, and whole."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._inductor import config as inductor
from torch.fx.experimental.optimization import fuse

import gsl
import gsl.rules as book
from benchmarks.measure import Meter, in_turns
from benchmarks.peers.native import require_close
from benchmarks.section import Goal, Section
from demo.models import MODELS, Model, settle
from gsl import RuleSet, Workload, kernels

ROUNDS = 7
EXPORT, BOOK, OPTIMISING = "exported", "`BOOK`", "`OPTIMISING`"
CPU, INT8 = "rules for a CPU", "the same in int8"
CHOSEN, TOLERANT = "`gsl.optimize`", "`gsl.optimize`, `tolerance=0.05`"
FUSED, COMPILED, FROZEN = "`fuse` of torch.fx", "`torch.compile`", "`torch.compile`, frozen"
BOTH = "rules for a CPU, then `torch.compile`"
FOR_COMPILER = '`gsl.optimize`, `cost="compiled"`, then `torch.compile`'
FOR_FROZEN = f"{FOR_COMPILER}, frozen"
FORMS = (
    EXPORT, BOOK, OPTIMISING, CPU, INT8, CHOSEN, TOLERANT, FUSED, COMPILED, FROZEN, BOTH, FOR_COMPILER, FOR_FROZEN,
)  # fmt: skip
NOISE = 0.98
"""The least factor by which a form is as fast as the export that is not slower: the rest is noise."""
BUDGET, SHORT_BUDGET = 30.0, 10.0
"""The seconds that `gsl.optimize` has for a whole model, and for one of a few layers."""
FOLDING = RuleSet([book.RULES["conv-batch-norm"], book.RULES["dropout-identity"]])
Run = Callable[[], torch.Tensor]


class First(nn.Module):
    """A model of transformers by the first of its results."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(x, **self.options)[0]
        return result


def made_by(kind: str, **options: Any) -> Callable[[], nn.Module]:
    """A model whose attention is written out, as exports of most models have it."""

    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**options)
        config.use_cache, config._attn_implementation = False, "eager"
        names = {"T5": "T5EncoderModel", "ResNet": "ResNetForImageClassification"}
        more = {"return_dict": False}
        return First(settle(getattr(transformers, names.get(kind, f"{kind}Model"))(config)), **more)

    return make


def _inputs(name: str) -> Callable[[], tuple[torch.Tensor, ...]]:
    return next(model.inputs for model in MODELS if model.name == name)


_LLAMA = {
    "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12, "num_key_value_heads": 4,
    "vocab_size": 8000,
}  # fmt: skip
TESTED = (
    Model("BERT-base, 128 tokens", made_by("Bert"), _inputs("BERT-base")),
    Model("GPT-2, 128", made_by("GPT2"), _inputs("BERT-base")),
    Model("ViT-base, 224", made_by("ViT"), _inputs("ResNet-50")),
    Model(
        "Llama-like, 12 layers of 768, 64",
        made_by("Llama", num_hidden_layers=12, **_LLAMA),
        _inputs("Llama, 12 layers of 768"),
    ),
    Model("T5-small encoder, 128", made_by("T5", d_model=512), _inputs("BERT-base")),
    Model("GoogLeNet", next(model.make for model in MODELS if model.name == "GoogLeNet"), _inputs("GoogLeNet")),
    Model("ResNet-50", made_by("ResNet"), _inputs("ResNet-50")),
)
SHORT = (
    Model("BERT-base, 4 of 12 layers, 128 tokens", made_by("Bert", num_hidden_layers=4), _inputs("BERT-base")),
    Model(
        "Llama-like, 4 layers of 768, 64",
        made_by("Llama", num_hidden_layers=4, **_LLAMA),
        _inputs("Llama, 12 layers of 768"),
    ),
    Model("ResNet-50, 4 of 16 blocks", made_by("ResNet", depths=[1, 1, 1, 1]), _inputs("ResNet-50")),
)
"""What each layer gains is told by four of them, which take a third of the time to compile and to run."""


def stages() -> tuple[RuleSet, ...]:
    """The rule sets that make the form for a CPU, one after the other."""
    return (book.NORMAL, book.IDIOMS, FOLDING, book.CPU)


def applied(wl: Workload, rules: tuple[RuleSet, ...]) -> Workload:
    """The workload in which each set was applied until none of its rules fires."""
    for rule_set in rules:
        wl = rule_set(wl, iterative=True)
    return wl


def forms(model: Model, only: tuple[str, ...], budget: float) -> dict[str, Run | str]:
    """The model in its forms, ready to run; a text says why a form is missing."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    kernels.clear()
    module, inputs = model.make(), model.inputs()
    wl = Workload.from_torch(module, inputs, name=model.name)
    made: dict[str, Callable[[], Workload]] = {
        EXPORT: lambda: wl,
        BOOK: lambda: applied(wl, (book.BOOK,)),
        OPTIMISING: lambda: applied(wl, (RuleSet(book.OPTIMISING),)),
        CPU: lambda: applied(wl, stages()),
        INT8: lambda: applied(wl, (*stages(), book.APPROXIMATE)),
        CHOSEN: lambda: gsl.optimize(wl, budget=budget).workload,
        TOLERANT: lambda: gsl.optimize(wl, budget=budget, tolerance=0.05).workload,
    }
    exported = wl.exported.module()
    runs: dict[str, Run | str] = {
        name: _run(_program(name, make()), inputs) for name, make in made.items() if name in only
    }
    if FUSED in only:
        runs[FUSED] = _fused(module, inputs)
    if COMPILED in only:
        runs[COMPILED] = _run(torch.compile(exported), inputs)
    if FROZEN in only:
        runs[FROZEN] = frozen(_run(torch.compile(wl.exported.module()), inputs))
    if BOTH in only:
        runs[BOTH] = _run(torch.compile(made[CPU]().exported.module()), inputs)
    if FOR_COMPILER in only:
        chosen = gsl.optimize(wl, cost="compiled", budget=budget).workload
        runs[FOR_COMPILER] = _run(torch.compile(chosen.exported.module()), inputs)
    if FOR_FROZEN in only:
        with inductor.patch(freezing=True):
            chosen = gsl.optimize(wl, cost="compiled", budget=budget).workload
        runs[FOR_FROZEN] = frozen(_run(torch.compile(chosen.exported.module()), inputs))
    return runs


def _program(name: str, wl: Workload) -> Any:
    """What runs a form: as ``torch.export`` makes it for the export and the book; as GSL builds it where weights are
    packed."""
    return wl.exported.module() if name in (EXPORT, BOOK, OPTIMISING) else wl.build()


def _run(program: Any, inputs: tuple[torch.Tensor, ...]) -> Run:
    def run() -> torch.Tensor:
        found = program(*inputs)
        result: torch.Tensor = found if isinstance(found, torch.Tensor) else found[0]
        return result

    return run


def _fused(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Run | str:
    if not any(isinstance(part, nn.BatchNorm2d) for part in module.modules()):
        return "no batch norms"
    try:
        return _run(fuse(module), inputs)
    except Exception as error:
        return f"can't be traced ({type(error).__name__})"


def frozen(run: Run) -> Run:
    """A run that is compiled, at the first time, with weights as constants."""
    with inductor.patch(freezing=True):
        run()
    return run


@dataclass(frozen=True)
class Timed:
    """The milliseconds of a form, and the largest error of its result relative to the largest number in that."""

    median: float
    least: float
    error: float


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(
    model: Model, only: tuple[str, ...], rounds: int = ROUNDS, budget: float = BUDGET
) -> dict[str, Timed | str]:
    """The forms of a model, which run in turns, there and back."""
    with torch.no_grad():
        made = forms(model, only, budget)
        runs = {name: run for name, run in made.items() if not isinstance(run, str)}
        expected = runs[EXPORT]()
        errors = {}
        for name, run in runs.items():
            for _ in range(3):  # weights are packed at the second run
                found = run()
            errors[name] = float((found - expected).abs().max() / expected.abs().max())
            if name not in (INT8, TOLERANT):
                require_close(f"{model.name}, {name}", [found], [expected])
        taken = in_turns(runs, rounds)
    timed = {name: Timed(statistics.median(times), min(times), errors[name]) for name, times in taken.items()}
    return {name: run if isinstance(run, str) else timed[name] for name, run in made.items()}


def run(meter: Meter, largest: int) -> Section:
    """Models of a few layers, with one thread."""
    return section("Models by rules for a CPU", SHORT, (1,), SHORT_BUDGET)


def run_whole(meter: Meter, largest: int) -> Section:
    """Whole models, with one thread and with two."""
    return section("Whole models by rules for a CPU", TESTED, (1, 2), BUDGET)


def section(title: str, models: Sequence[Model], counts: Sequence[int], budget: float) -> Section:
    """A table for each count of threads."""
    made = Section(title)
    worst = 0.0
    gains: dict[str, list[tuple[float, str]]] = {BOOK: [], CPU: []}
    for count in counts:
        lines = []
        for model in models:
            with threads(count):
                found = measure(model, FORMS, ROUNDS, budget)
            timed = {name: form for name, form in found.items() if isinstance(form, Timed)}
            base = timed[EXPORT].median
            lines.append([model.name, *(_shown(found[name], base, name == EXPORT) for name in FORMS)])
            print(f"{count} thread{'s' * (count > 1)}, {', '.join(lines[-1])}", flush=True)
            for name, ratios in gains.items():
                ratios.append((base / timed[name].median, model.name))
            worst = max(worst, timed[CPU].error)
        made.table([f"{count} thread{'s' * (count > 1)}", *FORMS], lines)
    slowest = {name: min(ratios) for name, ratios in gains.items()}
    told = {name: f"at least {least:.2f} × as fast ({model})" for name, (least, model) in slowest.items()}
    made.goals += [
        Goal(f"`BOOK`, {len(models)} models", "never slower than the export", told[BOOK], slowest[BOOK][0] >= NOISE),
        Goal(f"rules for a CPU, {len(models)} models", "never slower than the export; errors at most 1e-5",
             f"{told[CPU]}; errors at most {worst:.0e}", slowest[CPU][0] >= NOISE and worst <= 1e-5),
    ]  # fmt: skip
    made.add(
        f"""Milliseconds of one inference (wall time, median of {ROUNDS}, the forms in turns, there and back), how many
        times faster than the export that is, and the largest error of the result relative to its largest number. The
        models of transformers write their attention out. `BOOK` and `OPTIMISING` are applied until none of their rules
        fires. *Rules for a CPU*: `NORMAL`, `IDIOMS`, folded batch norms,
        then `CPU`, each until none of its rules fires; *in int8*: then `APPROXIMATE`. `gsl.optimize` had
        {budget:.0f} seconds for each model. `torch.fx.experimental.optimization.fuse` folds batch norms into
        convolutions. *Frozen*: with inductor's `freezing`, which packs weights, too; rules are chosen with it, then.
        Weights are packed, and graphs compiled, before."""
    )
    return made


def _shown(found: Timed | str, base: float, is_base: bool) -> str:
    if isinstance(found, str):
        return found
    return f"{found.median:.1f}" if is_base else f"{found.median:.1f} ({base / found.median:.2f} ×, {found.error:.0e})"
