"""`flambeau serve` as a command: several workers, one of which is killed, and the end in order on SIGTERM."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from flambeau.cli.main import main
from flambeau.serve.packages import package
from tests import processes
from tests.serve.running import Affine, Client, put
from tests.threads import Thread, beside, join

_LOGS = "events.log"


@contextlib.contextmanager
def _command(folder, *options):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = folder.parent / _LOGS
    with log.open("w") as out:
        process = processes.popen([sys.executable, "-m", "flambeau", "serve", str(folder), "--port", str(port), *options], stderr=out)
    try:
        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                if Client(port).ask("GET", "/v2/health/ready")[0] == 200:
                    break
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield port, process, log
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        processes.end(process)


def _events(log, name):
    return [e for line in log.read_text().splitlines() if line.startswith("{") and (e := json.loads(line))["event"] == name]


def _wait(true):
    until = time.monotonic() + 90
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def _children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_killed_worker_is_replaced_and_its_clients_get_errors_not_wrong_answers(tmp_path):
    folder = tmp_path / "models"
    put(folder, "m", 1, Affine())
    with _command(folder, "--workers", "2", "--poll", "0") as (port, process, log):
        _wait(lambda: len(_events(log, "ready")) == 2)
        wrong, counts = [], {"answers": 0, "errors": 0}

        def ask(number, ended):
            client = Client(port)
            while not ended.is_set():
                try:
                    found = client.infer("m", [[number, 0, 0]])["outputs"][0]["data"]
                except (OSError, EOFError, http.client.HTTPException):
                    counts["errors"] += 1
                    client = Client(port)
                    continue
                counts["answers"] += 1
                if found != [2 * number + 1, 1, 1]:
                    wrong.append(found)

        with beside(*[partial(ask, number) for number in range(4)]):
            time.sleep(0.5)
            first = _children(process.pid)
            assert len(first) == 2
            maps = [Path(f"/proc/{p}/maps").read_text() for p in first]
            assert all("model.pt2" in m for m in maps)  # both map the file's weights
            os.kill(first[0], signal.SIGKILL)
            _wait(lambda: len(_events(log, "ready")) == 3)
            assert len(now := _children(process.pid)) == 2 and first[0] not in now
            once = dict(counts)
            time.sleep(0.3)
        assert not wrong and counts["answers"] > max(50, once["answers"]), counts
        # A client loses its connection, and one more if the new one waits at the dying worker's socket when that is closed. Later none is lost.
        assert counts["errors"] == once["errors"] <= 2 * 4, (once, counts)
        assert [e["status"] for e in _events(log, "worker lost")] == [-signal.SIGKILL]
        text = Client(port).ask("GET", "/metrics")[1].decode()
        total = sum(float(line.split()[1]) for line in text.splitlines() if line.startswith("flambeau_requests_total"))
        # Of both workers and of the one that is gone. A worker counts an answer once it has sent it, so one that is killed in between has sent one
        # on a connection that it has not counted: that connection's client meets an error when it asks again.
        assert total >= counts["answers"] - counts["errors"], counts


def test_sigterm_answers_what_was_taken_and_refuses_nothing_silently(tmp_path):
    folder = tmp_path / "models"
    (folder / "slow" / "1").mkdir(parents=True)
    (folder / "slow" / "1" / "model.py").write_text(
        "import time\n"
        "class Model:\n"
        "    inputs = outputs = [('x', 'FP32', [-1, 3])]\n"
        "    def __init__(self, folder): pass\n"
        "    def predict(self, inputs):\n"
        "        time.sleep(0.7)\n"
        "        return inputs\n"
    )
    with _command(folder, "--allow-code", "--log-requests") as (port, process, log):
        found = []
        t = Thread(target=lambda: found.append(Client(port).infer("slow", [[1, 2, 3]])))
        t.start()
        idle = Client(port)
        assert idle.ask("GET", "/v2/health/live")[0] == 200
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        join(t)
        assert found[0]["outputs"][0]["data"] == [1, 2, 3]
        assert [e["connections_cut"] for e in _events(log, "stopped")] == [0]
        assert any(e["path"] == "/v2/models/slow/infer" and e["status"] == 200 and e["request"] for e in _events(log, "request"))


def test_what_is_wrong_on_the_command_line_is_said(tmp_path, capsys):
    for options, says in ((["nowhere"], "there is no"), ([str(tmp_path), "--certificate", "x"], "both"), ([str(tmp_path), "--workers", "0"], "at least 1")):
        assert main(["serve", *options]) == 2
        assert says in capsys.readouterr().err


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(ImportError, match=r"pip install 'flambeau\[serve\]'"):
        package("httptools", "flambeau serve")
    for name in [n for n in sys.modules if n.startswith("grpc.")]:  # a module that is there already is imported whatever its package is
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ImportError, match=r"pip install 'flambeau\[grpc\]'"):
        package("grpc.aio", "flambeau serve --grpc-port")


def test_a_port_that_is_taken_is_an_error_for_workers_too(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", str(tmp_path), "--workers", "2", "--port", str(taken.getsockname()[1])]) == 2
    assert "in use" in capsys.readouterr().err
