"""torch.backends.miopen: AMD's library, which is not here."""

from __future__ import annotations

immediate = False
