"""A group without other processes goes through the motions as PyTorch's does."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results


def test_as_pytorch(tmp_path):
    pytest.importorskip("torch")
    mine, theirs = (results("fake.py", 1, tmp_path, ours=ours)[0] for ours in (True, False))
    assert mine == theirs
