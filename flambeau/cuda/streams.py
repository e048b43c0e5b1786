"""torch.cuda.streams: streams and events of a device that is not here: `stream(None)` is a block, all else is refused."""

from __future__ import annotations

from typing import Any

from flambeau import absent
from flambeau.names import answering as _answering

_TABLE = """
current_stream default_stream get_stream_from_external
"""
_NAMES = absent.define(globals(), _TABLE, absent.not_compiled("CUDA"), "CUDA")
_CLASSES = absent.classes(
    globals(), ("Stream", "ExternalStream", "Event"), absent.refusal(RuntimeError, "torch.cuda.Stream and Event require CUDA support"), "CUDA"
)


class StreamContext:
    """A block in which a stream is current; without a stream it changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        return None


def stream(stream: Any) -> StreamContext:
    """See StreamContext."""
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    """None is accepted; there is no other stream."""


__getattr__ = _answering("torch.cuda.streams", globals())
