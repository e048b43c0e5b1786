"""MPI (mpi4py over MPICH, or another library of its ABI), by which ranks on different machines reach each other."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.pmi import Manager
from flambeau.distributed.progress import Progress
from flambeau.distributed.store import HashStore, PrefixStore, Store, exchanged
from flambeau.distributed.watch import Watch

_EXTRA: Final = "install the extra flambeau[distributed] on every machine (pip install 'flambeau[distributed]': mpi4py and mpich)"
_MULTIPLE: Final = 3  # MPI_THREAD_MULTIPLE: messages are sent and received by threads of their own
_STARTED_BY: Final = ("PMI_FD", "PMI_PORT", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")  # what mpiexec and srun set
_LEAVING: Final = 5.0  # seconds that ranks wait for each other at their end
_PATIENCE: Final = 0.5  # seconds in which a wait never sleeps: bytes move on only while somebody asks for them
_LOOK: Final = 0.1  # seconds between two looks after dead ranks
_ARRIVING: Final = 0.3  # seconds in which what a rank has sent before it ended is still waited for
_TELLING: Final = 1.0  # seconds in which it is told here who has died, after MPI has noticed

_BY_MPIEXEC: Final = "by mpiexec"  # a rank's place in MPI, which mpiexec knows
_NOT_YET: Final = "not yet"  # which PMI will give it

_world: list[Any] = []  # the communicator of all ranks, once MPI was started here
_numbers: list[int] = []  # their places in MPI's own world
_watch: list[Watch] = []  # over all ranks
_library: list[Any] = []  # MPI's C functions, where it was started here, not by mpi4py
_manager: list[Manager] = []  # who answers its questions
_progress: list[Progress] = []  # who lets it go on


def _load(why: str) -> Any:
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        # By UCX a rank that is killed ends those that talk to it: it calls abort() when the other's memory is gone, and a message to a connection that
        # it knows to be broken is a segmentation fault. libfabric returns errors.
        os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
        # UCX would otherwise write traces of its own for signals, and watch every allocation of the process.
        os.environ.setdefault("UCX_ERROR_SIGNALS", "")
        os.environ.setdefault("UCX_MEM_EVENTS", "n")
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(f"torch.distributed: {why}, for which flambeau needs MPI, and it is not there ({error}): {_EXTRA}") from None
    return MPI


def _initialize(MPI: Any, store: Store, rank: int, size: int) -> None:
    library = ctypes.CDLL(MPI.__file__)  # its calls let other threads run, which mpi4py's Init does not
    manager = None
    names: dict[str, str] = {}
    if not any(name in os.environ for name in _STARTED_BY):
        if "Open MPI" in MPI.Get_library_version():
            raise RuntimeError(
                "torch.distributed: ranks that mpiexec has not started can become one MPI job with MPICH and libraries of its ABI only, and mpi4py found "
                f"{MPI.Get_library_version().split(',')[0]}. {_EXTRA[0].upper()}{_EXTRA[1:]}, or start the program with mpiexec"
            )
        manager = Manager(store, rank, size)
        _manager.append(manager)
        names = {"PMI_FD": str(manager.descriptor), "PMI_RANK": str(rank), "PMI_ID": str(rank), "PMI_SIZE": str(size)}
    os.environ.update(names)
    try:
        status = library.MPI_Init_thread(None, None, _MULTIPLE, ctypes.byref(ctypes.c_int()))
    finally:
        for name in names:  # not for the processes that this one starts
            del os.environ[name]
    if status != 0 or (manager is not None and manager.error is not None):
        raise DistBackendError(f"torch.distributed: MPI could not be started on rank {rank} (status {status}): {'' if manager is None else manager.error}")
    _library.append(library)


def start(store: Store, rank: int, size: int, why: str) -> None:
    """Make all ranks one MPI job, which a process is part of once. `why`: for messages.

    Where they are in one already, they may be fewer than it has, and in another order: so those go on whom a dead rank has left.
    """
    MPI = _load(why)
    begun = MPI.Is_initialized()
    own = str(MPI.COMM_WORLD.rank) if begun else _BY_MPIEXEC if any(name in os.environ for name in _STARTED_BY) else _NOT_YET
    numbers = exchanged(store, "mpi", rank, size, own)
    late = [str(r) for r, number in enumerate(numbers) if number == _NOT_YET]
    if late and len(late) < size:
        raise RuntimeError(
            f"torch.distributed: ranks {', '.join(late)} have been started later than the others, or without mpiexec: MPI takes no process in; start all again"
        )
    if not begun:
        _initialize(MPI, PrefixStore("pmi", store), rank, size)
    if _BY_MPIEXEC in numbers:
        numbers = exchanged(store, "mpi started", rank, size, str(MPI.COMM_WORLD.rank))
    _choose(MPI, [int(number) for number in numbers] if not late else list(range(size)))
    if not _progress:
        _progress.append(Progress(_world[0]))
    if not _watch:
        _watch.append(Watch(PrefixStore("watch", store), rank, size))


def told_by_first(text: str | None) -> str:
    """What the first rank of those that mpiexec has started says to all."""
    MPI = _load("mpiexec has started the ranks, and says nothing of where they meet (MASTER_ADDR and MASTER_PORT are not set)")
    if not MPI.Is_initialized():
        _initialize(MPI, HashStore(), 0, 0)
    return str(MPI.COMM_WORLD.bcast(text, 0))


def _choose(MPI: Any, numbers: list[int]) -> None:
    """The communicator of these ranks of the MPI job, in this order."""
    if numbers == _numbers:
        return
    if len(set(numbers)) < len(numbers):
        raise RuntimeError(f"torch.distributed: all ranks must be of one MPI job, and different; in MPI they are {numbers}")
    whole = MPI.COMM_WORLD
    whole.Set_errhandler(MPI.ERRORS_RETURN)
    made = whole
    if numbers != list(range(whole.size)):
        # Only its members make it: MPICH does not ask those that have died. Open MPI does, where they have not been taken out before (ULFM).
        base = whole.Shrink() if _numbers and "Open MPI" in MPI.Get_library_version() else whole
        base.Set_errhandler(MPI.ERRORS_RETURN)
        made = base.Create_group(whole.group.Incl(numbers), len(numbers))
        made.Set_errhandler(MPI.ERRORS_RETURN)
    _world[:], _numbers[:] = [made], numbers
    while _watch:
        _watch.pop().close()


def world() -> Any:
    """mpi4py's communicator of all ranks, in their order, once it was started."""
    return _world[0]


