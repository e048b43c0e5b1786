"""DataLoader: batches of a dataset, made in this process or by worker processes.

Workers are started by Python's own default method (fork on Linux before Python 3.14, as in PyTorch): scripts without a main guard,
and datasets that cannot be pickled, work unchanged, and nothing is imported again. Fork is safe beside our threads: it happens between
native calls, with nothing pending; the team's threads hold no Python lock; the child drops the team, starts with fresh locks
(register_at_fork in runtime/) and runs on one thread. Threads of the user's own, or of libraries, may hold locks at that moment:
`multiprocessing_context="spawn"` or "forkserver" starts workers from a fresh interpreter, at the price of some 0.5 s for each.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar, cast

import flambeau as torch
from flambeau.trace.once import warn_here
from flambeau.utils.data.collate import default_collate, default_convert
from flambeau.utils.data.dataset import Dataset, IterableDataset
from flambeau.utils.data.fetch import make_fetcher
from flambeau.utils.data.position import Position
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed
from flambeau.utils.data.worker import get_worker_info as get_worker_info

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_worker_init_fn_t = Callable[[int], None]  # PyTorch's names, which packages write in annotations
_collate_fn_t = Callable[[list[T]], Any]
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _DatasetKind:
    """Whether samples come by index or by iteration."""

    Map = 0
    Iterable = 1


class _InfiniteConstantSampler(Sampler[None]):
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
        self._pipes = hasattr(dataset, "register_datapipe_as_function") and self._iterable
        if self._pipes:
            from flambeau.utils.data.datapipes.datapipe import apply_shuffle_settings

            dataset = apply_shuffle_settings(dataset, shuffle)
            shuffle = None
        if self._iterable:
            for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._iterable:
                sampler = cast(Any, _InfiniteConstantSampler())
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
        self._position = Position()
        self._length_told: int | None = None
        self._initialized = True
        self.check_worker_number_rationality()

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

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._iterable else _DatasetKind.Map

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return SingleProcess(self)
        from flambeau.utils.data.multiprocess import MultiProcess

        self.check_worker_number_rationality()
        return MultiProcess(self)

    def __iter__(self) -> Iterator[Any]:
        if not self.persistent_workers or self.num_workers == 0:
            return self._get_iterator()  # type: ignore[no-any-return]
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator.restart(self)
        return self._iterator  # type: ignore[no-any-return]

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        length = self._length_told = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def _seed_pipes(self) -> int | None:
        """Draw a seed for all random data pipes, if the dataset is made of such."""
        if not self._pipes:
            return None
        from flambeau.utils.data.datapipes.datapipe import apply_random_seed

        seed = draw_seed(self.generator)
        apply_random_seed(self.dataset, torch.Generator().manual_seed(seed))
        return seed

    def check_worker_number_rationality(self) -> None:
        """Warn if there are more workers than usable processors."""
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if self.num_workers > usable:
            warn_here(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of worker in current "
                f"system is {usable}, which is smaller than what this DataLoader is going to create. Please be aware that excessive worker "
                "creation might get DataLoader running slow or even freeze, lower the worker number to avoid potential slowness/freeze if "
                "necessary.",
            )

    # -- position -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Where the pass begun last stands: after which batch, and from which random state it started. For save and pickle.

        Load it into a loader that was made in the same way, and its next pass goes on with the next batch: the same shuffle, each worker
        with the same batches as before. An iterable dataset (or its iterator) with `state_dict` and `load_state_dict` is asked for its
        own position; of another one, the samples that have been given are drawn again and thrown away. Not kept: what random state the
        dataset's own transformations have reached (workers start theirs anew), and the default generator (save torch.get_rng_state()).
        """
        return self._position.state_dict(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass go on where `state_dict` was taken."""
        self._position = Position(dict(state_dict))


def _context(context: Any, workers: int) -> Any:
    """A multiprocessing context from its name, a context, or None (Python's default)."""
    if context is None:
        return None
    if workers == 0:
        raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers=0")
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(f"multiprocessing_context option should specify a valid start method in {methods}, but got multiprocessing_context={context!r}")
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, but got "
            f"multiprocessing_context={context}"
        )
    return context


class _LoaderLike:
    """What is no DataLoader and has the attributes that PyTorch's iterators read of one (fastai's loader makes such): it has all else that ours read."""

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "batch_size": None, "_length_told": None, "num_workers": 0, "prefetch_factor": 2, "persistent_workers": False, "in_order": True,
        "worker_init_fn": None, "multiprocessing_context": None, "generator": None,
    }  # fmt: skip

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._position = Position()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name, self._DEFAULTS[name]) if name in self._DEFAULTS else getattr(self._loader, name)

    @property
    def _iterable(self) -> bool:
        return bool(self._loader._dataset_kind == _DatasetKind.Iterable)

    def _seed_pipes(self) -> None:
        """It has no data pipes."""


def as_loader(loader: Any) -> Any:
    """A DataLoader as it is, anything else as one."""
    return loader if isinstance(loader, DataLoader) else _LoaderLike(loader)


class _BaseDataLoaderIter:
    """The base of iterators over a loader: `_sampler_iter` gives the batches' places, `_num_yielded` counts the batches that were given out.

    Packages put a function of their own before `__init__`, to skip places: it is called when the places are known and no batch has been asked for.
    """

    def __init__(self, loader: Any) -> None:
        self._num_yielded = 0
        self._sampler_iter: Any = self._indices

    _indices: Any


class SingleProcess(_BaseDataLoaderIter):
    """Makes each batch when it is asked for."""

    def __init__(self, loader: Any) -> None:
        loader = as_loader(loader)
        if loader.timeout != 0:
            raise ValueError("timeout must be 0 without workers")
        self._position = position = loader._position.begin(loader)
        with position.random_state(loader):
            loader._seed_pipes()
            self._indices = iter(loader._index_sampler)
            draw_seed(loader.generator)  # PyTorch draws a base seed here, before the sampler draws its own
            self._indices = position.skip(self._indices)
        self._fetch = position.fetch = make_fetcher(
            loader.dataset, loader._iterable, loader._auto_collation, loader.collate_fn, loader.drop_last, position.workers.get(0),
            loader.batch_size,
        )  # fmt: skip
        self._loader = loader
        super().__init__(loader)

    def __iter__(self) -> SingleProcess:
        return self

    def __next__(self) -> Any:
        from flambeau.trace import step_boundary

        step_boundary()
        try:
            batch = self._fetch(next(self._indices))
        except StopIteration:
            self._position.end()
            raise
        self._position.given(0, None)
        warn_of_length(self._loader, self._position)
        self._num_yielded += 1
        return batch

    def __len__(self) -> int:
        return len(self._loader)


def warn_of_length(loader: DataLoader[Any], position: Position) -> None:
    """Warn when an iterable dataset gives more than it said."""
    if loader._iterable and loader._length_told is not None and position.yielded > loader._length_told:
        warn_here(
            f"Length of IterableDataset {loader.dataset} was reported to be {loader._length_told}(when accessing len(dataloader)), but "
            f"{position.yielded} samples have been fetched. "
            + ("For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at each "
               "worker." if loader.num_workers else ""),
        )  # fmt: skip


_SingleProcessDataLoaderIter = SingleProcess


def __getattr__(name: str) -> Any:
    if name == "_MultiProcessingDataLoaderIter":
        from flambeau.utils.data.multiprocess import MultiProcess

        return MultiProcess
    from flambeau.names import otherwise

    return otherwise("torch.utils.data.dataloader", name, globals())
