"""Arguments by keyword as programs give them: PyTorch's names, and NumPy's `axis` and `keepdims` beside `dim` and `keepdim`."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

CALLS = [
    "t.empty(size=(2, 3)).shape", "t.zeros(size=(2,), dtype=t.int64)", "t.ones(size=[2])", "t.rand(size=(2,)).shape", "t.randn(size=(2,)).shape",
    "x.new_zeros(size=(2,))", "x.new_ones(size=(1,))", "x.new_empty(size=(2,)).shape", "x.view(size=(3, 2))", "x.reshape(shape=(3, 2))",
    "t.reshape(input=x, shape=(3, 2))", "x[:1].expand(size=(2, 3))", "x.repeat(repeats=(2, 1))", "t.permute(input=x, dims=(1, 0))",
    "x.permute(dims=(1, 0))", "t.tile(x, dims=(2,))", "x.tile(dims=(2,))", "t.flip(x, dims=(0,))", "x.flip(dims=[0, 1])", "x.sum_to_size(size=(1, 3))",
    "t.sum(x, axis=0)", "x.sum(axis=1, keepdims=True)", "t.max(x, axis=1)[0]", "x.min(axis=0, keepdims=True)[1]", "t.concat([x, x], axis=0)",
    "t.argmax(x, axis=1)", "t.stack([x, x], axis=0)", "t.softmax(x, axis=0)", "t.squeeze(x[:1], axis=0)", "x.mean(axis=(0, 1))",
    "t.var(x, axis=0, unbiased=False)", "t.std(x, axis=0, keepdims=True)", "t.cumsum(x, axis=0)", "t.sort(x, axis=0)[0]", "t.unsqueeze(x, axis=0)",
    "x.unsqueeze(axis=-1)", "t.gather(x, axis=1, index=t.zeros(2, 1).long())", "t.logsumexp(x, axis=0)", "t.linalg.norm(x, axis=0)",
    "t.linalg.vector_norm(x, axis=1, keepdims=True)", "t.prod(x, axis=0)", "t.amax(x, axis=0)", "t.count_nonzero(x, axis=0)", "t.all(x > 0, axis=0)",
    "t.median(x, axis=0)[0]", "t.quantile(x, 0.5, axis=0)", "t.topk(x, k=1, axis=0)[0]", "t.index_select(x, axis=0, index=t.tensor([1]))",
    "t.unbind(x, axis=0)[1]", "t.chunk(x, 3, axis=1)[2]", "t.narrow(x, axis=1, start=1, length=2)", "t.select(x, axis=0, index=1)",
    "t.repeat_interleave(x, 2, axis=0)", "t.fft.fft(x, axis=0).real", "x.clone().index_fill_(axis=0, index=t.tensor([0]), value=2.0)",
    "t.scatter(x, axis=0, index=t.zeros(1, 3).long(), src=x)", "t.cross(x, x, axis=1)", "t.cummax(x, axis=0)[0]",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_call(call: str) -> None:
    results = [eval(call, {"t": t, "x": t.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])}) for t in (ft, torch)]
    if isinstance(results[1], torch.Tensor):
        assert str(results[0].dtype) == str(results[1].dtype)
        results = [r.numpy() for r in results]
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.parametrize("call", ["t.unsqueeze(x)", "t.gather(x, 0)", "t.sum(x, axes=0)", "t.cumsum(x)"])
def test_wrong_keywords(call: str) -> None:
    for t in (ft, torch):
        with pytest.raises(TypeError):
            eval(call, {"t": t, "x": t.ones(2, 3)})


DATA = [
    "[range(3), range(3)]", "[np.zeros(3), np.ones(3)]", "[np.zeros(3, 'float32'), [1, 2, 3]]", "np.float64(1)", "[np.float64(1)]", "[np.float32(1)]",
    "[np.int32(1)]", "[np.bool_(True)]", "collections.deque([1, 2])", "range(3)", "[t.tensor(1), t.tensor(2.0)]", "[t.tensor([1]), t.tensor([2])]",
    "[t.ones(2), t.ones(2)]", "[np.zeros((2, 2), 'int32')]", "[[np.array([1.0, 2.0])], [np.array([3.0, 4.0])]]", "[1, np.float64(2)]", "[True, 2]",
    "[np.int64(1), 2.5]", "[[], []]", "[[1, 2], [3]]", "'abc'", "['a']", "None", "[None]", "{1: 2}", "map(int, '12')",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("data", DATA)
def test_data_of_tensor(data: str) -> None:
    found = []
    for t in (ft, torch):
        try:
            r = t.tensor(eval(data, {"t": t, "np": np, "collections": collections}))
            found.append((str(r.dtype), tuple(r.shape), r.tolist()))
        except Exception as error:
            found.append(type(error).__name__)
    assert found[0] == found[1]
