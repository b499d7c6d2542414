"""``python -m gsl``, the same as the command ``gsl``."""

from __future__ import annotations

import sys

from gsl.cli import main

if __name__ == "__main__":
    sys.exit(main())
