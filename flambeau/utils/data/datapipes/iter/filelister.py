"""torch.utils.data.datapipes.iter.filelister: paths of files in folders."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe[Any]):
    """The paths of files in folders, whose names fit one of the masks."""

    def __init__(
        self, root: Any = ".", masks: str | list[str] = "", *, recursive: bool = False, abspath: bool = False, non_deterministic: bool = False,
        length: int = -1,
    ) -> None:  # fmt: skip
        self.datapipe = [root] if isinstance(root, str) else root
        self.masks = [masks] if isinstance(masks, str) else masks
        self.recursive = recursive
        self.abspath = abspath
        self.length = length

    def _fits(self, name: str) -> bool:
        return self.masks in ([], [""]) or any(fnmatch.fnmatch(name, mask) for mask in self.masks)

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            if os.path.isfile(root):
                if self._fits(os.path.basename(root)):
                    yield os.path.abspath(root) if self.abspath else root
                continue
            for path, folders, files in os.walk(root):
                folders.sort()
                for name in sorted(files):
                    if self._fits(name):
                        yield os.path.join(os.path.abspath(path) if self.abspath else path, name)
                if not self.recursive:
                    break

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length
