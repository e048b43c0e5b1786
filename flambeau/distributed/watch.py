"""Ranks on other machines that must not be missed: a connection of each to rank 0, which the kernel ends when the process does."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from flambeau.distributed.store import PrefixStore, Store
from flambeau.distributed.tcp_store import TCPStore, listener

_NEWS: Final = struct.Struct("<qq")  # rank, and whether it said that it leaves
_DIED, _LEFT = 0, 1
_TEXTS: Final = ("died, or cannot be reached,", "left the group (ended, or called destroy_process_group)")
_JOINING: Final = 10.0  # seconds in which rank 0 must be reached


def _keep_alive(connection: socket.socket) -> None:
    """A machine that does not answer for some seconds is gone."""
    for name, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 4000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _addresses(store: Store) -> Iterator[str]:
    """Names under which other machines may reach this one: as the store is reached, and its host name."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        connection: socket.socket | None = getattr(store._connections, "socket", None)
        if connection is not None:
            yield connection.getsockname()[0]
        yield store.host
    if "MASTER_ADDR" in os.environ:
        yield os.environ["MASTER_ADDR"]
    yield socket.gethostname()


class Watch:
    """Who has ended, of all ranks. Where rank 0 cannot be reached, nobody is watched, and timeouts must do."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.gone: dict[int, int] = {}
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._closed = False
        if rank == 0:
            server = listener(0)
            store.set("address", "\n".join([str(server.getsockname()[1]), *dict.fromkeys(_addresses(store))]))
            threading.Thread(target=self._serve, args=(server,), name="flambeau watch", daemon=True).start()
        else:
            self._join(store)

    def _join(self, store: Store) -> None:
        port, *names = store.get("address").decode().split("\n")
        for name in names:
            with suppress(OSError):
                connection = socket.create_connection((name, int(port)), timeout=_JOINING / len(names))
                connection.settimeout(None)
                _keep_alive(connection)
                connection.sendall(_NEWS.pack(self.rank, self.size))
                self._connections[0] = connection
                threading.Thread(target=self._listen, args=(connection,), name="flambeau watch", daemon=True).start()
                return

    def _listen(self, connection: socket.socket) -> None:
        """What rank 0 tells."""
        how = _DIED
        with suppress(OSError):
            while len(news := connection.recv(_NEWS.size, socket.MSG_WAITALL)) == _NEWS.size:
                rank, told = _NEWS.unpack(news)
                if rank == 0:
                    how = told
                    break
                self.gone.setdefault(rank, told)
        self.gone.setdefault(0, how)

    def _serve(self, server: socket.socket) -> None:
        """By rank 0: who comes, and who goes."""
        with selectors.DefaultSelector() as selector, server:
            selector.register(server, selectors.EVENT_READ, None)
            while not self._closed:
                for key, _ in selector.select(0.5):
                    if key.data is None:
                        connection, _ = server.accept()
                        _keep_alive(connection)
                        selector.register(connection, selectors.EVENT_READ, -1)
                        continue
                    connection = key.fileobj  # type: ignore[assignment]
                    news = b""
                    with suppress(OSError):
                        news = connection.recv(_NEWS.size, socket.MSG_WAITALL)
                    if key.data == -1 and len(news) == _NEWS.size:
                        rank, size = _NEWS.unpack(news)
                        if size == self.size and 0 < rank < size:
                            selector.modify(connection, selectors.EVENT_READ, rank)
                            with self._lock:
                                self._connections[rank] = connection
                            continue
                    selector.unregister(connection)
                    connection.close()
                    if key.data != -1:
                        self._note(key.data, _LEFT if len(news) == _NEWS.size else _DIED)

    def _note(self, rank: int, how: int) -> None:
        with self._lock:
            self.gone.setdefault(rank, how)
            self._connections.pop(rank, None)
            for connection in self._connections.values():
                with suppress(OSError):
                    connection.sendall(_NEWS.pack(rank, how))

    def told(self, ranks: Sequence[int]) -> str | None:
        """Which of these is gone, for messages; None if none is. The first is what matters: others may have ended because of it."""
        gone = [(rank, how) for rank, how in self.gone.items() if rank in ranks]
        if not gone:
            return None
        (first, how), *later = gone
        after = f" (after it {', '.join(f'rank {rank}' for rank, _ in later)})" if later else ""
        return f"rank {first} {_TEXTS[how]} without taking part{after}"

    def close(self) -> None:
        """Say that this rank leaves."""
        self._closed = True
        with self._lock:
            for connection in self._connections.values():
                with suppress(OSError):
                    connection.sendall(_NEWS.pack(self.rank, _LEFT))
