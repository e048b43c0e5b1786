"""torch.utils.data.datapipes.map.callable: functions of each item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """`fn` of each item."""

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any] = lambda x: x) -> None:
        self.datapipe = datapipe
        self.fn = fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)
