"""torch.signal.windows: windows of M samples, symmetric or periodic (`sym=False`), as vectors of float32 or float64."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor


def _check(name: str, M: int, dtype: Any, layout: Any) -> Any:
    """The dtype, after PyTorch's checks."""
    kind = torch.get_default_dtype() if dtype is None else dtype
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout != torch.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if kind not in (torch.float32, torch.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    return kind


def _ramp(start: float, end: float, M: int, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    return torch.linspace(start, end, M, dtype=dtype, device=device, requires_grad=requires_grad)


def _constant(M: int, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """The window of no sample or of one."""
    return torch.ones(M, dtype=dtype, device=device, requires_grad=requires_grad)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = torch.strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|n - center| / tau); `center` is the middle, and may be given where the window is not symmetric."""
    dtype = _check("exponential", M, dtype, layout)
    if tau <= 0:
        raise ValueError(f"exponential: Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("exponential: Center must be None for symmetric windows")
    if M == 0:
        return _constant(0, dtype, device, requires_grad)
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    constant = 1 / tau
    return torch.exp(-torch.abs(_ramp(-center * constant, (-center + (M - 1)) * constant, M, dtype, device, requires_grad)))  # type: ignore[no-any-return, attr-defined]


def cosine(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None, requires_grad: bool = False) -> Tensor:
    """sin(pi (n + 0.5) / M)."""
    dtype = _check("cosine", M, dtype, layout)
    if M == 0:
        return _constant(0, dtype, device, requires_grad)
    constant = math.pi / (M + 1 if not sym and M > 1 else M)
    return torch.sin(_ramp(0.5 * constant, (0.5 + (M - 1)) * constant, M, dtype, device, requires_grad))  # type: ignore[no-any-return, attr-defined]


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-(n / std)^2 / 2) around the middle."""
    dtype = _check("gaussian", M, dtype, layout)
    if std <= 0:
        raise ValueError(f"gaussian: Standard deviation must be positive, got: {std} instead.")
    if M == 0:
        return _constant(0, dtype, device, requires_grad)
    start = -(M if not sym and M > 1 else M - 1) / 2.0
    constant = 1 / (std * math.sqrt(2))
    k = _ramp(start * constant, (start + (M - 1)) * constant, M, dtype, device, requires_grad)
    return torch.exp(-(k**2))  # type: ignore[no-any-return, attr-defined]


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """I0(beta sqrt(1 - x^2)) / I0(beta) for x from -1 to 1."""
    dtype = _check("kaiser", M, dtype, layout)
    if beta < 0:
        raise ValueError(f"kaiser: beta must be non-negative, got: {beta} instead.")
    if M <= 1:
        return _constant(M, dtype, device, requires_grad)
    shape = torch.tensor(beta, dtype=dtype)
    rounded = shape.item()  # in the window's dtype: beyond the ends the root would be NaN
    step = (2.0 * shape / (M if not sym else M - 1)).item()
    end = torch.minimum(shape, -shape + (M - 1) * torch.tensor(step, dtype=dtype)).item()  # type: ignore[attr-defined]
    k = _ramp(-rounded, end, M, dtype, device, requires_grad)
    return torch.i0(torch.sqrt(shape * shape - torch.pow(k, 2))) / torch.i0(shape)  # type: ignore[no-any-return, attr-defined]


def bartlett(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A triangle that is 0 at its ends."""
    dtype = _check("bartlett", M, dtype, layout)
    if M <= 1:
        return _constant(M, dtype, device, requires_grad)
    constant = 2 / (M if not sym else M - 1)
    return 1 - torch.abs(_ramp(-1, -1 + (M - 1) * constant, M, dtype, device, requires_grad))  # type: ignore[no-any-return, attr-defined]


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The sum of (-1)^i a_i cos(2 pi i n / (M - 1))."""
    dtype = _check("general_cosine", M, dtype, layout)
    if M <= 1:
        return _constant(M, dtype, device, requires_grad)
    if not isinstance(a, Iterable):
        raise TypeError("general_cosine: Coefficients must be a list/tuple")
    if not a:
        raise ValueError("general_cosine: Coefficients cannot be empty")
    constant = 2 * math.pi / (M if not sym else M - 1)
    k = _ramp(0, (M - 1) * constant, M, dtype, device, requires_grad)
    weights = torch.tensor([(-1) ** i * w for i, w in enumerate(a)], dtype=dtype, requires_grad=requires_grad)
    i = torch.arange(weights.shape[0], dtype=dtype)
    return (weights.unsqueeze(-1) * torch.cos(i.unsqueeze(-1) * k)).sum(0)  # type: ignore[no-any-return, attr-defined]


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - (1 - alpha) cos(2 pi n / (M - 1))."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hamming(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None, requires_grad: bool = False) -> Tensor:
    """general_hamming with alpha 0.54."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None, requires_grad: bool = False) -> Tensor:
    """general_hamming with alpha 0.5."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def blackman(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None, requires_grad: bool = False) -> Tensor:
    """general_cosine with Blackman's coefficients 0.42, 0.5, 0.08."""
    dtype = _check("blackman", M, dtype, layout)
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def nuttall(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None, requires_grad: bool = False) -> Tensor:
    """general_cosine with the coefficients of Nuttall's minimum four-term window (1981)."""
    a = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip

from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("signal.windows", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.signal.windows", globals())
