"""torch.utils.data.datapipes.iter.streamreader: the content of opened files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[Any]):
    """(path, content) of (path, open file), whole or in chunks of `chunk` bytes; the files are closed."""

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe = datapipe
        self.chunk = chunk

    def __iter__(self) -> Iterator[Any]:
        for name, stream in self.datapipe:
            with stream:
                while data := stream.read(self.chunk):
                    yield name, data
