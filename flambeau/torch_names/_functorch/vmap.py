"""torch._functorch.vmap: vmap under its older home."""

from __future__ import annotations

from flambeau.func.mapping import vmap as vmap
from flambeau.func.mapping import vmap as vmap_impl  # noqa: F401
