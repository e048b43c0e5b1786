"""The worker process of a DataLoader: takes index lists from a pipe, sends batches, exceptions or the end of its stream."""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import threading
import traceback
from multiprocessing import connection
from typing import Any, Final

import flambeau as torch
from flambeau.utils.data.collate import Collate
from flambeau.utils.data.fetch import make_fetcher
from flambeau.utils.data.transport import Outbox

BATCH, ENDED, FAILED, RESUMED = "batch", "ended", "failed", "resumed"
_LOOKS_FOR_PARENT: Final = 5.0  # seconds between two looks whether the parent is still there


class WorkerInfo:
    """What get_worker_info returns inside a worker: id, num_workers, seed, dataset."""

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self.id = id
        self.num_workers = num_workers
        self.seed = seed
        self.dataset = dataset

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed}, dataset={self.dataset!r})"


_info: WorkerInfo | None = None  # of this process, if it is a worker


def get_worker_info() -> WorkerInfo | None:
    """The worker that this process is; None in the main process."""
    return _info


class Failure:
    """An exception of a worker on its way to the parent: its class and its traceback as text."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.kind = type(error)
        self.text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.where = where

    def reraise(self) -> None:
        """Raise it here, with the worker's traceback in the message."""
        message = f"Caught {self.kind.__name__} {self.where}.\nOriginal {self.text}"
        if self.kind is KeyError:
            raise KeyError(_Message(message))
        try:
            error = self.kind(message)
        except Exception:  # a class that cannot be made from one text
            raise RuntimeError(message) from None
        raise error


class _Message(str):
    """KeyError shows repr of its argument: this one's is the text itself."""

    def __repr__(self) -> str:
        return str(self)


class Job:
    """All that a worker has to know."""

    def __init__(
        self, dataset: Any, iterable: bool, collates: bool, collate: Collate, drop_last: bool, worker: int, count: int,
        base_seed: int, init: Any, directory: str, position: Any = None, batch_size: int | None = None,
        pipe_seed: int | None = None,
    ) -> None:  # fmt: skip
        self.dataset = dataset
        self.iterable = iterable
        self.collates = collates
        self.collate = collate
        self.drop_last = drop_last
        self.worker = worker
        self.count = count
        self.base_seed = base_seed
        self.init = init
        self.directory = directory
        self.position = position  # {"yielded", "state"} of an iterable dataset that is to go on there
        self.batch_size = batch_size
        self.pipe_seed = pipe_seed  # of random data pipes; None for other datasets


def run(job: Job, tasks: Any, results: Any) -> None:
    """The process's main function."""
    global _info
    seed = job.base_seed + job.worker
    torch.set_num_threads(1)
    random.seed(seed)
    torch.manual_seed(seed)
    _seed_numpy(job.base_seed, job.worker)
    _info = WorkerInfo(job.worker, job.count, seed, job.dataset)
    outbox = Outbox(job.directory, job.worker)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_drain, args=(tasks, inbox), daemon=True).start()
    failure: Failure | None = None
    fetch: Any = None
    where = f"in DataLoader worker process {job.worker}"

    def start(position: Any, pipe_seed: int | None) -> None:
        nonlocal fetch
        if pipe_seed is not None:
            from flambeau.utils.data.datapipes.datapipe import apply_random_seed

            apply_random_seed(job.dataset, torch.Generator().manual_seed(pipe_seed))
        fetch = make_fetcher(job.dataset, job.iterable, job.collates, job.collate, job.drop_last, position, job.batch_size)

    try:
        if job.pipe_seed is not None:
            from flambeau.utils.data.datapipes.datapipe import apply_sharding

            apply_sharding(job.dataset, job.count, job.worker)
        if job.init is not None:
            job.init(job.worker)
        start(job.position, job.pipe_seed)
    except Exception as error:
        failure = Failure(error, where)
    while (task := inbox.get()) is not None:
        kind, number, index, returned = task
        outbox.take_back(returned)
        try:
            if failure is not None:
                _send(results, (FAILED, number, None, failure))
                failure = None
            elif kind == RESUMED:
                start(*index)
                _send(results, (RESUMED, number, None, None))
            else:
                name, packed = outbox.pack(fetch(index))
                _send(results, (BATCH, number, name, (packed, fetch.state())))
        except StopIteration as error:
            answer = (ENDED, number, None, None) if job.iterable else (FAILED, number, None, Failure(error, where))
            _send(results, answer)
        except Exception as error:
            _send(results, (FAILED, number, None, Failure(error, where)))


def _send(results: Any, message: Any) -> None:
    try:
        results.send(message)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent is gone


def _drain(tasks: Any, inbox: queue.SimpleQueue[Any]) -> None:
    """Empty the pipe of tasks at once, so that the parent never waits for a worker that waits for the parent. End with the parent.

    A forked worker has copies of its parent's ends of the pipes, so it sees no end of them when the parent is killed. The parent's sentinel tells it,
    and the number of the parent's process where a sibling or a child of the user's holds the sentinel open.
    """
    parent = multiprocessing.parent_process()
    sentinel = [] if parent is None else [parent.sentinel]
    started_by = os.getppid()
    try:
        while True:
            ready = connection.wait([tasks, *sentinel], timeout=_LOOKS_FOR_PARENT)
            if tasks in ready:
                inbox.put(task := tasks.recv())
                if task is None:
                    return
            elif ready or os.getppid() != started_by:
                os._exit(0)
    except (EOFError, OSError):
        os._exit(0)


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """PyTorch's seeds of NumPy in workers: the words of a SeedSequence of (worker, low half, high half, 0)."""
    import numpy

    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in numpy.random.SeedSequence(entropy).generate_state(4)]


def _seed_numpy(base_seed: int, worker: int) -> None:
    import numpy

    numpy.random.seed(_generate_state(base_seed, worker))
