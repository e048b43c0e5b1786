"""Samplers: in which order indices are visited. Random ones draw from the generators exactly as PyTorch does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import flambeau as torch
from flambeau.upward import upward

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Base class: override `__iter__`, and `__len__` where it is known."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class ResumableSampler(Sampler[T_co]):
    """A sampler whose position can be saved (`state_dict`) and restored (`load_state_dict`): the next pass goes on from there.

    A subclass gives a pass in `_draw(generator)`. The position is that of the pass begun last: the state of its generator at the
    start, and how many items it has given.
    """

    generator: Any = None
    _seeds_anew = False  # without a generator of its own a pass draws a seed from the default one
    _start: dict[str, Any] | None = None  # of the pass under way
    _yielded = 0
    _resume: dict[str, Any] | None = None

    def _draw(self, generator: Any) -> Iterator[T_co]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[T_co]:
        resume, self._resume = self._resume, None
        generator = self._generator(resume)
        items = self._draw(generator)
        self._yielded = 0 if resume is None else sum(1 for _ in itertools.islice(items, int(resume["yielded"])))
        for item in items:
            self._yielded += 1
            yield item
        self._start, self._yielded = None, 0

    def _generator(self, resume: dict[str, Any] | None) -> Any:
        """What a pass draws from; its start is noted."""
        if resume is not None and resume["yielded"] == 0:
            resume = None if self.generator is None else resume
        if self.generator is None and self._seeds_anew:
            seed = draw_seed() if resume is None else resume["seed"]
            self._start = {"seed": seed}
            return torch.Generator().manual_seed(seed)
        generator = torch.default_generator if self.generator is None else self.generator
        if resume is not None and resume.get("generator") is not None:
            if self.generator is None:
                generator = torch.Generator()  # the default one goes on as it is
            generator.set_state(resume["generator"])
        self._start = {"generator": generator.state.get_state()}
        return generator

    def _at_start(self, shared: Any = None) -> dict[str, Any]:
        """The position of a pass that would begin now; somebody else takes care of the generator `shared`."""
        own = self.generator
        return {"yielded": 0} if own is None or own is shared else {"yielded": 0, "generator": own.get_state()}

    def state_dict(self) -> dict[str, Any]:
        """{"yielded": how many items of this pass have been given, "seed" or "generator": from which it started}."""
        if self._resume is not None:
            return dict(self._resume)
        if self._start is None:
            return self._at_start()
        state = {"yielded": self._yielded, **self._start}
        if "generator" in state:
            state["generator"] = state_tensor(state["generator"])
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass go on where `state_dict` was taken."""
        self._resume = dict(state_dict)


