"""Every rule of the rule book is supported, on every alternative."""

from __future__ import annotations

import time

import pytest

from gsl import Supported
from gsl.rules import BOOK, RULES
from gsl.verify import Evidence, Verdict

NOT_POSSIBLE = {
    "dispatch-tuple": "of length 0",  # an empty tuple has no field
}
"""What can't be generated, because there is no such graph."""


AWKWARD = {
    "conv-batch-norm", "diamond-conv-add", "parallel-conv-variadic", "parallel-two-conv", "parallel-two-dense",
    "reshape-reshape", "transpose-transpose",
}  # fmt: skip
"""The rules whose instances are looked at, which takes as many of them as a user has."""


def examples(name: str) -> int:
    return 200 if name in AWKWARD else 80


@pytest.fixture(scope="module")
def verdicts() -> dict[str, tuple[Verdict, float]]:
    return {}


def verdict(name: str, verdicts: dict[str, tuple[Verdict, float]]) -> tuple[Verdict, float]:
    """The verdict on a rule and the seconds of processor time that it took; computed once."""
    if name not in verdicts:
        start = time.process_time()
        verdicts[name] = RULES[name].verify(max_examples=examples(name)), time.process_time() - start
    return verdicts[name]


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", RULES)
def test_rule(name: str, verdicts: dict[str, tuple[Verdict, float]]) -> None:
    found, seconds = verdict(name, verdicts)
    assert isinstance(found, Supported), str(found)
    evidence = found.evidence
    assert evidence.evaluated == examples(name)
    assert evidence.unmatched == 0, "a graph was made that the rule does not match"
    assert evidence.distinct >= examples(name) // 2
    missing = [text for text in evidence.missing if NOT_POSSIBLE.get(name, "?") not in text and "as Op" not in text]
    assert not missing
    assert seconds < 15  # about one, on a machine that does nothing else


@pytest.mark.long
def test_what_is_awkward_is_covered(verdicts: dict[str, tuple[Verdict, float]]) -> None:
    def evidence(name: str) -> Evidence:
        return verdict(name, verdicts)[0].evidence

    assert set(evidence("transpose-transpose").ranks) >= {1, 2, 3, 4, 5}
    conv = evidence("parallel-two-conv").attributes
    assert {(1, 1), (2, 2)} <= set(conv["nn.conv2d.strides"])
    assert {(1, 1), (2, 2)} <= set(conv["nn.conv2d.dilation"])
    assert any(p[:2] != p[2:] for p in conv["nn.conv2d.padding"]), "asymmetric padding"
    kernels = set(conv["nn.conv2d.kernel_size"])
    assert {k % 2 for kernel in kernels for k in kernel} == {0, 1}
    assert {1, 2, 3, 4, 6, 8} <= set(evidence("conv-batch-norm").attributes["nn.conv2d.groups"])
    assert {3} <= {d for dilation in conv["nn.conv2d.dilation"] for d in dilation}
    assert {*range(1, 9), 16} <= set(evidence("transpose-transpose").sizes)
    assert "NHWC" in evidence("diamond-conv-add").attributes["nn.conv2d.data_layout"]
    assert {"float32", "float64", "float16"} <= set(evidence("parallel-two-dense").dtypes)
    assert {"int64", "bool", "uint8"} <= set(evidence("reshape-reshape").dtypes)
    variadic = evidence("parallel-conv-variadic").covered
    assert any("of length 2" in text for text in variadic)
    assert any("of length 5" in text for text in variadic)
    fold = evidence("conv-batch-norm").covered
    assert any("the alternative nn.bias_add" in text for text in fold)
    assert any("the alternative Const" in text for text in fold)


def test_the_report_says_how_outputs_were_compared(verdicts: dict[str, tuple[Verdict, float]]) -> None:
    found, _ = verdict("parallel-two-dense", verdicts)
    assert set(found.evidence.methods) == {"output 0", "output 1"}
    assert {method for methods in found.evidence.methods.values() for method in methods} <= {
        "integers", "field", "float64",
    }  # fmt: skip
    assert "200 instances evaluated" in str(found)


def test_a_rule_set_is_verified_by_name() -> None:
    some = type(BOOK)([RULES["reshape-identity"], RULES["copy-identity"]])
    found = some.verify(max_examples=30)
    assert list(found) == ["reshape-identity", "copy-identity"]
    assert all(found.values())
