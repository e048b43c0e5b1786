"""Attention by the matrix unit: also where its numbers make it leave the work to multiply-adds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.kernels import attention
from flambeau.runtime import tiles
from tests.kernels.images import Case
from tests.kernels.test_attention import cases, check, check_both, make

pytestmark = pytest.mark.skipif("bfloat16" not in tiles.dtypes(), reason="this processor has no matrix unit")
FLOATS = (dtypes.float32, dtypes.bfloat16)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The unit for all sizes."""
    monkeypatch.setattr(attention, "LEAST_OF_UNIT", {"bfloat16": (1, 1), "float32": (1, 1)})
    yield


def uses_unit(case: Case) -> bool:
    return any(":parts" in kernel.key for kernel in make(case.graph))


@pytest.mark.parametrize("d", FLOATS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "source"), [(1, 1), (16, 40), (64, 64), (300, 300), (50, 233), (233, 50)])
def test_lengths(d: dtypes.dtype, length: int, source: int, causal: bool) -> None:
    assert uses_unit(cases((2, 2), length, source, 32, 32, causal, d=d)[0])
    check_both(d, batch=(2, 2), length=length, source=source, head=32, value=32, causal=causal)


@pytest.mark.parametrize("d", FLOATS)
@pytest.mark.parametrize(("head", "value"), [(1, 2), (20, 70), (64, 64), (130, 33)])
def test_head_sizes(d: dtypes.dtype, head: int, value: int) -> None:
    check_both(d, batch=(9,), length=150, source=150, head=head, value=value, causal=True, is_plain=head != 20)


@pytest.mark.parametrize("d", FLOATS)
@pytest.mark.parametrize("mask", ["bool", "add", "padding"])
def test_masks_and_dropout(d: dtypes.dtype, mask: str) -> None:
    check_both(d, batch=(1, 3), length=100, source=170, head=16, value=24, mask=mask, causal=mask == "add")
    check_both(d, batch=(3,), length=70, source=140, head=16, value=24, mask=mask, dropout=0.3)


def test_keys_that_are_not_held_at_once() -> None:
    check(cases((1,), 40, 2500, 64, 64)[0], dtypes.float32)


# Factors of (gradients,) queries, keys and values in all heads but the first, and whether the unit can do those heads.
SIZES = [
    (1e-30, 1.0, 1.0, 1.0), (1e-36, 1.0, 1.0, 1.0), (1.0, 1e-20, 1e20, 1.0), (1.0, 1e-40, 1.0, 1.0), (1.0, 1e-40, 1e37, 1.0),
    (1.0, 1.0, 1.0, 1e-41), (1.0, 1.0, 1.0, 1e36), (1e36, 1.0, 1.0, 1.0), (0.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 0.0), (1e-20, 1.0, 1.0, 1e-20),
]  # fmt: skip


@pytest.mark.parametrize("factors", SIZES)
def test_tiny_and_huge_numbers(factors: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the multiply-adds do, within the rounding of each head's largest result."""
    both = cases((3,), 70, 90, 32, 32, causal=True)
    for storage, factor in zip(both[1].storages, factors, strict=False):  # the forward pass has the same
        storage.reshape(3, -1)[1:] *= np.float32(factor)
    compare(both, monkeypatch)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e-42, 3e38])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_single_numbers(value: float, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An infinity, a NaN or a denormal among queries, keys or values of one head."""
    both = cases((2,), 70, 170, 32, 32)
    both[0].storages[which].reshape(2, -1)[1, 77] = value
    compare(both, monkeypatch)


def compare(both: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the unit and by multiply-adds."""
    forward, backward = both
    assert forward.storages[0] is backward.storages[1]
    with np.errstate(all="ignore"), monkeypatch.context() as patch:
        patch.setattr(attention, "LEAST_OF_UNIT", {})
        out, lse = forward.run(make)
        backward.storages[4][:] = lse.ravel()
        backward.storages[5][:] = (backward.storages[0].reshape(out.shape) * out).sum(-1).ravel()
    found = [case.run(make) for case in both]
    monkeypatch.setattr(attention, "LEAST_OF_UNIT", {})
    with np.errstate(all="ignore"):
        for results, case in zip(found, both, strict=True):
            for by_unit, plain in zip(results, case.run(make), strict=True):
                for head, expected in zip(by_unit, plain, strict=True):
                    assert np.array_equal(np.isfinite(head), np.isfinite(expected))
                    assert np.array_equal(np.isnan(head), np.isnan(expected))
                    finite = np.isfinite(expected)
                    largest = np.abs(expected[finite]).max(initial=0.0)
                    np.testing.assert_allclose(head[finite], expected[finite], rtol=2e-5, atol=4e-6 * largest)


def test_heads_do_not_depend_on_each_other() -> None:
    """A head has the same bits whatever the others hold, and so whichever thread does it."""
    forward, backward = cases((9,), 150, 150, 32, 32, causal=True)
    before = [case.run(make) for case in (forward, backward)]
    forward.storages[0].reshape(9, -1)[1] *= np.float32(1e-41)  # the backward pass has the same
    after = [case.run(make) for case in (forward, backward)]
    for old, new in zip([*before[0], *before[1]], [*after[0], *after[1]], strict=True):
        for head in (0, *range(2, 9)):
            assert old[head].tobytes() == new[head].tobytes()
    for case in (forward, backward):
        check(case, dtypes.float32, splits=5)
