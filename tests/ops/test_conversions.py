"""Conversions between all pairs of dtypes, bit for bit as PyTorch's: every pattern of 8 and 16 bits, many of the wider types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau import dtypes
from flambeau.small_floats import FORMATS

torch = pytest.importorskip("torch")

KINDS = [d.name for d in dtypes.HELD if d is not dtypes.float4_e2m1fn_x2]
# Where a conversion is C's undefined behaviour PyTorch's vector code and its code for the rest differ: numbers that an integer type does not hold.
_SIGNIFICANT = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, 448.0, 464.0, 465.0, 480.0, 57344.0, 61440.0, 65520.0, 3.4e38, 1e-45, 1e300, -1e300, 5e-324,
                2.0**-9, 2.0**-10, 3 * 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-127, 1.5 * 2.0**-127, 2.0**127 * 1.5, 2.0**63, 2.0**64, 240.0, 248.0, 256.0,
                float("inf"), float("-inf"), float("nan")]  # fmt: skip


def patterns(name: str) -> Any:
    """Elements of a dtype as bytes: all of them, or many."""
    size = getattr(ft, name).itemsize
    if name == "bool":
        return np.array([0, 1], np.uint8)
    if size == 1:
        return np.arange(256, dtype=np.uint8)
    if size == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    rng = np.random.default_rng(size)
    if getattr(ft, name).is_complex:
        part = {4: "float16", 8: "float32", 16: "float64"}[size]
        return np.stack([_floats(part, rng), _floats(part, rng)[::-1]], 1).reshape(-1).view(np.uint8)
    if "float" in name:
        return _floats(name, rng).view(np.uint8)
    ints = rng.integers(0, 256, (20000, size), dtype=np.uint8)
    ints[:5000, size // 2 :] = 0
    ints[5000:9000, 1:] = 0
    return ints.reshape(-1)


def _floats(name: str, rng: Any) -> Any:
    """Numbers of all magnitudes, ties of narrower types, and what is special."""
    bits = {"float16": np.uint16, "float32": np.uint32, "float64": np.uint64}[name]
    with np.errstate(all="ignore"):
        wild = rng.integers(0, np.iinfo(bits).max, 20000, dtype=bits, endpoint=True).view(name)
        near = (rng.standard_normal(20000) * 2.0 ** rng.integers(-20, 20, 20000)).astype(name)
        ties = (rng.integers(0, 64, 20000) * 2.0 ** rng.integers(-140, 120, 20000).astype(np.float64)).astype(name)
        return np.concatenate([wild, near, ties, -ties[:5000], np.array(_SIGNIFICANT).astype(name)])


def make(module: Any, name: str, raw: Any) -> Any:
    """A tensor of these bytes."""
    flat = module.from_numpy(raw.copy())
    return flat.bool() if name == "bool" else flat.view(getattr(module, name))


def _bits(t: Any, module: Any) -> Any:
    """The elements as unsigned integers, every NaN the same."""
    d = str(t.dtype).removeprefix("torch.")
    part = {"complex32": module.float16, "complex64": module.float32, "complex128": module.float64}.get(d)
    if part is not None:
        t = module.view_as_real(t).reshape(-1)
    raw = t.view(module.uint8).numpy()
    if not t.dtype.is_floating_point:
        return raw
    wide = t.double()
    bits = raw.reshape(-1, t.element_size()).copy()
    bits[np.isnan(wide.numpy())] = 0xFF
    return bits


def _defined(raw: Any, source: str, target: str) -> Any:
    """Which elements the target holds, where C says nothing of others."""
    wide = make(torch, source, raw)
    real = wide.to(torch.complex128).real if "complex" in source else wide.double()
    numbers = real.numpy()
    if "int" not in target or "int" in source or source == "bool":
        return np.ones(len(numbers), bool)
    info = np.iinfo(target)
    with np.errstate(all="ignore"):
        low = min(info.min, -(2**31)) if info.bits < 64 else info.min
        return (np.trunc(numbers) >= low) & (numbers < 2.0 ** (info.bits if info.min == 0 else info.bits - 1))


@pytest.mark.parametrize("source", KINDS)
def test_conversions(source: str) -> None:
    raw = patterns(source)
    for target in KINDS:
        ours = _bits(make(ft, source, raw).to(getattr(ft, target)), ft)
        theirs = _bits(make(torch, source, raw).to(getattr(torch, target)), torch)
        count = len(make(torch, source, raw))
        ours, theirs = ours.reshape(count, -1), theirs.reshape(count, -1)
        wrong = (ours != theirs).any(1) & _defined(raw, source, target)
        at = np.flatnonzero(wrong)[:5]
        examples = [(make(torch, source, raw)[int(i)].item(), ours[i].tolist(), theirs[i].tolist()) for i in at]
        assert not wrong.any(), (source, target, int(wrong.sum()), examples)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_numbers_of_a_program(name: str) -> None:
    """Constants are rounded in Python: the same as in the kernels."""
    floats = _floats("float32", np.random.default_rng(1))[::7]
    ours = np.array([dtypes.held(float(x), getattr(dtypes, name)) for x in floats], np.float32)
    kernels = ft.from_numpy(floats.copy()).to(getattr(ft, name)).float().numpy()
    same = (ours.view(np.uint32) == kernels.view(np.uint32)) | (np.isnan(ours) & np.isnan(kernels))
    assert same.all(), [(float(floats[i]), ours[i], kernels[i]) for i in np.flatnonzero(~same)[:5]]


@pytest.mark.parametrize("name", ["contiguous_format", "channels_last", "preserve_format"])
def test_a_format_that_a_tensor_is_taken_to_have_gives_the_tensor(name: str) -> None:
    """Gaps and orders of dims are no format of their own: PyTorch converts only between row-major and channels last."""
    found = []
    for m in (torch, ft):
        base = m.ones(2, 4, 4, 4)
        layouts = [base, base[:, ::2], base[..., ::2], base.transpose(0, 1), base.permute(0, 2, 3, 1), base.to(memory_format=m.channels_last), base[:1, :1]]
        layouts += [base.expand(2, 4, 4, 4)[:, :1], base.to(memory_format=m.channels_last)[:, ::2], base.to(memory_format=m.channels_last)[..., ::2]]
        chosen = getattr(m, name)
        calls = (lambda x: x.to(memory_format=chosen), lambda x: x.float(memory_format=chosen), lambda x: x.to(m.float32, memory_format=chosen))  # noqa: B023
        found.append([(y is x, y.stride()) for x in layouts for y in (call(x) for call in calls)])
    assert found[0] == found[1]
