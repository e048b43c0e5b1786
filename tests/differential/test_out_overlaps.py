"""`out=` beside PyTorch where it shares memory with an input, and where its dtype is another one."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def outcome(module: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    try:
        result = getattr(module, name)(*args, **kwargs)
    except (RuntimeError, TypeError) as error:
        return type(error).__name__
    return result.tolist() if isinstance(result, module.Tensor) else [t.tolist() for t in kwargs["out"]]


@pytest.mark.parametrize("name", ["index_reduce", "index_add", "index_copy", "scatter", "scatter_add", "scatter_reduce"])
@pytest.mark.parametrize("share", ["input", "view of the input", "source"])
def test_writes_that_begin_as_their_input(name: str, share: str) -> None:
    found = []
    for module in (flambeau, torch):
        x, index, source = module.arange(3.0), module.tensor([2, 0, 1]), module.ones(3)
        out = {"input": x, "view of the input": x[:], "source": source}[share]
        found.append(outcome(module, name, x, 0, index, source, *["amin"] * name.endswith("reduce"), out=out))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "unbind_copy", "lu"])
def test_dtypes_of_out(name: str, dtype: str) -> None:
    found = []
    for module in (flambeau, torch):
        kind = getattr(module, dtype)
        x = module.tensor([[2.0, 0.0], [0.0, 4.0]], dtype=module.float64)
        if name.startswith("cum"):
            found.append([outcome(module, name, x, 0, dtype=given, out=module.ones((2, 2), dtype=kind)) for given in (None, module.float64, module.int64)])
        else:
            found.append(outcome(module, name, x, out=(module.ones(2, dtype=kind), module.ones(2, dtype=kind))))
    assert found[0] == found[1]
