"""Runs the same call in flambeau and in PyTorch, and compares values, dtypes, shapes and gradients."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def ours(value: Any) -> Any:
    """A PyTorch value as a flambeau value of its own memory, in any nesting; Parameters keep requiring gradients."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        if plain.dtype in (torch.bfloat16, torch.float16):
            t = flambeau.tensor(plain.float().numpy()).to(getattr(flambeau, str(plain.dtype).removeprefix("torch.")))
        else:
            t = flambeau.tensor(plain.numpy())
        return t.requires_grad_() if value.requires_grad else t
    if isinstance(value, torch.dtype):
        return getattr(flambeau, str(value).removeprefix("torch."))
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(ours(v) for v in value)
    if isinstance(value, dict):
        return {k: ours(v) for k, v in value.items()}
    return value


def leaves(value: Any, kind: type) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in leaves(v, kind)]
    return []


def close(mine: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Same shape, dtype, and values within the tolerance (absolute and relative); NaN equals NaN."""
    assert tuple(mine.shape) == tuple(theirs.shape)
    assert str(mine.dtype) == str(theirs.dtype)
    expected = theirs.detach()
    got = mine.detach()
    if expected.dtype in (torch.bfloat16, torch.float16):
        expected, got = expected.float(), got.float()
    torch.testing.assert_close(torch.as_tensor(got.contiguous().numpy().copy()), expected.contiguous(), rtol=tolerance, atol=tolerance, equal_nan=True)


def compare(mine: Any, theirs: Any, *args: Any, tolerance: float = 1e-5, gradients: bool = True, **kwargs: Any) -> None:
    """Call both functions on copies of the same arguments; compare results, and gradients of what requires them."""
    copies = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
    expected = theirs(*copies, **kwargs)
    our_args, our_kwargs = ours(list(args)), ours(kwargs)
    got = mine(*our_args, **our_kwargs)
    want, have = leaves(expected, torch.Tensor), leaves(got, flambeau.Tensor)
    assert len(want) == len(have) > 0
    for g, e in zip(have, want, strict=True):
        close(g, e, tolerance)
    want = [t for t in want if t.requires_grad]
    have = [t for t in have if t.requires_grad]
    if not want or not gradients:
        return
    assert len(want) == len(have)
    torch.manual_seed(99)
    seeds = [torch.randn(t.shape).to(t.dtype) for t in want]
    torch.autograd.backward(want, seeds)
    total = sum((h * ours(s)).sum() for h, s in zip(have, seeds, strict=True))
    total.backward()
    for a, b in zip(our_args, copies, strict=True):
        if isinstance(b, torch.Tensor) and b.grad is not None:
            assert a.grad is not None
            close(a.grad, b.grad, tolerance * 5)


def raises_as_torch(mine: Any, theirs: Any, *args: Any, **kwargs: Any) -> str:
    """Both must raise the same type of exception; our message is returned."""
    with pytest.raises(Exception) as theirs_raised:
        theirs(*args, **kwargs)
    with pytest.raises(type(theirs_raised.value)) as ours_raised:
        mine(*ours(list(args)), **ours(kwargs))
    return str(ours_raised.value)
