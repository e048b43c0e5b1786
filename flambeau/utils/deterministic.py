"""torch.utils.deterministic: what uninitialised memory holds under deterministic algorithms: a setting that is kept."""

from __future__ import annotations

fill_uninitialized_memory = True
