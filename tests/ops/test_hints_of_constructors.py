"""What constructors warn of and refuse besides wrong arguments: memory that is not writable, windows that were not given, streams, sequences that fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


class Failing:
    """A sequence whose elements cannot be had."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise self.error("no elements")


def constant() -> np.ndarray:
    array = np.zeros(5)
    array.flags.writeable = False
    return array


CALLS: dict[str, Callable[[Any], Any]] = {
    "from_numpy": lambda m: m.from_numpy(constant()),
    "as_tensor": lambda m: m.as_tensor(constant()),
    "as_tensor of another dtype": lambda m: m.as_tensor(constant(), dtype=m.float32),
    "asarray": lambda m: m.asarray(constant()),
    "asarray, a copy": lambda m: m.asarray(constant(), copy=True),
    "tensor": lambda m: m.tensor(constant()),
    "writable": lambda m: m.from_numpy(np.zeros(5)),
    "frombuffer": lambda m: m.frombuffer(bytes(8), dtype=m.int8),
    "stft": lambda m: m.stft(m.arange(64.0), 16, return_complex=True),
    "stft with a window": lambda m: m.stft(m.arange(64.0), 16, window=m.ones(16), return_complex=True),
    "istft": lambda m: m.istft(m.stft(m.arange(64.0), 16, window=m.ones(16), return_complex=True), 16),
    "no stream": lambda m: [m.ones(2).__dlpack__(stream=s) for s in (None, -1)] and None,
    "an object for a stream": lambda m: m.ones(2).__dlpack__(stream=object()),
    "a stream of the CPU": lambda m: m.ones(2).__dlpack__(stream=1),
    **{f"a sequence with {e.__name__}": lambda m, e=e: m.tensor(Failing(e)) for e in (TypeError, IndexError, ValueError, KeyError)},
    "a number among rows": lambda m: m.tensor([[1, 2], 3]),
    "nonzero of a tuple into out": lambda m: m.nonzero(m.ones(2), as_tuple=True, out=m.empty(0, dtype=m.int64)),
}


@pytest.mark.parametrize("name", CALLS)
def test_beside_pytorch(name: str) -> None:
    found = []
    for library in (torch, flambeau):
        before = library.is_warn_always_enabled()
        library.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                try:
                    CALLS[name](library)
                    error = None
                except Exception as raised:
                    error = type(raised)
        finally:
            library.set_warn_always(before)
        found.append((error, [("not writable" in str(w.message), str(w.message).startswith("A window was not provided")) for w in told]))
    assert found[1] == found[0]


def test_a_constant_array_is_said_once_and_shared() -> None:
    array = np.zeros(5)
    view = array.view()
    view.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        flambeau.set_warn_always(True)
        shared = flambeau.from_numpy(view)
        flambeau.set_warn_always(False)
    array[2] = 3.0
    assert shared.tolist() == [0.0, 0.0, 3.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", ["bool", "int16", "int64", "float32", "complex64"])
@pytest.mark.parametrize("name", ["true_divide", "div", "divide"])
def test_true_quotients_of_sparse_tensors(name: str, dtype: str) -> None:
    for divisor in (2, 2.5):
        results = [getattr(m, name)(m.tensor([[0, 1], [3, 0]]).to(getattr(m, dtype)).to_sparse(), divisor).to_dense() for m in (torch, flambeau)]
        assert str(results[1].dtype).rpartition(".")[2] == str(results[0].dtype).rpartition(".")[2]
        assert results[1].flatten().tolist() == pytest.approx(results[0].flatten().tolist())
