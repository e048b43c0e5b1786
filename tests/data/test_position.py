"""Loaders and samplers save where they stand and go on from there; lists in shared memory; what is said of a killed worker."""

from __future__ import annotations

import io
import itertools
import multiprocessing
import os
import pickle
import threading

import pytest

import flambeau
from flambeau.utils import data
from tests.threads import Thread, join


def travelled(state):
    """The state after save and load."""
    file = io.BytesIO()
    flambeau.save(state, file)
    file.seek(0)
    return flambeau.load(file)


class Numbers(data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return i


def loader(kind, workers):
    if kind == "iterable":
        return data.DataLoader(Stream(), batch_size=3, num_workers=workers)
    if kind == "stateful":
        return data.DataLoader(Stateful(), batch_size=3, num_workers=workers)
    own = flambeau.Generator().manual_seed(4) if "own" in kind else None
    if kind == "weighted":
        return data.DataLoader(Numbers(), 3, sampler=data.WeightedRandomSampler([1.0] * 40, 20), num_workers=workers)
    if kind == "replacement":
        return data.DataLoader(Numbers(), 3, sampler=data.RandomSampler(range(40), True, 70), num_workers=workers)
    if kind == "distributed":
        return data.DataLoader(Numbers(), 3, sampler=data.DistributedSampler(Numbers(), 2, 1), num_workers=workers)
    if kind == "foreign":
        return data.DataLoader(Numbers(), 3, sampler=list(range(22, 3, -1)), num_workers=workers)
    return data.DataLoader(Numbers(), 3, shuffle=True, generator=own, num_workers=workers, drop_last=True)


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        worker, count = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(worker, 20 + worker * 3, count))


