"""Writing rules back as YAML."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gsl.errors import RuleFileError
from gsl.rewrite.subst import Subst
from gsl.rulefile.build import FusionRule
from gsl.rulefile.forms import forms
from gsl.rulefile.reader import yaml_package
from gsl.rulefile.schema import Entry, Operator, OpType


def to_yaml(rules: Iterable[Subst]) -> str:
    """The text of a file with these rules. RuleFileError for those that a file can't hold."""
    given: dict[str, list[FusionRule]] = {}
    for rule in rules:
        if not isinstance(rule, FusionRule):
            raise RuleFileError(
                f"{rule.title} can't be written as YAML: it was not read from a rule file, and a file holds no targets"
            )
        given.setdefault(rule.entry.name, []).append(rule)
    for name, same in given.items():
        _check_complete(name, same)
    data = {name: _entry(same[0].entry) for name, same in given.items()}
    text: str = yaml_package().safe_dump(data, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    return text if data else ""


def _check_complete(name: str, rules: list[FusionRule]) -> None:
    if any(rule.entry != rules[0].entry for rule in rules):
        raise RuleFileError(f"two rules of different files are named {name!r}; rename one")
    wanted = {form.name for form in forms(rules[0].entry)}
    missing = wanted.difference(rule.name for rule in rules)
    if missing:
        raise RuleFileError(
            f"{name} can't be written as YAML: of its forms, {', '.join(sorted(missing))} "
            f"{'is' if len(missing) == 1 else 'are'} not in the set"
        )


def _entry(entry: Entry) -> dict[str, Any]:
    data: dict[str, Any] = {"priority": entry.priority}
    if entry.heuristic is not None:
        data["heuristic"] = entry.heuristic
    for pattern in entry.patterns:
        data[pattern.key] = {operator.name: _operator(operator) for operator in pattern.operators}
    return data


def _operator(operator: Operator) -> dict[str, Any]:
    data: dict[str, Any] = {"op_type": _op_type(operator.op_type)}
    if not operator.required:
        data["required"] = False
    if operator.multiple:
        data["match_multiple"] = True
    options = [[word.text for word in each] for each in operator.children]
    plain = [each[0] for each in options if len(each) == 1]
    if len(options) == 1 and plain:
        data["child"] = plain[0]
    elif len(options) == 1:
        data["match_first_option"] = options[0]
    elif options:
        data["children"] = [each[0] if len(each) == 1 else {"match_first_option": each} for each in options]
    return data


def _op_type(op_type: OpType) -> Any:
    if op_type.is_any:
        return "."
    names = [word.text for word in op_type.names]
    if op_type.inverted:
        return {"inverted": True, "options": names}
    return names[0] if len(names) == 1 else names
