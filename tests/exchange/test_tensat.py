"""Reading TENSAT's format: rules, and errors that tell line and column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gsl import rules_from_tensat
from gsl.errors import ExchangeError, PatternError, RefusedRulesWarning
from gsl.exchange import ImportedRules
from tests.helpers.firing import fire, ops
from tests.helpers.graphs import Builder

TWICE = "(relu (relu ?x))=>(relu ?x)"
PAIR = (
    "(matmul 0 ?x ?v)=>(split_0 (split 1 (matmul 0 ?x (concat 1 2 ?v ?w))))\n"
    "(matmul 0 ?x ?w)=>(split_1 (split 1 (matmul 0 ?x (concat 1 2 ?v ?w))))\n"
)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., ImportedRules]:
    """The rules of a file of this text."""

    def make(text: str | bytes, **choices: Any) -> ImportedRules:
        path = tmp_path / "rules.txt"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return rules_from_tensat(path, **{"strict": True, **choices})

    return make


def test_rules_are_named_by_their_lines(read: Callable[..., ImportedRules]) -> None:
    rules = read(f"{TWICE}\n\n  ( tanh  (relu ?in_1) ) => ?in_1  \r\n")
    assert {rule.name: rule.doc for rule in rules} == {
        "tensat-1": "(relu (relu ?x)) => (relu ?x)",
        "tensat-3": "(tanh (relu ?in_1)) => ?in_1",
    }


def test_a_line_that_cannot_be_read_is_one_refused_rule(read: Callable[..., ImportedRules]) -> None:
    text = f"{TWICE}\n(relu (relu ?x)=>(relu ?x)\n(tanh (relu ?x))=>(tanh ?x)\n(rlu ?x)=>?x\n"
    with pytest.warns(RefusedRulesWarning, match=r"2 of the 4 rules of rules.txt are not imported \(tensat-2, "):
        rules = read(text, strict=False)
    assert [rule.name for rule in rules] == ["tensat-1", "tensat-3"]
    assert rules.refused == {
        "tensat-2": "rules.txt: line 2, column 16: the expression of column 1 is not closed",
        "tensat-4": "rules.txt: line 4, column 2: unknown operator 'rlu' (operators= gives the meaning of others): "
        "did you mean 'relu'?",
    }
    with pytest.raises(ExchangeError, match="line 2, column 16"):
        read(text)


def test_a_function_that_fails_refuses_one_rule(read: Callable[..., ImportedRules]) -> None:
    def fails(*given: object) -> None:
        raise KeyError("size")

    text = f"{TWICE}\n(leaky ?x)=>(relu ?x)\n(tanh (relu ?x))=>(tanh ?x)\n"
    with pytest.warns(RefusedRulesWarning, match="2 of the 3 rules"):
        rules = read(text, strict=False, operators={"leaky": fails}, where={"tensat-3": fails})
    assert [rule.name for rule in rules] == ["tensat-1"]
    assert rules.refused == {
        "tensat-2": "rules.txt: line 2, column 1: the meaning of leaky fails: KeyError: 'size'",
        "tensat-3": "rules.txt: line 3: the condition of tensat-3 fails: KeyError: 'size'",
    }


def test_a_file_may_begin_with_a_byte_order_mark(read: Callable[..., ImportedRules]) -> None:
    assert [rule.name for rule in read("\ufeff" + TWICE)] == ["tensat-1"]


def test_rules_may_be_written_with_calls(read: Callable[..., ImportedRules]) -> None:
    calls = (
        "matmul(matmul(x,y),z)==matmul(x,matmul(y,z))\n"
        "relu(concat(0,x,y))==concat(0,relu(x),relu(y))\n"
        "pool2d_avg(3,3,1,1,0,x)==conv2d(1,1,0,0,x,const_pool(3,3))\n"
        "scalar_mul(ewadd(x,y),s)==ewadd(scalar_mul(x,s),scalar_mul(y,s))\n"
        "conv2d(1,1,0,2,concat(1,x,y),v)==relu(conv2d(1,1,0,0,concat(1,x,y),v))\n"
    )
    plain = (
        "(matmul 0 (matmul 0 ?x ?y) ?z)=>(matmul 0 ?x (matmul 0 ?y ?z))\n"
        "(relu (concat 0 2 ?x ?y))=>(concat 0 2 (relu ?x) (relu ?y))\n"
        "(poolavg 3 3 1 1 0 ?x)=>(conv2d 1 1 0 0 ?x (Cpool 3 3))\n"
        "(smul (ewadd ?x ?y) ?s)=>(ewadd (smul ?x ?s) (smul ?y ?s))\n"
        "(conv2d 1 1 0 2 (concat 1 4 ?x ?y) ?v)=>(relu (conv2d 1 1 0 0 (concat 1 4 ?x ?y) ?v))\n"
    )
    with pytest.warns(RefusedRulesWarning):  # an activation is an operator of its own
        written, expected = (read(text, strict=False) for text in (calls, plain))
    assert {rule.name: str(rule) for rule in written} == {rule.name: str(rule) for rule in expected}
    assert list(written.refused) == list(expected.refused) == ["tensat-5"]
    fields = "matmul(x,v)==split_0(1,matmul(x,concat(1,v,w)))\nmatmul(x,w)==split_1(1,matmul(x,concat(1,v,w)))\n"
    assert [rule.doc for rule in read(fields)] == [rule.doc for rule in read(PAIR)]


TOGETHER = (
    "relu(relu(x))==relu(x)", "ewadd(x,y)==ewadd(y,ewmul(Iewmul,x))", "matmul(0,x,y)==matmul(x,y)",
    "concat(1,2,relu(x),relu(y))==relu(concat(1,2,x,y))",
)  # fmt: skip


def test_calls_that_follow_each_other_in_one_line_are_rules_by_their_number(
    read: Callable[..., ImportedRules]
) -> None:
    with pytest.warns(RefusedRulesWarning):  # both sides are one product
        together, apart = (read(text.join(TOGETHER), strict=False) for text in ("", "\n"))
    assert [rule.name for rule in together] == ["tensat-1", "tensat-2", "tensat-4"]
    assert [rule.doc for rule in together] == [rule.doc for rule in apart]
    assert list(together.refused) == list(apart.refused) == ["tensat-3"]
    two = read("\n".join(TOGETHER[:2]) + TOGETHER[3])
    assert [rule.name for rule in two] == ["tensat-1", "tensat-2", "tensat-3"], "in order, over all lines"


@pytest.mark.parametrize(
    ("number", "damage", "refused"),
    [
        (1, "ewadd(x,y)==ewadd(y,ewmul(Iewmul,x)", "not closed"), (1, "ewadd(x,y==ewadd(y,x)", "not closed"),
        (1, "ewad(x,y)==ewadd(y,x)", "unknown operator 'ewad'"), (3, "relu(x)==relu(relu(x)", "not closed"),
    ],
)  # fmt: skip
def test_a_rule_among_others_in_a_line_that_cannot_be_read_is_refused_alone(
    read: Callable[..., ImportedRules], number: int, damage: str, refused: str
) -> None:
    rows = [*TOGETHER[:2], "tanh(relu(x))==tanh(x)", TOGETHER[3]]
    before = len("".join(rows[:number]))
    rows[number] = damage
    with pytest.warns(RefusedRulesWarning):
        rules = read("".join(rows), strict=False)
    name = f"tensat-{number + 1}"
    assert list(rules.refused) == [name]
    assert refused in rules.refused[name]
    column = int(rules.refused[name].partition("column ")[2].partition(":")[0])
    assert before < column <= before + len(damage) + 1


def test_lines_are_joined_where_a_target_needs_it(read: Callable[..., ImportedRules]) -> None:
    (pair,) = read(PAIR)
    assert pair.name == "tensat-1-2"

    def make(b: Builder) -> Any:
        x = b.input("x", 2, 3)
        return [b.call("matmul", x, b.input("w", 3, size)) for size in (2, 4)]

    assert ops(fire(pair, make, times=1)) == ["concatenate", "matmul", "split"]
    own = "(relu (tanh ?x))=>(tanh ?x)\n(tanh (tanh ?x))=>(tanh ?x)\n"
    assert [rule.name for rule in read(own)] == ["tensat-1", "tensat-2"]
    with pytest.raises(ExchangeError, match=r"line 1, column 65: the source has no variable \?w"):
        read(PAIR, outputs=1)
    with pytest.raises(ExchangeError, match="line 3: a rule with two outputs has two lines, so their number must be"):
        read(PAIR + TWICE, outputs=2)
    with pytest.raises(PatternError, match="outputs: expected 1, 2 or None, found 3"):
        read(PAIR, outputs=3)


def test_equal_expressions_are_one_node(read: Callable[..., ImportedRules]) -> None:
    (rule,) = read("(ewadd (tanh ?x) (tanh ?x))=>(tanh (ewadd ?x ?x))")

    def make(b: Builder, shared: bool = True) -> Any:
        x = b.input("x", 3)
        first = b.call("tanh", x)
        return b.call("add", first, first if shared else b.call("tanh", x))

    fire(rule, make, times=1, same=False)
    fire(rule, lambda b: make(b, False), times=0)


def test_what_is_refused_is_told(read: Callable[..., ImportedRules]) -> None:
    with pytest.warns(RefusedRulesWarning, match="6 of the 7 rules of rules.txt are not imported") as warned:
        rules = read(f"{TWICE}\n" + "(relu ?x)=>(relu ?x)\n" * 6, strict=False)
    assert "(tensat-2, tensat-3, tensat-4, tensat-5, tensat-6, …)" in str(warned[0].message)
    assert warned[0].filename == __file__
    assert list(rules.refused) == [f"tensat-{line}" for line in range(2, 8)]
    assert rules.refused["tensat-4"].startswith("rules.txt: line 4: both sides are the same graph")


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("\n \n", "rules.txt: it has no rules"),
    "no text": (b"(relu \xff)", "rules.txt: byte 6: this is no text in UTF-8"),
    "no arrow": (f"{TWICE}\n(relu ?x)", "line 2, column 10: expected source=>target, found 0 times '=>'"),
    "two arrows": ("?x=>?x=>?x", "line 1, column 7: expected source=>target, found 2 times '=>'"),
    "no target": ("(relu ?x)=>", "line 1, column 12: expected one expression, found 0"),
    "two expressions": ("(relu ?x) ?y=>?x", "line 1, column 11: expected one expression, found 2"),
    "not closed": ("(relu (tanh ?x)=>?x", "line 1, column 16: the expression of column 1 is not closed"),
    "closed twice": ("(relu ?x))=>?x", "line 1, column 10: there is no expression that this parenthesis closes"),
    "no name": ("((relu ?x))=>?x", "line 1, column 1: expected the name of an operator after the parenthesis"),
    "nothing": ("()=>?x", "line 1, column 1: expected the name of an operator"),
    "unknown": ("(rellu ?x)=>?x", "line 1, column 2: unknown operator 'rellu' (operators= gives the meaning of"),
    "unknown in the target": ("(relu ?x)=>(tanh (rellu ?x))", "line 1, column 19: unknown operator 'rellu'"),
    "a bare word": ("(relu x)=>?x", "line 1, column 7: expected an expression or a variable ?name, found 'x'"),
    "a bare mark": ("(relu ?)=>?x", "line 1, column 7: expected an expression or a variable ?name, found '?'"),
    "too few": ("(matmul 0 ?x)=>?x", "column 1: matmul takes 3 items (act, operand, operand), found 2"),
    "too many": ("(relu ?x ?y)=>?x", "column 1: relu takes 1 items (operand), found 2"),
    "no parameter": ("(matmul ?x ?y)=>?x", "column 1: matmul takes 3 items"),
    "an expression as a parameter": ("(matmul (relu ?x) ?x ?y)=>?x", "column 9: act is a number or a variable ?name"),
    "a number as an operand": ("(matmul 0 1 ?y)=>?y", "column 11: expected an expression or a variable ?name"),
    "two kinds": ("(matmul ?a ?a ?y)=>?y", "column 12: ?a is a tensor in one place and a parameter in another"),
    "unbound": ("(relu ?x)=>(relu ?y)", "line 1, column 18: the source has no variable ?y"),
    "unbound in a pair": (f"(relu ?x)=>(relu ?y)\n{TWICE}", "line 1, column 18: the source has no variable ?y"),
    "an odd line": (PAIR + TWICE, "line 1, column 65: the source has no variable ?w"),
    "one source twice": (
        "(relu ?x)=>(relu ?y)\n(relu ?x)=>?x\n".replace("?y", "?x") + PAIR, "both lines replace the same expression",
    ),
    "a field of no split": ("(split_0 (relu ?x))=>?x", "column 1: split_0 takes one operand, an expression (split"),
    "no axes": ("(transpose ?x ?y)=>?x", "column 15: expected the axes of the result as in 0_2_1, found '?y'"),
    "no permutation": ("(transpose ?x 0_2)=>?x", "column 15: 0_2 is no permutation of 2 axes"),
    "two transposed": ("(transpose ?x 0_1 1)=>?x", "column 1: transpose takes one operand"),
    "unknown activation": ("(relu (matmul 4 ?x ?y))=>?x", "column 7: matmul: act is 0 to 3, found 4"),
    "unknown padding": ("(conv2d 1 1 2 0 ?x ?y)=>?x", "column 1: conv2d: pad is 0 to 1, found 2"),
    "no stride": ("(conv2d 0 1 1 0 ?x ?y)=>?x", "column 1: conv2d: stride_h is at least 1, found 0"),
    "no such axis": ("(concat 2 2 ?x ?y)=>?x", "column 1: concat: axis is less than ndim, found 2 and 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_have_an_error_with_the_place(read: Callable[..., ImportedRules], name: str) -> None:
    text, expected = MALFORMED[name]
    with pytest.raises(ExchangeError) as raised:
        read(text)
    assert str(raised.value).startswith("rules.txt: ")
    assert expected in str(raised.value)


def test_a_deep_expression_is_read(read: Callable[..., ImportedRules]) -> None:
    deep = "(relu " * 3000 + "?x" + ")" * 3000
    (rule,) = read(f"{deep}=>(tanh ?x)")
    assert rule.doc.startswith("(relu (relu (relu ")
