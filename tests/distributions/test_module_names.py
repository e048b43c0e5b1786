"""Names that programs import from the modules of torch.distributions."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

torch = pytest.importorskip("torch")


def test_distribution_is_in_every_module_that_has_it_in_pytorch() -> None:
    lacking = []
    for found in pkgutil.iter_modules(torch.distributions.__path__):
        if hasattr(importlib.import_module(f"torch.distributions.{found.name}"), "Distribution"):
            ours = importlib.import_module(f"flambeau.distributions.{found.name}")
            if getattr(ours, "Distribution", None) is not importlib.import_module("flambeau.distributions").Distribution:
                lacking.append(found.name)
    assert not lacking
