"""Iteration of a DataLoader over worker processes.

Batch number n goes to the next worker in turn; each has `prefetch_factor` tasks ahead. Answers wait in `_ready` until their number is
due (or are given out as they come, with in_order=False). One pipe each way for every worker: a killed worker can hold no
lock that another needs, and its sentinel is among what the parent waits for.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import warnings
import weakref
from typing import Any

from flambeau.utils.data.dataloader import _BaseDataLoaderIter, as_loader, warn_of_length
from flambeau.utils.data.sampler import draw_seed
from flambeau.utils.data.transport import Inbox
from flambeau.utils.data.worker import BATCH, ENDED, FAILED, RESUMED, Job, run

_PATIENCE = 5.0  # seconds that a worker has to end by itself


class _Worker:
    """One process, and the parent's ends of its pipes."""

    def __init__(self, context: Any, job: Job) -> None:
        self.id = job.worker
        self.asked: dict[int, Any] = {}  # tasks without an answer: number and indices
        tasks_in, self.tasks = context.Pipe(duplex=False)
        self.results, results_out = context.Pipe(duplex=False)
        self.process = context.Process(target=run, args=(job, tasks_in, results_out), daemon=True)
        with warnings.catch_warnings():  # Python 3.12 warns of fork beside threads; see dataloader.py for why it is safe here
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        tasks_in.close()
        results_out.close()
        self.active = True  # still has batches to give
        self.waiting = 0  # tasks without an answer
        self.returned: list[str] = []  # segments that it may fill again

    def __getattr__(self, name: str) -> Any:
        """What processes have, as PyTorch's list of workers is one of processes: `pid`, `is_alive`, `join`, `terminate` and others."""
        if name == "process":
            raise AttributeError(name)
        return getattr(self.process, name)

    def receive(self) -> Any:
        """The next answer."""
        return self.results.recv()

    def ask(self, kind: str, number: int, index: Any) -> None:
        """Send one task."""
        returned, self.returned = self.returned, []
        self.waiting += 1
        self.asked[number] = index
        try:
            self.tasks.send((kind, number, index, returned))
        except (BrokenPipeError, ConnectionResetError, OSError):
            raise RuntimeError(_dead(self)) from None


_ADVICE = {
    "SIGKILL": "Somebody ended it; where nobody did, it was the system for want of memory: use fewer workers, a smaller prefetch_factor or "
    "batch, or keep many small objects in torch.utils.data.SerializedList, which workers share.",
    "SIGBUS": "Memory that a file stands for was not there: shared memory may be full (df /dev/shm), or a mapped file was cut.",
    "SIGSEGV": "Native code that the dataset calls crashed: python -X faulthandler, or num_workers=0, shows where.",
}


def _dead(worker: _Worker) -> str:
    """What is known of a worker that has ended."""
    process = worker.process
    process.join(1.0)
    code = process.exitcode
    name = ""
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        text = f"DataLoader worker (pid {process.pid}) is killed by signal: {name}."
    else:
        text = f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code {code}."
    text += f" It was worker {worker.id}"
    if worker.asked:
        number, index = next(iter(worker.asked.items()))
        shown = "" if index is None else f" (indices {index if not isinstance(index, list) or len(index) <= 8 else [*index[:8], '...']})"
        text += f", which was to make batch {number}{shown}".replace("'...'", "...")
    return f"{text}. {_ADVICE.get(name, '')}".rstrip()


