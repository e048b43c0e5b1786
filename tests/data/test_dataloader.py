"""DataLoader against PyTorch: the same batches for the same seed, with and without workers; errors, shutdown, memory."""

from __future__ import annotations

import gc
import glob
import os
import random
import subprocess
import sys
import time

import numpy
import pytest

import flambeau
from flambeau.utils import data as our_data
from tests import processes
from tests.nn.oracle import torch

their_data = torch.utils.data
BOTH = ((flambeau, our_data), (torch, their_data))


def plain(x):
    """Tensors as (dtype, values), in any nesting."""
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        return str(x.dtype), x.tolist()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [plain(v) for v in x]
    return x


class Samples:
    """Samples of every kind, some drawn from the generators that a worker seeds."""

    def __init__(self, module):
        self.module = module

    def __len__(self):
        return 23

    def __getitem__(self, i):
        return {
            "tensor": self.module.ones(3) * i, "int": i, "float": float(i), "text": str(i), "array": numpy.arange(2) + i,
            "nested": [i, (i, i * 2.0)], "bool": i % 2 == 0, "random": random.random(), "numpy": numpy.random.rand(),
            "draw": self.module.rand(2),
        }  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "kwargs",
    [
        {"batch_size": 4, "shuffle": True},
        {"batch_size": 5, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 3, "shuffle": True, "persistent_workers": True},
        {"batch_size": 2, "sampler": "weighted"},
        {"batch_size": 4, "sampler": "replacement"},
    ],
)
def test_same_batches_as_pytorch(kwargs, workers):
    results = []
    for module, data in BOTH:
        module.manual_seed(5)
        random.seed(1)
        numpy.random.seed(2)
        options = dict(kwargs)
        if options.get("sampler") == "weighted":
            options["sampler"] = data.WeightedRandomSampler([1.0, 2, 3, 4, 0.5] * 4, 11)
        elif options.get("sampler") == "replacement":
            options["sampler"] = data.RandomSampler(range(23), True, 40)
        if workers == 0:
            options.pop("persistent_workers", None)
        loader = data.DataLoader(Samples(module), num_workers=workers, **options)
        results.append([plain(batch) for _ in range(2) for batch in loader] + [len(loader)])
    assert results[0] == results[1]


def stream(module, data):
    class Stream(data.IterableDataset):
        def __iter__(self):
            info = data.get_worker_info()
            start = 0 if info is None else info.id * 100
            return iter([module.tensor(start + i) for i in range(7)])

    return Stream()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_iterable_datasets(workers, drop_last):
    results = [[plain(b) for b in data.DataLoader(stream(module, data), batch_size=3, num_workers=workers, drop_last=drop_last)] for module, data in BOTH]
    assert results[0] == results[1]


def test_tensor_datasets_are_taken_whole():
    results = []
    for module, data in BOTH:
        module.manual_seed(0)
        tensors = data.TensorDataset(module.arange(200.0).view(100, 2), module.arange(100))
        loader = data.DataLoader(data.Subset(tensors, list(range(50, 100))), 8, shuffle=True)
        results.append([plain(b) for b in loader])
    assert results[0] == results[1]


def test_a_batch_is_a_copy():
    x = flambeau.zeros(4, 2)
    (batch,) = next(iter(our_data.DataLoader(our_data.TensorDataset(x), 4)))
    batch.add_(1)
    assert x.sum().item() == 0


class Failing(our_data.Dataset):
    def __init__(self, action):
        self.action = action

    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == 5:
            self.action()
        return flambeau.ones(5000)


def drain(dataset, **kwargs):
    return list(our_data.DataLoader(dataset, 2, **kwargs))


def test_exception_of_a_worker_has_its_traceback():
    def boom():
        raise KeyError("boom")

    with pytest.raises(KeyError) as error:
        drain(Failing(boom), num_workers=2)
    text = str(error.value)
    assert "Caught KeyError in DataLoader worker process 0." in text and "in boom" in text and "KeyError: 'boom'" in text
    with pytest.raises(KeyError, match="boom"):
        drain(Failing(boom))


def test_killed_worker_is_reported():
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid \d+\) is killed by signal: SIGKILL"):
        drain(Failing(lambda: os.kill(os.getpid(), 9)), num_workers=2)


def test_exiting_worker_is_reported():
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        drain(Failing(lambda: os._exit(3)), num_workers=1)


def test_timeout():
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        drain(Failing(lambda: time.sleep(2)), num_workers=1, timeout=0.3)


def test_worker_init_fn_and_its_errors():
    seen = []

    def init(worker):
        raise ValueError(f"worker {worker} cannot start")

    with pytest.raises(ValueError, match="cannot start"):
        drain(Failing(lambda: None), num_workers=1, worker_init_fn=init)
    assert seen == [] and our_data.get_worker_info() is None


