"""torch.backends.mha: the fast path of nn.MultiheadAttention. There is one path, so the setting changes nothing."""

from __future__ import annotations

_enabled = [True]


def get_fastpath_enabled() -> bool:
    """What set_fastpath_enabled said."""
    return _enabled[0]


def set_fastpath_enabled(value: bool) -> None:
    """Accepted and remembered."""
    _enabled[0] = value
