"""torch.functional: functions of the torch namespace that PyTorch writes in Python."""

from __future__ import annotations

from typing import Any

import flambeau as _torch

_NAMES = frozenset((
    "align_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cdist",
    "chain_matmul", "einsum", "istft", "lu", "meshgrid", "norm", "split", "stft", "tensordot", "unique", "unique_consecutive", "unravel_index",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(_torch, name)
    from flambeau.names import otherwise

    return otherwise("torch.functional", name, globals())


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("", globals())
