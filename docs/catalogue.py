"""Writes the catalogue of rules for the site: each rule of the rule book with its algebra, its text and its drawing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gsl import Subst
from gsl.rules import FAMILIES, MODULE_FUSION

TITLES = {
    "layout": "Layout, casts and copies",
    "merge": "Merging element-wise operators",
    "sums": "Sums",
    "fold": "Folding into weights",
    "parallel": "Parallel operators of one input",
    "query-key-value": "Query, key and value",
    "lower": "Lowering",
}
"""The headings of the families."""
DRAWINGS = "_rules"
"""The folder of the drawings."""
HEAD = """# The rule book

`from gsl.rules import BOOK, RULES, FAMILIES`: all rules as one rule set, by name, and in families. Every rule is
verified ([verification](verification.md)), and tested on every front end. A rule is printed with its source, its
conditions and its target; `RULES["conv-batch-norm"].verify()` tells what its verdict rests on.
"""
MODULES = """
## Fusion into modules

`rules.MODULE_FUSION` is a rule set of its own: in traced modules ([fusion](fusion.md#modules)), each of these becomes
one module. Its rules differ in the layer and in what follows it.
"""


def section(rule: Subst) -> Iterator[str]:
    """The lines of one rule."""
    algebra, _, rest = rule.doc.partition("\n")
    yield f"\n### {rule.name}\n\n```text\n{algebra}\n```\n"
    if rest.strip():
        yield f"{rest.strip()}\n"
    yield f"\n![{rule.name}: source and target]({DRAWINGS}/{rule.name}.svg)\n"
    yield f"\n<details><summary>As it is printed</summary>\n\n```text\n{rule}\n```\n\n</details>\n"


def page() -> str:
    """The page of all rules."""
    lines = [HEAD]
    seen: set[str] = set()
    for family, rules in FAMILIES.items():
        lines.append(f"\n## {TITLES[family]}\n")
        for rule in rules:
            if rule.name in seen:
                lines.append(f"\n[{rule.name}](#{rule.name}), see above.\n")
                continue
            seen.add(rule.name)
            lines.extend(section(rule))
    lines.append(MODULES)
    lines.append("\n| rule | what becomes one module |\n| --- | --- |\n")
    lines.extend(f"| {rule.name} | `{rule.doc.partition(chr(10))[0]}` |\n" for rule in MODULE_FUSION.rules)
    return "".join(lines)


def write(folder: Path) -> None:
    """Write the page and the drawings into the folder of the pages."""
    drawings = folder / DRAWINGS
    drawings.mkdir(exist_ok=True)
    for rule in {rule.name: rule for rules in FAMILIES.values() for rule in rules}.values():
        rule.visualize(drawings / f"{rule.name}.svg")
    (folder / "rules.md").write_text(page(), encoding="utf-8")
