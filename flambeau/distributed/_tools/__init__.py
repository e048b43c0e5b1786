"""torch.distributed._tools: what looks at a program while it runs."""

from __future__ import annotations

from flambeau.distributed._tools.mod_tracker import ModTracker as ModTracker
