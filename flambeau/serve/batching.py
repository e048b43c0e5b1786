"""Requests become batches: a bounded queue for each version of a model, batches by size and deadline, and the run itself.

The queue and all callbacks belong to the event loop's thread. A fast model is run there, too ("inline"): while it runs, the system collects what arrives on the
sockets, and the loop then reads all of it before the next run. So batches form without waiting, and no request pays for a change of threads. Any other model
runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final

from flambeau.serve.errors import Cancelled, DeadlineExceeded, QueueFull, ServeError, Unavailable
from flambeau.serve.programs import Arrays, Program

INLINE_SECONDS: Final = 0.003  # a model whose largest batch takes no longer is run in the loop's thread


class Job:
    """One request's tensors on their way. `done(job)` is called once, in the loop's thread, with `outputs` or `error` set, unless it was cancelled."""

    __slots__ = ("arrays", "arrived", "deadline", "done", "error", "finished", "key", "outputs", "rows", "started")

    def __init__(self, arrays: Arrays, rows: int, deadline: float, done: Callable[[Job], None]) -> None:
        self.arrays, self.rows, self.deadline, self.done = arrays, rows, deadline, done
        self.arrived = self.started = 0.0
        self.outputs: Arrays = []
        self.error: Exception | None = None
        self.finished = False
        self.key: Any = None

    def finish(self) -> None:
        """Hand the result over, once."""
        if not self.finished:
            self.finished = True
            self.done(self)

    def fail(self, error: Exception) -> None:
        """Hand an error over."""
        self.error = error
        self.finish()

    def cancel(self) -> None:
        """The client has left: no answer is computed if that has not begun, and none is handed over."""
        self.finished = True
        self.error = Cancelled("the client has left")


class Batcher:
    """The queue of one program. `observe(rows, seconds, waited)` is told of each run."""

    def __init__(
        self, program: Program, loop: asyncio.AbstractEventLoop, *, most: int = 32, delay: float = 0.0, room: int = 1024, inline: bool = False,
        batched: bool = True, observe: Callable[[int, float, float], None] | None = None, name: str = "model",
    ) -> None:  # fmt: skip
        self.program, self.loop = program, loop
        self.most, self.delay, self.room, self.inline = most, delay, room, inline
        self.batched = batched and program.batched
        self.observe = observe or (lambda rows, seconds, waited: None)
        self.queue: deque[Job] = deque()
        self.rows = 0
        self.flight: list[Job] = []
        self.scheduled: Any = None
        self.sweep_at = float("inf")
        self.sweeper: Any = None
        self.closed: Callable[[], None] | None = None
        self._work: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if not inline:
            self._thread = threading.Thread(target=self._serve, name=f"flambeau-{name}", daemon=True)
            self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job. QueueFull if too many wait, Unavailable if the version is going."""
        if self.closed is not None:
            raise Unavailable("this version of the model is being unloaded")
        if len(self.queue) >= self.room:
            raise QueueFull(f"the model's queue is full: {self.room} requests wait")
        job.arrived = monotonic()
        if self.batched and job.arrays:
            job.key = [a.shape[1:] for a in job.arrays]
        self.queue.append(job)
        self.rows += job.rows
        if job.deadline < self.sweep_at:
            self._sweep_at(job.deadline)
        if self.scheduled is None and not self.flight:
            self._schedule()
        elif self.delay and self.scheduled is not None and self.rows >= self.most:
            self.scheduled.cancel()
            self.scheduled = self.loop.call_soon(self._run)

    def _schedule(self) -> None:
        if not self.delay or self.rows >= self.most:
            self.scheduled = self.loop.call_soon(self._run)
        else:
            self.scheduled = self.loop.call_later(max(self.delay - (monotonic() - self.queue[0].arrived), 0.0), self._run)

    def _take(self) -> list[Job]:
        """The next batch: from the oldest job on, those of the same shapes, in order, as far as there is room."""
        queue, rows = self.queue, 0
        batch: list[Job] = []
        others: list[Job] = []
        while queue:
            job = queue.popleft()
            if job.finished:
                self.rows -= job.rows
                continue
            if not batch:
                batch.append(job)
                rows = job.rows
                if not self.batched:
                    break
            elif rows + job.rows > self.most:
                queue.appendleft(job)
                break
            elif job.key == batch[0].key:
                batch.append(job)
                rows += job.rows
            else:
                others.append(job)
        queue.extendleft(reversed(others))
        self.rows -= rows
        return batch

    def _run(self) -> None:
        self.scheduled = None
        batch = self._take()
        if not batch:
            self._after()
            return
        now = monotonic()
        for job in batch:
            job.started = now
        if self.inline:
            results = self._compute(batch)
            self._finish(batch, results, monotonic() - now)
        else:
            self.flight = batch
            self._work.put(batch)

    def _compute(self, batch: list[Job]) -> list[Arrays | Exception]:
        try:
            return list(self.program.run_many([job.arrays for job in batch]))
        except Exception as error:
            if len(batch) == 1:
                return [error]
        found: list[Arrays | Exception] = []
        for job in batch:  # one request's values must not fail another's
            try:
                found.extend(self.program.run_many([job.arrays]))
            except Exception as error:
                found.append(error)
        return found

    def _serve(self) -> None:
        """The model's own thread."""
        while (batch := self._work.get()) is not None:
            begun = monotonic()
            results = self._compute(batch)
            try:
                self.loop.call_soon_threadsafe(self._finish, batch, results, monotonic() - begun)
            except RuntimeError:  # the loop has ended
                return
            del batch, results

    def _finish(self, batch: list[Job], results: list[Arrays | Exception], seconds: float) -> None:
        self.flight = []
        self.observe(sum([job.rows for job in batch]), seconds, batch[0].started - batch[0].arrived)
        for job, result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                job.fail(result if isinstance(result, ServeError) else _explained(result))
            else:
                job.outputs = result
                job.finish()
        self._after()

    def _after(self) -> None:
        if self.queue:
            if self.scheduled is None:
                self._schedule()
        elif self.closed is not None and not self.flight:
            closed, self.closed = self.closed, _nothing
            if self._thread is not None:
                self._work.put(None)
            if self.sweeper is not None:
                self.sweeper.cancel()
            closed()

    def _sweep_at(self, when: float) -> None:
        if self.sweeper is not None:
            self.sweeper.cancel()
        self.sweep_at = when
        self.sweeper = self.loop.call_later(max(when - monotonic(), 0.0), self._sweep)

    def _sweep(self) -> None:
        """Answer those that have waited too long. What runs goes on, but its answer comes too late."""
        self.sweeper, self.sweep_at = None, float("inf")
        now, soonest = monotonic(), float("inf")
        for job in (*self.queue, *self.flight):
            if job.finished:
                continue
            if job.deadline <= now:
                job.fail(DeadlineExceeded(f"the deadline passed {'while the model ran' if job.started else 'in the queue'}, {now - job.arrived:.3f} s "
                                          "after the request had come"))  # fmt: skip
            else:
                soonest = min(soonest, job.deadline)
        if soonest < float("inf"):
            self._sweep_at(max(soonest, now + 0.001))

    def close(self, closed: Callable[[], None] | None = None) -> None:
        """Take nothing new; call `closed` when all that was taken has been answered."""
        if self.closed is None:
            self.closed = closed or _nothing
            self.loop.call_soon(self._after)

    @property
    def outstanding(self) -> int:
        """Jobs that wait or run."""
        return len(self.queue) + len(self.flight)


def _nothing() -> None:
    """When nobody waits for the end."""


def _explained(error: Exception) -> ServeError:
    """What a model raised, as an answer: wrong values and shapes are the client's, the rest is ours."""
    text = f"the model failed: {type(error).__name__}: {error}"
    return ServeError(text, 400 if isinstance(error, (IndexError, ValueError)) else 500)