def who_is_gone(ranks: Sequence[int]) -> str | None:
    """Which of these ranks, if any, have ended, for messages."""
    return _watch[0].told(ranks) if _watch else None


def reason(error: Any, look: Callable[[], str | None]) -> str:
    """Why a call of MPI has failed: who is gone, which MPI may know some time before it is told here; else MPI's words."""
    end = time.monotonic() + _TELLING
    while (told := look()) is None and time.monotonic() < end:
        time.sleep(0.002)
    return told or " ".join(str(error.Get_error_string()).split())


class Communicator:
    """One of mpi4py's, whose calls raise what `fail` makes of an error of MPI."""

    def __init__(self, comm: Any, fail: Callable[[Any], Exception]) -> None:
        from mpi4py import MPI

        self._comm, self._fail, self._error = comm, fail, MPI.Exception
        comm.Set_errhandler(MPI.ERRORS_RETURN)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._comm, name)

        def checked(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            except self._error as error:
                raise self._fail(error) from None

        return checked


def wait(requests: Sequence[Any], limit: float, what: str, look: Callable[[], str | None], statuses: list[Any] | None = None) -> None:
    """Wait until all of these are done. DistBackendError after `limit` seconds, or when `look` says why it will not happen."""
    with _progress[0].by_others():
        _wait(requests, limit, what, look, statuses)


def _wait(requests: Sequence[Any], limit: float, what: str, look: Callable[[], str | None], statuses: list[Any] | None) -> None:
    from mpi4py import MPI

    begin = time.monotonic()
    looked, told_at, pause = begin, 0.0, 0.0
    pending = list(requests)
    while True:
        try:
            if MPI.Request.Testall(pending, statuses):
                return
        except MPI.Exception as error:
            raise DistBackendError(f"{what}: {reason(error, look)}") from None
        now = time.monotonic()
        if now - looked > _LOOK:
            looked = now
            told = look()
            if told is not None:
                told_at = told_at or now
                if now - told_at > _ARRIVING:
                    raise DistBackendError(f"{what}: {told}")
            if now - begin > limit:
                raise DistBackendError(f"{what}: Timed out waiting {round(limit * 1000)}ms")
        if now - begin > _PATIENCE:
            pause = min(0.001, pause + 0.00001)
            time.sleep(pause)
        else:
            os.sched_yield()


def memory(address: int, nbytes: int) -> Any:
    """Bytes that MPI reads or writes."""
    from mpi4py import MPI

    return [MPI.buffer.fromaddress(address, nbytes), nbytes, MPI.BYTE]


def _whole() -> Any:
    from mpi4py import MPI

    return MPI.COMM_WORLD


def _part_together(communicator: Any) -> None:
    """Those who went on without a rank wait for each other, for a while: who is still in the last collective needs what the others have sent."""
    with suppress(Exception):  # another one has died since
        request, until = communicator.Ibarrier(), time.monotonic() + _LEAVING
        while not request.Test() and time.monotonic() < until:
            time.sleep(_LOOK / 100)


def leave(well: bool) -> None:
    """The process ends. Where all went well, what is still on its way arrives before."""
    some = bool(_world) and _world[0] != _whole()  # MPI's own end would wait for those that have died
    if well and some:
        _part_together(_world[0])
    while _watch:
        _watch.pop().close()
    # MPI ends the process with an error where another rank has not come to its end, too. What this one has sent goes on its way meanwhile.
    together = well and not some and bool(_library) and all(manager.leave(_LEAVING) for manager in _manager)
    while _progress:
        _progress.pop().close()
    if together:
        ending = threading.Thread(target=_library[0].MPI_Finalize, name="MPI_Finalize", daemon=True)
        ending.start()
        ending.join(3 * _LEAVING)
    _library.clear()
    while _manager:  # MPI asks once more when the process ends, and nobody is there any more
        _manager.pop().close()
