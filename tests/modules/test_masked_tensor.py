"""torch.masked.MaskedTensor beside PyTorch's: values, masks, how they are printed, errors and gradients."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

CASES: dict[str, Callable[..., Any]] = {
    "repr": lambda m, t, x, mask: repr(t),
    "data": lambda m, t, x, mask: (t.get_data(), t.get_mask(), t.to_tensor(-1)),
    "sin": lambda m, t, x, mask: t.sin(),
    "add": lambda m, t, x, mask: t + x,
    "number": lambda m, t, x, mask: t * 2 - 1,
    "plain": lambda m, t, x, mask: t + m.ones(2, 3),
    "other mask": lambda m, t, x, mask: t + m.masked.masked_tensor(m.ones(2, 3), ~mask),
    "sum": lambda m, t, x, mask: t.sum(),
    "sum1": lambda m, t, x, mask: t.sum(1),
    "mean": lambda m, t, x, mask: t.mean(0),
    "amax": lambda m, t, x, mask: t.amax(1),
    "amin": lambda m, t, x, mask: t.amin(0),
    "argmax": lambda m, t, x, mask: t.argmax(1),
    "prod": lambda m, t, x, mask: t.prod(1),
    "keepdim": lambda m, t, x, mask: t.sum(1, keepdim=True),
    "all": lambda m, t, x, mask: m.masked.masked_tensor(m.ones(2, 3) > 0, mask).all(),
    "std": lambda m, t, x, mask: t.std(),
    "softmax": lambda m, t, x, mask: t.softmax(1),
    "where": lambda m, t, x, mask: m.where(mask, t, x),
    "index": lambda m, t, x, mask: t[0],
    "reshape": lambda m, t, x, mask: t.reshape(3, 2),
    "t": lambda m, t, x, mask: t.t(),
    "view": lambda m, t, x, mask: t.view(6),
    "cat": lambda m, t, x, mask: m.cat([t, x]),
    "stack": lambda m, t, x, mask: m.stack([t, t]),
    "eq": lambda m, t, x, mask: t == x,
    "neg": lambda m, t, x, mask: -t,
    "clone": lambda m, t, x, mask: t.clone(),
    "detach": lambda m, t, x, mask: t.detach(),
    "double": lambda m, t, x, mask: t.to(m.float64),
    "ones_like": lambda m, t, x, mask: m.ones_like(t),
    "unsqueeze": lambda m, t, x, mask: t.unsqueeze(0),
    "in place": lambda m, t, x, mask: x.clone().add_(x),
    "is": lambda m, t, x, mask: (m.masked.is_masked_tensor(t), t.shape, t.numel(), len(t), t.dtype is m.float32),
    "twice": lambda m, t, x, mask: m.masked.masked_tensor(t, mask),
    "shape": lambda m, t, x, mask: m.masked.masked_tensor(m.ones(2, 3), mask[:1]),
    "mask": lambda m, t, x, mask: m.masked.masked_tensor(m.ones(2, 3), mask.float()),
    "matmul": lambda m, t, x, mask: t @ t.t(),
    "clamp": lambda m, t, x, mask: t.clamp(0, 2),
    "pow": lambda m, t, x, mask: t**2,
    "tolist": lambda m, t, x, mask: t.tolist(),
    "numpy": lambda m, t, x, mask: t.numpy(),
    "split": lambda m, t, x, mask: t.split(1),
    "isnan": lambda m, t, x, mask: t.isnan(),
    "gradient": lambda m, t, x, mask: (t.sin().sum().backward(), t.grad),
}


def _plain(m: Any, x: Any) -> Any:
    if isinstance(x, m.masked.MaskedTensor):
        return "masked", _plain(m, x.to_tensor(0)), x.get_mask().tolist()
    if isinstance(x, m.Tensor):
        return str(x.dtype), tuple(x.shape), [round(float(v), 4) for v in x.detach().reshape(-1).tolist()]
    if isinstance(x, (list, tuple)):
        return [_plain(m, y) for y in x]
    return x


def _outcome(m: Any, function: Callable[..., Any]) -> Any:
    data = m.arange(6.0).view(2, 3)
    mask = m.tensor([[True, False, True], [False, True, False]])
    t, x = m.masked.masked_tensor(data, mask, requires_grad=True), m.masked.masked_tensor(data * 2, mask)
    try:
        return _plain(m, function(m, t, x, mask))
    except Exception as error:
        return f"raises {type(error).__name__}"


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert _outcome(flambeau, CASES[name]) == _outcome(torch, CASES[name])


def test_copies_and_more() -> None:
    mask = flambeau.tensor([True, False, True])
    t = flambeau.masked.masked_tensor(flambeau.tensor([-1.0, 2.0, 3.0]), mask, requires_grad=True)
    for made in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert repr(made) == repr(t) and made.requires_grad and made.is_leaf
    assert flambeau.relu(t).to_tensor(9).tolist() == [0.0, 9.0, 3.0] and t.norm().get_data().item() == pytest.approx(10**0.5)
    assert repr(flambeau.masked.masked_tensor(flambeau.tensor(1.0), flambeau.tensor(False))) == "MaskedTensor(--, False)"
    leaf = flambeau.ones(3, requires_grad=True)
    (flambeau.masked.as_masked_tensor(leaf * 3, mask) ** 2).sum().get_data().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [18.0, 0.0, 18.0]
    with pytest.raises(TypeError, match="to_tensor"):
        flambeau.sort(t)
