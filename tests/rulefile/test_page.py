"""The YAML examples of the page on fusion load as they stand; its Python examples are run with those of all pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gsl.errors import RuleFileError
from tests.rulefile.views import rules

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fusion.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_examples_load(text: str) -> None:
    assert rules(rules(text).to_yaml()).to_yaml() == rules(text).to_yaml()


def test_there_are_examples_and_a_broken_one_is_found() -> None:
    assert len(BLOCKS) >= 3
    with pytest.raises(RuleFileError):
        rules(BLOCKS[0].replace("child:", "childs:"))
