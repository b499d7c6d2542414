"""Reading TASO's format: rules, and errors that tell the place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gsl import RuleSet, Subst, op, rules_from_taso, rules_from_tensat
from gsl.errors import ExchangeError, PatternError, RefusedRulesWarning
from gsl.exchange import ImportedRules
from tests.exchange.encode import Op, message, number, rule, varint
from tests.helpers.firing import fire, ops
from tests.helpers.graphs import Builder

RELU_RELU = rule([Op("RELU", [-1]), Op("RELU", [0])], [Op("RELU", [-1])], (1, 0, 0, 0))
CONV = {"STRIDE_H": 1, "STRIDE_W": 1, "PAD": 0, "ACTI": 0, "KERNEL_H": 3, "KERNEL_W": 3}
SPLIT = {"AXIS": 1, "NUM_OUTPUTS": 2}
CONCAT = {"AXIS": 1, "NUMDIM": 2, "NUM_INPUTS": 2}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., ImportedRules]:
    """The rules of a file of these bytes."""

    def make(data: bytes, **choices: Any) -> ImportedRules:
        path = tmp_path / "rules.pb"
        path.write_bytes(data)
        return rules_from_taso(path, **{"strict": True, **choices})

    return make


def test_importing_gsl_does_not_load_the_readers() -> None:
    code = (
        "import sys, gsl\nassert 'gsl.exchange' not in sys.modules\ngsl.rules_from_taso, gsl.rules_from_tensat\n"
        "assert 'gsl.exchange' in sys.modules\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_is_a_rule_set(read: Callable[..., ImportedRules]) -> None:
    sums = rule([Op("EW_ADD", [-1, -2])], [Op("EW_ADD", [-1, -2]), Op("RELU", [0])], (0, 1, 0, 0))
    rules = read(RELU_RELU + sums)
    assert isinstance(rules, RuleSet)
    assert [each.name for each in rules] == ["taso-0", "taso-1"]
    assert rules["taso-0"].doc == "(relu (relu ?input_1)) => (relu ?input_1)"
    assert repr(rules) == "<ImportedRules: 2 rules, 0 refused>"
    assert ops(fire(rules["taso-0"], lambda b: b.call("nn.relu", b.call("nn.relu", b.input("x", 3))), times=1)) == [
        "nn.relu"
    ]


def test_results_of_a_split(read: Callable[..., ImportedRules]) -> None:
    data = rule([Op("CONCAT", [-1, -2], CONCAT), Op("SPLIT", [0], SPLIT), Op("RELU", [(1, 1)])],
                [Op("RELU", [-2])], (2, 0, 0, 0))  # fmt: skip

    def make(b: Builder, cut: int = 3) -> Any:
        whole = b.call("concatenate", b.tuple(b.input("x", 2, 3), b.input("y", 2, 4)), axis=1)
        return b.call("nn.relu", b.get(b.call("split", whole, indices_or_sections=(cut,), axis=1), 1))

    assert ops(fire(read(data)["taso-0"], make, times=1)) == ["nn.relu"]
    fire(read(data)["taso-0"], lambda b: make(b, 4), times=0)


def test_a_stored_kernel_size_is_ignored_unless_it_is_asked_for(read: Callable[..., ImportedRules]) -> None:
    data = rule([Op("EW_ADD", [-2, -3]), Op("CONV2D", [-1, 0], CONV)],
                [Op("CONV2D", [-1, -2], CONV), Op("CONV2D", [-1, -3], CONV), Op("EW_ADD", [0, 1])],
                (1, 2, 0, 0))  # fmt: skip

    def make(b: Builder, size: int) -> Any:
        kernel = b.call("add", b.input("v", 3, 2, size, size), b.input("w", 3, 2, size, size))
        padding = (size // 2, size // 2, (size - 1) // 2, (size - 1) // 2)
        return b.call("nn.conv2d", b.input("x", 1, 2, 5, 5), kernel, padding=padding)

    for size in (1, 2, 3):
        fire(read(data)["taso-0"], lambda b, size=size: make(b, size), times=1)
        fire(read(data, kernels="stored")["taso-0"], lambda b, size=size: make(b, size), times=int(size == 3))


@pytest.mark.torch
def test_further_operators(read: Callable[..., ImportedRules]) -> None:
    transpose = {"NUMDIM": 3, "PERM": 2 * 9 + 0 * 3 + 1, "OUTSHUFFLE": 1}
    moved = rule([Op("TRANSPOSE", [-1], transpose), Op("RELU", [0])],
                 [Op("RELU", [-1]), Op("TRANSPOSE", [0], transpose)], (1, 1, 0, 0))  # fmt: skip
    enlarged = rule([Op("CONV2D", [-1, -2], CONV), Op("CONV2D", [-1, -3], CONV)],
                    [Op("ENLARGE", [-2, -3]), Op("CONCAT", [0, -3], {"AXIS": 0, "NUMDIM": 4}),
                     Op("CONV2D", [-1, 1], CONV), Op("SPLIT", [2], SPLIT)], (0, 3, 0, 0), (1, 3, 0, 1))  # fmt: skip
    pools = {"KERNEL_H": 3, "KERNEL_W": 3, "STRIDE_H": 1, "STRIDE_W": 1, "PAD": 0, "ACTI": 0}
    pooled = rule([Op("POOL2D_MAX", [-1], pools), Op("RELU", [0])], [Op("RELU", [-1]), Op("POOL2D_MAX", [0], pools)],
                  (1, 1, 0, 0))  # fmt: skip
    rules = read(moved + enlarged + pooled)

    def convolutions(b: Builder) -> Any:
        x = b.input("x", 1, 2, 5, 5)
        return [b.call("nn.conv2d", x, b.input("w", 3, 2, size, size), padding=size // 2) for size in (1, 3)]

    def pool(b: Builder) -> Any:
        return b.call("nn.relu", b.call("nn.max_pool2d", b.input("x", 1, 2, 5, 5), pool_size=3, padding=1))

    def transposed(b: Builder) -> Any:
        return b.call("nn.relu", b.call("transpose", b.input("x", 2, 3, 4), axes=(2, 0, 1)))

    fire(rules["taso-0"], transposed, times=1)
    assert ops(fire(rules["taso-1"], convolutions, times=1)) == ["nn.pad", "concatenate", "nn.conv2d", "split"]
    fire(rules["taso-2"], pool, times=1)


@pytest.mark.torch
def test_an_open_operator_is_refused_until_its_meaning_is_told(read: Callable[..., ImportedRules]) -> None:
    data = RELU_RELU + rule([Op("DROPOUT", [-1], {"AXES": 7}), Op("RELU", [0])], [Op("RELU", [-1])], (1, 0, 0, 0))
    with pytest.warns(RefusedRulesWarning, match=r"1 of the 2 rules of rules.pb are not imported \(taso-1\)"):
        rules = read(data, strict=False)
    assert list(rules.refused) == ["taso-1"]
    assert "DROPOUT has no meaning here: give it as operators={'DROPOUT'" in rules.refused["taso-1"]
    with pytest.raises(ExchangeError, match="taso-1 can't be imported"):
        read(data)
    seen = []

    def dropout(operands: Any, params: Any) -> Any:
        seen.append(dict(params))
        return op.Dropout(*operands)

    rules = read(data, operators={"DROPOUT": dropout})
    assert seen == [{"AXES": 7}]
    fire(rules["taso-1"], lambda b: b.call("nn.relu", b.call("nn.dropout", b.input("x", 3))), times=1)


def test_a_source_of_unconnected_outputs_is_refused(read: Callable[..., ImportedRules]) -> None:
    data = rule([Op("RELU", [-1]), Op("TANH", [-2])], [Op("TANH", [-1]), Op("RELU", [-2])], (0, 0, 0, 0), (1, 1, 0, 0))
    with pytest.raises(ExchangeError, match=r"taso-0 can't be imported.*must be connected"):
        read(data)


def test_choices_are_checked(read: Callable[..., ImportedRules]) -> None:
    with pytest.raises(PatternError, match="no choice 'group': did you mean 'groups'"):
        read(RELU_RELU, group=True)
    with pytest.raises(PatternError, match="odd_padding: expected one of 'low', 'high', found 'middle'"):
        read(RELU_RELU, odd_padding="middle")
    with pytest.raises(PatternError, match="groups: expected one of False, True, found 1"):
        read(RELU_RELU, groups=1)


def one(*source: Op, target: Op | None = None, outputs: Any = ((0, 0, 0, 0),)) -> bytes:
    return rule(source, [target or Op("RELU", [-1])], *outputs)


RELU = Op("RELU", [-1])
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "byte 0: the file: it has no rules"),
    "a text": (b"(relu ?x)=>?x", "byte 0: the file: RuleCollection has no field 5: known are 1"),
    "cut off in a length": (b"\x0a\x80", "byte 1: the file: the field 'rule' is cut off"),
    "cut off in a message": (RELU_RELU[:-3], "byte 0: the file: the field 'rule' has 58 bytes, but only 55 are left"),
    "a varint without end": (b"\x0a" + b"\xff" * 12, "byte 1: the file: the field 'rule' is a varint of more than 10"),
    "wrong wire type": (number(1, 5), "byte 0: the file: the field 'rule' is a length and bytes, found a varint"),
    "unknown wire type": (varint(1 << 3 | 7) + b"\0", "found the unknown wire type 7"),
    "a message for a number": (
        message(1, message(1, message(1, b""))),
        "byte 4: rule 0, source operator 0: the field 'type' is a varint, found a length and bytes",
    ),
    "unknown field": (message(1, number(4, 0)), "byte 2: rule 0: Rule has no field 4: known are 1 (source), 2"),
    "no type": (message(1, message(1, b"")), "byte 2: rule 0, source operator 0: it has no field 'type'"),
    "unknown operator": (
        RELU_RELU + one(Op(99, [-1])), "rule 1, source operator 0: unknown operator type 99: known are 0 to 25",
    ),
    "unknown key": (one(Op("RELU", [-1], {77: 1})), "rule 0, source operator 0, parameter 0: unknown key 77"),
    "a key twice": (
        message(1, message(1, Op("CONV2D", [-1, -2], {"PAD": 0}).encode() + message(3, number(1, 8) + number(2, 1)))),
        "rule 0, source operator 0, parameter 1: PAD is given twice",
    ),
    "no result": (
        message(1, message(1, number(1, 8) + message(2, number(1, -1)))),
        "rule 0, source operator 0, operand 0: it has no field 'result'",
    ),
    "dangling": (one(RELU, Op("RELU", [5])), "rule 0, source operator 1, operand 0: it is a result of operator 5, but"),
    "a cycle": (one(Op("RELU", [1]), Op("RELU", [0])), "operator 0, operand 0: it is a result of operator 1, but"),
    "itself": (one(Op("RELU", [0])), "it is missing, or depends on this one"),
    "no such result": (
        one(RELU, Op("RELU", [(0, 1)])), "source operator 1, operand 0: the operator has 1 results, so there is no",
    ),
    "a result of an input": (one(Op("RELU", [(-1, 1)])), "an input is one tensor, so it has no result 1"),
    "unbound input": (one(RELU, target=Op("RELU", [-2])), "target operator 0, operand 0: it is the input -2, which"),
    "no source output": (one(RELU, outputs=((1, 0, 0, 0),)), "output 0: the source has 1 operators, but no operator 1"),
    "no target output": (one(RELU, outputs=((0, 3, 0, 0),)), "output 0: the target has 1 operators, but no operator 3"),
    "an input as output": (one(RELU, outputs=((0, -1, 0, 0),)), "rule 0, output 0: the target has 1 operators, but no"),
    "no result of an output": (one(RELU, outputs=((0, 0, 0, 2),)), "rule 0, output 0: the operator has 1 results"),
    "mapped twice": (one(RELU, outputs=((0, 0, 0, 0),) * 2), "output 1: the same result of the source is mapped twice"),
    "no outputs": (one(RELU, outputs=()), "rule 0: it has no mapped output"),
    "a dead operator": (one(RELU, Op("TANH", [-1])), "source operator 1: no mapped output of the source depends on it"),
    "too few operands": (one(Op("EW_ADD", [-1])), "source operator 0: EW_ADD takes 2 operands, found 1"),
    "another count": (one(Op("RELU", [-1], {"NUM_INPUTS": 2})), "NUM_INPUTS is 2, but it has 1 operands"),
    "a parameter lacks": (one(Op("MATMUL", [-1, -2])), "source operator 0: MATMUL lacks the parameter ACTI"),
    "a parameter too many": (one(Op("RELU", [-1], {"AXIS": 0})), "source operator 0: RELU has no parameter AXIS"),
    "no number of parts": (one(Op("SPLIT", [-1], {"AXIS": 0})), "SPLIT needs NUM_OUTPUTS of at least 2"),
    "no permutation": (
        one(Op("TRANSPOSE", [-1], {"NUMDIM": 2, "PERM": 3})), "source operator 0: PERM 3 is no permutation of 2 axes",
    ),
    "too many axes": (
        one(Op("TRANSPOSE", [-1], {"NUMDIM": 2**31 - 1, "PERM": 3})), "NUMDIM is 1 to 16, found 2147483647",
    ),
    "unknown activation": (one(Op("MATMUL", [-1, -2], {"ACTI": 9})), "operator 0: MATMUL: act is 0 to 3, found 9"),
    "unknown padding": (one(Op("CONV2D", [-1, -2], {**CONV, "PAD": 4})), "CONV2D: pad is 0 to 1, found 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_have_an_error_with_the_place(read: Callable[..., ImportedRules], name: str) -> None:
    data, expected = MALFORMED[name]
    with pytest.raises(ExchangeError) as raised:
        read(data)
    assert expected in str(raised.value)
    assert str(raised.value).startswith("rules.pb: byte ")


def test_every_cut_of_a_file_is_an_error(read: Callable[..., ImportedRules]) -> None:
    data = one(Op("MATMUL", [-1, -2], {"ACTI": 2}), target=Op("MATMUL", [-1, -2], {"ACTI": 1}))
    assert isinstance(next(iter(read(data))), Subst)
    for length in range(len(data)):
        with pytest.raises(ExchangeError, match=r"rules.pb: byte \d+: "):
            read(data[:length])


@pytest.mark.parametrize("read", [rules_from_taso, rules_from_tensat])
def test_files_that_can_not_be_read(read: Callable[..., ImportedRules], tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match="nowhere: the file can't be read: No such file or directory"):
        read(tmp_path / "nowhere")
    with pytest.raises(ExchangeError, match="the file can't be read: Is a directory"):
        read(tmp_path)
