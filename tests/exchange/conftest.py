"""What several tests of imported rules share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gsl import Subst, rules_from_tensat


@pytest.fixture
def rule(tmp_path: Path) -> Callable[..., Subst]:
    """The one rule of some lines of TENSAT."""

    def make(*lines: str, **choices: Any) -> Subst:
        path = tmp_path / "rules.txt"
        path.write_text("\n".join(lines))
        (made,) = rules_from_tensat(path, outputs=len(lines), strict=True, **choices)
        return made

    return make
