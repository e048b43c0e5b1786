"""CommDebugMode counts the collectives that PyTorch's counts, module by module; specs, operators, files and custom functions of DTensors."""

from __future__ import annotations

import sys

import pytest

from tests.distributed.ranks import environment, results
from tests.processes import run


def test_as_pytorch(tmp_path):
    pytest.importorskip("torch")
    mine, theirs = (results("comm_mode.py", 1, tmp_path, ours=ours)[0] for ours in (True, False))
    for name, expected in theirs.items():
        assert mine[name] == expected, name
    assert mine.keys() == theirs.keys()


def test_no_operators_without_a_need():
    """The operators of collectives are registered when the first is asked for: not by an import."""
    code = (
        "import flambeau, flambeau.distributed, sys; assert 'flambeau.distributed.operators' not in sys.modules; flambeau.ops.c10d.allreduce_; "
        "assert 'flambeau.distributed.operators' in sys.modules"
    )
    run([sys.executable, "-c", code], env=environment(), check=True)
