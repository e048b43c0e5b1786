"""torch.multiprocessing: tensors between processes are shared memory; spawn reports failures; scripts under `flambeau run` start processes."""

from __future__ import annotations

import os
import time

import pytest

import flambeau
import flambeau.multiprocessing as mp
from tests import processes
from tests.nn.oracle import torch
from tests.threads import Thread, join


def test_names():
    assert not {n for n in torch.multiprocessing.__all__ if not hasattr(mp, n)}
    assert mp.get_all_sharing_strategies() == torch.multiprocessing.get_all_sharing_strategies()
    assert mp.get_sharing_strategy() == torch.multiprocessing.get_sharing_strategy()
    with pytest.raises(AssertionError, match="invalid sharing strategy"):
        mp.set_sharing_strategy("pigeons")
    assert mp.get_start_method() in mp.get_all_start_methods() and mp.cpu_count() > 0 and mp.current_process().name


@pytest.fixture(params=sorted(mp.get_all_sharing_strategies()))
def strategy(request):
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)


def add(queue, answers):
    """Changes what it gets, and sends parts of it back."""
    while (item := queue.get()) is not None:
        a, b = item["a"], item["b"]
        a.add_(1)
        answers.put((b.tolist(), a[1:], item["p"].requires_grad, type(item["p"]).__name__, item["s"].tolist()))
    queue.get()  # lives until the parent has what it sent


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_queues_share(strategy, method):
    if method == "spawn" and strategy == "file_system" and "file_descriptor" in mp.get_all_sharing_strategies():
        pytest.skip("starting an interpreter takes long: once is enough")
    context = mp.get_context(method)
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=add, args=(queue, answers))
    process.start()
    try:
        a = flambeau.arange(4.0)
        item = {"a": a, "b": a.view(2, 2).t(), "p": flambeau.nn.Parameter(flambeau.ones(2)), "s": flambeau.FloatStorage([1, 2])}
        queue.put(item)
        a.mul_(1)  # recorded after the put: still the same memory
        b, part, grad, kind, storage = answers.get(timeout=30)
        assert b == [[1.0, 3.0], [2.0, 4.0]] and grad and kind == "Parameter" and storage == [1.0, 2.0]
        assert a.tolist() == [1.0, 2.0, 3.0, 4.0] and a.is_shared()
        part.zero_()
        assert a.tolist() == [1.0, 0.0, 0.0, 0.0]  # what came back is the same memory too
        queue.put({**item, "a": flambeau.zeros(2, 0), "b": flambeau.ones(2, dtype=flambeau.bfloat16)})
        assert answers.get(timeout=30)[0] == [1.0, 1.0]
        y = flambeau.ones(2, requires_grad=True) * 2
        with pytest.raises(RuntimeError, match="non-leaf tensor"):
            queue.put(y)
    finally:
        queue.put(None)
        queue.put(None)
        process.join(10)
    assert process.exitcode == 0


def square(x):
    return x * x


def test_pool_and_pipes():
    with mp.Pool(2) as pool:
        assert [t.tolist() for t in pool.map_async(square, [flambeau.full((2,), float(i)) for i in range(4)]).get(60)] == [[i * i] * 2 for i in range(4)]
        assert pool.apply_async(square, (flambeau.tensor(3),)).get(60).item() == 9
    here, there = mp.Pipe()
    t = flambeau.ones(3)
    here.send(t)
    got = there.recv()
    got.add_(1)
    assert t.tolist() == [2.0] * 3  # sent by the main thread: shared in place
    other = flambeau.ones(3)
    thread = Thread(target=here.send, args=(other,))
    thread.start()
    join(thread)
    there.recv().add_(1)
    assert other.tolist() == [1.0] * 3 and not other.is_shared()  # by another thread: a copy


def test_share_memory():
    m = flambeau.nn.Sequential(flambeau.nn.Linear(2, 2), flambeau.nn.BatchNorm1d(2))
    before = m[0].weight.tolist()
    assert not m[0].weight.is_shared()
    assert m.share_memory() is m and all(t.is_shared() for t in m.state_dict().values()) and m[0].weight.tolist() == before
    t = flambeau.arange(3.0)
    view = t[1:]
    y = t + 1
    assert t.share_memory_() is t and view.is_shared() and y.tolist() == [1.0, 2.0, 3.0]
    view.zero_()
    assert t.tolist() == [0.0] * 3
    with pytest.raises(RuntimeError, match="uninitialized"):
        flambeau.nn.LazyLinear(2).share_memory()


def train(rank, model, steps):
    flambeau.manual_seed(rank)
    optimizer = flambeau.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(flambeau.ones(1, 2)).sum().backward()
        optimizer.step()


def test_processes_train_one_model():
    model = flambeau.nn.Linear(2, 1).share_memory()
    before = model.weight.tolist()[0]
    for rank in range(2):  # one after the other, so that no step is lost
        mp.start_processes(lambda i, r=rank: train(r, model, 3), nprocs=1, start_method="fork")
    assert model.weight.tolist()[0] == pytest.approx([w - 0.6 for w in before], abs=1e-5)


def fail(rank, how):
    if rank == 1:
        if how == "raise":
            raise ValueError("this rank cannot")
        if how == "exit":
            os._exit(7)
        os.kill(os.getpid(), 9)
    time.sleep(30)


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [("raise", mp.ProcessRaisedException, "ValueError: this rank cannot"), ("exit", mp.ProcessExitedException, "exit code 7"),
     ("kill", mp.ProcessExitedException, "signal SIGKILL")],
)  # fmt: skip
def test_failures_are_reported(how, kind, text):
    started = time.monotonic()
    with pytest.raises(kind, match=text) as error:
        mp.start_processes(fail, (how,), nprocs=2, start_method="fork")
    assert error.value.error_index == 1 and error.value.error_pid > 0 and time.monotonic() - started < 20
    context = mp.start_processes(square, nprocs=2, join=False, start_method="fork")
    assert len(context.pids()) == 2 and (context.join(60) or context.join(60))


_SCRIPT = """
import torch
import torch.multiprocessing as mp
import torch.storage, torch.serialization, torch.nn.modules.linear
from torch.multiprocessing import Process, Queue, set_start_method
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.tensor([i * i])

def write(i, t):
    t[i] = i + 1

if __name__ == "__main__":
    import sys
    twice = [n for n in sys.modules if n.startswith("torch.") and sys.modules[n] is not sys.modules.get("flambeau" + n[5:])]
    t = torch.zeros(2).share_memory_()
    mp.spawn(write, args=(t,), nprocs=2)
    print(t.tolist(), twice, isinstance(torch.nn.Linear(1, 1), torch.nn.modules.linear.Linear))
    print([b.tolist() for b in DataLoader(Squares(), 2, num_workers=1, multiprocessing_context="forkserver")])
"""


def test_spawn_under_flambeau_run(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    done = processes.python("-m", "flambeau", "run", str(tmp_path / "script.py"), timeout=100)
    assert done.stdout.splitlines() == ["[1.0, 2.0] [] True", "[[[0], [1]], [[4], [9]]]"], done.stderr
