"""Models out of Python: an exported program as a native library, or as a module for browsers and Node (docs/deploy.md).

from flambeau.deploy import build, check
build("digits.pt2", "x86-64-v3", "digits")
"""

from __future__ import annotations

from flambeau.deploy.building import build, check
from flambeau.deploy.errors import BuildError

__all__ = ["BuildError", "build", "check"]
