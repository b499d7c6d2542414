"""Rule files as YAML: read, with the place of everything in them, and written.

Only plain YAML is read: no tags but those of strings, numbers and booleans, and bounded in size, depth and number of
values, so that a hostile file costs no more than a long one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from gsl.errors import MissingPackageError, RuleFileError, nearest
from gsl.rewrite.subst import Subst
from gsl.rulefile.build import FusionRule
from gsl.rulefile.forms import (
    ANY,
    Alternative,
    Entry,
    FileOperator,
    FilePlace,
    OptionalOperators,
    OpType,
    Word,
    check,
    forms,
)
from gsl.rulefile.names import known_names, lookup

MAX_BYTES: Final = 1 << 18
MAX_VALUES: Final = 20_000
MAX_DEPTH: Final = 8
"""A rule file is six levels deep."""
MAX_NAME: Final = 100
ENTRY_KEYS: Final = ("priority", "heuristic", "pattern", "pattern1", "pattern2")
OPERATOR_KEYS: Final = ("op_type", "child", "children", "match_first_option", "match_multiple", "required")
_PATTERN: Final = re.compile(r"pattern([1-9][0-9]*)?")
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = {
    "map": "a mapping", "seq": "a list", "str": "a string", "int": "a whole number", "bool": "true or false",
    "float": "a number", "null": "nothing", "timestamp": "a date", "binary": "binary data",
}  # fmt: skip

YamlValue = TypeVar("YamlValue")


def read_file(path: str | Path) -> tuple[Entry, ...]:
    """The rules of a file. RuleFileError, with line and column, for one that is ill-formed."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise RuleFileError(f"{path}: the file can't be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise RuleFileError(f"{path}: a rule file has at most {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleFileError(f"{path}: byte {error.start}: a rule file is text in UTF-8") from None
    return read_text(text, Path(path).name)


def read_text(text: str, file: str) -> tuple[Entry, ...]:
    """The rules of a text, which messages call by the name of a file."""
    return YamlReader(file).read(text)


def yaml_package() -> Any:
    """The package yaml. MissingPackageError without it."""
    try:
        import yaml
    except ImportError as error:
        raise MissingPackageError("rule files need PyYAML, which is not installed: pip install pyyaml") from error
    return yaml


