"""A store by TCP on a port that is free."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from flambeau.distributed.elastic.utils.api import get_socket_with_port
from flambeau.distributed.errors import DistNetworkError
from flambeau.distributed.rendezvous import libuv_by_default
from flambeau.distributed.tcp_store import TCPStore

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]


def get_free_port() -> int:
    """A port that was free just now."""
    with contextlib.closing(get_socket_with_port()) as found:
        return int(found.getsockname()[1])


def create_c10d_store(
    is_server: bool, server_addr: str, server_port: int = -1, world_size: int = 1, timeout: float = 600, wait_for_workers: bool = True, retries: int = 3,
    use_libuv: bool | None = None,
) -> TCPStore:  # fmt: skip
    """A TCPStore; without a port (-1) on a free one, for one process. DistStoreError where not all clients come in time."""
    if server_port == -1 and world_size > 1:
        raise ValueError(f"server_port must be specified when world_size > 1, got server_port={server_port}, world_size={world_size}")
    if server_port != -1:
        retries = 1
    libuv = libuv_by_default() if use_libuv is None else use_libuv
    for left in range(retries - 1, -1, -1):
        port = server_port if server_port != -1 else get_free_port()
        try:
            return TCPStore(server_addr, port, world_size, is_server, timedelta(seconds=timeout), wait_for_workers, use_libuv=libuv)
        except DistNetworkError:  # another process took the port just now
            if not left or not is_server:
                raise
    raise AssertionError("create_c10d_store: retries must be at least 1")
