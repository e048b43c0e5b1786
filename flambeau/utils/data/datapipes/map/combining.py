"""torch.utils.data.datapipes.map.combining: several pipes as one."""

from __future__ import annotations

from typing import Any

from flambeau.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe[Any]):
    """Pipes one after another, indexed from 0."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> Any:
        offset = 0
        for pipe in self.datapipes:
            if index - offset < len(pipe):
                return pipe[index - offset]
            offset += len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[Any]):
    """Tuples of one item from each pipe."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> Any:
        try:
            return tuple([pipe[index] for pipe in self.datapipes])
        except IndexError as error:
            raise IndexError(f"Index {index} is out of range for one of the input MapDataPipes {self.datapipes}.") from error

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)
