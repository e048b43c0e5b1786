"""Messages from one rank to another: send, recv, and their forms that go on beside the program."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flambeau.distributed.calls import profiled
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.memory import Memory, tensor_of
from flambeau.distributed.remote import RemoteInbox, send
from flambeau.distributed.window import RING, Window
from flambeau.distributed.work import Lane, Work
from flambeau.trace import evaluate

if TYPE_CHECKING:
    from flambeau.distributed.group import ProcessGroup

_HEAD = 32  # of a message: tag, bytes, the dtype and the number of dims as a number, and one unused
_READ_AT = 64


class Wanted:
    """A message that somebody waits for."""

    def __init__(self, tag: int, nbytes: int, address: int) -> None:
        self.tag, self.nbytes, self.address = tag, nbytes, address
        self.done = False
        self.error: str | None = None

    def fits(self, tag: int) -> bool:
        return self.tag == tag and not self.done

    def put(self, nbytes: int, read: Callable[[int, int], None]) -> None:
        """Take the message's bytes; those of a message of another size are dropped."""
        if nbytes == self.nbytes:
            read(self.address, nbytes)
        else:
            spare = ctypes.create_string_buffer(max(nbytes, 1))
            read(ctypes.addressof(spare), nbytes)
            self.error = f"the message has {nbytes} bytes and the tensor {self.nbytes}: shapes and dtypes must be the same on both sides"
        self.done = True


class _Inbox:
    """Messages of one other rank: those that came before somebody asked for them, and those that are waited for."""

    def __init__(self, mail: Mail, peer: int) -> None:
        self.mail, self.peer = mail, peer
        self.at = mail.window.channel(peer, mail.group.rank())
        self.early: list[tuple[int, bytes]] = []
        self.wanted: list[Wanted] = []
        self.reader = threading.Lock()  # held by who reads from the channel
        self.lock = threading.Lock()  # of the lists

    def has_message(self, tag: int) -> bool:
        """Whether something can be read, or has been, that may have this tag."""
        written, read = ctypes.c_int64.from_address(self.at).value, ctypes.c_int64.from_address(self.at + _READ_AT).value
        return written > read or any(t == tag for t, _ in self.early)

    def want(self, wanted: Wanted) -> None:
        """Ask for a message: of those with one tag, who asks first gets the first."""
        with self.lock:
            for i, (tag, content) in enumerate(self.early):
                if tag == wanted.tag:
                    del self.early[i]
                    wanted.put(len(content), partial(_copy, content))
                    break
            else:
                self.wanted.append(wanted)

    def wait(self, wanted: Wanted, what: str, limit: float) -> None:
        """Wait for a message that was asked for. Several threads may: whoever reads gives each message to who wants it."""
        end = time.monotonic() + limit
        while not wanted.done:
            if self.reader.acquire(timeout=0.002):
                try:
                    if not wanted.done:
                        self._read_one(what, max(0.0, end - time.monotonic()))
                finally:
                    self.reader.release()
            elif time.monotonic() > end:
                break
        if wanted.error is not None:
            raise DistBackendError(f"{what}: {wanted.error}")

    def _read_one(self, what: str, limit: float) -> None:
        head = (ctypes.c_int64 * 4)()
        self._bytes(ctypes.addressof(head), _HEAD, what, limit)
        tag, nbytes = head[0], head[1]
        with self.lock:
            taker = next((w for w in self.wanted if w.fits(tag)), None)
            if taker is not None:
                self.wanted.remove(taker)
        if taker is not None:
            taker.put(nbytes, lambda address, n: self._bytes(address, n, what, self.mail.window.timeout))
            return
        content = ctypes.create_string_buffer(max(nbytes, 1))
        self._bytes(ctypes.addressof(content), nbytes, what, self.mail.window.timeout)
        with self.lock:
            late = next((w for w in self.wanted if w.fits(tag)), None)
            if late is None:
                self.early.append((tag, content.raw[:nbytes]))
            else:
                self.wanted.remove(late)
                late.put(nbytes, partial(_copy, content.raw))

    def _bytes(self, address: int, count: int, what: str, limit: float) -> None:
        window = self.mail.window
        read = ctypes.c_int64.from_address(self.at + _READ_AT)
        written = ctypes.c_int64.from_address(self.at)
        while count:
            window.wait_word(self.at, read.value + 1, self.peer, what, limit)
            place = read.value % RING
            part = min(count, written.value - read.value, RING - place)
            ctypes.memmove(address, self.at + 128 + place, part)
            window.post(self.at + _READ_AT, read.value + part)
            address, count = address + part, count - part


def _copy(content: bytes, address: int, count: int) -> None:
    ctypes.memmove(address, content, count)


