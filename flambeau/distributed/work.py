"""Collectives that go on beside the program: Work objects, and the thread that does them in their order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau.distributed import flight
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.store import seconds


class Work:
    """A collective that has been started. `result()` are its tensors."""

    def __init__(self, results: Any = None, run: Callable[[], None] | None = None, name: str = "") -> None:
        self._results = results
        self._run = run
        self._name = name
        self._error: BaseException | None = None
        self._source = -1
        self._future: Any = None
        self._lock = threading.Lock()
        self._finished = threading.Event()
        if run is None:
            self._finished.set()

    def _execute(self) -> None:
        """Do it, in the thread of its group."""
        assert self._run is not None
        try:
            self._run()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._run = None
            self._finished.set()
            future = self._future
        if future is not None:
            self._tell(future)

    def _tell(self, future: Any) -> None:
        if self._error is None:
            future.set_result(self._results)
        else:
            future.set_exception(self._error)

    _lane: Lane | None = None  # what does it

    def wait(self, timeout: Any = None) -> bool:
        """Wait until it is done; True. Raises what it failed with, DistBackendError when the time is over."""
        if self._lane is not None:
            self._lane.go_on(self._finished.is_set)
        if not self._finished.wait(None if timeout is None or seconds(timeout) <= 0 else seconds(timeout)):
            raise DistBackendError(f"Timed out waiting {round(seconds(timeout) * 1000)}ms for {self._name}")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """The same as wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done, or has failed."""
        return self._finished.is_set()

    def is_success(self) -> bool:
        """Whether it is done and has not failed."""
        return self._finished.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """What it failed with."""
        return self._error

    def source_rank(self) -> int:
        """Of a message that was received: its sender."""
        return self._source

    def _source_rank(self) -> int:
        return self._source

    def result(self) -> Any:
        """The tensors, once they are there."""
        self.wait()
        return self._results

    def get_future(self) -> Any:
        """A torch.futures.Future of the tensors."""
        from flambeau.futures import Future

        with self._lock:
            if self._future is None:
                self._future = Future()
                self._future._waiting = None if self._lane is None else self._lane.go_on
                if not self._finished.is_set():
                    return self._future
                done = self._future
            else:
                return self._future
        self._tell(done)
        return done


class Lane:
    """What is done in order: at once where nothing waits, else by a thread."""

    def __init__(self, name: str, group: str = "") -> None:
        self.name, self.group = name, group
        self.lock = threading.RLock()  # held by who does something
        self.changed = threading.Condition()
        self.works: deque[Work] = deque()
        self.pending = 0
        self.thread: threading.Thread | None = None

    def now(self, run: Callable[[], None]) -> None:
        """Do this, after all that was started before."""
        if not self.pending:
            with self.lock:
                if flight.RECORDER is None:
                    run()
                else:
                    flight.RECORDER.ends(self.group, run)
        else:
            self.later(Work(None, run)).wait()

    def later(self, work: Work) -> Work:
        """Do this beside the program."""
        work._lane = self
        with self.changed:
            self.works.append(work)
            self.pending += 1
            if self.thread is None:
                self.thread = threading.Thread(target=self._live, name=self.name, daemon=True)
                self.thread.start()
            self.changed.notify()
        return work

    def _live(self) -> None:
        while True:
            with self.changed:
                while not self.works:
                    self.changed.wait()
                work = self.works.popleft()
            self._do(work)

    def _do(self, work: Work) -> None:
        if flight.RECORDER is not None and work._run is not None:
            work._run = partial(flight.RECORDER.ends, self.group, work._run)
        with self.lock:
            work._execute()
        with self.changed:
            self.pending -= 1

    def go_on(self, enough: Callable[[], bool]) -> None:
        """Somebody waits. If it is a callback in this lane's own thread, do what comes next until it is enough."""
        while self.thread is threading.current_thread() and not enough():
            with self.changed:
                if not self.works:
                    return
                work = self.works.popleft()
            self._do(work)
