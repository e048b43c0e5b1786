"""torchaudio's operators: recursive filters, overdrive, forced alignment of a transcript: loops over time on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau as torch
from flambeau.library import define, impl


def _written(target: Any, values: Any) -> None:
    """Write an array into a tensor that the caller looks at."""
    with torch.no_grad():
        target.copy_(torch.from_numpy(values))


def _lfilter_core_loop(input_signal_windows: Any, a_coeff_flipped: Any, padded_output_waveform: Any) -> None:
    """y[t] = x[t] - sum a y before t, written into (N, C, T + order - 1); the coefficients (C, order), the last first."""
    signal, filters = input_signal_windows.detach().numpy(), a_coeff_flipped.detach().numpy()
    out = padded_output_waveform.detach().numpy().copy()
    order = filters.shape[1]
    for i in range(signal.shape[2]):
        out[:, :, i + order - 1] = signal[:, :, i] - (out[:, :, i : i + order] * filters[None]).sum(2)
    _written(padded_output_waveform, out)


def _overdrive_core_loop(waveform: Any, temp: Any, last_in: Any, last_out: Any, output_waveform: Any) -> None:
    """A filter that takes out constant parts, written into `output_waveform`."""
    given, shaped, before, last = [t.detach().numpy() for t in (waveform, temp, last_in, last_out)]
    out = output_waveform.detach().numpy().copy()
    for i in range(given.shape[-1]):
        last = shaped[:, i] - before + 0.995 * last
        before = shaped[:, i]
        out[:, i] = given[:, i] * 0.5 + last * 0.75
    _written(output_waveform, out.astype(output_waveform.detach().numpy().dtype))


def forced_align(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Any, Any]:
    """(the label of each step on the likeliest path of CTC that spells the targets, log_probs): one sequence. RuntimeError if it is too short."""
    if log_probs.shape[0] != 1:
        raise RuntimeError(f"forced_align: batch size must be 1, got {log_probs.shape[0]}")
    scores, wanted = log_probs.detach()[0].numpy(), targets.detach()[0].numpy()
    steps, length = int(input_lengths[0].item()), int(target_lengths[0].item())
    scores, wanted = scores[:steps], wanted[:length]
    repeats = int((wanted[1:] == wanted[:-1]).sum())
    if steps < length + repeats:
        raise RuntimeError(f"targets length is too long for CTC. Found targets length: {length}, log_probs length: {steps}, and number of repeats: {repeats}")
    states = np.full(2 * length + 1, blank, wanted.dtype)
    states[1::2] = wanted
    skips = np.zeros(len(states), bool)  # from a label to the next one, over the blank between them
    skips[3::2] = wanted[1:] != wanted[:-1]
    best = np.full(len(states), -np.inf, scores.dtype)
    best[:2] = scores[0, states[:2]]
    came = np.zeros((steps, len(states)), np.int8)
    for t in range(1, steps):
        options = np.full((3, len(states)), -np.inf, scores.dtype)
        options[0], options[1, 1:] = best, best[:-1]
        options[2, 2:] = np.where(skips[2:], best[:-2], -np.inf)
        came[t] = options.argmax(0)
        best = options.max(0) + scores[t, states]
    at = len(states) - 1 if len(states) == 1 or best[-1] > best[-2] else len(states) - 2
    path = np.empty(steps, np.int64)
    for t in range(steps - 1, -1, -1):
        path[t] = states[at]
        at -= int(came[t, at])
    return torch.from_numpy(path).to(targets.dtype)[None], log_probs


impl("_torchaudio::is_align_available", "CPU", lambda: True)
impl("_torchaudio::cuda_version", "CPU", lambda: None)
for _function in (_lfilter_core_loop, _overdrive_core_loop, forced_align):
    impl(f"torchaudio::{_function.__name__}", "CPU", _function)
for _name in ("rnnt_loss", "rnnt_loss_forward"):
    define(f"torchaudio::{_name}", "")  # a call says that there is no function for the CPU
