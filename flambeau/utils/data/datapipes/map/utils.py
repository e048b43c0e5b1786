"""torch.utils.data.datapipes.map.utils: a pipe over a sequence."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau.utils.data.datapipes.datapipe import MapDataPipe


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """A sequence or mapping as a pipe: a deep copy of it, unless deepcopy=False."""

    def __init__(self, sequence: Sequence[Any] | Mapping[Any, Any], deepcopy: bool = True) -> None:
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)
