"""`flambeau launch`: environment, output, exit codes, the first failure, restarts from a checkpoint, signals, no orphans, several launchers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flambeau.distributed.launcher.arguments import config_from_args, parse_args
from tests import processes
from tests.distributed.ranks import HERE, ROOT, environment

SCRIPT = str(HERE / "launched.py")
LAUNCH = [sys.executable, "-m", "flambeau", "launch"]


def launch(*arguments: str, command: list[str] = LAUNCH) -> subprocess.CompletedProcess[str]:
    return processes.run([*command, *arguments], env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=240)


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
    launcher = processes.popen([*LAUNCH, "--nproc-per-node=2", SCRIPT, "sleep", str(tmp_path)], env=environment(), cwd=ROOT, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 150
        while len(list(tmp_path.glob("rank-*-0.json"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.1)
        ranks = [json.loads(path.read_text())["pid"] for path in tmp_path.glob("rank-*-0.json")]
        assert len(ranks) == 2
        launcher.send_signal(number)
        launcher.communicate(timeout=150)
        assert launcher.returncode == (-9 if number == signal.SIGKILL else 128 + number)
        end = time.monotonic() + 20
        while any(map(is_alive, ranks)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(map(is_alive, ranks))
    finally:
        processes.end(launcher)


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
            launchers.append(processes.popen([*LAUNCH, *common, *own, SCRIPT, "kill", str(tmp_path)], env=environment(), cwd=ROOT, stderr=subprocess.PIPE))
        for launcher, (_, errors) in zip(launchers, processes.outputs(launchers, 200), strict=True):
            assert launcher.returncode == 0, errors.decode()
        found = [json.loads((tmp_path / f"rank-{rank}-1.json").read_text()) for rank in range(2)]
        assert [f["sum"] for f in found] == [[3.0, 3.0]] * 2 and sorted(f["GROUP_RANK"] for f in found) == ["0", "1"]
    finally:
        for launcher in launchers:
            processes.end(launcher)


def test_other_programs_and_modules(tmp_path):
    done = launch("--nproc-per-node=2", "--no-python", "sh", "-c", 'echo "rank $RANK of $WORLD_SIZE"')
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
    done = launch("-m", "json.tool", "--help")
    assert done.returncode == 0 and "usage" in done.stdout


@pytest.mark.parametrize("own, rest", [((), ["--local-rank=0", "--local-rank=1"]), (("--use-env",), ["", ""])])
def test_the_older_form(own, rest, tmp_path):
    done = launch(*own, "--nproc-per-node=2", str(HERE / "shown.py"), "-x", command=[sys.executable, "-m", "flambeau.distributed.launch"])
    assert done.returncode == 0 and "torch.distributed.launch is deprecated" in done.stderr
    assert sorted(done.stdout.splitlines()) == [" ".join(filter(None, [str(rank), text, "-x"])) for rank, text in enumerate(rest)]
    done = launch("--no-python", "true", command=[sys.executable, "-m", "flambeau.distributed.launch"])
    assert done.returncode == 2 and "you must also set the '--use-env' flag" in done.stderr


@pytest.mark.parametrize("arguments, message", [
    (["--nnodes=a", "x.py"], 'not in "MIN:MAX" format'), (["--nproc-per-node=many", "x.py"], "Unsupported nproc_per_node value: many"),
    (["--nproc-per-node=gpu", "x.py"], "runs on the CPU"), (["--rdzv-backend=etcd", "x.py"], "static or c10d"),
    (["--tee=7", "x.py"], "--tee: what is redirected"),
    (["-m", "--no-python", "x"], "at the same time"), (["--max-restarts=-1", "x.py"], "at least 0"),
])  # fmt: skip
def test_wrong_arguments(arguments, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        config_from_args(parse_args(arguments))


def test_arguments_from_the_environment(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_MAX_RESTARTS", "5")
    config, _, rest = config_from_args(parse_args(["script.py", "--nnodes", "7"]))
    assert (config.nproc_per_node, config.max_restarts, config.max_nodes, rest) == (3, 5, 1, ["-u", "script.py", "--nnodes", "7"])


FUNCTIONS = """
import os, sys, time
import flambeau.as_torch
flambeau.as_torch.install()
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher import LaunchConfig, elastic_launch, launch_agent

def total(factor, wait=0):
    dist.init_process_group("gloo")
    x = torch.full((3,), float(dist.get_rank() + 1))
    dist.all_reduce(x)
    print("from", dist.get_rank())
    return x * factor

