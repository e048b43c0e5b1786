"""torch.jit.annotations: typing's names."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035

from flambeau.futures import Future

__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "Future", "List", "NamedTuple", "Optional", "Tuple", "Union"]


class _ListOfOneLength:
    """`BroadcastingList2[int]`: a list of two, or one number for both; in annotations only."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1, BroadcastingList2, BroadcastingList3 = [_ListOfOneLength() for _ in range(3)]
