"""torch.accelerator: code for whatever accelerator there is. There is none: `current_accelerator()` is None."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent
from flambeau.names import answering as _answering

_refuse = _absent.refusal(RuntimeError, "Cannot access accelerator device when none is available.")
_TABLE = """
is_available device_count empty_cache!
current_accelerator(check_available=False) = None
current_device_idx() !
current_device_index() !
set_device_idx(device, /) !
set_device_index(device, /) !
current_stream(device=None, /) !
set_stream(stream) !
synchronize(device=None, /) !
get_device_capability(device=None, /) !
get_memory_info(device_index=None, /) !
empty_host_cache() !
memory_stats(device_index=None, /) !
memory_allocated(device_index=None, /) !
max_memory_allocated(device_index=None, /) !
memory_reserved(device_index=None, /) !
max_memory_reserved(device_index=None, /) !
reset_accumulated_memory_stats(device_index=None, /) !
reset_peak_memory_stats(device_index=None, /) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "accelerator")
_CLASSES = _absent.classes(globals(), ("Graph",), _refuse, "accelerator")


class device_index:
    """`with device_index(None)` changes nothing; an index is refused when the block is entered."""

    def __init__(self, device: int | None, /) -> None:
        self.idx = device

    def __enter__(self) -> None:
        if self.idx is not None:
            _refuse("device_index")

    def __exit__(self, *_: Any) -> None:
        return None


__getattr__ = _answering("torch.accelerator", globals())