def wrong(rank):
    if int(os.environ["RANK"]) == rank:
        raise ValueError(f"a mistake of rank {rank}")
    time.sleep(30)

def once(path):
    if not os.path.exists(path) and os.environ["RANK"] == "1":
        open(path, "w").close()
        os.kill(os.getpid(), 9)
    return os.environ["TORCHELASTIC_RESTART_COUNT"]

def config(**more):
    return LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", shutdown_timeout=5,
                        **{"max_restarts": 0, **more})

if __name__ == "__main__":
    folder = sys.argv[1]
    found = elastic_launch(config(), total)(10)
    assert sorted(found) == [0, 1] and all(value.tolist() == [30.0] * 3 for value in found.values()), found
    assert launch_agent(config(max_restarts=1), once, [os.path.join(folder, "mark")]) == {0: "1", 1: "1"}
    try:
        elastic_launch(config(), wrong)(1)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        assert (rank, failure.local_rank, failure.exitcode) == (1, 1, 1) and "ValueError: a mistake of rank 1" in failure.message["message"], failure
        assert error.name == "wrong" and 'raise ValueError(f"a mistake of rank {rank}")' in str(error), error
    else:
        raise AssertionError("nothing was raised")
    script = os.path.join(folder, "script.py")
    with open(script, "w") as file:
        file.write("import sys, torch; print(torch.__version__, sys.argv[1:])")
    logs = DefaultLogsSpecs(log_dir=os.path.join(folder, "logs"), redirects=Std.ALL)
    assert elastic_launch(config(logs_specs=logs, run_id="scripts", virtual_local_rank=True), sys.executable)("-u", script, "--x") == {0: None, 1: None}
    for rank in range(2):
        text = open(os.path.join(folder, "logs", os.listdir(os.path.join(folder, "logs"))[0], "attempt_0", str(rank), "stdout.log")).read()
        assert "flambeau" in text and "['--x']" in text, text
    assert elastic_launch(config(), "sh")("-c", "exit 0") == {0: None, 1: None}
    for wrong_one in (dict(rdzv_backend="etcd"), dict(rdzv_backend="static"), dict(nproc_per_node=0)):
        try:
            elastic_launch(LaunchConfig(**{**dict(min_nodes=1, max_nodes=1, nproc_per_node=1, rdzv_backend="c10d"), **wrong_one}), total)(1)
        except ValueError:
            continue
        raise AssertionError(wrong_one)
    print("all well")
"""


def test_functions_of_a_program(tmp_path):
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    done = processes.python(str(path), str(tmp_path), env=environment(), cwd=ROOT, timeout=240)
    assert done.returncode == 0 and done.stdout.endswith("all well\n"), done.stdout + done.stderr
    assert done.stdout.count("from") == 2  # pieces of their lines may mix


def waited_for(condition, what: str, limit: float = 120) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_machine_that_joins_later_and_one_that_goes(tmp_path):
    """--nnodes 1:2: one machine trains alone, a second one joins, is killed, and the first goes on alone, from the checkpoint each time."""
    port = free_port()
    common = [*LAUNCH, "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=2", "--shutdown-timeout=5", "--rdzv-backend=c10d",
              f"--rdzv-endpoint=localhost:{port}", "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1",
              str(HERE / "elastic.py"), str(tmp_path)]  # fmt: skip

    def steps() -> list[dict]:
        path = tmp_path / "steps"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    launchers = []
    try:
        launchers.append(processes.popen(common, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True))
        waited_for(lambda: len(steps()) > 3, "the first machine does not train")
        launchers.append(processes.popen(common, env=environment(), cwd=ROOT, stderr=subprocess.DEVNULL, text=True))
        waited_for(lambda: any(step["world"] == 2 for step in steps()), "the second machine is not taken in")
        launchers[1].kill()  # with its process, which the kernel ends
        waited_for(lambda: steps()[-1]["world"] == 1, "the first machine does not go on alone")
        (tmp_path / "stop").touch()
        _, errors = launchers[0].communicate(timeout=120)
        assert launchers[0].returncode == 0 and "machines have come" in errors, errors
        found = steps()
        # Nothing is lost: each start goes on at the step behind the last checkpoint, and joining is no failure.
        assert [step["step"] for step in found] == list(range(len(found)))
        assert next(step["restarts"] for step in found if step["world"] == 2) == "0" and found[-1]["restarts"] == "1"
    finally:
        for launcher in launchers:
            processes.end(launcher)
