"""What is refused, with line and column, and files that want to do harm."""

from __future__ import annotations

import builtins
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gsl import RuleSet, Subst, op, pat
from gsl.errors import MissingPackageError, PatternError, RuleFileError
from tests.rulefile.views import pattern, rules

A = "a: {op_type: exp, child: b}"
B = "b: {op_type: relu}"

ILL_FORMED = {
    "not YAML": ("r: {pattern: [", "1:15: not YAML: while parsing a flow node"),
    "a tab": ("r:\n\tpattern: 1", "2:1: not YAML: while scanning for the next token, found character '\\t'"),
    "two documents": ("r: 1\n---\ns: 1", "2:1: not YAML: expected a single document in the stream"),
    "empty": ("# nothing\n", "1:1: expected rules, found an empty file"),
    "a list": ("- r", "1:1: the file: expected a mapping, found a list"),
    "an empty mapping": ("{}", "1:1: the file: expected a mapping, found an empty one"),
    "a rule that is a string": ("r: relu", "1:4: rule 'r': expected a mapping, found a string"),
    "a rule without a pattern": ("r: {priority: 1}", "1:1: rule 'r' has no pattern"),
    "a rule stands twice": (
        "r: {pattern: {a: {op_type: relu}}}\nr: {}", "2:1: the file: 'r' stands twice, first in line 1"
    ),
    "a name that is a number": (
        "1: {}", "1:1: the file: expected a name of a rule, found a whole number, 1; a name that reads like that is "
        "written in quotes: '1'"
    ),
    "an unknown key of a rule": (
        "r:\n  priorty: 1\n  pattern: {a: {op_type: relu}}",
        "2:3: rule 'r': unknown key 'priorty': did you mean 'priority'?",
    ),
    "pattern0": ("r: {pattern0: {a: {op_type: relu}}}", "1:5: rule 'r': unknown key 'pattern0': did you mean 'pattern"),
    "priority is a string": (
        "r: {priority: high, pattern: {}}",
        "1:15: rule 'r': priority: expected a whole number in decimal digits, found a string"
    ),
    "priority is a fraction": (
        "r: {priority: 1.5}",
        "1:15: rule 'r': priority: expected a whole number in decimal digits, found a number",
    ),
    "priority is true": (
        "r: {priority: yes}",
        "1:15: rule 'r': priority: expected a whole number in decimal digits, found true or false, yes",
    ),
    "priority is octal": ("r: {priority: 010}", "1:15: rule 'r': priority: expected a whole number"),
    "heuristic is empty": ("r: {heuristic: }", "1:15: rule 'r': heuristic: expected a name, found nothing"),
    "both pattern and pattern1": (
        "r:\n  pattern: {a: {op_type: relu}}\n  pattern1: {a: {op_type: relu}}",
        "3:3: rule 'r' has both pattern and pattern1",
    ),
    "an empty pattern": ("r:\n  pattern: {}", "2:12: rule 'r', pattern: expected a mapping, found an empty one"),
    "a pattern of nothing": ("r:\n  pattern:", "2:11: rule 'r', pattern: expected a mapping, found nothing"),
    "an operator stands twice": (pattern(A, B, B), "5:5: rule 'r', pattern: 'b' stands twice, first in line 4"),
    "an operator that is a string": (pattern("a: relu"), "3:8: rule 'r', pattern, operator 'a': expected a mapping"),
    "no op_type": (pattern("a: {child: b}", B), "3:5: rule 'r', pattern, operator 'a' has no op_type"),
    "a dangling option of an entry": (
        pattern("a: {match_first_option: [b, c]}", B),
        "3:33: 'a' has an option 'c', which is no operator of the pattern: known are a, b",
    ),
    "an entry without options": (
        pattern("a: {match_first_option: []}"),
        "3:29: rule 'r', pattern, operator 'a': match_first_option: expected a list, found an empty one",
    ),
    "an option that is no list": (
        pattern("a: {match_first_option: b}", B),
        "3:29: rule 'r', pattern, operator 'a': match_first_option: expected a list, found a string",
    ),
    "its own option": (pattern("a: {match_first_option: [b, a]}", B), "3:33: 'a' is its own option"),
    "an option twice": (
        pattern("a: {match_first_option: [b, b]}", B), "3:33: 'b' stands twice among the options and children of 'a'",
    ),
    "an option inside an option twice": (
        pattern("a: {match_first_option: [c, b]}", "c: {match_first_option: [b]}", B),
        "3:33: 'b' stands twice among the options and children of 'a'",
    ),
    "a child that is an option, too": (
        pattern("a: {op_type: exp, children: [b, c]}", B, "c: {match_first_option: [d, b]}", "d: {op_type: tanh}"),
        "3:37: 'b' stands twice among the children of 'a', here as an option of 'c'",
    ),
    "an entry whose child is its option": (
        pattern("a: {match_first_option: [b], child: b}", B),
        "3:41: a cycle: b -> b; the children of an entry without op_type are children of its options",
    ),
    "an option that is absent": (
        pattern("a: {match_first_option: [b]}", "b: {op_type: relu, required: false}"),
        "3:30: 'b' is an option of match_first_option, of which one must match, and has required: false",
    ),
    "an absent entry that is an option": (
        pattern("a: {match_first_option: [b]}", "b: {match_first_option: [c], required: false}", "c: {op_type: relu}"),
        "3:30: 'b' is an option of match_first_option, of which one must match, and has required: false",
    ),
    "options in a circle": (
        pattern(A, "b: {match_first_option: [c]}", "c: {match_first_option: [b]}"), "5:30: a cycle: b -> c -> b",
    ),
    "a child of an entry that leads to its option": (
        pattern("a: {match_first_option: [b, c], child: d}", B, "c: {op_type: tanh}", "d: {op_type: exp, child: c}"),
        "3:44: a cycle: d -> c -> d; the children of an entry without op_type are children of its options",
    ),
    "a child of an entry that leads to an option inside": (
        pattern("a: {match_first_option: [e], child: d}", "e: {match_first_option: [c]}", "c: {op_type: tanh}",
                "d: {op_type: exp, child: c}"),
        "3:41: a cycle: d -> c -> d; the children of an entry",
    ),
    "a row of an entry": (
        pattern(A, "b: {match_first_option: [c], match_multiple: true}", "c: {op_type: relu}"),
        "4:34: rule 'r', pattern, operator 'b' has match_multiple, but no op_type: give match_multiple to its options",
    ),
    "neither op_type nor options": (
        pattern("a: {required: true}"),
        "3:5: rule 'r', pattern, operator 'a' has no op_type: give it one, or match_first_option",
    ),
    "an unknown key of an operator": (
        pattern("a: {op_type: relu, optional: true}"), "3:24: rule 'r', pattern, operator 'a': unknown key 'optional'"
    ),
    "a key twice": (
        pattern("a: {op_type: relu, op_type: add}"),
        "3:24: rule 'r', pattern, operator 'a': 'op_type' stands",
    ),
    "an unknown operator": (
        pattern("a: {op_type: layernorm}"), "3:18: rule 'r', pattern, operator 'a': op_type: unknown operator "
        "'layernorm': did you mean 'layer_norm'"
    ),
    "an unknown operator in a list": (pattern("a: {op_type: [relu, rleu]}"), "3:25: rule 'r', pattern, operator 'a'"),
    "an operator twice in a list": (pattern("a: {op_type: [relu, relu]}"), "3:25: rule 'r', pattern, operator 'a'"),
    "a dot in a list": (pattern("a: {op_type: [relu, .]}"), "'.' is every operator, so it stands alone"),
    "no op_type in a list": (
        pattern("a: {op_type: []}"),
        "3:18: rule 'r', pattern, operator 'a': op_type: expected a list",
    ),
    "op_type is a number": (
        pattern("a: {op_type: 3}"),
        "op_type: expected a name of an operator, found a whole number, 3",
    ),
    "inverted without options": (
        pattern("a: {op_type: {inverted: true}}"),
        "3:18: rule 'r', pattern, operator 'a': op_type has no",
    ),
    "inverted is a number": (
        pattern("a: {op_type: {inverted: 1, options: [relu]}}"),
        "3:29: rule 'r', pattern, operator 'a'",
    ),
    "an unknown key of inverted": (
        pattern("a: {op_type: {invert: true, options: [relu]}}"),
        "unknown key 'invert': did you",
    ),
    "required is a word": (
        pattern(A, "b: {op_type: relu, required: maybe}"),
        "4:34: rule 'r', pattern, operator 'b': required: expected true or false, found a string",
    ),
    "a dangling child": (
        pattern("a: {op_type: exp, child: bb}", B),
        "3:30: 'a' has a child 'bb', which is no operator of the pattern: did you mean 'b'?",
    ),
    "a dangling option": (pattern("a: {op_type: exp, match_first_option: [b, c]}", B), "3:47: 'a' has a child 'c'"),
    "a child of another pattern": (
        "r:\n  pattern1: {a: {op_type: exp, child: b}}\n  pattern2: {b: {op_type: relu}}",
        "2:39: 'a' has a child 'b', which is no operator of the pattern",
    ),
    "its own child": (pattern("a: {op_type: exp, child: a}"), "3:30: 'a' is its own child"),
    "a cycle": (
        pattern(A, "b: {op_type: exp, child: c}", "c: {op_type: relu, child: b}"),
        "5:31: a cycle: b -> c -> b",
    ),
    "nothing but a cycle": (pattern(A, "b: {op_type: relu, child: a}"), "4:31: a cycle: a -> b -> a"),
    "two roots": (pattern(A, B, "c: {op_type: tanh, child: b}"), "5:5: two roots: neither 'a' nor 'c' is the child of"),
    "two parts": (pattern(A, B, "c: {op_type: tanh}"), "5:5: two roots: neither 'a' nor 'c' is the child of"),
    "a child twice": (
        pattern("a: {op_type: exp, children: [b, b]}", B),
        "3:37: 'b' stands twice among the children of 'a'",
    ),
    "child and children": (
        pattern("a: {op_type: exp, child: b, children: [b]}", B),
        "3:33: rule 'r', pattern, operator 'a' has both child and"
    ),
    "child is a list": (
        pattern("a: {op_type: exp, child: [b]}", B),
        "3:30: rule 'r', pattern, operator 'a': child is one name",
    ),
    "children is a name": (pattern("a: {op_type: exp, children: b}", B), "children: expected a list, found a string"),
    "no children": (pattern("a: {op_type: exp, children: []}", B), "children: expected a list, found an empty one"),
    "a child that is a mapping": (
        pattern("a: {op_type: exp, child: {first: b}}", B),
        "3:31: rule 'r', pattern, operator 'a'",
    ),
    "the root is optional": (
        pattern("a: {op_type: exp, required: false, child: b}", B),
        "3:5: 'a' is the root of the pattern, so it can't be absent"
    ),
    "an option is optional": (
        pattern("a: {op_type: exp, match_first_option: [b, c]}", "b: {op_type: relu, required: false}",
        "c: {op_type: tanh}"),
        "3:44: 'b' is an option of match_first_option, of which one must match, and has required: false",
    ),
    "ends in any number of any": (
        pattern(A, "b: {op_type: ., match_multiple: true}"),
        "4:5: r: the pattern ends in 'b', which is any number of any"
    ),
    "may end in any number of any": (
        pattern(A, "b: {op_type: ., match_multiple: true, child: c}", "c: {op_type: relu, required: false}"),
        "4:5: r without c: the pattern ends in 'b'",
    ),
    "too many forms": (
        pattern(*(f"a{i}: {{op_type: relu, required: {str(i == 0).lower()}, child: a{i + 1}}}" for i in range(10)),
                "a10: {op_type: relu}"),
        "2:3: r: 9 operators with required: false and 0 with match_first_option are 512 forms",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ILL_FORMED.values(), ids=ILL_FORMED.keys())
def test_an_ill_formed_file_is_refused_where_it_is_wrong(text: str, message: str) -> None:
    with pytest.raises(RuleFileError) as error:
        rules(text)
    assert str(error.value).startswith("rules.yaml:")
    assert message in str(error.value)


DEEP = "r: " + "[" * 20_000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh")
)
WIDE_BOMB = "r:\n  pattern:\n    z: {op_type: &t [" + ", ".join(["relu"] * 3000) + "]}\n"
MANY = "names: &n {" + ", ".join(f"a{i}: {{op_type: relu}}" for i in range(900)) + "}\n" + "".join(
    f"r{i}: {{pattern: *n}}\n" for i in range(2000)
)
ITSELF = "r: &r\n  pattern:\n    a: *r\n"
HOSTILE = {
    "an object": b"r: !!python/object/apply:os.system ['true']",
    "an object in an operator": b"r: {pattern: {a: {op_type: !!python/name:os.system ''}}}",
    "a tag of its own": b"r: !mine {pattern: {a: {op_type: relu}}}",
    "a key with a tag": b"!!python/name:os.system r: {}",
    "binary": b"r: !!binary aGVsbG8=",
    "bytes": bytes(range(256)),
    "a zero": b"r: \x00",
    "deep": DEEP.encode(),
    "deep blocks": "\n".join(" " * i + "a:" for i in range(600)).encode(),
    "aliases of aliases": BOMB.encode(),
    "many aliases": MANY.encode(),
    "refers to itself": ITSELF.encode(),
    "an alias of nothing": b"r: *nothing",
    "a merge": b"b: &b {pattern: {a: {op_type: relu}}}\nr: {<<: *b}",
    "a set": b"r: !!set {a, b}",
    "long": b"r: " + b"x" * 400_000,
    "long names": WIDE_BOMB.encode(),
    "a long name": b"r" * 100_000 + b": {}",
    "a long number": b"r: {priority: " + b"9" * 5000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_refused_at_once(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "evil.yaml"
    file.write_bytes(data)
    start = time.process_time()
    with pytest.raises(RuleFileError, match=r"evil\.yaml:") as error:
        RuleSet.from_yaml(file)
    assert time.process_time() - start < 3
    assert len(str(error.value)) < 400


def test_an_alias_is_as_good_as_what_it_stands_for() -> None:
    text = "r: {pattern: {a: {op_type: &o [relu, gelu], child: b}, b: {op_type: *o}}}"
    assert rules(text).to_yaml() == rules(text.replace("&o ", "").replace("*o", "[relu, gelu]")).to_yaml()


def test_without_the_package_the_mend_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(pattern(A, B))
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingPackageError, match="pip install pyyaml"):
        RuleSet.from_yaml(file)


def test_without_torch_canonical_operators_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from gsl.rulefile.names import lookup

    kept = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return kept(name, *rest, **more)

    lookup.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    assert len(rules(pattern(A, B))) == 1
    with pytest.raises(RuleFileError, match="unknown operator 'erfinv'"):
        rules(pattern("a: {op_type: erfinv}"))
    lookup.cache_clear()


def test_the_same_name_in_two_files(tmp_path: Path) -> None:
    with pytest.raises(PatternError, match=r"two rules are named 'r': r \(rules.yaml:1\) and r \(rules.yaml:1\)"):
        rules(pattern(A, B)) + rules(pattern(A, B))


X = pat.Wildcard()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RuleSet([Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="twice")]),
            r"twice \(.*\) can't be written as YAML",
        ),
        (
            lambda: RuleSet(rules(pattern(A, "b: {op_type: relu, required: false}")).rules[:1]),
            "of its forms, r without b is not in the set",
        ),
    ],
)
def test_what_a_file_can_not_hold(make: Any, message: str) -> None:
    with pytest.raises(RuleFileError, match=message):
        make().to_yaml()


@pytest.mark.parametrize(
    ("heuristics", "message"),
    [
        ({"FASTER": print}, "no rule has this heuristic: did you mean 'FAST'?"),
        ({"FAST": 3}, "takes a function of the match, got 3"),
    ],
)
def test_heuristics_are_checked(heuristics: Any, message: str) -> None:
    with pytest.raises(PatternError) as error:
        rules("r: {heuristic: FAST, pattern: {a: {op_type: relu}}}", **heuristics)
    assert message in str(error.value)


def test_heuristics_are_a_mapping() -> None:
    from gsl.rulefile import rules_of

    with pytest.raises(PatternError, match=r"heuristics= is a mapping from names to functions of the match, got \[1\]"):
        rules_of((), [1])  # type: ignore[arg-type]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match=r"nowhere\.yaml: the file can't be read: No such file"):
        RuleSet.from_yaml(tmp_path / "nowhere.yaml")
    with pytest.raises(RuleFileError, match="the file can't be read: Is a directory"):
        RuleSet.from_yaml(tmp_path)
