"""A server in a thread of the test's process, on the loopback, and small models to serve."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from tests.threads import Thread

for _name in ("httptools", "uvloop", "orjson", "prometheus_client"):
    pytest.importorskip(_name)


class Affine(nn.Module):
    """x * scale + shift, with a known answer."""

    def __init__(self, scale: float = 2.0, shift: float = 1.0) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.full((3,), scale)), nn.Parameter(torch.full((3,), shift))

    def forward(self, x: Any) -> Any:
        return x * self.scale + self.shift


def put(folder: Path, name: str, version: int, module: nn.Module, example: Any = None, dynamic: Any = "batch") -> Path:
    """Export a module into a folder of models, as a file that appears whole."""
    x = torch.randn(4, 3) if example is None else example
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic == "batch" else dynamic
    program = torch.export.export(module.eval(), (x,), dynamic_shapes=shapes)
    at = folder / name / str(version)
    at.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, str(at / "new.tmp.pt2"))
    os.replace(at / "new.tmp.pt2", at / "model.pt2")
    return at / "model.pt2"


class Client:
    """One kept connection, JSON in and out."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any, dict[str, str]]:
        """(status, JSON or bytes, headers)."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, raw, headers or {})
        response = self.connection.getresponse()
        content = response.read()
        kind = response.headers.get("content-type", "")
        return response.status, json.loads(content) if kind == "application/json" and content else content, {k.lower(): v for k, v in response.getheaders()}

    def infer(self, model: str, data: list[Any], path: str = "") -> Any:
        """The first output's data of a model that takes FP32 [n, 3]."""
        shape = [len(data), 3]
        request = {"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": data}]}
        status, found, _ = self.ask("POST", f"/v2/models/{model}{path}/infer", request)
        assert status == 200, found
        return found


@contextlib.contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Any]:
    """A server over a folder; gives it, with `port`. It is drained at the end."""
    import uvloop

    from flambeau.serve.server import Server
    from flambeau.serve.settings import ServerSettings

    made = ServerSettings(folder, port=0, **{"poll": 0.0, "drain_timeout": 5.0, **settings})
    ready, found, failed = threading.Event(), [], []

    async def main() -> None:
        server = Server(made)
        await server.start()
        found.append(server)
        ready.set()
        await server.run()

    def thread() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            failed.append(error)
            ready.set()

    t = Thread(target=thread)
    t.start()
    assert ready.wait(120)
    if failed:
        raise failed[0]
    server = found[0]
    try:
        yield server
    finally:
        server.loop.call_soon_threadsafe(server.stop)
        t.join(30)
        assert not t.is_alive()
        assert not failed, failed


def refresh(server: Any, times: int = 2) -> None:
    """Have the server look at its folder; what has changed is read when it has not changed since the last look."""
    for _ in range(times):
        asyncio.run_coroutine_threadsafe(server.repository.refresh(), server.loop).result(60)
