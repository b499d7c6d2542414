"""Why a match is not rewritten."""

from __future__ import annotations


class Refusal(Exception):
    """The reason why a match is not rewritten."""