class SequentialSampler(ResumableSampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def _draw(self, generator: Any) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def _generator(self, resume: dict[str, Any] | None) -> Any:
        self._start = {}

    def __len__(self) -> int:
        return len(self.data_source)


def draw_seed(generator: Any = None) -> int:
    """A 63-bit seed from a generator (the default one if None)."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def state_tensor(state: bytes) -> Any:
    """A generator's state as `get_state` gives it."""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def position_at_start(sampler: Any, shared: Any) -> Any:
    """The position of a sampler's pass that would begin now, without the state of the generator `shared`; None where it has none."""
    if not keeps_position(sampler):
        return None
    if hasattr(sampler, "_at_start"):
        return sampler._at_start(shared)
    return sampler.state_dict()


def keeps_position(sampler: Any) -> bool:
    """Whether a sampler's `state_dict` says where its pass is. A subclass of ours with an `__iter__` of its own does not count its items for us, and
    may have none of our attributes: unless it has a `state_dict` of its own, its position is how many it has given."""
    cls = type(sampler)
    for base in (ResumableSampler, BatchSampler):
        if isinstance(sampler, base) and cls.__iter__ is not base.__iter__:
            return cls.state_dict is not base.state_dict  # type: ignore[attr-defined]
    return hasattr(sampler, "state_dict")


class RandomSampler(ResumableSampler[int]):
    """A random permutation, or `num_samples` draws with replacement."""

    _seeds_anew = True

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many indices one pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _draw(self, generator: Any) -> Iterator[int]:
        n = len(self.data_source)
        if self.replacement:
            for size in itertools.chain(itertools.repeat(32, self.num_samples // 32), (self.num_samples % 32,)):  # num_samples may be 10**10
                yield from torch.randint(high=n, size=(size,), dtype=torch.int64, generator=generator).tolist()
            return
        for _ in range(self.num_samples // n):
            yield from torch.randperm(n, generator=generator).tolist()
        yield from torch.randperm(n, generator=generator).tolist()[: self.num_samples % n]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(ResumableSampler[int]):
    """A random permutation of given indices."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def _draw(self, generator: Any) -> Iterator[int]:
        for i in torch.randperm(len(self.indices), generator=generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(ResumableSampler[int]):
    """Indices with probabilities in proportion to weights."""

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        tensor = torch.as_tensor(weights, dtype=torch.float64)
        if tensor.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(tensor.shape)}")
        self.weights = tensor
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def _draw(self, generator: Any) -> Iterator[int]:
        yield from torch.multinomial(self.weights, self.num_samples, self.replacement, generator=generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; a shorter last one is left out with drop_last."""

    _yielded = 0
    _skip = 0

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler: Any = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        skip, self._skip = self._skip, 0
        self._yielded = sum(1 for _ in itertools.islice(self._batches(indices), skip))
        for batch in self._batches(indices):
            self._yielded += 1
            yield batch
        self._yielded = 0

    def _batches(self, indices: Iterator[int]) -> Iterator[list[int]]:
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def _at_start(self, shared: Any = None) -> dict[str, Any]:
        inner = position_at_start(self.sampler, shared)
        return {"yielded": 0} if inner is None else {"yielded": 0, "sampler": inner}

    def state_dict(self) -> dict[str, Any]:
        """{"yielded": batches of this pass that have been given, "sampler": the sampler's state, if it has one}."""
        state: dict[str, Any] = {"yielded": self._skip or self._yielded}
        if keeps_position(self.sampler):
            state["sampler"] = self.sampler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass go on where `state_dict` was taken; batches of a sampler without a state are drawn again and skipped."""
        if "sampler" in state_dict and keeps_position(self.sampler):
            self.sampler.load_state_dict(state_dict["sampler"])
        else:
            self._skip = int(state_dict["yielded"])

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@upward
def rank_and_size() -> tuple[int, int]:
    """Of this process and of how many; (0, 1) without a process group (distributed/group.py)."""
    raise NotImplementedError


class DistributedSampler(ResumableSampler[int]):
    """The share of one of several processes, by default of this rank among all; `set_epoch` changes the shuffle."""

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
        drop_last: bool = False,
    ) -> None:  # fmt: skip
        if num_replicas is None or rank is None:
            own, number = rank_and_size()
            num_replicas = number if num_replicas is None else num_replicas
            rank = own if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        count = len(dataset)
        if drop_last and count % num_replicas:
            count -= num_replicas - 1
        self.num_samples = math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def _generator(self, resume: dict[str, Any] | None) -> Any:
        self._start = {}
        if resume is not None:
            self.epoch = int(resume["epoch"])

    def _at_start(self, shared: Any = None) -> dict[str, Any]:
        return {"yielded": 0, "epoch": self.epoch}

    def state_dict(self) -> dict[str, Any]:
        """{"yielded": how many indices of this pass have been given, "epoch": its epoch}."""
        return dict(self._resume) if self._resume is not None else {"yielded": self._yielded, "epoch": self.epoch}

    def _draw(self, generator: Any) -> Iterator[int]:
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = torch.randperm(len(self.dataset), generator=generator).tolist()
        else:
            indices = list(range(len(self.dataset)))
        if self.drop_last:
            indices = indices[: self.total_size]
        else:  # repeat from the start, so that all processes have as many
            indices = list(itertools.islice(itertools.cycle(indices), self.total_size))
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next: part of the seed."""
        self.epoch = epoch
