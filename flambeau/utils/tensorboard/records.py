"""Event files: messages one after another, each with its length and checksums (TensorFlow's TFRecord).

A record: length (8 bytes), masked CRC of these bytes, the message, masked CRC of it. The CRC is CRC-32C (RFC 3720, appendix B.4); masked: rotated right by 15
bits and 0xA282EAD8 added, as the record may itself hold checksums (tensorflow/core/lib/hash/crc32c.h).
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from functools import cache
from itertools import count
from typing import Any, Final

from flambeau.utils.tensorboard.protos import message

_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, its bits reversed
_numbers = count()


@cache
def _table() -> tuple[int, ...]:
    made = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        made.append(byte)
    return tuple(made)


def crc32c(data: bytes) -> int:
    """CRC-32C of bytes."""
    table = _table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """A message's bytes as a record."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


class EventFileWriter:
    """Writes events to a file in `folder`: to the disk once `max_queue` of them wait, or `flush_secs` after the first that waits."""

    def __init__(self, folder: str, max_queue: int = 10, flush_secs: int = 120, suffix: str = "") -> None:
        self._folder, self._most, self._seconds, self._suffix = folder, max(1, max_queue), flush_secs, suffix
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._file: Any = None
        self._waiting = 0
        self.reopen()

    def reopen(self) -> None:
        """Begin a file, unless one is open."""
        with self._lock:
            if self._file is not None:
                return
            os.makedirs(self._folder, exist_ok=True)
            name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}{self._suffix}"
            self._file = open(os.path.join(self._folder, name), "wb")  # noqa: SIM115
            self._file.write(record(message("Event")(wall_time=time.time(), file_version="brain.Event:2").SerializeToString()))
            self._file.flush()

    def add_event(self, event: Any) -> None:
        """Write an event; nothing after `close`."""
        data = record(event.SerializeToString())
        with self._lock:
            if self._file is None:
                return
            self._file.write(data)
            self._waiting += 1
            if self._waiting >= self._most:
                self.flush()
            elif self._timer is None:
                self._timer = threading.Timer(self._seconds, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Bring what waits to the disk."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._waiting = None, 0
            if self._file is not None:
                self._file.flush()

    def close(self) -> None:
        """Write what waits, and close the file."""
        with self._lock:
            self.flush()
            if self._file is not None:
                self._file.close()
            self._file = None
