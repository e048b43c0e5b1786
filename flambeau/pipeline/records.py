"""What a pipeline keeps on disk beside its file, in `.flambeau-pipeline`: a record of each step that ended, scratch folders, and a lock.

A record is written when the step's outputs have their names; before they get them, the old one is removed. So a record always speaks of outputs that are whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from flambeau.runtime import whole_files

FOLDER: Final = ".flambeau-pipeline"


class Records:
    """The records of one pipeline's steps."""

    def __init__(self, file: Path) -> None:
        self.folder = file.parent / FOLDER / file.stem

    def read(self, step: str) -> dict[str, Any] | None:
        """A step's record; None if it has none, or one that cannot be read."""
        try:
            record = json.loads((self.folder / f"{step}.json").read_text())
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and isinstance(record.get("outputs"), dict) else None

    def write(self, step: str, record: dict[str, Any]) -> None:
        """Replace a step's record; its scratch folders are not needed any more."""
        with whole_files.replacing(self.folder / f"{step}.json") as file:
            file.write(json.dumps(record, indent=1).encode() + b"\n")
        shutil.rmtree(self.folder / "scratch" / step, ignore_errors=True)

    def remove(self, step: str) -> None:
        """Forget what is known of a step."""
        (self.folder / f"{step}.json").unlink(missing_ok=True)

    def scratch(self, step: str, key: str) -> Path:
        """A folder in which a step may keep what it has done so far. It is there again after a kill if the step's key is the same."""
        folder = self.folder / "scratch" / step / key[:16]
        for other in folder.parent.glob("*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def locked(self) -> Iterator[int]:
        """The lock's file handle; steps inherit it, so that one which outlives a killed run still holds it. RuntimeError if another run has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder.parent / ".gitignore").write_text("*\n")
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise RuntimeError("flambeau pipeline: another run of this pipeline is at work, or a step of one that was killed") from None
        try:
            yield handle
        finally:
            os.close(handle)
