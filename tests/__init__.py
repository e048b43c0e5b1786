"""Tests of flambeau, by layer. Tracebacks show its own frames here."""

import os

os.environ.setdefault("FLAMBEAU_TRACEBACK", "full")
