"""Rules as text: imported ones, and what only rules that are written by hand have."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsl import Subst, is_op, op, pat, rules_from_tensat
from tests.helpers.book import EVERY_RULE

CONV = (
    "nn.conv2d({0}, {1}, strides=(1, 1), padding=(({1}.shape[2] // 2), ({1}.shape[3] // 2), (({1}.shape[2] - 1) // 2), "
    "(({1}.shape[3] - 1) // 2)), dilation=(1, 1), groups={2}, data_layout='NCHW', kernel_layout='OIHW', out_layout='', "
    "out_dtype=''{3})"
)
GOLDEN = {
    "(matmul 0 (matmul 0 ?x ?y) ?z)=>(matmul 0 ?x (matmul 0 ?y ?z))": """\
tensat-1
  (matmul 0 (matmul 0 ?x ?y) ?z) => (matmul 0 ?x (matmul 0 ?y ?z))
  source %1
    x0 = Wildcard
    x1 = Wildcard
    %0 = matmul(x0, x1, out_dtype='')
    x2 = Wildcard
    %1 = matmul(%0, x2, out_dtype='')
  where ((x0.ndim >= 2) & (x1.ndim == x0.ndim)) & (x0.shape[:-2] == x1.shape[:-2])
  where ((%0.ndim >= 2) & (x2.ndim == %0.ndim)) & (%0.shape[:-2] == x2.shape[:-2])
  target %3
    %2 = matmul(x1, x2, out_dtype='')
    %3 = matmul(x0, %2, out_dtype='')""",
    "(relu (concat ?a 4 ?x ?y))=>(concat ?a 4 (relu ?x) (relu ?y))": """\
tensat-1
  (relu (concat ?a 4 ?x ?y)) => (concat ?a 4 (relu ?x) (relu ?y))
  source %1
    x0 = Wildcard
    x1 = Wildcard
    %0 = concatenate(Tuple(x0, x1), ndim=4)
    %1 = nn.relu(%0)
  where x1.dtype == x0.dtype
  target %4
    %2 = nn.relu(x0)
    %3 = nn.relu(x1)
    %4 = concatenate(Tuple(%2, %3), axis=%0.axis)""",
    "(ewmul ?x Iewmul)=>?x": """\
tensat-1
  (ewmul ?x (Iewmul)) => ?x
  source %1
    x0 = Wildcard
    x1 = Param
    x2 = Const
    %0 = (x1 | x2)
    %1 = multiply(x0, %0)
  where x0.dtype == %0.dtype
  where x0.shape == %0.shape
  where is ones
  target x0""",
    "(conv2d 1 1 0 0 ?x ?v)=>(split_0 (split 1 (conv2d 1 1 0 0 ?x (concat 0 4 ?v ?w))))\n"
    "(conv2d 1 1 0 0 ?x ?w)=>(split_1 (split 1 (conv2d 1 1 0 0 ?x (concat 0 4 ?v ?w))))": f"""\
tensat-1-2
  (conv2d 1 1 0 0 ?x ?v) => (split_0 (split 1 (conv2d 1 1 0 0 ?x (concat 0 4 ?v ?w))))
  (conv2d 1 1 0 0 ?x ?w) => (split_1 (split 1 (conv2d 1 1 0 0 ?x (concat 0 4 ?v ?w))))
  source %0, %1
    x0 = Wildcard
    x1 = Wildcard
    %0 = {CONV.format("x0", "x1", 1, ", ndim=4")}
    x2 = Wildcard
    %1 = {CONV.format("x0", "x2", 1, ", ndim=4")}
  target %5, %6
    %2 = concatenate(Tuple(x1, x2), axis=0)
    %3 = {CONV.format("x0", "%2", "(x0.shape[1] // %2.shape[1])", "")}
    %4 = split(%3, axis=1, indices_or_sections=(x1.shape[0],))
    %5 = %4[0]
    %6 = %4[1]""",
}


@pytest.mark.parametrize("lines", GOLDEN)
def test_an_imported_rule_as_text(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(lines)
    (rule,) = rules_from_tensat(path)
    assert str(rule) == GOLDEN[lines]


def test_a_rule_with_a_function_and_relations_as_text() -> None:
    conv, relu = is_op("nn.conv2d"), is_op("nn.relu")

    def square(match: object) -> bool:
        return True

    rule = Subst(conv >> relu, lambda match: list(match.outputs), where=[conv.extern_use(False), square], name="look")
    lines = str(rule).splitlines()
    assert lines[0] == "look"
    assert "  where square" in lines
    assert lines[-1] == "  target made by a function"


def test_what_a_target_builds_like_a_match_as_text() -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    relu = op.ReLU(x)
    alt = relu | op.Tanh(x)
    rule = Subst(alt + y, pat.Match(alt, [y, relu.like(y)]), name="choice")
    assert str(rule) == """\
choice
  source %3
    x0 = Wildcard
    %0 = nn.relu(x0)
    %1 = tanh(x0)
    %2 = (%0 | %1)
    x1 = Wildcard
    %3 = add(%2, x1)
  target %5
    %4 = %0.like(x1)
    %5 = Match(%2, (x1, %4))"""


def test_no_rule_of_the_book_is_cut() -> None:
    for rule in EVERY_RULE:
        text = str(rule)
        assert text.startswith(f"{rule.name}\n  {rule.doc.splitlines()[0]}")
        assert "…" not in text.replace(rule.doc.splitlines()[0], "").split("  source")[1]
