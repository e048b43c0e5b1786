"""Resident size, threads, and memory that is shared with NumPy and DLPack."""

from __future__ import annotations

import queue
import sys
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.runtime import buffers
from flambeau.trace import evaluate
from tests import processes
from tests.threads import Thread, join

pytestmark = pytest.mark.usefixtures("whole")

TRAINING = """
import flambeau as torch
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(64, 32), torch.randint(0, 10, (64,))
sizes = {}
total = 0.0
for step in range(2001):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y) * (1.0 + step / 1000)
    loss.backward()
    optimizer.step()
    if LOOK and step % LOOK == 0:
        total += loss.item()
    if step in (50, 1000, 2000):
        sizes[step] = resident()
print(sizes[2000] - sizes[50], sizes[2000] - sizes[1000])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/statm")
@pytest.mark.parametrize("look", [0, 1, 7])
def test_training_leaves_the_resident_size_flat(look: int) -> None:
    """2,000 steps with a changing number in the loss, which is never looked at, always, or sometimes."""
    out = processes.python("-c", TRAINING.replace("LOOK", str(look)), check=True).stdout
    since_50, since_1000 = map(int, out.split())
    assert since_50 < 8 << 20 and since_1000 < 2 << 20, (since_50, since_1000)


def test_the_plans_of_a_process_share_one_arena() -> None:
    """The first step of a training (new momentum), its other steps and other batch sizes have plans of their own, but not arenas."""
    buffers.empty_pool()
    net = ft.nn.Sequential(ft.nn.Linear(64, 512), ft.nn.GELU(), ft.nn.Linear(512, 64))
    optimizer = ft.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    arenas: list[int] = []

    def observer(plan: Any, reason: str) -> None:
        arenas.append(plan.plan.arena_bytes)

    evaluate.OBSERVERS.append(observer)
    try:
        for batch in (1024, 1024, 2048, 1536):
            optimizer.zero_grad()
            net(ft.ones(batch, 64)).square().mean().backward()
            optimizer.step()
    finally:
        evaluate.OBSERVERS.remove(observer)
    assert len([size for size in arenas if size > 1 << 20]) >= 4
    assert buffers.statistics()["arena_bytes"] == buffers.size_class(max(arenas))


# -- threads ----------------------------------------------------------------------------------------------------------


def in_thread(call: Any) -> Any:
    """The result of a call in another thread."""
    box: list[Any] = []
    thread = Thread(target=lambda: box.append(call()))
    thread.start()
    join(thread)
    return box[0]


def test_pending_values_of_another_thread() -> None:
    x = ft.arange(6.0)
    pending = in_thread(lambda: x * 2)
    assert pending.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    extended = in_thread(lambda: x * 3)[1:] + 1
    assert in_thread(lambda: (extended * 2).tolist()) == [8.0, 14.0, 20.0, 26.0, 32.0]
    assert extended.tolist() == [4.0, 7.0, 10.0, 13.0, 16.0]
    view = in_thread(lambda: (x + 1).reshape(2, 3)[1])
    view.mul_(10)
    assert view.tolist() == [40.0, 50.0, 60.0]


def test_batches_through_a_queue() -> None:
    """A thread makes batches that it never looks at; another one trains on them."""
    batches: queue.Queue[Any] = queue.Queue(maxsize=2)
    data = ft.arange(64.0).reshape(16, 4)

    def produce() -> None:
        for i in range(0, 16, 2):
            batches.put(data[i : i + 2] / 64 + 0.5, timeout=60)
        batches.put(None, timeout=60)

    producer = Thread(target=produce)
    producer.start()
    weight = ft.zeros(4, requires_grad=True)
    seen = []
    while (batch := batches.get(timeout=60)) is not None:
        loss = (batch @ weight - 1).square().mean()
        (gradient,) = ft.autograd.grad(loss, weight)
        assert gradient is not None
        with ft.no_grad():
            weight -= 0.1 * gradient
        seen.append(batch.sum())
    join(producer)
    expected = np.zeros(4, np.float64)
    for i in range(0, 16, 2):
        rows = np.arange(64.0).reshape(16, 4)[i : i + 2] / 64 + 0.5
        expected -= 0.1 * 2 / 2 * rows.T @ (rows @ expected - 1)
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-5)
    assert sum(s.item() for s in seen) == pytest.approx(sum(range(64)) / 64 + 32)


def test_threads_at_once() -> None:
    """Four threads with programs of their own, each against the same program alone."""

    def program(seed: int) -> Any:
        x = ft.linspace(0, 1, 500, dtype=ft.float64) + seed
        for k in range(30):
            x = (x * 1.01 + seed).sin() if k % 3 else x + x.mean()
            if k % 10 == 9:
                x.sum().item()
        return x.tolist()

    alone = [program(seed) for seed in range(4)]
    found: dict[int, Any] = {}

    def run(seed: int) -> None:
        found[seed] = program(seed)

    threads = [Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert [found[seed] for seed in range(4)] == alone


SAME_BITS = """
import sys, hashlib
import flambeau as torch
torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
F = torch.nn.functional
digest = hashlib.sha256()
def see(t):
    digest.update(t.detach().contiguous().numpy().tobytes())
