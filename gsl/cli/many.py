"""The work of a command on the models that its arguments name: on one, or on many, one after the other or several at
once, each in a process of its own."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gsl.cli import files, models
from gsl.cli.command import Exit, TableRow, Terminal, UsageError, count, failure, process_class, terminated
from gsl.pause import let_end, starting

JsonObject = dict[str, Any]
"""The result for one model as JSON."""
OneModel = Callable[[Terminal, argparse.Namespace], tuple[Exit, JsonObject]]
"""The work of a command on the model that its options name, with a terminal for its progress."""
_Task = Callable[[argparse.Namespace], tuple[Exit, JsonObject]]
_Running = dict[Connection, tuple[BaseProcess, Path]]
"""Processes with their models, each by the end of a pipe at which its result comes."""


@dataclass(frozen=True)
class Result:
    """The result of a command for one model: its status, and what it prints, or the line that says why it failed."""

    model: Path
    status: Exit
    found: JsonObject | None = None
    error: str = ""

    def as_json(self) -> JsonObject:
        return {"model": str(self.model), "status": int(self.status), **(self.found or {"error": self.error})}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument that tells how many models are worked on at once."""
    parser.add_argument(
        "--jobs", type=count(), default=1, metavar="N",
        help="work on so many models at once, each in a process of its own (1: one after the other, in this process)",
    )  # fmt: skip


def run(
    work: OneModel, options: argparse.Namespace, terminal: Terminal, title: str,
    show: Callable[[JsonObject], None], show_all: Callable[[Sequence[Result]], None],
) -> Exit:  # fmt: skip
    """Do the work on all models, and print what was found; the status, of several models the highest."""
    if len(options.models) == 1 and not os.path.isdir(options.models[0]):
        status, found = work(terminal, argparse.Namespace(**vars(options), model=options.models[0]))
        if options.json:
            terminal.json(found)
        else:
            show(found)
        return status
    if options.params is not None:
        raise UsageError("--params has the values of one model, and several models are given")
    paths = models.of_paths(options.models)
    tasks = [argparse.Namespace(**{**vars(options), "model": path}) for path in paths]
    if "output" in options:
        if options.output.suffix in models.FORMATS and not options.output.exists():
            raise UsageError(f"{options.output}: the results of many models are put into a folder; give its name")
        for task, place in zip(tasks, files.in_folder(options.output, paths)):
            task.output = place
    results = _results(work, tasks, options.jobs, terminal, title)
    if options.json:
        terminal.json({"models": [result.as_json() for result in results]})
    else:
        show_all(results)
    return max(result.status for result in results)


def _results(
    work: OneModel, tasks: Sequence[argparse.Namespace], jobs: int, terminal: Terminal, title: str
) -> list[Result]:
    """The result for each model, in order. A failure is the result of its model, and stops no other."""
    one = partial(work, replace(terminal, rich_err=False))  # the terminal tells how many are done
    done = (_attempt(one, task) for task in tasks) if jobs == 1 else _at_once(one, tasks, jobs)
    found = {result.model: result for result in terminal.progress(done, len(tasks), title)}
    return [found[task.model] for task in tasks]


def show_table(
    found: Sequence[Result], terminal: Terminal, header: TableRow, cells: Callable[[JsonObject], TableRow], done: str,
    negative: str,
) -> None:  # fmt: skip
    """Print a row for each model, and how many have each outcome, of which two have words of the command."""
    blank = [""] * (len(header) - 2)
    terminal.table(
        [
            (str(result.model), *([*blank, f"error: {result.error}"] if result.found is None else cells(result.found)))
            for result in found
        ],
        header,
    )
    words = {Exit.DONE: done, Exit.NEGATIVE: negative}
    counts = Counter(words.get(result.status, "failed") for result in found)
    listed = ", ".join(f"{count} {word}" for word, count in counts.items())
    terminal.line(f"\n{len(found)} model{'s' * (len(found) > 1)}: {listed}")


def _attempt(work: _Task, task: argparse.Namespace) -> Result:
    try:
        return Result(task.model, *work(task))
    except Exception as error:
        if task.traceback:
            traceback.print_exception(error, file=sys.stderr)
        status, line = failure(error, task.traceback)
        return Result(task.model, status, error=line)


def _at_once(work: _Task, tasks: Sequence[argparse.Namespace], jobs: int) -> Iterator[Result]:
    """The results, in the order in which they come. A process that ends without one has failed."""
    waiting = deque(tasks)
    running: _Running = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                _start(running, work, waiting.popleft(), jobs)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                yield _received(ready, *running.pop(ready))
    finally:  # no daemons, for these could not start the process that tries a file of TVM
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join()


@starting
def _start(running: _Running, work: _Task, task: argparse.Namespace, jobs: int) -> None:
    """Start a process that does the work, and add it to those that run."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = process_class()(target=_send, args=(there, work, task, jobs))
    process.start()
    there.close()
    running[here] = process, task.model


def _send(there: Connection, work: _Task, task: argparse.Namespace, jobs: int) -> None:
    """The work of a process: it sends the result of one model.

    An interrupt (Ctrl-C) comes to the process that started it, too, which terminates this one: then what is
    half-written is taken away.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, terminated)
    let_end()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    there.send(_attempt(work, task))


def _received(here: Connection, process: BaseProcess, model: Path) -> Result:
    with here:
        try:
            result: Result = here.recv()
        except EOFError:
            process.join()
            result = Result(model, Exit.FAILED, error=f"its process ended with status {process.exitcode}")
    process.join()
    return result
