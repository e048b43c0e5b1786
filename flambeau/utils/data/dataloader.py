"""DataLoader: batches of a dataset, made in this process or by worker processes.

Workers are started by Python's own default method (fork on Linux before Python 3.14, as in PyTorch): scripts without a main guard,
and datasets that cannot be pickled, work unchanged. Fork is safe beside our threads because it happens between native
calls, and the child drops the parent's thread team and runs on one thread. `multiprocessing_context` chooses another method.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from flambeau.utils.data.collate import default_collate, default_convert
from flambeau.utils.data.dataset import Dataset, IterableDataset
from flambeau.utils.data.fetch import make_fetcher
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed
from flambeau.utils.data.worker import get_worker_info as get_worker_info

T_co = TypeVar("T_co", covariant=True)
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _Endless(Sampler[None]):
    """The sampler of an iterable dataset: it only says that another sample is wanted."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Iterates over batches; arguments are PyTorch's. `pin_memory` is accepted and has no effect."""

    _initialized = False

    def __init__(
        self, dataset: Dataset[T_co], batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None, batch_sampler: Iterable[Any] | None = None, num_workers: int = 0,
        collate_fn: Any = None, pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
        worker_init_fn: Any = None, multiprocessing_context: Any = None, generator: Any = None, *,
        prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:  # fmt: skip
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._iterable:
                sampler = cast(Any, _Endless())
            else:
                sized: Any = dataset
                sampler = RandomSampler(sized, generator=generator) if shuffle else SequentialSampler(sized)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(cast(Any, sampler), batch_size, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        self.in_order = in_order
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._iterator: Any = None
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return _SingleProcess(self)
        from flambeau.utils.data.multiprocess import MultiProcess

        if not self.persistent_workers:
            return MultiProcess(self)
        if self._iterator is None:
            self._iterator = MultiProcess(self)
        else:
            self._iterator.restart(self)
        return self._iterator  # type: ignore[no-any-return]

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        length = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def _context(context: Any, workers: int) -> Any:
    """A multiprocessing context from its name, a context, or None (Python's default)."""
    if context is None:
        return None
    if workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers=0"
        )
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {methods}, but got "
                f"multiprocessing_context={context!r}"
            )
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, but got "
            f"multiprocessing_context={context}"
        )
    return context


class _SingleProcess:
    """Makes each batch when it is asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.timeout != 0:
            raise ValueError("timeout must be 0 without workers")
        self._indices = iter(loader._index_sampler)
        draw_seed(loader.generator)  # PyTorch draws a base seed here, before the sampler draws its own
        self._fetch = make_fetcher(
            loader.dataset, loader._iterable, loader._auto_collation, loader.collate_fn, loader.drop_last
        )
        self._loader = loader

    def __iter__(self) -> _SingleProcess:
        return self

    def __next__(self) -> Any:
        from flambeau.trace import step_boundary

        step_boundary()
        return self._fetch(next(self._indices))

    def __len__(self) -> int:
        return len(self._loader)