class Mail:
    """Messages between the members of a group."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group, self.window = group, group.window
        self.inboxes = {r: self._inbox(r) for r in range(group.size()) if r != group.rank()}
        self.outboxes = {r: Lane(f"flambeau messages to {r}") for r in self.inboxes}

    def _inbox(self, peer: int) -> _Inbox | RemoteInbox:
        if self.window.is_here(peer):
            return _Inbox(self, peer)
        assert not isinstance(self.window, Window)
        return RemoteInbox(self.window, peer)

    def _write(self, memory: Memory, peer: int, tag: int, what: str) -> None:
        if not self.window.is_here(peer):
            assert not isinstance(self.window, Window)
            send(self.window, memory, peer, tag, what)
            return

        at = self.window.channel(self.group.rank(), peer)
        written = ctypes.c_int64.from_address(at)
        head = (ctypes.c_int64 * 4)(tag, memory.nbytes, 0, 0)
        for start, length in ((ctypes.addressof(head), _HEAD), (memory.address, memory.nbytes)):
            address, count = start, length
            while count:
                self.window.wait_word(at + _READ_AT, max(0, written.value + 1 - RING), peer, what, self.window.timeout)
                place = written.value % RING
                free = RING - (written.value - ctypes.c_int64.from_address(at + _READ_AT).value)
                part = min(count, free, RING - place)
                ctypes.memmove(at + 128 + place, address, part)
                self.window.post(at, written.value + part)
                address, count = address + part, count - part

    def send(self, tensor: Any, peer: int, tag: int, beside: bool) -> Work | None:
        """Send a tensor; with `beside` in the thread of this peer."""
        memory = Memory(tensor_of(tensor, "send"), write=False)
        what = f"send to rank {self.group.ranks[peer]} (tag {tag})"
        lane = self.outboxes[peer]

        def run() -> None:
            self._write(memory, peer, tag, what)

        if evaluate.PROFILER is not None:
            run = profiled(self.group, run, "send", tensor)
        if beside:
            return lane.later(Work([tensor], run, what))
        lane.now(run)
        return None

    def receive_from_any(self, tensor: Any, tag: int, beside: bool) -> Work:
        """Receive into a tensor from whoever sends first."""
        memory = Memory(tensor_of(tensor, "recv"), write=True)  # in the caller's thread, whose trace the tensor belongs to

        def run() -> None:
            peer = self.anybody(tag)
            self._take(memory, peer, tag)
            work._source = self.group.ranks[peer]

        if evaluate.PROFILER is not None:
            run = profiled(self.group, run, "recvAnySource", tensor)
        work = Work([tensor], run, f"recv from any rank (tag {tag})")
        if beside:
            threading.Thread(target=work._execute, name="recv from any rank", daemon=True).start()
        else:
            work._execute()
            work.wait()
        return work

    def _take(self, memory: Memory, peer: int, tag: int) -> None:
        """Wait for the next message of a member."""
        inbox, wanted = self.inboxes[peer], Wanted(tag, memory.nbytes, memory.address)
        inbox.want(wanted)
        inbox.wait(wanted, f"recv from rank {self.group.ranks[peer]} (tag {tag})", self.window.timeout)
        memory.finish()

    def receive(self, tensor: Any, peer: int, tag: int, beside: bool) -> Work | None:
        """Receive into a tensor."""
        memory = Memory(tensor_of(tensor, "recv"), write=True)
        what = f"recv from rank {self.group.ranks[peer]} (tag {tag})"

        inbox, wanted = self.inboxes[peer], Wanted(tag, memory.nbytes, memory.address)
        inbox.want(wanted)

        def run() -> None:
            inbox.wait(wanted, what, self.window.timeout)
            memory.finish()

        if evaluate.PROFILER is not None:
            run = profiled(self.group, run, "recv", tensor)
        if not beside:
            run()
            return None
        work = Work([tensor], run, what)
        work._source = self.group.ranks[peer]
        # A thread for each, so that a message with another tag does not wait for this one.
        threading.Thread(target=work._execute, name=what, daemon=True).start()
        return work

    def anybody(self, tag: int) -> int:
        """Wait for a message of any member; its sender."""
        end, pause = time.monotonic() + self.window.timeout, 0.00002
        while True:
            for peer, inbox in self.inboxes.items():
                if inbox.has_message(tag):
                    return peer
            if time.monotonic() > end:
                raise DistBackendError(f"recv: Timed out waiting {round(self.window.timeout * 1000)}ms for a message of any rank")
            if len(self.window.peers.gone) == len(self.inboxes):
                raise DistBackendError(f"recv: all other ranks have ended ({sorted(self.window.peers.gone)})")
            time.sleep(pause)
            pause = min(pause * 1.2, 0.001)
