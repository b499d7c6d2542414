"""Refusals: reasons why matches are not rewritten."""

from __future__ import annotations


class Refusal(Exception):
    """The reason why a match is not rewritten."""
