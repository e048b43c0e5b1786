"""torch.futures: results that come later. In one process they are there at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A result that is set once, by `set_result` or `set_exception`, and waited for by any thread."""

    def __init__(self, *, devices: list[Any] | None = None) -> None:
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], None]] = []
        self._waiting: Callable[[Callable[[], bool]], None] | None = None  # what a thread may have to do itself that waits

    def done(self) -> bool:
        """Whether the result is there."""
        return self._ready.is_set()

    def wait(self) -> T:
        """The result, or its exception, once it is there."""
        if self._waiting is not None:
            self._waiting(self._ready.is_set)
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[no-any-return]

    def value(self) -> T:
        """The result of a future that is done; RuntimeError otherwise."""
        if not self.done():
            raise RuntimeError("Future.value(): the result is not there yet; wait() for it")
        return self.wait()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of `callback(self)`, called when this one is done."""
        made: Future[S] = Future()
        made._waiting = self._waiting
        asked = threading.get_ident()

        def run(done: Future[T]) -> None:
            try:
                result = callback(done)
                if threading.get_ident() != asked:  # what the callback has left pending belongs to this thread's trace
                    from flambeau.trace.evaluate import synchronize

                    synchronize("callback of a future")
                made.set_result(result)
            except Exception as error:
                made.set_exception(error)

        self.add_done_callback(run)
        return made

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call `callback(self)` when this future is done."""
        with self._lock:
            if not self._ready.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def _finish(self) -> None:
        with self._lock:
            if self._ready.is_set():
                raise RuntimeError("Future: attempting to mark a completed Future as complete again")
            self._ready.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def set_result(self, result: T) -> None:
        """Give the result; RuntimeError if there is one."""
        if not self._ready.is_set():
            self._result = result
        self._finish()

    def set_exception(self, result: BaseException) -> None:
        """Give an exception that `wait` shall raise."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        if not self._ready.is_set():
            self._error = result
        self._finish()


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list of futures, done when all are."""
    made: Future[list[Future[Any]]] = Future()
    left = [len(futures)]
    lock = threading.Lock()

    def one(_: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            made.set_result(futures)

    for future in futures:
        future.add_done_callback(one)
    if not futures:
        made.set_result(futures)
    return made


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all futures."""
    return [future.wait() for future in futures]


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.futures", globals())
