"""TCPStore: a store in one process (its server), which others reach by TCP."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from datetime import timedelta
from typing import Any

from flambeau.distributed.errors import DistNetworkError, DistStoreError
from flambeau.distributed.store import DEFAULT_TIMEOUT, Store, Table, seconds, wait_for_count

_COUNT = struct.Struct("<I")
_WORKERS = "init/"  # how many clients have come


def _send(connection: socket.socket, fields: list[bytes]) -> None:
    connection.sendall(b"".join([_COUNT.pack(len(fields)), *[_COUNT.pack(len(field)) + field for field in fields]]))


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _receive(connection: socket.socket) -> list[bytes]:
    (count,) = _COUNT.unpack(_exactly(connection, 4))
    return [_exactly(connection, _COUNT.unpack(_exactly(connection, 4))[0]) for _ in range(count)]


class _Server:
    """The keys, and a thread for each client."""

    def __init__(self, listener: socket.socket) -> None:
        self.table = Table()
        self.listener = listener
        self.connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="TCPStore", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="TCPStore client", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                operation, *fields = _receive(connection)
                try:
                    _send(connection, [b"", *self.table.do(operation.decode(), *fields)])
                except DistStoreError as error:
                    _send(connection, [str(error).encode()])
        except (OSError, ValueError, struct.error):  # the client has gone
            pass
        finally:
            self.connections.discard(connection)
            connection.close()

    def close(self) -> None:
        """Stop listening, and let go of all clients."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class TCPStore(Store):
    """A store that the process with `is_master` serves at `host_name`:`port` (0: a free port, see `.port`), and others reach there.

    `world_size` with `wait_for_workers`: wait until that many objects have come, the server's own among them. Any thread may use it.
    DistNetworkError where the port is taken or nobody answers in time; DistStoreError where clients do not come.
    """

    def __init__(
        self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False, timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True, multi_tenant: bool = False, master_listen_fd: int | None = None, use_libuv: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if world_size == 0:
            raise ValueError("TCPStore world size cannot be 0: give the number of clients, or None for any")
        self.set_timeout(timeout)
        self._libuv = use_libuv
        self.host, self.port = host_name, int(port)
        self._connections = threading.local()
        self._open: list[socket.socket] = []
        self._server: _Server | None = None
        if is_master:
            self._serve(master_listen_fd, multi_tenant)
        if self._server is None:
            self._connect()
        came = self.add(_WORKERS, 1)
        if wait_for_workers and world_size is not None and world_size > 0 and is_master:
            came = wait_for_count(self, _WORKERS, world_size, seconds(self.timeout))
            if came < world_size:
                self.close()
                raise DistStoreError(f"Timed out after {seconds(self.timeout):g} seconds waiting for clients. {came}/{world_size} clients joined.")

    def _serve(self, descriptor: int | None, multi_tenant: bool) -> None:
        try:
            served = socket.socket(fileno=descriptor) if descriptor is not None else listener(self.port)
        except OSError as error:
            if multi_tenant:  # another object of this machine serves it
                return
            raise DistNetworkError(
                f"The server socket has failed to listen on any local network address. port: {self.port}, {error.strerror} ({error.errno}): another "
                "program uses the port; give another one, or 0 for a free one"
            ) from None
        self.port = served.getsockname()[1]
        self._server = _Server(served)

    def _connect(self) -> socket.socket:
        limit = seconds(self.timeout)
        end, pause = time.monotonic() + limit, 0.005
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), timeout=max(0.05, min(limit, end - time.monotonic())))
                break
            except OSError as error:
                if time.monotonic() + pause >= end:
                    raise DistNetworkError(
                        f"The client socket has timed out after {round(limit * 1000)}ms while trying to connect to ({self.host}, {self.port}): {error}. "
                        "Is rank 0 started, and are MASTER_ADDR and MASTER_PORT the same everywhere?"
                    ) from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.2)
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.socket = connection
        self._open.append(connection)
        return connection

    def _do(self, operation: str, *fields: bytes) -> list[bytes]:
        if self._server is not None:
            return self._server.table.do(operation, *fields)
        connection: socket.socket = getattr(self._connections, "socket", None) or self._connect()
        try:
            _send(connection, [operation.encode(), *fields])
            error, *answer = _receive(connection)
        except OSError as failure:
            raise DistNetworkError(f"TCPStore: the server at {self.host}:{self.port} has gone ({failure})") from None
        except BaseException:  # an interrupt: what is on its way belongs to nobody
            connection.close()
            del self._connections.socket
            raise
        if error:
            raise DistStoreError(error.decode())
        return answer

    def list_keys(self) -> list[str]:
        return [key for key in super().list_keys() if key != _WORKERS]

    @property
    def libuvBackend(self) -> bool:
        """What was asked for by `use_libuv`: the server is Python in either case."""
        return self._libuv

    def clone(self) -> Store:
        """Another client of the same server."""
        return TCPStore(self.host if self._server is None else "localhost", self.port, None, False, self.timeout, False)

    def close(self) -> None:
        """Let go of the connections, and of all clients where this object is the server."""
        if self._server is not None:
            self._server.close()
        for connection in self._open:
            connection.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        return f"TCPStore({self.host!r}, {self.port}, {'server' if self._server is not None else 'client'})"


def listener(port: int) -> socket.socket:
    """A listening socket on all addresses, of both families where the system has both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def is_served(store: Any) -> bool:
    """Whether this process is the server of a store."""
    return isinstance(store, TCPStore) and store._server is not None
