"""Completion: `dir` of a namespace lists what it has, modules and functions that are loaded at their first use too."""

from __future__ import annotations

import importlib

import pytest

from flambeau.names import torch_names

SPACES = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.linalg", "torch.fft", "torch.special", "torch.distributions", "torch.utils.data",
          "torch.autograd", "torch.masked", "torch.nested", "torch.sparse")  # fmt: skip


@pytest.mark.parametrize("space", SPACES)
def test_dir_lists_what_is_there(space: str) -> None:
    module = importlib.import_module(space.replace("torch", "flambeau", 1))
    listed = set(dir(module))
    assert not {name for name in torch_names().get(space, ()) if name not in listed and hasattr(module, name)}
    if space == "torch":
        assert {"softmax", "save", "nested", "compile"} <= listed and not {name for name in listed if not hasattr(module, name)}
