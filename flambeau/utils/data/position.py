"""Where a pass over a loader stands, so that it can be saved and taken up again.

A pass is determined by the state of the generator when it begins (from which the shuffle and the workers' seeds are drawn), by the
sampler's own state at that time, and by how many batches have been given. For iterable datasets each worker has a count of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau.utils.data.sampler import position_at_start, state_tensor

if TYPE_CHECKING:
    from flambeau.utils.data.dataloader import DataLoader


class Position:
    """A pass: not begun (`under_way` False; `resume` says where it is to begin), or under way."""

    def __init__(self, resume: dict[str, Any] | None = None) -> None:
        self.resume = resume
        self.under_way = False
        self.resumed = False
        self.yielded = 0  # batches
        self.start: Any = None  # of the generator, as bytes
        self.sampler: Any = None  # its state at the start
        self.workers: dict[int, dict[str, Any]] = {}  # {"yielded": batches, "state": of the dataset}
        self.turn = 0  # the worker whose batch comes next
        self.fetch: Any = None  # what makes the batches, if that is in this process

    def begin(self, loader: DataLoader[Any]) -> Position:
        """The position of the pass that begins now."""
        made = loader._position = Position()
        made.under_way = True
        resume = self.resume
        made.resumed = resume is not None and bool(resume["under_way"])
        if resume is not None and made.resumed:
            made.yielded = int(resume["yielded"])
            made.start = resume["generator"].numpy().tobytes()
            made.sampler = resume["sampler"]
            made.workers = {int(worker): dict(state) for worker, state in resume["workers"].items()}
            made.turn = int(resume["turn"])
            if made.sampler is not None:
                loader._index_sampler.load_state_dict(made.sampler)
        else:
            if resume is not None and loader.generator is not None and resume["generator"] is not None:
                loader.generator.set_state(resume["generator"])
            made.start = (loader.generator or torch.default_generator).state.get_state()
            made.sampler = position_at_start(loader._index_sampler, loader.generator)
        return made

    @contextmanager
    def random_state(self, loader: DataLoader[Any]) -> Iterator[None]:
        """The generator as it was when the pass began. The default generator goes on afterwards from where it is now."""
        if not self.resumed:
            yield
            return
        generator = loader.generator or torch.default_generator
        now = generator.state.get_state()
        generator.state.set_state(self.start)
        try:
            yield
        finally:
            if loader.generator is None:
                generator.state.set_state(now)

    def skip(self, indices: Iterator[Any]) -> Iterator[Any]:
        """The index lists that are left; at least one is drawn, so that the sampler has drawn its seed."""
        if not self.resumed:
            return indices
        last = list(itertools.islice(indices, self.yielded + 1))[self.yielded :]
        return itertools.chain(last, indices)

    def given(self, worker: int, state: Any) -> None:
        """One batch more has been given out, made by this worker; `state`: the dataset's position after it, or None."""
        self.yielded += 1
        entry = self.workers.get(worker)
        if entry is None:
            entry = self.workers[worker] = {"yielded": 0, "state": None}
        entry["yielded"] += 1
        entry["state"] = state

    def end(self) -> None:
        """The pass is over."""
        self.under_way = False

    def state_dict(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """What `begin` takes as `resume`: tensors, numbers, strings and dicts."""
        if self.resume is not None:
            return dict(self.resume)
        if not self.under_way:
            now = None if loader.generator is None else loader.generator.get_state()
            return {"under_way": False, "yielded": 0, "generator": now, "sampler": None, "workers": {}, "turn": 0}
        workers = {worker: dict(entry) for worker, entry in self.workers.items()} if loader._iterable else {}
        if self.fetch is not None and workers:
            workers[0]["state"] = self.fetch.state()
        return {
            "under_way": True, "yielded": self.yielded, "generator": state_tensor(self.start), "sampler": self.sampler, "workers": workers,
            "turn": self.turn,
        }  # fmt: skip
