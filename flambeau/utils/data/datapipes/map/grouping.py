"""torch.utils.data.datapipes.map.grouping: items together in batches."""

from __future__ import annotations

from typing import Any

from flambeau.utils.data.datapipes.datapipe import MapDataPipe, functional_datapipe
from flambeau.utils.data.datapipes.shared import Batches


@functional_datapipe("batch")
class BatcherMapDataPipe(Batches, MapDataPipe[Any]):
    """Lists of `batch_size` items; a shorter last one unless drop_last."""

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        end = min((index + 1) * self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(index * self.batch_size, end)])

    def __len__(self) -> int:
        return self.batches_of(len(self.datapipe))
