"""torch.utils.data.datapipes.iter.callable: functions of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data.collate import default_collate
from flambeau.utils.data.datapipes.datapipe import functional_datapipe
from flambeau.utils.data.datapipes.iter.utils import _OfOne


@functional_datapipe("map")
class MapperIterDataPipe(_OfOne):
    """`fn` of each item, or of some of its columns (`input_col`), whose result goes to `output_col` (-1: a new one)."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        self.datapipe = datapipe
        self.fn = fn
        self.input_col = input_col
        self.output_col = output_col

    def _apply(self, item: Any) -> Any:
        columns, target = self.input_col, self.output_col
        if columns is None:
            return self.fn(item)
        several = isinstance(columns, (list, tuple))
        result = self.fn(*(item[c] for c in columns)) if several else self.fn(item[columns])
        changed = list(item) if isinstance(item, tuple) else item
        if target is None:
            changed[columns[0] if several else columns] = result
            for c in sorted(columns[1:], reverse=True) if several else ():
                del changed[c]
        elif target == -1:
            changed.append(result)
        else:
            changed[target] = result
        return tuple(changed) if isinstance(item, tuple) else changed

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield self._apply(item)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Batches of samples as tensors: default_collate, or a function of the user's."""

    def __init__(self, datapipe: Any, conversion: Any = default_collate, collate_fn: Any = None) -> None:
        super().__init__(datapipe, conversion if collate_fn is None else collate_fn)
