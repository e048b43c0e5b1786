"""torch._guards: which fake tensors' block is active."""

from __future__ import annotations

from typing import Any

from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.utils._python_dispatch import _get_current_dispatch_mode_stack
from flambeau.utils._pytree import tree_leaves


def active_fake_mode() -> FakeTensorMode | None:
    """The innermost FakeTensorMode, or None."""
    return next((mode for mode in reversed(_get_current_dispatch_mode_stack()) if isinstance(mode, FakeTensorMode)), None)


def detect_fake_mode(inputs: Any = None) -> FakeTensorMode | None:
    """The mode of the first fake tensor among the inputs, or the active one."""
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode  # type: ignore[no-any-return]
    return active_fake_mode()
