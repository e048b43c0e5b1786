"""How ranks find each other: a store, a rank and the number of ranks, from the environment or a URL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

from flambeau.distributed.store import DEFAULT_TIMEOUT, PrefixStore, Store

ROUND = "FLAMBEAU_LAUNCH_ROUND"  # the variable of `flambeau launch` that tells starts apart: machines that came later count restarts otherwise
Found = tuple[Store, int, int]
_handlers: dict[str, Callable[..., Iterator[Found]]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[Found]]) -> None:
    """URLs of this scheme are given to `handler(url, timeout=...)`, which yields (store, rank, world size)."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def _number(name: str, value: Any, url: str, variable: str) -> int:
    if value is None or int(value) < 0:
        text = os.environ.get(variable)
        if text is None:
            raise ValueError(
                f"Error initializing torch.distributed using {url} rendezvous: environment variable {variable} expected, but not set (give {name}, set it, "
                "or start the program with `flambeau launch`)"
            )
        return int(text)
    return int(value)


def libuv_by_default() -> bool:
    """What USE_LIBUV says; it changes nothing here but what the store says of itself."""
    return os.environ.get("USE_LIBUV", "1") == "1"


def tcp_store(host: str, port: int, rank: int, world_size: int, timeout: timedelta, libuv: bool | None = None) -> Store:
    """The store at an address: rank 0 serves it, unless the launcher does (TORCHELASTIC_USE_AGENT_STORE)."""
    from flambeau.distributed.tcp_store import TCPStore

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        attempt = os.environ.get(ROUND) or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"/worker/attempt_{attempt}", TCPStore(host, port, world_size, False, timeout))
    libuv = libuv_by_default() if libuv is None else libuv
    return TCPStore(host, port, world_size, rank == 0, timeout, multi_tenant=True, use_libuv=libuv)


def _environment(rank: int, world_size: int, timeout: timedelta) -> Found:
    url = "env://"
    place, size = _number("rank", rank, url, "RANK"), _number("world_size", world_size, url, "WORLD_SIZE")
    for variable in ("MASTER_ADDR", "MASTER_PORT"):
        if variable not in os.environ:
            _number("init_method", None, url, variable)
    return tcp_store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), place, size, timeout), place, size


def _check_scheme(scheme: str, url: str) -> None:
    if scheme not in ("env", "tcp", "file") and scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {scheme}:// in {url!r}; there are env://, tcp://host:port and file:///path")


def find(init_method: str, rank: int, world_size: int, timeout: timedelta) -> Found:
    """(store, rank, world size) for `env://`, `tcp://host:port`, `file:///path`, or a scheme of one's own."""
    parts = urlparse(init_method)
    options = dict(parse_qsl(parts.query))
    rank, world_size = int(options.get("rank", rank)), int(options.get("world_size", world_size))
    if parts.scheme == "env":
        return _environment(rank, world_size, timeout)
    if parts.scheme in _handlers:
        return next(iter(_handlers[parts.scheme](init_method, rank=rank, world_size=world_size, timeout=timeout)))
    _check_scheme(parts.scheme, init_method)
    for name, value in (("rank", rank), ("world_size", world_size)):
        if value < 0:
            raise ValueError(f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: {name} parameter missing")
    if parts.scheme == "file":
        from flambeau.distributed.file_store import FileStore

        if not parts.path:
            raise ValueError(f"Error initializing torch.distributed using file:// rendezvous: path missing in {init_method!r}")
        return FileStore(parts.path, world_size), rank, world_size
    if not parts.port or not parts.hostname:
        raise ValueError(f"Error initializing torch.distributed using tcp:// rendezvous: host or port number missing in {init_method!r}")
    libuv = options["use_libuv"] == "1" if "use_libuv" in options else None
    return tcp_store(parts.hostname, parts.port, rank, world_size, timeout, libuv), rank, world_size


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[Found]:
    """Yields (store, rank, world size). What is wrong with the URL is said at once."""
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int) or not isinstance(world_size, int):
        raise RuntimeError(f"`rank` and `world_size` must be integers, got {rank!r} and {world_size!r}")
    parts = urlparse(url)
    options = dict(parse_qsl(parts.query))
    if (rank != -1 or world_size != -1) and options.keys() & {"rank", "world_size"}:
        raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
    _check_scheme(parts.scheme, url)

    def found() -> Iterator[Found]:
        yield find(url, rank, world_size, kwargs.get("timeout", DEFAULT_TIMEOUT))

    return found()
