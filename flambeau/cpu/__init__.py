"""torch.cpu: the CPU as a device among others, for code that is written for any device."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from flambeau.cpu import amp as amp


def is_available() -> bool:
    """True: there always is a CPU."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Accepted: there is one CPU."""


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Run everything that is recorded in this thread and still pending."""
    from flambeau.trace.evaluate import synchronize as run

    run()


class Stream:
    """A stream of a device without streams."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Any = None) -> Event:
        """An event; everything before it is done when it is waited for."""
        return Event() if event is None else event  # type: ignore[no-any-return]

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""


class Event:
    """A point in a stream of a device without streams: it is always reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing to record."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""


class StreamContext(AbstractContextManager[None]):
    """A block that changes nothing."""

    cur_stream: Stream | None

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        return None


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _THE_STREAM


def stream(stream: Stream) -> AbstractContextManager[None]:
    """A context that changes nothing."""
    return StreamContext(stream)


def get_capabilities() -> dict[str, Any]:
    """What the processor can do, by PyTorch's names: {"avx2": True, "avx512_f": True, ...}; what is not named is not there."""
    import os
    import platform

    from flambeau.runtime import target

    flags = {re.sub(r"^(avx512)_?(?=.)", r"\1_", name): True for name in sorted(target.flags())}
    sizes = {"l1d_cache_size": target.cache_bytes(1), "l2_cache_size": target.cache_bytes(2)}
    return {"architecture": platform.machine(), "num_logical_cores": os.cpu_count(), **sizes, **flags}


def _supports(*names: str) -> Callable[[], bool]:
    """Whether the processor has all of these features (Linux's words)."""

    def supported() -> bool:
        from flambeau.runtime import target

        return set(names) <= target.flags()

    return supported


_is_avx2_supported = _supports("avx2", "fma")
_is_avx512_supported = _supports("avx512f", "avx512bw", "avx512dq", "avx512vl")
_is_avx512_bf16_supported = _supports("avx512_bf16")
_is_vnni_supported = _is_avx512_vnni_supported = _supports("avx512_vnni")
_is_amx_tile_supported = _supports("amx_tile")
_is_amx_fp16_supported = _supports("amx_fp16")
_init_amx = _supports("amx_tile")

_THE_STREAM = Stream()

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.cpu", globals())
