"""The configuration of the site: Sphinx reads the pages of this folder, and the docstrings of the package."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import catalogue  # noqa: E402
from pygments.lexers.special import TextLexer  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

project = "GSL"
copyright = "the authors of GSL"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
templates_path: list[str] = []

html_theme = "furo"
html_title = "GSL, the Graph Substitution Language"
html_copy_source = False

myst_heading_anchors = 4

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True


def setup(app: Sphinx) -> None:
    """Make the pages that are made: the catalogue of rules with its drawings. What examples print is plain text."""
    app.add_lexer("output", TextLexer)
    catalogue.write(HERE)