class Stateful(Stream):
    """Knows its own position; counts how often a sample is read."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        items = list(super().__iter__())
        while self.at < len(items):
            self.at += 1
            yield items[self.at - 1]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def batches(iterator):
    return [b.tolist() for b in iterator]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["plain", "own", "weighted", "replacement", "distributed", "foreign", "iterable", "stateful"])
def test_a_loader_goes_on(kind, workers):
    cuts = (0, 1, 3, 5) if workers == 0 else (3,)
    for cut in cuts:
        flambeau.manual_seed(11)
        first = loader(kind, workers)
        if kind == "own":
            batches(first)  # the second pass has another shuffle
        iterator = iter(first)
        head = [next(iterator).tolist() for _ in range(cut)]
        state = travelled(first.state_dict())
        tail = batches(iterator)
        after = batches(first) if kind == "own" else None
        flambeau.manual_seed(99)  # the new process stands elsewhere
        before = flambeau.get_rng_state().tolist()
        second = loader(kind, workers)
        second.load_state_dict(state)
        assert second.state_dict()["yielded"] == cut
        assert batches(second) == tail, (kind, cut)
        if after is not None:
            assert batches(second) == after
        else:
            assert flambeau.get_rng_state().tolist() == before  # the default generator is the program's own
        assert len(head) + len(tail) > cut


def test_a_finished_pass_begins_anew():
    first = loader("own", 0)
    batches(first)
    state = first.state_dict()
    second = loader("own", 0)
    second.load_state_dict(state)
    assert batches(first) == batches(second)
    persistent = data.DataLoader(Numbers(), 4, shuffle=True, generator=flambeau.Generator().manual_seed(1), num_workers=1, persistent_workers=True)
    batches(persistent)
    iterator = iter(persistent)
    next(iterator)
    state = travelled(persistent.state_dict())
    tail = batches(iterator)
    persistent.load_state_dict(state)  # into the workers that run
    assert batches(persistent) == tail


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.SequentialSampler(range(17)), lambda: data.RandomSampler(range(17)), lambda: data.RandomSampler(range(17), True, 50),
        lambda: data.RandomSampler(range(17), generator=flambeau.Generator().manual_seed(2)), lambda: data.SubsetRandomSampler(list(range(17))),
        lambda: data.WeightedRandomSampler([1.0, 2, 3] * 6, 17), lambda: data.DistributedSampler(range(34), 2, 0),
        lambda: data.BatchSampler(data.RandomSampler(range(40)), 3, False), lambda: data.BatchSampler(list(range(40)), 3, True),
        lambda: data.WeightedRandomSampler([1.0, 2, 3] * 6, 17, generator=flambeau.Generator().manual_seed(2)),
    ],
)  # fmt: skip
def test_samplers_go_on(make):
    sampler = make()
    list(sampler)
    iterator = iter(sampler)
    for _ in range(5):
        next(iterator)
    state = travelled(sampler.state_dict())
    rest = list(iterator)
    again = make()
    again.load_state_dict(state)
    assert list(again) == rest and len(list(again)) == len(again)


def test_serialized_list():
    items = [{"name": f"image{i}", "box": [i, i + 1], "t": (i,)} for i in range(50)]
    flat = data.SerializedList(items)
    assert len(flat) == 50 and list(flat) == items and flat[-1] == items[-1] and flat[3:9:2] == items[3:9:2]
    assert "50 objects" in repr(flat) and flat._bytes.is_shared() and flat.nbytes > 1000
    with pytest.raises(IndexError, match="out of range"):
        flat[50]
    assert pickle.loads(pickle.dumps(flat))[7] == items[7] and list(data.SerializedList([])) == []
    for method in ("fork", "spawn"):
        names = list(data.DataLoader(flat, 10, collate_fn=lambda_free, num_workers=1, multiprocessing_context=method))
        assert [n for batch in names for n in batch] == [item["name"] for item in items]


def lambda_free(samples):
    return [s["name"] for s in samples]


def shared_bytes(flat, results):
    flat[0]
    results.put((flat._bytes.is_shared(), flat._bytes.data_ptr()))


def test_serialized_list_is_not_copied():
    import flambeau.multiprocessing as mp

    flat = data.SerializedList(range(10))
    results = mp.get_context("fork").SimpleQueue()
    process = multiprocessing.get_context("fork").Process(target=shared_bytes, args=(flat, results))
    process.start()
    process.join(60)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0
    assert results.get() == (True, flat._bytes.data_ptr())


class Killed(Numbers):
    def __getitem__(self, i):
        if i == 5:
            os.kill(os.getpid(), 9)
        return i


def test_a_killed_worker_is_described():
    with pytest.raises(RuntimeError) as error:
        list(data.DataLoader(Killed(), 4, num_workers=2))
    text = str(error.value)
    assert "is killed by signal: SIGKILL" in text and "worker 1" in text and "indices [4, 5, 6, 7]" in text and "SerializedList" in text


def test_workers_start_beside_threads():
    """Fork while other threads compute, compile and draw: no worker may wait for a lock that nobody holds any more."""
    stop = threading.Event()
    errors = []

    def work(seed):
        generator = flambeau.Generator().manual_seed(seed)
        try:
            for n in itertools.count(2):
                if stop.is_set():
                    return
                x = flambeau.randn(32 + n % 40, 40, generator=generator)
                (x @ x.t() + float(n)).relu().sum().item()
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    try:
        for _ in range(5):
            batches = list(data.DataLoader(Computing(), 2, num_workers=2, timeout=30))
            assert [b.tolist() for b in batches] == [[[3.0] * 3] * 2] * 3
    finally:
        stop.set()
        join(*threads)
    assert not errors


class Computing(data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return (flambeau.ones(3, 3) @ flambeau.ones(3)).relu()


class _Shard(data.BatchSampler):
    """Every other batch of another sampler, as packages write it: without super().__init__, with an `__iter__` of its own."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return itertools.islice(iter(self.batches), 0, None, 2)

    def __len__(self) -> int:
        return (len(self.batches) + 1) // 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_sampler_without_our_attributes(workers):
    batches = data.BatchSampler(data.SequentialSampler(range(12)), 2, False)
    loader = data.DataLoader(list(range(12)), batch_sampler=_Shard(batches), num_workers=workers)
    everything = [b.tolist() for b in loader]
    assert everything == [[0, 1], [4, 5], [8, 9]] and len(loader) == 3
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    again = data.DataLoader(list(range(12)), batch_sampler=_Shard(batches), num_workers=workers)
    again.load_state_dict(state)
    assert [b.tolist() for b in again] == everything[1:]
