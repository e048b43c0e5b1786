"""What modules refuse, and warn of, in PyTorch's words: programs match on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any], Any]] = {
    "a padding mask of one dim": lambda m: m.nn.MultiheadAttention(4, 4)(*[m.randn(4, 4, 4)] * 3, key_padding_mask=m.zeros(4, dtype=m.bool)),
    "a padding mask of two dims": lambda m: m.nn.MultiheadAttention(4, 4)(*[m.randn(4, 4)] * 3, key_padding_mask=m.zeros(4, 4, dtype=m.bool)),
    "a mask of one dim": lambda m: m.nn.MultiheadAttention(4, 4)(*[m.randn(4, 4, 4)] * 3, attn_mask=m.zeros(4, dtype=m.bool)),
    "a mask of other heads": lambda m: m.nn.MultiheadAttention(4, 4)(*[m.randn(4, 4)] * 3, attn_mask=m.zeros(5, 4, 4, dtype=m.bool)),
    "padding beyond a table": lambda m: m.nn.Embedding(4, 3, padding_idx=4), "padding beyond bags": lambda m: m.nn.EmbeddingBag(4, 3, padding_idx=-5),
    "planes of two dims": lambda m: m.nn.functional.dropout2d(m.ones(2, 3), 0.5),
    "planes of three dims": lambda m: m.nn.functional.dropout2d(m.ones(2, 3, 4), 0.5),
    "planes of four dims": lambda m: m.nn.functional.dropout2d(m.ones(2, 3, 4, 4), 0.5),
    "volumes of six dims": lambda m: m.nn.functional.dropout3d(m.ones(1, 1, 1, 1, 1, 1), 0.5),
    "channels without words": lambda m: m.feature_dropout(m.ones(2, 3, 4), 0.5, True),
    "nothing packed": lambda m: m.nn.utils.rnn.pack_padded_sequence(m.randn(0, 0), []),
}  # fmt: skip


def outcome(m: Any, call: Callable[[Any], Any]) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            call(m)
        except Exception as error:
            text = str(error).splitlines()[0].replace("torch.Size", "")
            return type(error).__name__, text, []
        return None, "", [(w.category, str(w.message)) for w in seen]


@pytest.mark.parametrize("name", CALLS)
def test_words(name: str) -> None:
    ours, theirs = outcome(ft, CALLS[name]), outcome(torch, CALLS[name])
    assert ours[0] == theirs[0] and ours[2] == theirs[2]
    assert theirs[1].rstrip(".") in ours[1] or ours[1].rstrip(".").startswith(theirs[1][:24])


def test_casts_of_packed_sequences() -> None:
    for m in (ft, torch):
        packed = m.nn.utils.rnn.pack_padded_sequence(m.ones(3, 2, dtype=m.int32), [2, 3], enforce_sorted=False)
        assert packed.to("cpu") is packed and packed.cpu() is packed and packed.int() is packed and packed.to("cpu", dtype=m.int32) is packed
        for name, dtype in (("long", m.int64), ("short", m.int16), ("char", m.int8), ("byte", m.uint8), ("half", m.float16), ("double", m.float64)):
            cast = getattr(packed, name)()
            assert cast.data.dtype is dtype and cast.unsorted_indices.tolist() == packed.unsorted_indices.tolist()
        assert packed.to(m.float64).data.dtype is m.float64 and not packed.is_cuda and not packed.is_pinned()


def test_sparse_gradients_of_an_empty_table() -> None:
    for m in (ft, torch):
        for shape in ((0, 0), (2, 0)):
            table = m.nn.Embedding(*shape, sparse=True)
            table(m.tensor([], dtype=m.int64)).sum().backward()
            assert table.weight.grad.is_sparse and tuple(table.weight.grad.shape) == shape
