"""Writes the catalogue of rules for the site: each rule of the rule book with its algebra, its text and its drawing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gsl import Subst
from gsl.rules import FAMILIES, IDIOMS, MODULE_FUSION, NORMAL, RULES

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
NORMAL_RULES = [rule for rule in NORMAL if rule.name not in RULES]
IDIOM_RULES = [rule for rule in IDIOMS if rule not in NORMAL]
DRAWINGS = "_rules"
"""The folder of the drawings."""
HEAD = """# The rule book

`from gsl.rules import BOOK, RULES, FAMILIES`: the rules that never enlarge a program and do not make it slower, as one
rule set; all rules by name; and all in families. `PARALLEL` (several products as one, where one large product is much
faster than small ones) and `LOWERING` (for back ends without kernels for normalisations) are sets of what pays
only somewhere, `OPTIMISING` has the rules that add no work on the data. Every rule is verified
([verification](verification.md)), and tested on every front end. A rule is printed with its source, its
conditions and its target; `RULES["conv-batch-norm"].verify()` tells what its verdict rests on.
"""
NORMAL_FORM = """
## The normal form

`rules.NORMAL` brings what programs write in many ways to one form, whatever the order of its rules. Rules of the
families above are part of it.
"""
WRITTEN_OUT = """
## Idioms

`rules.IDIOMS` is the normal form, and these rules on it.
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
    for text, rules in ((NORMAL_FORM, NORMAL_RULES), (WRITTEN_OUT, IDIOM_RULES)):
        lines.append(text)
        lines.extend(line for rule in rules for line in section(rule))
    lines.append(MODULES)
    lines.append("\n| rule | what becomes one module |\n| --- | --- |\n")
    lines.extend(f"| {rule.name} | `{rule.doc.partition(chr(10))[0]}` |\n" for rule in MODULE_FUSION.rules)
    return "".join(lines)


def write(folder: Path) -> None:
    """Write the page and the drawings into the folder of the pages."""
    drawings = folder / DRAWINGS
    drawings.mkdir(exist_ok=True)
    for rule in (*RULES.values(), *NORMAL_RULES, *IDIOM_RULES):
        rule.visualize(drawings / f"{rule.name}.svg")
    (folder / "rules.md").write_text(page(), encoding="utf-8")
