"""Datasets, samplers and collation against PyTorch."""

from __future__ import annotations

import collections

import numpy
import pytest

import flambeau
from flambeau.utils import data as our_data
from tests.data.test_dataloader import BOTH, plain
from tests.nn.oracle import torch

Pair = collections.namedtuple("Pair", ["x", "y"])


def test_random_split():
    for lengths in ([5, 3, 2], [0.5, 0.25, 0.25]):
        flambeau.manual_seed(0)
        torch.manual_seed(0)
        mine, theirs = our_data.random_split(range(10), lengths), torch.utils.data.random_split(range(10), lengths)
        assert [s.indices for s in mine] == [s.indices for s in theirs]
    with pytest.raises(ValueError, match="does not equal the length"):
        our_data.random_split(range(10), [3, 3])


def test_samplers():
    for make in (
        lambda d: d.SubsetRandomSampler(range(9)),
        lambda d: d.RandomSampler(range(7), num_samples=17),
        lambda d: d.BatchSampler(d.SequentialSampler(range(7)), 3, False),
        lambda d: d.BatchSampler(d.SequentialSampler(range(7)), 3, True),
    ):
        drawn = []
        for module, data in BOTH:
            module.manual_seed(0)
            sampler = make(data)
            drawn.append((list(sampler), len(sampler)))
        assert drawn[0] == drawn[1]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_distributed_sampler(shuffle, drop_last):
    for rank in range(3):
        shares = []
        for _, data in BOTH:
            sampler = data.DistributedSampler(range(10), 3, rank, shuffle, drop_last=drop_last)
            sampler.set_epoch(2)
            shares.append(list(sampler))
        assert shares[0] == shares[1]


def test_combinations():
    for _, data in BOTH:
        joined = data.ConcatDataset([[1, 2], [3]])
        assert [joined[i] for i in range(3)] == [1, 2, 3] and joined[-1] == 3 and len(joined) == 3
        stacked = data.StackDataset([1, 2], [3, 4])
        assert stacked[1] == (2, 4) and data.StackDataset(a=[1], b=[2])[0] == {"a": 1, "b": 2}
        assert data.Subset([5, 6, 7], [2, 0])[0] == 7


@pytest.mark.parametrize(
    "batch",
    [
        [1, 2], [1.5, 2.5], ["a", "b"], [(1, 2.0), (3, 4.0)], [[1, 2], [3, 4]], [{"k": 1}, {"k": 2}], [True, False],
        [numpy.ones(2), numpy.zeros(2)], [numpy.float32(1), numpy.float32(2)], [Pair(1, 2), Pair(3, 4)],
        [numpy.arange(3, dtype=numpy.int32)] * 2,
    ],
)  # fmt: skip
def test_collate(batch):
    assert plain(our_data.default_collate(batch)) == plain(torch.utils.data.default_collate(batch))
    assert plain(our_data.default_convert(batch)) == plain(torch.utils.data.default_convert(batch))


def test_collate_errors():
    with pytest.raises(TypeError, match="default_collate: batch must contain"):
        our_data.default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        our_data.default_collate([[1], [1, 2]])
    with pytest.raises(AssertionError, match="Size mismatch"):
        our_data.TensorDataset(flambeau.ones(2), flambeau.ones(3))


def test_draws_without_end_start_at_once() -> None:
    sampler = our_data.RandomSampler(range(5), replacement=True, num_samples=10**15)
    assert {i for i, _ in zip(sampler, range(200), strict=False)} == set(range(5))
