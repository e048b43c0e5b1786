"""torch._C._autograd: whether saved_tensors_hooks may be used, as packages ask and say."""

from __future__ import annotations

from flambeau.autograd.graph import _disabled


def _saved_tensors_hooks_is_enabled() -> bool:
    return _disabled.message is None


def _saved_tensors_hooks_get_disabled_error_message() -> str | None:
    return _disabled.message


def _saved_tensors_hooks_disable(error_message: str, fail_if_non_empty: bool = True) -> None:
    """From now on saved_tensors_hooks raises a RuntimeError with this message."""
    _disabled.message = error_message


def _saved_tensors_hooks_enable() -> None:
    _disabled.message = None
