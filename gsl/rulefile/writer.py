"""Writing rules back as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gsl.errors import RuleFileError
from gsl.rewrite.subst import Subst
from gsl.rulefile.build import FusionRule
from gsl.rulefile.forms import forms
from gsl.rulefile.reader import yaml_package
from gsl.rulefile.schema import Entry, FileOperator, OptionalOperators, OpType, Word


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


def _operator(operator: FileOperator | OptionalOperators) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if isinstance(operator, OptionalOperators):
        data["match_first_option"] = [word.text for word in operator.options]
    else:
        data["op_type"] = _op_type(operator.op_type)
    if not operator.required:
        data["required"] = False
    if isinstance(operator, FileOperator) and operator.multiple:
        data["match_multiple"] = True
    children = [_child(options) for options in operator.children]
    if len(children) == 1 and isinstance(operator, FileOperator) and isinstance(children[0], dict):
        data |= children[0]
    elif len(children) == 1:
        data["child"] = children[0]
    elif children:
        data["children"] = children
    return data


def _child(options: Sequence[Word]) -> Any:
    names = [word.text for word in options]
    return names[0] if len(names) == 1 else {"match_first_option": names}


def _op_type(op_type: OpType) -> Any:
    if op_type.is_any:
        return "."
    names = [word.text for word in op_type.names]
    if op_type.inverted:
        return {"inverted": True, "options": names}
    return names[0] if len(names) == 1 else names