class Images(our_data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        return flambeau.full((100, 100), float(i)), i


def segments():
    """The directories that this process's loaders have."""
    return set(glob.glob(f"/dev/shm/flambeau-batches-{os.getpid()}-*"))


def test_shared_memory_is_right_and_goes_away():
    gc.collect()
    before = segments()
    loader = our_data.DataLoader(Images(), 4, num_workers=2, persistent_workers=True)
    for epoch in range(2):
        for i, (images, index) in enumerate(loader):
            assert images[:, 3, 4].tolist() == [float(n) for n in index.tolist()]
            if epoch == 0 and i == 5:
                break  # a pass that is left early
    assert not os.access("/dev/shm", os.W_OK) or len(segments() - before) == 1
    processes = [w.process for w in loader._iterator._workers]
    del loader
    gc.collect()
    assert not any(p.is_alive() for p in processes)
    iterator = iter(our_data.DataLoader(Images(), 4, num_workers=1))
    next(iterator)
    del iterator
    gc.collect()
    assert segments() <= before


KILLED = """
import os, signal
import flambeau
from flambeau.utils.data import DataLoader
from tests.data.test_dataloader import Images
iterator = iter(DataLoader(Images(), 4, num_workers=1))
next(iterator)
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no /dev/shm")
def test_segments_of_a_killed_program_are_removed_by_the_next_loader():
    killed = processes.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, timeout=120).stdout.strip()
    left = f"/dev/shm/flambeau-batches-{killed}-*"
    end = time.monotonic() + 60  # its worker holds the lock, too, until it sees that its parent is gone
    while glob.glob(left) and time.monotonic() < end:
        mine = iter(our_data.DataLoader(Images(), 4, num_workers=1))
        assert next(mine)[0].shape == (4, 100, 100)
        time.sleep(0.2)
    assert killed.isdecimal() and not glob.glob(left)


def test_out_of_order_delivery():
    loader = our_data.DataLoader(Images(), 10, num_workers=2, in_order=False)
    assert sorted(i for _, index in loader for i in index.tolist()) == list(range(60))


def test_spawned_workers():
    dataset = our_data.TensorDataset(flambeau.arange(20.0).reshape(10, 2), flambeau.arange(10))
    loader = our_data.DataLoader(dataset, 5, num_workers=1, multiprocessing_context="spawn")
    assert [plain(b) for b in loader] == [plain(b) for b in our_data.DataLoader(dataset, 5)]


@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"sampler": [1], "shuffle": True},
        {"batch_sampler": [[1]], "batch_size": 3}, {"batch_size": None, "drop_last": True}, {"persistent_workers": True},
        {"batch_size": 0}, {"multiprocessing_context": "fork"},
    ],
)  # fmt: skip
def test_argument_errors(kwargs):
    for _, data in BOTH:
        with pytest.raises(ValueError):
            data.DataLoader([1, 2], **kwargs)


class LoaderLike:
    """No DataLoader, with the attributes that PyTorch's iterators read of one, as fastai's loader makes it."""

    _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
    generator, prefetch_factor, timeout, pin_memory, pin_memory_device, persistent_workers = None, 2, 0, False, "", False
    multiprocessing_context = worker_init_fn = None

    def __init__(self, module, data, workers):
        self.module, self.num_workers, self.dataset = module, workers, self
        self._dataset_kind = data.dataloader._DatasetKind.Iterable
        self._index_sampler = iter(range(100))
        self.multiprocessing_context = module.multiprocessing if workers else None

    def _get_shared_seed(self):
        return None

    def collate_fn(self, samples):
        return samples

    def __iter__(self):
        worker = self.module.utils.data.get_worker_info()
        return iter([self.module.full((2,), i) for i in range(5) if worker is None or i % worker.num_workers == worker.id])


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_take_what_is_like_a_loader(workers):
    """By the attributes that PyTorch's iterators read: each of ours reads no other without having something in its place."""
    found = []
    for module, data in BOTH:
        kind = data.dataloader._MultiProcessingDataLoaderIter if workers else data.dataloader._SingleProcessDataLoaderIter
        iterator = kind(LoaderLike(module, data, workers))
        found.append([plain(batch) for batch in iterator])
    assert found[0] == found[1] and len(found[0]) == 5


def test_workers_are_processes_to_those_who_look() -> None:
    for module, data in BOTH:
        loader = data.DataLoader(Samples(module), batch_size=2, num_workers=2, persistent_workers=True)
        next(iter(loader))
        workers = loader._iterator._workers
        assert len({w.pid for w in workers} | {os.getpid()}) == 3 and all(w.is_alive() for w in workers)
        for w in workers:
            w.terminate()
            w.join(5)
            assert not w.is_alive()
