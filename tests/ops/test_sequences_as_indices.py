"""Indices that are sequences: which of them PyTorch takes for tuples, which for lists of places or masks, and which it refuses; read and written."""

from __future__ import annotations

import random
import warnings
from collections import deque
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
SHAPE = (3, 2, 4)


def _item(rng: random.Random, m: Any, depth: int) -> Any:
    """One element of an index, made the same way in both packages."""
    kind = rng.choice(("int", "none", "slice", "ellipsis", "list", "tensor", "place", "bool", "array", "number", "float", "mask", "other", "huge", "text"))
    places = [rng.randrange(2) for _ in range(rng.choice((1, 1, 2)))]
    if kind == "list" and depth < 2:
        items = [_item(rng, m, depth + 1) for _ in range(rng.choice((0, 1, 2, 2)))] if rng.random() < 0.3 else places
        return rng.choice((list, tuple, deque))(items)
    return {
        "int": places[0] - rng.randrange(2), "none": None, "slice": slice(rng.randrange(2), rng.choice((None, 2))), "ellipsis": ...,
        "tensor": m.tensor(places), "place": m.tensor(places[0]), "bool": bool(places[0]), "array": np.array(places),
        "number": np.int64(places[0]), "float": 0.5, "mask": m.tensor([True, False, True]), "other": m.tensor(places).to(m.int16), "huge": 2**70,
        "text": "a",
    }.get(kind, places)  # fmt: skip


def _index(seed: int, m: Any) -> Any:
    rng = random.Random(seed)
    items = [_item(rng, m, 0) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    return rng.choice((list, list, tuple, deque))(items) if rng.random() < 0.9 else items[0]


def _outcome(m: Any, seed: int, write: bool) -> Any:
    x = m.arange(24.0).reshape(SHAPE)
    index = _index(seed, m)
    try:
        if write:
            x[index] = -1.0
            return x.tolist()
        found = x[index]
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        return error
    return tuple(found.shape), found.tolist(), found.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() and found.numel() > 0


@pytest.mark.parametrize("write", [False, True])
def test_random_indices(write: bool) -> None:
    """Values, shapes and sharing of 1,500 indices, and which are refused."""
    unlike, done = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(1500):
            theirs, ours = _outcome(torch, seed, write), _outcome(flambeau, seed, write)
            if isinstance(theirs, Exception) and isinstance(ours, Exception):
                same = True  # of several things that are wrong, either may be named
            else:
                same = not isinstance(ours, Exception) and not isinstance(theirs, Exception) and ours == theirs
                done += same
            if not same:
                unlike.append((seed, _index(seed, torch), str(theirs)[:120], str(ours)[:120]))
    assert unlike == []
    assert done > 400


@pytest.mark.parametrize("write", [False, True])
def test_types_of_errors(write: bool) -> None:
    """Indices with one thing wrong."""
    numbers: tuple[Any, ...] = (2**70, -(2**70), [2**70, 0], [2**70, 0.5], 0.5, 1j, [1j], 7, [7], (0, 7), (0, 0, 0, 0), ([0, 9], 0))
    for wrong in (*numbers, "a", ["a", "b"], b"a", {}, object(), {0}, abs):
        raised = []
        for m in (torch, flambeau):
            x = m.arange(24.0).reshape(SHAPE)
            with pytest.raises((IndexError, TypeError, ValueError)) as caught:
                x.__setitem__(wrong, -1.0) if write else x[wrong]
            raised.append(caught.type)
        assert issubclass(raised[1], raised[0]), (wrong, raised)


def test_a_list_that_means_a_tuple_warns() -> None:
    x = flambeau.arange(24.0).reshape(SHAPE)
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert x[[slice(0, 2), 0]].shape == (2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x[[0, 1]].shape == (2, 2, 4)
        assert x[([0, 1],)].shape == (2, 2, 4)
