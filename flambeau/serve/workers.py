"""Several processes on one machine: they listen on one address and map the same weights; a worker that dies is replaced."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, Final

from flambeau.runtime.signals import caught
from flambeau.serve.packages import package
from flambeau.serve.settings import ServerSettings

log = logging.getLogger("flambeau.serve")
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
_SHORT: Final = 5.0  # seconds: who lives no longer is replaced ever more slowly
_LONGEST_PAUSE: Final = 30.0


class _Ending(Exception):
    """SIGTERM or SIGINT has come."""


def supervise(settings: ServerSettings) -> int:
    """Run `settings.workers` processes until SIGTERM or SIGINT, which they get, too; 0 once all have ended in order, 1 if some had to be killed."""
    folder = tempfile.mkdtemp(prefix="flambeau-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # before prometheus_client is imported
    from flambeau.serve.server import bind

    if settings.threads is None:
        settings.threads = max(1, (os.cpu_count() or 1) // settings.workers)
    with bind(dataclasses.replace(settings, workers=1)) as free:  # OSError if somebody else listens there: shared ports would hide it
        settings.port = free.getsockname()[1]
    sock = bind(settings)  # it never listens: it holds the port while workers come and go
    begun: dict[int, float] = {}
    pause = 0.0

    def catch(number: int, frame: Any) -> None:
        raise _Ending

    try:
        with caught(_ENDS, catch):
            try:
                while True:
                    while len(begun) < settings.workers:
                        if pause:
                            time.sleep(pause)
                        begun[_fork(settings)] = time.monotonic()
                    pid, status = os.waitpid(-1, 0)
                    if pid not in begun:
                        continue
                    lived = time.monotonic() - begun.pop(pid)
                    pause = 0.0 if lived > _SHORT else min(max(2 * pause, 0.5), _LONGEST_PAUSE)
                    _forget(folder, pid)
                    log.error("worker lost", extra={"fields": {"worker": pid, "status": os.waitstatus_to_exitcode(status), "seconds": round(lived, 3)}})
            except _Ending:
                pass
            for number in _ENDS:
                signal.signal(number, signal.SIG_IGN)
            return _end(list(begun), settings.drain_timeout)
    finally:
        sock.close()
        shutil.rmtree(folder, ignore_errors=True)


def _fork(settings: ServerSettings) -> int:
    pid = os.fork()
    if pid:
        log.info("worker started", extra={"fields": {"worker": pid}})
        return pid
    status = 1
    try:
        from flambeau.serve.server import run_process

        for number in _ENDS:
            signal.signal(number, signal.SIG_DFL)
        run_process(settings)
        status = 0
    except BaseException:
        log.exception("worker failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _forget(folder: str, pid: int) -> None:
    """Take the gauges of a dead worker out of the metrics; its counters stay."""
    multiprocess: Any = package("prometheus_client.multiprocess", "flambeau serve")
    multiprocess.mark_process_dead(pid, folder)


def _end(workers: list[int], timeout: float) -> int:
    for pid in workers:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
    until, left = time.monotonic() + timeout + 5.0, set(workers)
    while left and time.monotonic() < until:
        for pid in list(left):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    left.discard(pid)
            except ChildProcessError:
                left.discard(pid)
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return 1 if left else 0
