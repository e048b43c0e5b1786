"""flambeau.distributed.ray: actors as ranks, a dead one replaced, the first failure raised; without Ray an error that names the extra."""

from __future__ import annotations

import sys

import pytest

from flambeau.distributed import ray as on_ray
from tests import processes
from tests.distributed.ranks import ROOT, environment

PROGRAM = """
import os, signal, sys
import flambeau.as_torch
flambeau.as_torch.install()
import ray
import torch
import torch.distributed as dist
from torch.distributed.ray import run

def train(folder):
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    path, start = os.path.join(folder, "checkpoint.pt"), 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        start = saved["step"]
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(start, 6):
        if attempt == 0 and rank == 1 and step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        (ddp(torch.full((2, 3), 1.0 + rank + step)) - 1).square().mean().backward()
        optimizer.step()
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, path + ".new")
            os.replace(path + ".new", path)
        dist.barrier()
    return start, model.weight.tolist(), os.environ["LOCAL_RANK"]

def wrong():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise ValueError("a mistake of rank 1")
    dist.barrier()

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    first, second = run(train, sys.argv[1], num_workers=2, max_restarts=1)
    assert first[0] == second[0] == 4 and first[1] == second[1] and (first[2], second[2]) == ("0", "1"), (first, second)
    try:
        run(wrong, num_workers=2)
    except ValueError as error:
        assert "a mistake of rank 1" in str(error) and any("rank 1 of 2 failed" in note for note in error.__notes__), error
    else:
        raise AssertionError("nothing was raised")
    ray.shutdown()
    print("all well")
"""


def test_actors_are_ranks(tmp_path):
    pytest.importorskip("ray")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    own = environment()
    own["PYTHONPATH"] = ":".join([str(ROOT), *[entry for entry in sys.path if entry.endswith("site-packages")]])
    done = processes.python(str(path), str(tmp_path), env=own, cwd=tmp_path, timeout=600)
    assert done.returncode == 0 and "all well" in done.stdout, done.stdout + done.stderr
    assert "rank 1 failed" in done.stderr and "all are replaced (1 restarts left)" in done.stderr


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'flambeau\[ray\]'"):
        on_ray.run(print, num_workers=1)


@pytest.mark.parametrize("wrong", [{"num_workers": 0}, {"max_restarts": -1}])
def test_wrong_arguments(wrong, monkeypatch):
    monkeypatch.setattr(on_ray, "_ray", lambda: None)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        on_ray.run(print, **wrong)


def test_environments():
    found = on_ray._environments([("a", "10.0.0.1", 5), ("b", "10.0.0.2", 6), ("a", "10.0.0.1", 7)], 1, 3)
    assert [each["LOCAL_RANK"] for each in found] == ["0", "0", "1"] and [each["GROUP_RANK"] for each in found] == ["0", "1", "0"]
    assert {each["MASTER_ADDR"] + ":" + each["MASTER_PORT"] for each in found} == {"10.0.0.1:5"} and found[0]["LOCAL_WORLD_SIZE"] == "2"
