"""FileStore: a store in a file that several processes of one machine (or of one shared file system) can write."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from typing import Any

from flambeau.distributed.store import Store, Table

_HEAD = struct.Struct("<BII")  # operation, lengths of key and value
_SET, _DELETE, _PUSH, _POP = range(4)
_COUNTER = b"\0users"  # how many objects have been made over the file


class FileStore(Store):
    """A store in the file `file_name`, which grows by a record a change. Every request reads what others have appended since, under a lock of the file.

    The last object to be closed removes the file, if there were as many as `world_size` (-1: nobody does).
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path = os.fspath(file_name)
        self._users = world_size
        self._table = Table()
        self._read = 0
        self._do("add", _COUNTER, b"1")

    def _do(self, operation: str, *fields: bytes) -> list[bytes]:
        if operation in ("wait", "pop"):
            return self._patiently(operation, *fields)
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # closing the file unlocks it
            self._catch_up(file)
            answer = self._table.do(operation, *fields)
            if operation in ("set", "add", "append", "compare_set"):
                self._write(file, _SET, fields[0], self._table.values.get(fields[0], b""), answer)
            elif operation == "delete":
                self._write(file, _DELETE, fields[0], b"", answer)
            elif operation == "push":
                self._write(file, _PUSH, fields[0], fields[1], answer)
        return answer

    def _patiently(self, operation: str, *fields: bytes) -> list[bytes]:
        """`wait` and `pop`: looked at again and again, as nobody tells of changes of a file."""
        keys, limit = (fields[1:], fields[0]) if operation == "wait" else (fields[:1], fields[1])
        end, pause = time.monotonic() + float(limit), 0.001
        while True:
            if operation == "wait" and self._do("check", *keys)[0] == b"1":
                return [b"1"]
            if operation == "pop" and (found := self._take(keys[0])):
                return found
            if time.monotonic() >= end:
                return [b"0"] if operation == "wait" else []
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def _take(self, key: bytes) -> list[bytes]:
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._catch_up(file)
            found = self._table.do("pop", key, b"0")
            if found:
                self._write(file, _POP, key, b"", found)
            return found

    def _catch_up(self, file: Any) -> None:
        """Take over the records that others have written."""
        file.seek(self._read)
        content = file.read()
        at = 0
        while at + _HEAD.size <= len(content):
            operation, key_length, value_length = _HEAD.unpack_from(content, at)
            end = at + _HEAD.size + key_length + value_length
            if end > len(content):  # a process ended in the middle of its record
                break
            key, value = content[at + _HEAD.size : at + _HEAD.size + key_length], content[end - value_length : end]
            if operation == _SET:
                self._table.do("set", key, value)
            elif operation == _DELETE:
                self._table.do("delete", key)
            elif operation == _PUSH:
                self._table.do("push", key, value)
            else:
                self._table.do("pop", key, b"0")
            at = end
        self._read += at

    def _write(self, file: Any, operation: int, key: bytes, value: bytes, answer: list[bytes]) -> None:
        record = _HEAD.pack(operation, len(key), len(value)) + key + value
        file.seek(self._read)
        file.truncate()  # what a process that was killed has left of its record
        file.write(record)
        self._read += len(record)

    def list_keys(self) -> list[str]:
        return [key for key in super().list_keys() if key != _COUNTER.decode()]

    def __del__(self) -> None:
        try:
            if self._users > 0 and os.path.exists(self.path):
                gone = int(self._do("add", _COUNTER + b"-gone", b"1")[0])
                if gone >= max(self._users, int(self._do("add", _COUNTER, b"0")[0])):
                    os.unlink(self.path)
        except Exception:  # at the interpreter's end, or the folder is gone: there is nothing to remove
            return