class YamlReader:
    """Reads the nodes of a YAML document into the values of the schema."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.values = 0
        """The number of values that have been read; an alias counts as often as it is used."""

    def read(self, text: str) -> tuple[Entry, ...]:
        """The rules of a document."""
        yaml = yaml_package()
        try:
            self._check_size(yaml, text)
            document = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = ", ".join(filter(None, (error.context, error.problem)))
            raise FilePlace(self.file, mark.line + 1, mark.column + 1).error(f"not YAML: {problem}") from None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            place = FilePlace(self.file, before.count("\n") + 1, len(before) - before.rfind("\n"))
            raise place.error(f"not YAML: the character {error.character!r} is not allowed") from None
        if document is None:
            raise FilePlace(self.file, 1, 1).error("expected rules, found an empty file")
        rules = self.mapping(document, "the file", "a name of a rule")
        return tuple(self._entry(word, node) for word, node in rules)

    def _check_size(self, yaml: Any, text: str) -> None:
        """Refuse deep or long documents before they are put together, which recurses."""
        depth = 0
        for number, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise self.place(event).error(f"a rule file is at most {MAX_DEPTH} levels deep")
            if number > 2 * MAX_VALUES:
                raise self.place(event).error(f"a rule file has at most {MAX_VALUES} values")

    def place(self, node: Any) -> FilePlace:
        """The place where a node of the document starts."""
        return FilePlace(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    # Values.

    def kind(self, node: Any) -> str:
        """The kind of a value. RuleFileError for one that has a tag of its own."""
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.place(node).error(f"a rule file has at most {MAX_VALUES} values")
        kind = node.tag.removeprefix(_TAG)
        if kind not in _KINDS or node.tag == kind:
            raise self.place(node).error(f"the tag {node.tag!r} is not allowed: a rule file is plain YAML")
        return str(kind)

    def wrong(self, node: Any, kind: str, what: str, expected: str) -> NoReturn:
        """Raise the error of a value of another kind than expected."""
        found = _KINDS[kind]
        if kind not in ("map", "seq", "str", "null"):
            found += f", {node.value[:40]}"
            if expected.startswith(("a name", "the name")):
                found += f"; a name that reads like that is written in quotes: '{node.value[:40]}'"
        raise self.place(node).error(f"{what}: expected {expected}, found {found}")

    def expect(self, node: Any, kind: str, what: str, expected: str) -> None:
        """Raise the error of a value that is of another kind."""
        found = self.kind(node)
        if found != kind:
            self.wrong(node, found, what, expected)

    def mapping(self, node: Any, what: str, key: str = "a name") -> list[tuple[Word, Any]]:
        """The keys and values of a mapping that is not empty."""
        self.expect(node, "map", what, "a mapping")
        found: dict[str, tuple[Word, Any]] = {}
        for name, value in node.value:
            word = self.name(name, what, key)
            if word.text in found:
                first = found[word.text][0].place
                raise word.place.error(f"{what}: {word.text!r} stands twice, first in line {first.line}")
            found[word.text] = word, value
        if not found:
            raise self.place(node).error(f"{what}: expected a mapping, found an empty one")
        return list(found.values())

    def name(self, node: Any, what: str, expected: str = "a name") -> Word:
        """A string that is not empty."""
        self.expect(node, "str", what, expected)
        if not node.value:
            raise self.place(node).error(f"{what}: expected {expected}, found an empty string")
        if len(node.value) > MAX_NAME:
            raise self.place(node).error(f"{what}: a name has at most {MAX_NAME} characters")
        return Word(node.value, self.place(node))

    def flag(self, node: Any, what: str) -> bool:
        """True or false."""
        self.expect(node, "bool", what, "true or false")
        return bool(node.value.lower() in ("true", "yes", "on"))

    def integer(self, node: Any, what: str) -> int:
        """A whole number."""
        kind = self.kind(node)
        if kind != "int" or _INTEGER.fullmatch(node.value) is None:
            self.wrong(node, kind, what, "a whole number in decimal digits")
        return int(node.value)

    def sequence(self, node: Any, what: str) -> Sequence[Any]:
        """The items of a list that is not empty."""
        self.expect(node, "seq", what, "a list")
        if not node.value:
            raise self.place(node).error(f"{what}: expected a list, found an empty one")
        items: Sequence[Any] = node.value
        return items

    # What the schema knows.

    def _entry(self, name: Word, node: Any) -> Entry:
        what = f"rule {name.text!r}"
        fields: dict[str, Any] = {}
        patterns: dict[str, tuple[Word, Any]] = {}
        for word, value in self.mapping(node, what):
            if word.text == "priority":
                fields["priority"] = self.integer(value, f"{what}: priority")
            elif word.text == "heuristic":
                fields["heuristic"] = self.name(value, f"{what}: heuristic").text
            elif _PATTERN.fullmatch(word.text):
                patterns[word.text] = word, value
            else:
                raise _unknown(word, what, ENTRY_KEYS)
        if not patterns:
            raise name.place.error(f"{what} has no pattern: give it one as pattern, or several as pattern1, pattern2")
        if "pattern" in patterns and len(patterns) > 1:
            other = next(word for key, (word, _) in patterns.items() if key != "pattern")
            raise other.place.error(f"{what} has both pattern and {other.text}: alternatives are pattern1, pattern2, …")
        numbered = sorted(patterns.items(), key=lambda item: int(item[0].removeprefix("pattern") or 0))
        alternatives = tuple(self._pattern(key, value, f"{what}, {key.text}") for _, (key, value) in numbered)
        return Entry(name.text, alternatives, **fields, place=name.place)

    def _pattern(self, key: Word, node: Any, what: str) -> Alternative:
        operators = tuple(
            self._operator(name, value, f"{what}, operator {name.text!r}")
            for name, value in self.mapping(node, what, "a name of an operator")
        )
        pattern = Alternative(key.text, operators, key.place)
        check(pattern)
        return pattern

    def _operator(self, name: Word, node: Any, what: str) -> FileOperator | OptionalOperators:
        given: dict[str, tuple[Word, Any]] = {}
        for word, value in self.mapping(node, what):
            if word.text not in OPERATOR_KEYS:
                raise _unknown(word, what, OPERATOR_KEYS)
            given[word.text] = word, value
        if "op_type" not in given:
            return self._choice(name, given, what)
        flags = {
            field: self.flag(given[key][1], f"{what}: {key}")
            for key, field in (("required", "required"), ("match_multiple", "multiple"))
            if key in given
        }
        op_type = self._op_type(given["op_type"][1], f"{what}: op_type")
        return FileOperator(name.text, op_type, self._children(given, what), **flags, place=name.place)

    def _choice(self, name: Word, given: dict[str, tuple[Word, Any]], what: str) -> OptionalOperators:
        """An entry without op_type."""
        if "match_first_option" not in given:
            raise name.place.error(
                f"{what} has no op_type: give it one, or match_first_option, with the operators that it may stand for"
            )
        if "match_multiple" in given:
            raise given["match_multiple"][0].place.error(
                f"{what} has match_multiple, but no op_type: give match_multiple to its options, or write a row of any "
                "of several operators as op_type: […]"
            )
        required = "required" not in given or self.flag(given["required"][1], f"{what}: required")
        options = self._options(given.pop("match_first_option")[1], f"{what}: match_first_option")
        return OptionalOperators(name.text, options, self._children(given, what), required, place=name.place)

    def _op_type(self, node: Any, what: str) -> OpType:
        if self.kind(node) != "map":
            if node.value == ".":
                return ANY
            return OpType(self._op_names(node, what))
        parts = {word.text: (word, value) for word, value in self.mapping(node, what)}
        for key, (word, _) in parts.items():
            if key not in ("inverted", "options"):
                raise _unknown(word, what, ("inverted", "options"))
        if "options" not in parts:
            raise self.place(node).error(f"{what} has no options")
        inverted = "inverted" in parts and self.flag(parts["inverted"][1], f"{what}: inverted")
        return OpType(self._op_names(parts["options"][1], f"{what}: options"), inverted)

    def _op_names(self, node: Any, what: str) -> tuple[Word, ...]:
        items = self.sequence(node, what) if self.kind(node) == "seq" else [node]
        names: dict[str, Word] = {}
        for item in items:
            word = self.name(item, what, "a name of an operator")
            if word.text == ".":
                raise word.place.error(f"{what}: '.' is every operator, so it stands alone")
            if lookup(word.text) is None:
                raise word.place.error(f"{what}: unknown operator {word.text!r}: {nearest(word.text, known_names())}")
            if word.text in names:
                raise word.place.error(f"{what}: {word.text!r} stands twice")
            names[word.text] = word
        return tuple(names.values())

    def _children(self, given: Mapping[str, tuple[Word, Any]], what: str) -> tuple[tuple[Word, ...], ...]:
        if "child" in given and "children" in given:
            place = max((given["child"][0].place, given["children"][0].place), key=lambda p: (p.line, p.column))
            raise place.error(f"{what} has both child and children: write children with all of them")
        children: list[tuple[Word, ...]] = []
        if "child" in given:
            node = given["child"][1]
            if self.kind(node) == "seq":
                raise self.place(node).error(f"{what}: child is one name; several are children")
            children.append(self._child(node, f"{what}: child"))
        if "children" in given:
            items = self.sequence(given["children"][1], f"{what}: children")
            children += [self._child(item, f"{what}: children") for item in items]
        if "match_first_option" in given:
            children.append(self._options(given["match_first_option"][1], f"{what}: match_first_option"))
        return tuple(children)

    def _child(self, node: Any, what: str) -> tuple[Word, ...]:
        """A name, or the options of a mapping ``match_first_option: […]``."""
        if self.kind(node) != "map":
            return (self.name(node, what, "a name of an operator"),)
        ((word, value), *more) = self.mapping(node, what)
        if word.text != "match_first_option" or more:
            raise _unknown(more[0][0] if word.text == "match_first_option" else word, what, ("match_first_option",))
        return self._options(value, f"{what}: match_first_option")

    def _options(self, node: Any, what: str) -> tuple[Word, ...]:
        return tuple(self.name(item, what, "a name of an operator") for item in self.sequence(node, what))


def _unknown(word: Word, what: str, known: Collection[str]) -> RuleFileError:
    return word.place.error(f"{what}: unknown key {word.text!r}: {nearest(word.text, known)}")


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
