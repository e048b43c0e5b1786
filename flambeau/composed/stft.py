"""Short-time Fourier transforms: frames of a signal, a window, and an FFT of each; and the signal back by overlap and add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops import fft
from flambeau.ops.creation import arange
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.trace.once import warn_once
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


@upward
def pad(input: Any, pad: Any, mode: str) -> Any:
    """nn.functional.pad."""
    raise NotImplementedError


def _window(name: str, window: Any, win_length: int, n_fft: int, like: Any) -> Any:
    """The window centred in n_fft points; ones if there is none."""
    if window is None:
        window = like.new_ones((win_length,), dtype=like.dtype.to_real())
    elif window.ndim != 1 or window.shape[0] != win_length:
        raise RuntimeError(f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size {tuple(window.shape)}")
    left = (n_fft - win_length) // 2
    return _pad(window, left, n_fft - win_length - left) if win_length < n_fft else window


def _pad(x: Any, left: int, right: int, mode: str = "constant") -> Any:
    return pad(x, (left, right), mode)


def _sizes(name: str, n_fft: int, hop_length: int | None, win_length: int | None) -> tuple[int, int]:
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if hop <= 0:
        raise RuntimeError(f"{name}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={length} and n_fft={n_fft}")
    return hop, length


def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,
    center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    """The spectrum of overlapping frames: (*, L) -> (*, frequencies, frames), complex (or real pairs as a last dim).

    `center` pads the signal by n_fft / 2 at both ends; `normalized` divides by sqrt(n_fft).
    """
    refuse_dtype("stft", input.dtype)
    name = "stft"
    is_complex = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not is_complex:
            raise RuntimeError("stft requires the return_complex parameter be given for real inputs; use return_complex=True")
        return_complex = True
    if not (input.dtype.is_floating_point or input.is_complex()) or not 1 <= input.ndim <= 2:
        raise RuntimeError(f"{name}: expected a 1D or 2D tensor of floating or complex values, got {input.dtype} of shape {tuple(input.shape)}")
    if window is None:
        _warn_of_no_window(name, n_fft)
    if center and align_to_window is not None:
        raise RuntimeError(f"{name}: align_to_window should only be set when center = false.")
    hop, length = _sizes(name, n_fft, hop_length, win_length)
    x: Any = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        x = _pad(x.unsqueeze(1), n_fft // 2, n_fft // 2, pad_mode).squeeze(1)
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(f"{name}: expected 0 < n_fft <= {x.shape[-1]}, but got n_fft={n_fft}")
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    frames = x.unfold(-1, n_fft, hop)
    if window is not None or length < n_fft:
        frames = frames * _window(name, window, length, n_fft, x)
    norm = "ortho" if normalized else None
    half = not is_complex if onesided is None else onesided
    spectrum = (fft.rfft if half else fft.fft)(frames, None, -1, norm).transpose(1, 2)
    if input.ndim == 1:
        spectrum = spectrum.squeeze(0)
    if return_complex:
        return spectrum
    from flambeau import view_as_real  # type: ignore[attr-defined]

    return view_as_real(spectrum)


def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Any:  # fmt: skip
    """The signal (*, L) whose stft is nearest to `input` (*, frequencies, frames): frames added and divided by the sum of
    the squared windows (Griffin and Lim 1984), which must not vanish."""
    name = "istft"
    if not input.is_complex():
        raise RuntimeError(f"{name} requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if not 2 <= input.ndim <= 3 or input.numel() == 0:
        raise RuntimeError(f"{name}: expected a tensor with 2 or 3 dimensions and elements, got shape {tuple(input.shape)}")
    hop, wide = _sizes(name, n_fft, hop_length, win_length)
    x: Any = input if input.ndim == 3 else input.unsqueeze(0)
    half = x.shape[1] != n_fft if onesided is None else onesided
    expected = n_fft // 2 + 1 if half else n_fft
    if x.shape[1] != expected:
        raise RuntimeError(f"{name}: expected the frequency dimension (3rd to the last) of the input tensor to match {expected}, but got {x.shape[1]}")
    if half and return_complex:
        raise RuntimeError("Cannot have onesided input with return_complex=True: the signal is real")
    if window is None:
        _warn_of_no_window(name, n_fft)
    norm = "ortho" if normalized else None
    frames = x.transpose(1, 2)
    if half:
        frames = fft.irfft(frames, n_fft, -1, norm)
    elif return_complex:
        frames = fft.ifft(frames, None, -1, norm)
    else:  # of a real signal the first half says all
        frames = fft.irfft(frames[..., : n_fft // 2 + 1], n_fft, -1, norm)
    shape = _window(name, window, wide, n_fft, x)
    count = frames.shape[1]
    total = n_fft + hop * (count - 1)
    signal = _overlap(frames * shape, hop, total)
    weight = _overlap((shape * shape).expand(1, count, n_fft), hop, total)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    kept = min(end, total) - start
    signal, weight = signal.narrow(1, start, kept), weight.narrow(1, start, kept)
    if not bool(weight.detach().abs().amin() > 1e-11):  # the bound of torch.istft
        raise RuntimeError(f"{name}: window overlap add min: {weight.detach().abs().amin().item()} is not above 1e-11: the signal cannot be recovered")
    signal = signal / weight
    if end > total:
        signal = _pad(signal, 0, end - total)
    return signal if input.ndim == 3 else signal.squeeze(0)


def _warn_of_no_window(name: str, n_fft: int) -> None:
    # It begins as PyTorch's: programs leave it out by that.
    warn_once(
        f"A window was not provided. A rectangular window will be applied by {name}, which is known to cause spectral leakage; torch.hann_window and its "
        f"like leak less. To use a rectangular one without this warning, give window=torch.ones({n_fft})."
    )


def _overlap(frames: Any, hop: int, total: int) -> Any:
    """(batch, frames, n) added at steps of hop: (batch, total)."""
    batch, count, n = frames.shape
    places = (arange(count).unsqueeze(1) * hop + arange(n)).reshape(-1)
    return frames.new_zeros((batch, total)).index_add(1, places, frames.reshape(batch, count * n))
