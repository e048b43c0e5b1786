"""Every operator of PyTorch's database on the device `meta` (meta.py)."""

from __future__ import annotations

import pytest

from tests.differential.known import INTERNAL
from tests.differential.meta import differences
from tests.differential.samples import OPERATORS, Unsupported, supported


@pytest.mark.parametrize("label", sorted(label for label in set(OPERATORS) - INTERNAL if supported(label, "float32")))
def test_layouts_without_elements(label: str) -> None:
    try:
        _, wrong, _ = differences(label, 1)
    except Unsupported:
        return
    assert not wrong, "\n".join(wrong)
