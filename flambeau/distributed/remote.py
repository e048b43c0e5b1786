"""Messages to and from ranks on other machines, by MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.distributed import mpi
from flambeau.distributed.errors import DistBackendError

if TYPE_CHECKING:
    from flambeau.distributed.bridge import Bridge
    from flambeau.distributed.memory import Memory
    from flambeau.distributed.p2p import Wanted


class RemoteInbox:
    """Messages of one rank elsewhere: MPI keeps them in order, and those that nobody has asked for yet."""

    def __init__(self, bridge: Bridge, peer: int) -> None:
        self.bridge, self.peer = bridge, peer
        self._requests: dict[int, Any] = {}

    def has_message(self, tag: int) -> bool:
        """Whether a message with this tag has come."""
        return bool(self.bridge.messages.Iprobe(self.peer, tag))

    def want(self, wanted: Wanted) -> None:
        """Ask for a message: of those with one tag, who asks first gets the first."""
        self._requests[id(wanted)] = self.bridge.messages.Irecv(mpi.memory(wanted.address, wanted.nbytes), self.peer, wanted.tag)

    def wait(self, wanted: Wanted, what: str, limit: float) -> None:
        """Wait for a message that was asked for."""
        from mpi4py import MPI

        request, status = self._requests.pop(id(wanted)), MPI.Status()
        try:
            mpi.wait([request], limit, what, self.bridge.look, [status])
        except DistBackendError:
            if status.Get_error() == MPI.ERR_TRUNCATE:
                raise DistBackendError(f"{what}: the message is longer than the tensor, {wanted.nbytes} bytes: {_SAME}") from None
            request.Cancel()
            raise
        nbytes = status.Get_count(MPI.BYTE)
        if nbytes != wanted.nbytes:
            raise DistBackendError(f"{what}: the message has {nbytes} bytes and the tensor {wanted.nbytes}: {_SAME}")
        wanted.done = True


_SAME = "shapes and dtypes must be the same on both sides"


def send(bridge: Bridge, memory: Memory, peer: int, tag: int, what: str) -> None:
    """Send the bytes of a tensor; returns when its memory may be written again."""
    mpi.wait([bridge.messages.Isend(mpi.memory(memory.address, memory.nbytes), peer, tag)], bridge.timeout, what, bridge.look)
