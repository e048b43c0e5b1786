"""`flambeau launch`: environment, output, exit codes, the first failure, restarts from a checkpoint, signals, no orphans, several launchers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flambeau.distributed.launcher.arguments import config_from_args, parse_args
from tests.distributed.ranks import HERE, ROOT, environment

SCRIPT = str(HERE / "launched.py")
LAUNCH = [sys.executable, "-m", "flambeau", "launch"]


def launch(*arguments: str, command: list[str] = LAUNCH) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_environment_and_sums(tmp_path):
    done = launch("--standalone", "--nproc-per-node", "2", "--role", "trainer", SCRIPT, "well", str(tmp_path), "-x", "--y=1")
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        found = json.loads((tmp_path / f"rank-{rank}-0.json").read_text())
        assert found["sum"] == [3.0, 3.0] and found["arguments"] == ["-x", "--y=1"]
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
        assert {name: found[name] for name in numbers} == {name: str(value) for name, value in numbers.items()}
        assert (found["ROLE_NAME"], found["TORCHELASTIC_RESTART_COUNT"], found["TORCHELASTIC_MAX_RESTARTS"]) == ("trainer", "0", "0")
    assert "output of 0" in done.stdout and "output of 1" in done.stdout  # their lines may mix


@pytest.mark.parametrize("what", ["raise", "exit"])
def test_first_failure_is_reported(what, tmp_path):
    done = launch("--nproc_per_node=2", "--shutdown-timeout=5", SCRIPT, what, str(tmp_path), command=[sys.executable, "-m", "flambeau.distributed.run"])
    assert done.returncode == 1
    report = done.stderr[done.stderr.rindex("Root Cause (first observed failure):") :]
    if what == "raise":
        assert "rank      : 1 (local_rank: 1)" in report and "exitcode  : 1" in report
        assert 'raise ValueError("a mistake of rank 1")' in report and "ValueError: a mistake of rank 1" in report
    else:
        assert "rank      : 0 (local_rank: 0)" in report and "exitcode  : 7" in report


def test_restart_goes_on_from_the_checkpoint(tmp_path):
    done = launch("--nproc-per-node=2", "--max-restarts=2", "--shutdown-timeout=5", SCRIPT, "checkpoint", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "was killed by SIGKILL" in done.stderr and "starting all again (2 restarts left)" in done.stderr
    ends = [json.loads((tmp_path / f"end-{rank}-1.json").read_text()) for rank in range(2)]
    assert ends[0] == ends[1] and ends[0][0] == 4
    (tmp_path / "checkpoint.pt").unlink()
    again = launch("--nproc-per-node=2", SCRIPT, "checkpoint", str(tmp_path))  # killed again, and no restart
    assert again.returncode == 1 and "SIGKILL" in again.stderr[again.stderr.rindex("Root Cause") :]


def test_files_and_tee(tmp_path):
    done = launch("--nproc-per-node=2", "--log-dir", str(tmp_path / "logs"), "-r", "1:3", "-t", "0:3", SCRIPT, "well", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[default0]:output of 0\n" and "[default0]:errors of 0\n" in done.stderr and "errors of 1" not in done.stderr
    (run,) = (tmp_path / "logs").iterdir()
    for rank in range(2):
        assert (run / "attempt_0" / str(rank) / "stdout.log").read_text() == f"output of {rank}\n"


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_all_and_nobody_is_left(number, tmp_path):
    launcher = subprocess.Popen([*LAUNCH, "--nproc-per-node=2", SCRIPT, "sleep", str(tmp_path)], env=environment(), cwd=ROOT, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 150
        while len(list(tmp_path.glob("rank-*-0.json"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.1)
        processes = [json.loads(path.read_text())["pid"] for path in tmp_path.glob("rank-*-0.json")]
        assert len(processes) == 2
        launcher.send_signal(number)
        launcher.communicate(timeout=150)
        assert launcher.returncode == (-9 if number == signal.SIGKILL else 128 + number)
        end = time.monotonic() + 20
        while any(map(is_alive, processes)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(map(is_alive, processes))
    finally:
        launcher.kill()
        launcher.communicate()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_two_launchers(backend, tmp_path):
    port = free_port()
    common = ["--nnodes=2", "--nproc-per-node=1", "--max-restarts=1", "--shutdown-timeout=5"]
    common += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}"] if backend == "c10d" else [f"--master-port={port}"]
    launchers = []
    try:
        for node in range(2):
            own = [] if backend == "c10d" else [f"--node-rank={node}"]
            launchers.append(subprocess.Popen([*LAUNCH, *common, *own, SCRIPT, "kill", str(tmp_path)], env=environment(), cwd=ROOT, stderr=subprocess.PIPE))
        for launcher in launchers:
            _, errors = launcher.communicate(timeout=200)
            assert launcher.returncode == 0, errors.decode()
        found = [json.loads((tmp_path / f"rank-{rank}-1.json").read_text()) for rank in range(2)]
        assert [f["sum"] for f in found] == [[3.0, 3.0]] * 2 and sorted(f["GROUP_RANK"] for f in found) == ["0", "1"]
    finally:
        for launcher in launchers:
            launcher.kill()
            launcher.communicate()


def test_other_programs_and_modules(tmp_path):
    done = launch("--nproc-per-node=2", "--no-python", "sh", "-c", 'echo "rank $RANK of $WORLD_SIZE"')
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
    done = launch("-m", "json.tool", "--help")
    assert done.returncode == 0 and "usage" in done.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--nnodes=a", "x.py"], 'not in "MIN:MAX" format'), (["--nproc-per-node=many", "x.py"], "Unsupported nproc_per_node value: many"),
    (["--nproc-per-node=gpu", "x.py"], "runs on the CPU"), (["--rdzv-backend=etcd", "x.py"], "static or c10d"), (["--tee=7", "x.py"], "--tee must be"),
    (["-m", "--no-python", "x"], "at the same time"), (["--max-restarts=-1", "x.py"], "at least 0"),
])  # fmt: skip
def test_wrong_arguments(arguments, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        config_from_args(parse_args(arguments))


def test_arguments_from_the_environment(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_MAX_RESTARTS", "5")
    config, _, rest = config_from_args(parse_args(["script.py", "--nnodes", "7"]))
    assert (config.nproc_per_node, config.max_restarts, config.max_nodes, rest) == (3, 5, 1, ["script.py", "--nnodes", "7"])
    assert os.path.basename(rest[0]) == "script.py"
