"""The command ``gsl``."""

from gsl.cli.entry import main

__all__ = ["main"]
