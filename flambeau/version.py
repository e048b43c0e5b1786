"""torch.version: what this build is."""

from __future__ import annotations

import flambeau as _flambeau

__version__: str = _flambeau.__version__
debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version: str | None = None
