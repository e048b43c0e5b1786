"""Data pipes, collate maps and the inner modules that programs import; against PyTorch."""

from __future__ import annotations

import importlib
import warnings

import pytest

import flambeau
from tests.nn.oracle import torch

BOTH = (flambeau, torch)


def pipes(m):
    """The same pipelines in both frameworks, as lists."""
    it, mp = (importlib.import_module(f"{m.__name__}.utils.data.datapipes.{name}") for name in ("iter", "map"))
    source = it.IterableWrapper(range(10))
    out = [
        list(source.map(lambda x: x * 2).filter(lambda x: x % 3 != 1)), [list(b) for b in source.batch(3)], [list(b) for b in source.batch(3, drop_last=True)],
        list(source.batch(2).batch(2).unbatch(unbatch_level=2)), list(source.batch(2).batch(2).unbatch(-1)), list(source.concat(it.IterableWrapper("ab"))),
        list(source.zip(it.IterableWrapper("abc"))), list(source.mux(it.IterableWrapper([7, 8]))), [list(p) for p in source.fork(2)],
        [list(p) for p in source.demux(2, lambda x: x % 2)], [(k, list(g)) for k, g in source.groupby(lambda x: x % 3, keep_key=True)],
        [list(g) for g in source.groupby(lambda x: x % 4, group_size=2)], list(source.shuffle(buffer_size=4).set_seed(3)),
        list(source.shuffle().set_shuffle(False)), list(source.sharding_filter()), len(source.batch(4)), len(source.sharding_filter()),
        list(it.IterableWrapper([(1, 2), (3, 4)]).map(lambda a: -a, input_col=1)), list(it.IterableWrapper([(1, 2)]).map(lambda a, b: a + b, [0, 1], -1)),
        list(it.IterableWrapper([[1, 2]]).map(lambda a, b: a + b, [0, 1])), [c.tolist() for c in source.batch(5).collate()], list(it.Sampler(range(4))),
    ]  # fmt: skip
    sequence = mp.SequenceWrapper("abcdef")
    out += [
        sequence[2], len(sequence), sequence.map(str.upper)[1], list(sequence.batch(4)[1]), sequence.concat(sequence)[7], sequence.zip(sequence)[1],
        list(sequence.shuffle().set_seed(0)),
    ]  # fmt: skip
    m.manual_seed(3)
    out.append(list(source.shuffle()))
    return out


def test_pipes():
    assert pipes(flambeau) == pipes(torch)


@pytest.mark.parametrize("workers", [0, 2])
def test_pipes_in_a_loader(workers):
    results = []
    for m in BOTH:
        it = importlib.import_module(f"{m.__name__}.utils.data.datapipes.iter")
        m.manual_seed(5)
        pipe = it.IterableWrapper(range(20)).shuffle().sharding_filter()
        loader = m.utils.data.DataLoader(pipe, 3, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        results.append([[b.tolist() for b in loader] for _ in range(2)] + [m.rand(1).item()])
    assert results[0] == results[1]


def test_files(tmp_path):
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).write_text(name * 2)
    results = []
    for m in BOTH:
        it = importlib.import_module(f"{m.__name__}.utils.data.datapipes.iter")
        paths = it.FileLister(str(tmp_path), "*.txt")
        results.append([list(paths), list(paths.open_files().read_from_stream()), list(paths.open_files("b").read_from_stream(4))])
    assert results[0] == results[1]


def test_decorators():
    data = flambeau.utils.data

    @data.functional_datapipe("double_it")
    class Doubler(data.IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            for x in self.source:
                yield x * 2

    from flambeau.utils.data.datapipes.iter import IterableWrapper

    pipe = IterableWrapper([1, 2]).double_it()
    assert list(pipe) == [2, 4] and isinstance(pipe, data.IterableDataset)
    with pytest.raises(Exception, match="already taken"):
        data.functional_datapipe("double_it")(Doubler)
    first = iter(pipe)
    next(first)
    second = iter(pipe)
    assert next(second) == 2
    with pytest.raises(RuntimeError, match="invalidated"):
        next(first)

    random = data.non_deterministic(Doubler)
    with data.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-deterministic"):
        random([1])
    assert list(random([1])) == [2]
    sometimes = data.non_deterministic(lambda source: len(source) > 1)(Doubler)
    with data.guaranteed_datapipes_determinism():
        assert list(sometimes([1])) == [2]

    class Typed(data.IterDataPipe[int]):
        @data.runtime_validation
        def __iter__(self):
            yield from [1, "a"]

    with pytest.raises(RuntimeError, match="subtype"):
        list(Typed())
    with data.runtime_validation_disabled():
        assert list(Typed()) == [1, "a"]
    with pytest.raises(AttributeError):
        pipe.no_such_thing


def test_collate_maps():
    class Point:
        def __init__(self, x):
            self.x = x

    for m in BOTH:
        inner = importlib.import_module(f"{m.__name__}.utils.data._utils.collate")

        def points(batch, *, collate_fn_map=None, m=m):
            return m.tensor([p.x for p in batch])

        table = {Point: points, **inner.default_collate_fn_map}
        got = inner.collate([{"p": Point(1), "n": 2}, {"p": Point(3), "n": 4}], collate_fn_map=table)
        assert got["p"].tolist() == [1, 3] and got["n"].tolist() == [2, 4]
        with pytest.raises(TypeError, match="default_collate"):
            m.utils.data.default_collate([Point(1)])
        inner.default_collate_fn_map[Point] = points
        try:
            assert m.utils.data.default_collate([[Point(1)], [Point(2)]])[0].tolist() == [1, 2]
        finally:
            del inner.default_collate_fn_map[Point]


def test_inner_names_and_warnings():
    for m in BOTH:
        data = m.utils.data
        assert issubclass(data.dataloader._SingleProcessDataLoaderIter, data.dataloader._BaseDataLoaderIter)
        assert issubclass(data.dataloader._MultiProcessingDataLoaderIter, data.dataloader._BaseDataLoaderIter)
        assert data.dataloader._InfiniteConstantSampler and data._utils.MP_STATUS_CHECK_INTERVAL == 5.0
        assert data.distributed.DistributedSampler is data.DistributedSampler

        class Liar(data.IterableDataset):
            def __len__(self):
                return 2

            def __iter__(self):
                return iter(range(6))

        loader = data.DataLoader(Liar(), batch_size=1)
        assert len(loader) == 2
        with pytest.warns(UserWarning, match="was reported to be 2"):
            list(loader)
        with pytest.warns(UserWarning, match="suggested max number of worker"):
            data.DataLoader([1], num_workers=1000)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            data.DataLoader([1], num_workers=1)


def test_pipes_have_pytorchs_modules_and_names() -> None:
    """Packages import classes from where PyTorch defines them."""
    for kind in ("iter", "map"):
        ours, owner = (importlib.import_module(f"{m.__name__}.utils.data.datapipes.{kind}") for m in BOTH)
        for name in ours.__all__:
            cls, expected = getattr(ours, name), getattr(owner, name)
            assert (cls.__name__, cls.__module__.replace("flambeau.", "torch.")) == (expected.__name__, expected.__module__)
