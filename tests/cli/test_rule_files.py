"""Where rules come from: sets with their strategies, and files that are broken or hostile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

LAUGHS = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n" for old, new in zip("abcdefg", "bcdefgh")
)
YAML = {
    "a billion laughs": (LAUGHS, "expected a mapping, found a list"),
    "laughs where values stand": (
        "r: {pattern: {a: {op_type: &a [relu], child: x}, x: {op_type: &b {options: [*a, *a]}, children: [*b, *b]}}}",
        "expected a name",
    ),
    "a loop": ("r: &r {pattern: *r}", "unknown key 'pattern'"),
    "deep": ("[" * 10_000, "a rule file is at most 8 levels deep"),
    "deep mappings": ("a:\n" + "".join(" " * n + "a:\n" for n in range(1, 500)), "levels deep"),
    "an object": ("r: !!python/object/apply:os.system ['touch exploded']", "tag:yaml.org,2002:python/object/apply"),
    "a tag of its own": ("r: !mine {pattern: {a: {op_type: relu}}}", "the tag '!mine' is not allowed"),
    "huge": ("# " + "x" * (1 << 18), "a rule file has at most 262144 bytes"),
    "many values": ("r: [" + "1," * 50_000 + "]", "a rule file has at most 20000 values"),
    "no text": (b"\xff\xfe\xfa", "a rule file is text in UTF-8"),
    "control characters": ("r: \0", "the character 0 is not allowed"),
    "no YAML": ("r: {", "not YAML: "),
    "empty": ("", "expected rules, found an empty file"),
}


@pytest.mark.parametrize("kind", YAML)
def test_files_of_fusion_rules(kind: str, here: Path, gsl: Run) -> None:
    content, text = YAML[kind]
    (here / "bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = gsl("list", "bad.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("gsl: error: bad.yaml:")
    assert err.count("bad.yaml") == 1
    assert text in err
    assert err.count("\n") == 1
    assert not (here / "exploded").exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("import sys\nsys.exit(0)", "line 2: it ends the process, but should only define rules"),
        ("1 / 0", "line 1: ZeroDivisionError: division by zero"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("x = '\0'", "source code string cannot contain null bytes"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("from gsl import *\nSubst(op.ReLU(pat.Wildcard()), pat.Wildcard(), name='leaf')", "leaf (mine.py:2): "),
        ("", "mine.py has no rules: a rule is a Subst, or in a RuleSet or list, at module level"),
    ],
)
def test_files_of_python(content: str, text: str, here: Path, gsl: Run) -> None:
    (here / "mine.py").write_text(content)
    code, out, err = gsl("list", "mine.py")
    assert (code, out) == (2, "")
    assert text in err
    assert err.startswith("gsl: error: mine.py")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("folder.py", "folder.py is a folder; give the name of a file in it"),
        ("folder", "folder is a folder; give the name of a file in it"),
        ("folder/below", "folder/below is a folder; give the name of a file in it"),
        ("", "expected a file or a module of rules, found an empty text"),
        ("no/such.yaml", "there is no file no/such.yaml"),
        ("theirs.txt:tensat-2", "theirs.txt has no rule 'tensat-2': did you mean 'tensat-1'?"),
        ("rules:BOOKS", "rules has no rule 'BOOKS': did you mean 'BOOK'?"),
        ("model.pt2", "model.pt2: rules are read from files that end in .py, .pb, .txt, .yaml, .yml"),
    ],
)
def test_places_without_rules(place: str, text: str, here: Path, gsl: Run) -> None:
    (here / "folder.py").mkdir()
    (here / "folder" / "below").mkdir(parents=True)
    assert gsl("list", place) == (2, "", f"gsl: error: {text}\n")


def test_the_rule_book_beside_a_folder_of_its_name(here: Path, gsl: Run) -> None:
    (here / "rules").mkdir()
    code, out, _ = gsl("list", "rules:conv-batch-norm")
    assert (code, out.splitlines()[-1]) == (0, "1 rule")


def test_what_a_rules_file_prints_is_no_result(here: Path, gsl: Run) -> None:
    (here / "mine.py").write_text(f"print('hello')\nimport warnings\nwarnings.warn('old\\nstyle')\n{RULE}")
    code, out, err = gsl("list", "mine.py", "--json")
    assert code == 0
    assert json.loads(out)["rules"][0]["rule"] == "one"
    assert err == "hello\ngsl: warning: old style\n"


RULE = "from gsl import *\nx = pat.Wildcard()\none = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name='one')\n"
TWO = f"{RULE}two = Subst(op.ReLU(x), op.ReLU(x + 0.0), name='two')\n"


@pytest.mark.parametrize(
    ("sets", "chosen", "options", "strategy", "order"),
    [
        ("", "", [], "priority", ["one", "two"]),
        ("s = RuleSet([two, one], strategy='largest')", "", [], "largest", ["two", "one"]),
        ("s = RuleSet([two, one], strategy='largest')", ":s", [], "largest", ["two", "one"]),
        ("s = RuleSet([two, one], strategy='largest')", ":one,two", [], "priority", ["one", "two"]),
        ("s = RuleSet([two, one], strategy='largest')", "", ["--strategy", "first"], "first", ["two", "one"]),
        ("s = RuleSet([one], strategy='last'); t = RuleSet([two], strategy='last')", "", [], "last", ["one", "two"]),
        ("s = RuleSet([two], strategy='last'); t = RuleSet([two, one])", "", [], "priority", ["two", "one"]),
        ("s = RuleSet([one], strategy='last'); t = RuleSet([two])", ":t", [], "priority", ["two"]),
    ],
)
def test_a_rule_set_brings_its_strategy(
    sets: str, chosen: str, options: list[str], strategy: str, order: list[str], here: Path, gsl: Run
) -> None:
    (here / "sets.py").write_text(f"{TWO}{sets}\n")
    code, out, err = gsl("apply", f"sets.py{chosen}", "model.pt2", "-o", "new.pt2", "--json", *options)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["strategy"] == strategy
    assert [row["rule"] for row in found["rules"]] == order


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ("one,two, fused", ["one,two, fused"]),
        ("one, two,fused", ["one,two, fused"]),
        ("two,one,two,fused,one", ["two", "one,two, fused", "one"]),
        ("two,one,two, fused,one", ["two", "one,two, fused", "one"]),
        ("one,two", ["one", "two"]),
        ("two,,one,", ["two", "one"]),
        ("comma,two", ["one,two, fused", "two"]),
    ],
)
def test_names_with_commas_go_before_their_parts(chosen: str, found: list[str], here: Path, gsl: Run) -> None:
    (here / "mine.py").write_text(f"{TWO}comma = Subst(op.ReLU(x), op.Abs(x), name='one,two, fused')\n")
    code, out, err = gsl("list", f"mine.py:{chosen}", "--json")
    assert (code, err) == (0, "")
    assert [rule["rule"] for rule in json.loads(out)["rules"]] == found


@pytest.mark.parametrize("command", ["list", "verify", "apply"])
@pytest.mark.parametrize(("chosen", "name"), [("a,b", "a,b"), ("a, b", "a, b"), ("a,b,", "a,b"), ("a ,b", "a,b")])
def test_spaces_tell_two_names_apart(chosen: str, name: str, command: str, here: Path, gsl: Run) -> None:
    (here / "mine.py").write_text(
        f"{TWO}c, d = (Subst(op.ReLU(x), op.ReLU(x), name=name) for name in ('a, b', 'a,b'))\n"
    )
    options = ["model.pt2", "-o", "new.pt2"] if command == "apply" else []
    code, out, err = gsl(command, f"mine.py:{chosen}", "--json", *options)
    assert (code, err) == (0, "")
    assert [rule["rule"] for rule in json.loads(out)["rules"]] == [name]


def test_rule_sets_that_differ(here: Path, gsl: Run) -> None:
    (here / "sets.py").write_text(f"{TWO}s = RuleSet([one], strategy='last')\nt = RuleSet([two])\n")
    code, out, err = gsl("apply", "sets.py", "model.pt2", "-o", "new.pt2")
    assert (code, out) == (2, "")
    assert err == (
        "gsl: error: the rule sets sets.py:s (last), sets.py:t (priority) differ in their strategies: name one, or "
        "give --strategy\n"
    )
    assert gsl("apply", "sets.py", "model.pt2", "-o", "new.pt2", "--strategy", "last")[0] == 0


def test_a_rule_set_brings_its_number_of_steps(here: Path, gsl: Run) -> None:
    (here / "sets.py").write_text(
        "from gsl import *\nx = pat.Wildcard()\n"
        "s = RuleSet([Subst(op.ReLU(x), op.ReLU(x + 1.0), name='grows')], max_steps=13)\n"
    )
    code, _, err = gsl("apply", "sets.py", "model.pt2", "-o", "new.pt2", "--iterative")
    assert (code, "13" in err) == (3, True)


def test_rules_that_make_modules(here: Path, gsl: Run) -> None:
    """An export can't hold them: they are refused, and the other rules are applied."""
    code, _, err = gsl("apply", "rules", "model.pt2", "-o", "new.pt2")
    assert code == 2
    assert "rules:BOOK (priority)" in err
    code, _, err = gsl("apply", "rules", "model.pt2", "-o", "new.pt2", "--strategy", "largest")
    assert (code, err) == (0, "")
    code, out, _ = gsl("apply", "rules:MODULE_FUSION", "model.pt2", "-o", "new.pt2", "-v")
    assert code == 0
    assert "an exported program can't call the module" in out
    assert gsl("apply", "rules:BOOK", "model.pt2", "-o", "new.pt2")[0] == 0


def test_torch_is_not_loaded_to_list_rules(here: Path, gsl: Run) -> None:
    (here / "usual.yaml").write_text(
        """
        activation:
          heuristic: FAST
          pattern:
            first: {op_type: [conv2d, linear, addmm], child: norm}
            norm: {op_type: batch_norm, required: false, child: act}
            act: {op_type: [relu_, gelu, silu, max, clamp], match_multiple: true, child: last}
            last: {op_type: {inverted: true, options: [relu, cat]}}
        joined:
          pattern:
            a: {op_type: [cat, stack], child: b}
            b: {op_type: scaled_dot_product_attention}
        """
    )
    program = """
import sys
from gsl.cli import main
for arguments in (["usual.yaml"], ["usual.yaml", "-v"], ["usual.yaml", "--json"]):
    assert main(["list", *arguments]) == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (here / "unknown.yaml").write_text("r: {pattern: {a: {op_type: reul}}}")
    code, _, err = gsl("list", "unknown.yaml")
    assert code == 2
    assert "unknown operator 'reul': did you mean 'relu' or" in err
