"""The command ``gsl``: one module for each of its commands."""

from gsl.cli.entry import main

__all__ = ["main"]