class MultiProcess(_BaseDataLoaderIter):
    """The iterator."""

    def __init__(self, loader: Any) -> None:
        loader = as_loader(loader)
        self._index_sampler = loader._index_sampler  # not the loader, which holds this object with persistent_workers
        self._prefetch: int = loader.prefetch_factor
        self._timeout: float = loader.timeout
        self._in_order: bool = loader.in_order
        self._persistent: bool = loader.persistent_workers
        self._loader_told = weakref.ref(loader)
        self._position = position = loader._position.begin(loader)
        with position.random_state(loader):
            pipe_seed = loader._seed_pipes()
            self._indices = iter(self._index_sampler)
            base_seed = draw_seed(loader.generator)
            if pipe_seed is not None:
                draw_seed(loader.generator)  # PyTorch draws a second one here, and does not use it
            self._indices = position.skip(self._indices)
        super().__init__(loader)
        self._inbox = Inbox()
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._workers: list[_Worker] = []
        _end_pending_work()
        for i in range(loader.num_workers):
            job = Job(
                loader.dataset, loader._iterable, loader._auto_collation, loader.collate_fn, loader.drop_last, i,
                loader.num_workers, base_seed, loader.worker_init_fn, self._inbox.directory,
                position.workers.get(i) if loader._iterable else None, loader.batch_size,
                pipe_seed,
            )  # fmt: skip
            self._workers.append(_Worker(context, job))
        self._finalizer = weakref.finalize(self, _shut_down, self._workers, self._inbox, os.getpid())
        self._start()

    def _start(self) -> None:
        self._sent = 0  # number of the next task
        self._due = 0  # number of the next batch to give out
        self._owner: dict[int, _Worker] = {}
        self._ready: dict[int, tuple[str, str | None, Any]] = {}
        self._turn = self._position.turn
        self._exhausted = False
        for _ in range(self._prefetch * len(self._workers)):
            self._ask_next()

    def restart(self, loader: Any) -> None:
        """Begin a new pass with the same workers."""
        if not self._finalizer.alive:
            self.__init__(loader)  # type: ignore[misc]
            return
        while any(w.waiting for w in self._workers):  # answers of a pass that was left early
            for number, (kind, name, _) in self._receive().items():
                self._release(number, kind, name)
        for number, (kind, name, _) in list(self._ready.items()):
            self._release(number, kind, name)
        self._ready.clear()
        self._position = position = loader._position.begin(loader)
        with position.random_state(loader):
            pipe_seed = loader._seed_pipes()
            self._sampler_iter = self._indices = position.skip(iter(loader._index_sampler))
        self._num_yielded = 0
        for w in self._workers:
            w.active = True
            w.ask(RESUMED, -1, (position.workers.get(w.id) if loader._iterable else None, pipe_seed))
        while any(w.waiting for w in self._workers):
            for kind, _, data in self._receive().values():
                if kind == FAILED:
                    self.close()
                    data.reraise()
        self._start()

    def _release(self, number: int, kind: str, name: str | None) -> None:
        if kind == BATCH and name is not None and number in self._owner:
            self._owner[number].returned.append(name)

    def _ask_next(self) -> None:
        """Give the next index list to the next worker that still has batches."""
        if self._exhausted:
            return
        for _ in self._workers:
            worker = self._workers[self._turn]
            self._turn = (self._turn + 1) % len(self._workers)
            if worker.active:
                break
        else:
            return
        try:
            index = next(self._indices)
        except StopIteration:
            self._exhausted = True
            return
        self._owner[self._sent] = worker
        worker.ask(BATCH, self._sent, index)
        self._sent += 1

    def __iter__(self) -> MultiProcess:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __next__(self) -> Any:
        from flambeau.trace import step_boundary

        step_boundary()
        try:
            while True:
                number = self._next_number()
                if number is None:
                    self._position.end()
                    if not self._persistent:
                        self.close()
                    raise StopIteration
                kind, name, data = self._ready.pop(number)
                worker = self._owner.pop(number)
                self._due = max(self._due, number + 1) if not self._in_order else number + 1
                if kind == ENDED:
                    worker.active = False
                    self._ask_next()
                    continue
                if kind == FAILED:
                    self._ask_next()
                    data.reraise()
                packed, state = data
                batch = self._inbox.unpack(name, packed)
                if name is not None:
                    worker.returned.append(name)
                self._ask_next()
                self._position.given(worker.id, state)
                self._position.turn = self._owner[min(self._owner)].id if self._owner else (worker.id + 1) % len(self._workers)
                loader = self._loader_told()
                if loader is not None:
                    warn_of_length(loader, self._position)
                self._num_yielded += 1
                return batch
        except RuntimeError:
            if any(not w.process.is_alive() for w in self._workers):
                self.close()
            raise

    def _next_number(self) -> int | None:
        """The number of the batch to give out, once its answer is there; None at the end."""
        if not self._owner:
            return None
        if self._in_order:
            wanted = min(self._owner)
            while wanted not in self._ready:
                self._ready.update(self._receive())
            return wanted
        while not self._ready:
            self._ready.update(self._receive())
        return next(iter(self._ready))

    def _receive(self) -> dict[int, tuple[str, str | None, Any]]:
        """The answers that have come, at least one; RuntimeError if a worker has died or the timeout has passed."""
        sources: dict[Any, _Worker] = {}
        for w in self._workers:
            if w.waiting:
                sources[w.results] = w
                sources[w.process.sentinel] = w
        timeout = self._timeout or None
        end = None if timeout is None else time.monotonic() + timeout
        ready = multiprocessing.connection.wait(list(sources), None if end is None else max(0.0, end - time.monotonic()))
        if not ready:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        answers: dict[int, tuple[str, str | None, Any]] = {}
        for source in ready:
            worker = sources[source]
            if source is not worker.results:
                continue
            try:
                answer: Any = worker.receive()
            except (EOFError, ConnectionResetError, OSError):
                raise RuntimeError(_dead(worker)) from None
            worker.waiting -= 1
            kind, number, name, data = answer
            worker.asked.pop(number, None)
            answers[number] = (kind, name, data)
        if not answers:  # only sentinels: what a worker sent before it ended has been read
            raise RuntimeError(_dead(sources[ready[0]]))
        return answers

    def close(self) -> None:
        """End the workers and remove the shared memory."""
        self._finalizer()


def _shut_down(workers: list[_Worker], inbox: Inbox, owner: int) -> None:
    if os.getpid() != owner:  # a forked child inherits this object, but not the workers
        return
    for w in workers:
        with contextlib.suppress(OSError):  # it has ended already
            w.tasks.send(None)
        w.tasks.close()
        w.results.close()  # a worker that is sending gets an error and ends
    end = time.monotonic() + _PATIENCE
    for w in workers:
        w.process.join(max(0.0, end - time.monotonic()))
        if w.process.is_alive():
            w.process.terminate()
            w.process.join(1.0)
            if w.process.is_alive():
                w.process.kill()
                w.process.join()
    inbox.close()


def _end_pending_work() -> None:
    """Run what is recorded, so that a forked child inherits values and not a half-finished trace."""
    from flambeau.runtime import jit as jit  # it keeps other threads out of compiler and imports while a process forks
    from flambeau.trace import step_boundary

    step_boundary()
