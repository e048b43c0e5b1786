"""torch.backends.xnnpack: a library that is not used."""

from __future__ import annotations

enabled = False
