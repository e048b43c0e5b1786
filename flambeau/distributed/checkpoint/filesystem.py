"""torch.distributed.checkpoint.filesystem: checkpoints in folders."""

from __future__ import annotations

import os
from typing import Any

from flambeau.distributed.checkpoint._files import _StorageInfo as _StorageInfo
from flambeau.distributed.checkpoint._files import read_metadata
from flambeau.distributed.checkpoint.metadata import Metadata


class FileSystemWriter:
    """A folder to write a checkpoint to. `sync_files`: data is on the disk when save returns. Other options are accepted."""

    def __init__(self, path: Any, single_file_per_rank: bool = True, sync_files: bool = True, thread_count: int = 1, **options: Any) -> None:
        self.path, self.sync_files = os.fspath(path), sync_files

    @property
    def checkpoint_id(self) -> str:
        """The folder."""
        return self.path


class FileSystemReader:
    """A folder with a checkpoint."""

    def __init__(self, path: Any, **options: Any) -> None:
        self.path = os.fspath(path)

    @property
    def checkpoint_id(self) -> str:
        """The folder."""
        return self.path

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint holds."""
        return read_metadata(self.path)
