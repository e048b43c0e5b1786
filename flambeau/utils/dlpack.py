"""torch.utils.dlpack: memory shared with other libraries."""

from __future__ import annotations

from typing import Any

from flambeau.ops.from_memory import from_dlpack as from_dlpack


def to_dlpack(tensor: Any) -> Any:
    """A capsule by which another library can read the tensor's memory."""
    return tensor.detach().__dlpack__()


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.utils.dlpack", globals())
