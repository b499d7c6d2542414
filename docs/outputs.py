"""Writes below each example of the pages what it prints, and tells where a page shows something else.

A block of Python that prints is followed by a block ``output``. A line of ``…`` in it stands for any lines, and an
``…`` within a line for any text; numbers with a point may differ, because machines round differently, and so may the
places of the largest errors, lines of the pages, and addresses. What still agrees is kept as it is written.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = (HERE.parent / "README.md", *sorted(HERE.rglob("*.md")))
_EXAMPLE = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```output\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
_VARIES = {
    "lines": ("^…\n", r"(?:.*\n)*?"),
    "text": ("…", ".*?"),
    "error": (r"\d\.\d\de[-+]\d\d\s+(?:\[[\d, ]*\]\s*)?", None),
    "gap": (r"(?<=\bat) +", " +"),
    "number": (r"-?\d+\.\d*(?:e[-+]\d+)?", None),
    "line": (r"(?<=\.md:)\d+", r"\d+"),
    "address": (r"0x[0-9a-f]+", None),
}
"""The parts of a text that may differ, and what agrees with each: what looks the same, or another pattern."""
_PARTS = re.compile(
    "|".join([*(f"(?P<{name}>{part})" for name, (part, _) in _VARIES.items()), "."]), re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Example:
    """A block of Python of a page, with what the page says that it prints."""

    code: str
    output: str
    line: int
    """The line on which the code starts, from 1."""


def examples(page: Path) -> Iterator[Example]:
    """The blocks of Python of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _EXAMPLE.finditer(text):
        yield Example(found["code"], found["output"] or "", text[: found.start("code")].count("\n") + 1)


def needs(page: Path) -> list[str]:
    """The modules without which the examples of a page can't be run, as its first line names them."""
    found = re.match(r"<!-- needs: (.*) -->", page.read_text(encoding="utf-8"))
    return found.group(1).split(", ") if found else []


def run(page: Path) -> Iterator[tuple[Example, str]]:
    """Each example of a page with what it prints now; each sees the names of those before it.

    What they draw at random is the same for each run.
    """
    with contextlib.suppress(ImportError):
        import torch

        torch.manual_seed(0)
    namespace: dict[str, object] = {"__name__": "example"}
    for example in examples(page):
        printed = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore")
            exec(compile("\n" * (example.line - 1) + example.code, str(page), "exec"), namespace)
        yield example, _tidy(printed.getvalue())


def _tidy(printed: str) -> str:
    """Printed text without spaces at the ends of lines and empty lines at its end."""
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def agrees(shown: str, printed: str) -> bool:
    """True if a page shows what is printed."""
    return re.fullmatch("".join(map(_pattern, _PARTS.finditer(shown))), printed) is not None


def _pattern(part: re.Match[str]) -> str:
    if part.lastgroup is None:
        return re.escape(part[0])
    same, other = _VARIES[part.lastgroup]
    return other or same


def updated(page: Path) -> str:
    """The text of a page with what its examples print now."""
    results = run(page)

    def block(found: re.Match[str]) -> str:
        example, printed = next(results)
        output = example.output if agrees(example.output, printed) else printed
        code = f"```python\n{example.code}```\n"
        return f"{code}\n```output\n{output}```\n" if output else code

    return _EXAMPLE.sub(block, page.read_text(encoding="utf-8"))


def main(names: list[str]) -> None:
    """Update the pages of these names, or all that can be run here; what they write goes into a folder for a while."""
    if unknown := {*names} - {page.name for page in PAGES}:
        raise SystemExit(f"no such page, by its name alone: {', '.join(sorted(unknown))}")
    for page in PAGES:
        if names and page.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                page.write_text(updated(page), encoding="utf-8")
            except ImportError as error:
                print(f"{page.name}: left as it is, because {error}")
            os.chdir(HERE)


if __name__ == "__main__":
    main(sys.argv[1:])
