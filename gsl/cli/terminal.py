"""The output of a command: a terminal with tables in colour and a progress bar, or plain text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

TrackedItem = TypeVar("TrackedItem")
TableRow = Sequence[str]
STYLES = {"supported": "green", "refuted": "bold red", "unchecked": "yellow"}
"""The colours of words that are alone in a cell."""


@dataclass(frozen=True)
class Terminal:
    """The two streams of a command; plain text goes to a stream that is no terminal, or where rich is missing."""

    out: TextIO
    err: TextIO
    rich_out: bool
    rich_err: bool

    @staticmethod
    def of(out: TextIO, err: TextIO) -> Terminal:
        """For two streams, as far as they are terminals."""
        terminals = out.isatty(), err.isatty()
        there = any(terminals) and _has_rich()
        return Terminal(out, err, there and terminals[0], there and terminals[1])

    def line(self, text: str = "") -> None:
        print(text, file=self.out)

    def complain(self, text: str) -> None:
        """A line of the command's own on the stream for errors."""
        print(f"gsl: {text}", file=self.err, flush=True)

    def warn(self, message: object) -> None:
        """A warning in one line on the stream for errors."""
        self.complain(f"warning: {' '.join(str(message).split())}")

    def json(self, value: Any) -> None:
        self.line(json.dumps(value, indent=2, ensure_ascii=False))

    def table(self, rows: Sequence[TableRow], header: TableRow = ()) -> None:
        """Rows of words, of which the columns stand below each other, with their names if there is a header."""
        if not self.rich_out:
            lines = [*([header] if header else []), *rows]
            widths = [max(map(len, column)) for column in zip(*lines)]
            for row in lines:
                self.line("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip())
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*header, show_header=bool(header), box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*[Text(word, style=STYLES.get(word, "")) for word in row])
        Console(file=self.out).print(table)

    def progress(self, items: Iterable[TrackedItem], total: int, title: str) -> Iterator[TrackedItem]:
        """The items, with a bar on a terminal that tells how many of them are done."""
        if not self.rich_err:
            yield from items
            return
        from rich.console import Console
        from rich.progress import track

        yield from track(items, title, total=total, console=Console(file=self.err), transient=True)

    @contextmanager
    def during(self, title: str) -> Iterator[Callable[[str], None]]:
        """A context in which a terminal shows the current task; the function that it gives changes the text."""
        if not self.rich_err:
            yield lambda what: None
            return
        from rich.console import Console
        from rich.text import Text

        with Console(file=self.err).status(title) as status:
            yield lambda what: status.update(Text(f"{title}: {what}"))


def _has_rich() -> bool:
    try:
        import rich.progress
    except ImportError:
        return False
    return bool(rich.progress)
