"""Modules whose register_buffer has no argument `persistent`: assigned buffers go through it."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("library", [flambeau, torch])
def test_assigned_buffers(library: Any) -> None:
    class Old(library.nn.Module):  # type: ignore[name-defined, misc]
        def register_buffer(self, name: str, value: Any) -> None:
            super().register_buffer(name, value, True)

    module = Old()
    module.kept = library.nn.Buffer(library.ones(2))
    assert list(module.state_dict()) == ["kept"]
    with pytest.raises(RuntimeError, match="persistent"):
        module.lost = library.nn.Buffer(library.ones(2), persistent=False)
