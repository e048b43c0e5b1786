"""The server: one event loop that listens, loads, watches the folder, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from time import monotonic
from typing import Any

import flambeau
from flambeau.serve.application import Application
from flambeau.serve.connection import Connection, new_prefix, tls
from flambeau.serve.metrics import Metrics
from flambeau.serve.packages import package
from flambeau.serve.repository import Repository
from flambeau.serve.settings import ServerSettings

log = logging.getLogger("flambeau.serve")


def bind(settings: ServerSettings) -> socket.socket:
    """A socket on the settings' address. OSError as of `bind`. Several workers have one each on the same address: the system spreads connections over those
    that listen. With one socket for all, who wakes first takes all that wait: 16 connections that came together were one worker's."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if settings.workers > 1:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((settings.host, settings.port))
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


class Server:
    """One process that serves. `await start()`, then `await run()`, which ends after `stop()`."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self.repository = Repository(settings, self.loop, self.metrics)
        self.application = Application(settings, self.repository, self.metrics, self.loop)
        self.connections: set[Connection] = set()
        self._stopped = asyncio.Event()
        self._listener: Any = None
        self._tasks: list[asyncio.Task[None]] = []
        self._grpc: Any = None
        self.port = 0
        self.grpc_port = 0

    async def start(self) -> None:
        """Listen, then load what is in the folder: until that has been tried, /v2/health/ready says 503. One of several workers loads first, so that no
        connection comes to it before."""
        settings = self.settings
        if settings.workers == 1:
            await self._listen()
            await self.repository.refresh(settled=False)
        else:
            await self.repository.refresh(settled=False)
            await self._listen()
        if settings.grpc_port is not None:
            from flambeau.serve.grpc_server import start

            self._grpc, self.grpc_port = await start(self.application, settings)
        if settings.poll:
            self._tasks.append(self.loop.create_task(self._watch()))
        if not self.repository.models:
            log.warning("no models", extra={"fields": {"folder": str(settings.folder), "wanted": "NAME/VERSION/model.pt2, model.onnx or model.py"}})
        log.info("ready", extra={"fields": {"models": {n: sorted(m.versions) for n, m in self.repository.models.items()}}})

    async def _listen(self) -> None:
        settings = self.settings
        sock = bind(settings)
        self.port = sock.getsockname()[1]

        def protocol() -> Connection:
            return Connection(self.application, settings, self.connections)

        self._listener = await self.loop.create_server(protocol, sock=sock, ssl=tls(settings), backlog=2048)
        log.info("listening", extra={"fields": {"host": settings.host, "port": self.port, "tls": settings.certificate is not None}})
        self._tasks.append(self.loop.create_task(self._tick()))

    async def _tick(self) -> None:
        period = min(1.0, self.settings.header_timeout / 2, self.settings.body_timeout / 2, self.settings.write_timeout / 2)
        while True:
            await asyncio.sleep(period)
            now = monotonic()
            for connection in list(self.connections):
                connection.tick(now)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.poll)
            try:
                await self.repository.refresh()
            except Exception:
                log.exception("the folder could not be read")

    def stop(self) -> None:
        """Begin the end: nothing new is taken, what was taken is answered."""
        self._stopped.set()

    async def run(self) -> None:
        """Serve until `stop()`, then drain."""
        await self._stopped.wait()
        await self.drain()

    async def drain(self) -> None:
        """Answer what has been taken, for as long as the settings allow; then end."""
        settings, application = self.settings, self.application
        application.draining = True
        log.info("draining", extra={"fields": {"connections": len(self.connections)}})
        if self._listener is not None:
            self._listener.close()
        if self._grpc is not None:
            await self._grpc.stop(settings.drain_timeout)
        until = monotonic() + settings.drain_timeout
        while self.connections and monotonic() < until:
            now = monotonic()
            for connection in list(self.connections):
                connection.tick(now)
            await asyncio.sleep(0.02)
        left = len(self.connections)
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        for task in self._tasks:
            task.cancel()
        self.repository.close()
        await asyncio.sleep(0)
        log.info("stopped", extra={"fields": {"connections_cut": left}})


def run_process(settings: ServerSettings) -> None:
    """Serve in this process until SIGTERM or SIGINT."""
    uvloop: Any = package("uvloop", "flambeau serve")
    new_prefix()
    if settings.threads is not None:
        flambeau.set_num_threads(settings.threads)

    async def main() -> None:
        server = Server(settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        await server.start()
        await server.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def serve(settings: ServerSettings) -> int:
    """`flambeau serve`: in this process, or in several workers."""
    if settings.workers > 1:
        from flambeau.serve.workers import supervise

        return supervise(settings)
    if settings.threads is None:
        settings.threads = os.cpu_count() or 1
    run_process(settings)
    return 0