net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Dropout(0.3),
                          torch.nn.Flatten(), torch.nn.Linear(16 * 7 * 7, 300), torch.nn.GELU(), torch.nn.LayerNorm(300), torch.nn.Linear(300, 10))
optimizer = torch.optim.AdamW(net.parameters())
x, y = torch.randn(40, 3, 16, 16), torch.randint(0, 10, (40,))
for _ in range(2):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    see(loss)
for p in net.parameters():
    see(p); see(p.grad)
big = torch.randn(700, 900)
for t in (big.sum(), big.sum(0), big.softmax(1), big.softmax(0), big.cumsum(0), big @ big.t(),
          big.var(1), big.sort(1)[0], big.logsumexp(0), big.flatten().cumsum(0)):
    see(t)
print(digest.hexdigest())
"""


def test_same_bits_on_one_and_two_threads() -> None:
    runs = [processes.python("-c", SAME_BITS, n, check=True).stdout for n in ("1", "2")]
    assert runs[0] == runs[1]


# -- shared memory ------------------------------------------------------------------------------------------------------


def test_numpy_shares_memory() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = ft.from_numpy(array)
    t[1] = 7
    assert array[1].tolist() == [7.0] * 4
    array[0, 0] = -1
    assert t[0, 0].item() == -1 and (t * 2)[0, 0].item() == -2
    transposed = ft.from_numpy(array.T[1:])
    assert transposed.stride() == (1, 4)
    transposed.mul_(2)
    assert array[2].tolist() == [8.0, 18.0, 20.0, 22.0]
    made = ft.zeros(3)
    seen, same = made.numpy(), np.asarray(made)
    made.add_(1)
    seen += 1
    assert made.tolist() == same.tolist() == [2.0, 2.0, 2.0]
    assert np.sum(made.numpy()) == 6.0 and isinstance(np.add(made.numpy(), 1), np.ndarray)


def test_numpy_refusals() -> None:
    with pytest.raises(RuntimeError, match="requires grad"):
        ft.ones(2, requires_grad=True).numpy()
    with pytest.raises(TypeError):
        ft.from_numpy([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ft.from_numpy(np.array(["a"]))
    with pytest.raises((TypeError, RuntimeError)):
        ft.ones(2, dtype=ft.bfloat16).numpy()
    with pytest.raises(ValueError, match="negative"):
        ft.from_numpy(np.arange(4)[::-1])


def test_numpy_of_what_requires_grad_without_grad_mode() -> None:
    """Each way to an array looks at the mode as PyTorch does: without gradients the array shares the memory."""
    torch = pytest.importorskip("torch")
    ways = {
        "numpy": lambda m, t: t.numpy(), "forced": lambda m, t: t.numpy(force=True), "array": lambda m, t: t.__array__(),
        "asarray": lambda m, t: np.asarray(t), "from_dlpack": lambda m, t: np.from_dlpack(t),
        "capsule": lambda m, t: m.from_dlpack(m.utils.dlpack.to_dlpack(t)),
    }  # fmt: skip
    for name, way in ways.items():
        for enabled in (True, False):
            for inner in (True, False):
                outcomes = []
                for module in (ft, torch):
                    x = module.ones(3, requires_grad=True)
                    t = x * 2 if inner else x
                    with module.set_grad_enabled(enabled):
                        try:
                            made = way(module, t)
                        except (RuntimeError, BufferError) as error:
                            outcomes.append(type(error))
                            continue
                    with module.no_grad():
                        made[0] = 7
                        outcomes.append(t.tolist())
                assert outcomes[0] == outcomes[1], (name, enabled, inner)


def test_dlpack_both_ways() -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "float64", "int64", "int32", "uint8", "bool", "float16", "complex64"):
        theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)).t()
        ours = ft.from_dlpack(theirs)
        assert str(ours.dtype) == str(theirs.dtype) and ours.shape == (3, 2) and ours.stride() == theirs.stride()
        assert ours.data_ptr() == theirs.data_ptr()
        back = torch.from_dlpack(ft.arange(6).reshape(2, 3).to(getattr(ft, dtype))[:, 1:])
        assert back.dtype is getattr(torch, dtype) and tuple(back.shape) == (2, 2) and back.stride() == (3, 1)
    mine = ft.zeros(4)
    other = torch.from_dlpack(mine)
    other[0] = 5
    assert mine.tolist() == [5.0, 0.0, 0.0, 0.0]
    mine.add_(1)
    assert other.tolist() == [6.0, 1.0, 1.0, 1.0]
    array = np.from_dlpack(mine)
    mine[3] = 9
    assert array[3] == 9
    assert mine.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="gradient"):
        ft.ones(2, requires_grad=True).__dlpack__()
