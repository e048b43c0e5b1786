"""torch._refs.nn: see torch._refs."""

from __future__ import annotations

from flambeau._refs.nn import functional as functional
