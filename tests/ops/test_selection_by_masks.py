"""x[mask] and masked_select: computed at once where there are no gradients, equal to NumPy's and with PyTorch's layouts, errors and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.trace.recorder import local

DTYPES = ("float32", "float64", "bool", "uint8", "int16", "int64", "complex64", "complex128")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "leading"), [((37,), 1), ((20, 3), 1), ((5, 4), 2), ((6, 5, 4), 2), ((7, 2, 2), 1), ((3, 0), 1), ((0, 3), 1),
                                                ((4, 1, 9), 3)])  # fmt: skip
def test_values(dtype: str, shape: tuple[int, ...], leading: int) -> None:
    random = np.random.default_rng(0)
    for share in (0.0, 0.4, 1.0):
        data = (random.standard_normal(shape) * 50).astype(dtype)
        mask = random.random(shape[:leading]) < share
        x, m = torch.from_numpy(data.copy()).clone(), torch.from_numpy(mask).clone()
        for given in (x, x.t().contiguous().t() if x.ndim == 2 else x, x.expand(2, *shape)[1]):
            got = given[m]
            assert got.shape == data[mask].shape and got.dtype is x.dtype
            np.testing.assert_array_equal(got.numpy(), data[mask])
        if leading == len(shape):
            np.testing.assert_array_equal(x.masked_select(m).numpy(), data[mask])


def test_what_is_pending_is_computed_first() -> None:
    x = torch.arange(6.0)
    y = x * 2
    y[1] = 100.0
    mask = y > 5
    chosen = y[mask]
    y.add_(1)
    assert chosen.tolist() == [100.0, 6.0, 8.0, 10.0] and y.tolist() == [1.0, 101.0, 5.0, 7.0, 9.0, 11.0]
    chosen.mul_(0)
    assert y.tolist() == [1.0, 101.0, 5.0, 7.0, 9.0, 11.0]


def test_gradients() -> None:
    x = torch.arange(6.0, requires_grad=True)
    mask = x > 2
    assert mask.requires_grad is False
    (x[mask] * torch.arange(3.0)).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 2.0]
    with torch.no_grad():
        chosen = x[mask]
    assert not chosen.requires_grad and chosen.is_leaf and chosen.tolist() == [3.0, 4.0, 5.0]
    p = torch.nn.Parameter(torch.arange(3.0))
    assert p[torch.tensor([True, False, True])].requires_grad
    assert type(p.detach()[torch.tensor([True, False, True])]) is torch.Tensor


def test_errors() -> None:
    x = torch.ones(4, 3)
    with pytest.raises(IndexError, match=r"mask \[3\] at index 0"):
        x[torch.ones(3, dtype=torch.bool)]
    with pytest.raises(IndexError, match="too many indices"):
        x[torch.ones(4, 3, 1, dtype=torch.bool)]


def test_transforms_and_recording() -> None:
    """Within vmap a mask has no values; a call of new sizes makes no new edge."""
    x = torch.arange(12.0).reshape(4, 3)
    with pytest.raises(RuntimeError):
        torch.vmap(lambda v: v[v > 3])(x)
    for n in range(4):
        x[x[:, 0] > 3 * n]
    before = torch.stats()["slow_path_entries"]
    masks = [torch.arange(4) < n for n in range(5)]
    [m.tolist() for m in masks]
    used = torch.stats()["slow_path_entries"]
    assert [x[m].shape[0] for m in masks] == [0, 1, 2, 3, 4]
    assert torch.stats()["slow_path_entries"] == used >= before
    assert local.main.held is False
