"""The namespaces of devices that are not here: their common rows stand in one place, and each namespace's table is what its functions do."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import defaultdict
from types import ModuleType

import pytest

from flambeau import absent

NAMES = "cuda cuda.memory cuda.streams cuda.random cuda.graphs torch_names.xpu torch_names.mtia torch_names.mps torch_names.accelerator".split()


def table(module: ModuleType) -> list[str]:
    return absent.rows(module._TABLE, device(module))


def device(module: ModuleType) -> str:
    return module.__name__.split(".")[2 if "torch_names" in module.__name__ else 1]


def test_no_row_stands_in_two_tables() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    shared = [row for row in absent.SHARED.split("\n") if row]
    for name in NAMES:
        module = importlib.import_module(f"flambeau.{name}")
        for row in filter(lambda line: "(" in line, module._TABLE.split("\n")):
            places[row.replace(f"'{device(module)}'", "'{device}'")].append(name)
    assert not {row: where for row, where in places.items() if len(where) > 1 or row in shared}
    assert len(shared) == len(set(shared))


def test_each_shared_row_is_used_by_two() -> None:
    words = [
        w.removesuffix("!")
        for name in NAMES
        for line in importlib.import_module(f"flambeau.{name}")._TABLE.split("\n")
        if "(" not in line
        for w in line.split()
    ]
    assert all(words.count(row.partition("(")[0]) > 1 for row in absent.SHARED.split("\n") if row)


@pytest.mark.parametrize("name", NAMES)
def test_functions_have_their_rows_parameters(name: str) -> None:
    module = importlib.import_module(f"flambeau.{name}")
    assert table(module)
    for row in table(module):
        found = re.fullmatch(r"(\w+)(\(.*?\)) .*", row)
        assert found is not None
        function = getattr(module, found[1])
        assert str(inspect.signature(function)) == found[2] and function.__module__ == module.__name__


def test_an_unknown_name_without_parameters_is_an_error() -> None:
    with pytest.raises(KeyError, match="no_such_name"):
        absent.rows("is_available no_such_name", "CUDA")
    assert absent.rows("empty_cache! set_rng_state", "XPU") == ["empty_cache() !", "set_rng_state(new_state, device='xpu') ok"]
