"""Compiled modules are kept, whatever the environment says: dozens of processes of the tests import the same ones."""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
