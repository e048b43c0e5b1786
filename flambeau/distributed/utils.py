"""torch.distributed.utils: what wrappers of modules share."""

from __future__ import annotations

from typing import Any


def _sync_module_states(*args: Any, **kwargs: Any) -> None:
    """Nothing to send: there is one process."""


def _verify_param_shape_across_processes(*args: Any, **kwargs: Any) -> None:
    """Nothing to compare: there is one process."""
