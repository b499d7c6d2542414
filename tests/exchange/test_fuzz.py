"""Files with random damage: they are read, or there is an error of the format, and nothing else."""

from __future__ import annotations

import contextlib
import re
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import rules_from_taso, rules_from_tensat
from gsl.errors import ExchangeError
from tests.exchange.encode import Op, rule
from tests.tiers import examples

CONV = {"STRIDE_H": 1, "STRIDE_W": 2, "PAD": 0, "ACTI": 2}
JOINED = {"AXIS": 0, "NUMDIM": 4, "NUM_INPUTS": 2}
BYTES = rule(
    [Op("CONV2D", [-1, -2], CONV), Op("CONV2D", [-1, -3], CONV)],
    [Op("CONCAT", [-2, -3], JOINED), Op("CONV2D", [-1, 0], CONV), Op("SPLIT", [1], {"AXIS": 1, "NUM_OUTPUTS": 2})],
    (0, 2, 0, 0), (1, 2, 0, 1),
)  # fmt: skip
TEXT = (
    "(conv2d ?s 1 ?p ?a ?x (enlarge 3 3 ?w))=>(split_0 (split 1 (conv2d ?s 1 ?p ?a ?x (concat 0 4 ?w ?w))))\n"
    "(ewmul (smul ?x ?k) (matmul 0 ?y Imatmul))=>(smul (ewmul ?x (transpose (transpose ?y 1_0))) ?k)\n"
    "(conv2d 1 1 1 3 ?x (Cpool 2 3))=>(tanh (relu (poolavg 2 3 1 1 1 ?x)))\n"
)
TOKENS = re.findall(r"[()]|=>|\n| |[^\s()=]+", TEXT)


def test_what_is_not_damaged_is_read(tmp_path: Path) -> None:
    (tmp_path / "rules").write_bytes(BYTES)
    assert len(rules_from_taso(tmp_path / "rules", strict=True)) == 1
    (tmp_path / "rules").write_text(TEXT)
    assert len(rules_from_tensat(tmp_path / "rules", strict=True)) == 3


def read(data: bytes, function: object) -> None:
    """Read a file of these bytes; anything but an ExchangeError goes through."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "rules"
        path.write_bytes(data)
        with contextlib.suppress(ExchangeError):
            function(path)  # type: ignore[operator]


@pytest.mark.law
@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, len(BYTES) - 1), st.integers(0, 255)), max_size=4), st.integers(0, 20))
def test_damaged_bytes(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(BYTES)
    for place, value in changes:
        data[place] = value
    read(bytes(data[: len(data) - cut]), rules_from_taso)


@pytest.mark.law
@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, len(TOKENS) - 1), st.sampled_from(["", *TOKENS])), min_size=1, max_size=4))
def test_damaged_text(changes: list[tuple[int, str]]) -> None:
    tokens = list(TOKENS)
    for place, token in changes:
        tokens[place] = token
    read("".join(tokens).encode(), rules_from_tensat)


@pytest.mark.law
@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(TOKENS), max_size=20))
def test_any_words(tokens: list[str]) -> None:
    read(" ".join(tokens).encode(), rules_from_tensat)
