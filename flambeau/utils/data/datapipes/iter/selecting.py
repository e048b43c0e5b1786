"""torch.utils.data.datapipes.iter.selecting: items that a function chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The items (or columns) for which `filter_fn` is True."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        self.datapipe = datapipe
        self.filter_fn = filter_fn
        self.input_col = input_col

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            c = self.input_col
            args = (item,) if c is None else [item[i] for i in c] if isinstance(c, (list, tuple)) else (item[c],)
            kept = self.filter_fn(*args)
            if not isinstance(kept, bool):
                raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(kept)}")
            if kept:
                yield item
