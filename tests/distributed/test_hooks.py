"""Communication hooks, averaged models and ZeroRedundancyOptimizer: the numbers of PyTorch's with gloo, and the same bits on each rank."""

from __future__ import annotations

import numpy
import pytest

from tests.distributed.ranks import results
from tests.distributed.test_ddp import close


def backwards(row: list[float], sizes: list[int]) -> numpy.ndarray:
    """Parameters' numbers, the last parameter's first."""
    return numpy.concatenate(numpy.split(numpy.array(row), numpy.cumsum(sizes)[:-1])[::-1])


@pytest.mark.parametrize("ranks", [2, 4])
def test_as_gloo(ranks, tmp_path):
    mine = results("hooks.py", ranks, tmp_path, ["mine"])
    for name, value in mine[0].items():
        if name.startswith(("quant", "by ", "PowerSGD", "batched", "callback", "zero")) and not name.endswith(("share", "state", "groups")):
            assert all(other[name] == value for other in mine), name
    for name in ("SGD", "Adam", "AdamW", "views"):  # each rank keeps some parameters' state, together all
        shares = numpy.array([other[f"zero {name} share"] for other in mine])
        assert shares[:, 0].sum() == 12 * 24 + 24 + 24 * 24 + 24 + 24 * 4 + 4 and shares[:, 0].max() < 24 * 25 + 1
        assert (shares[:, 1] % shares[:, 0] == 0).all() and shares[:, 1].min() >= shares[:, 0].min()
        for which in ("plain", "zero"):
            close(mine[0][f"zero {name} goes on {which}"], mine[0][f"zero {name} goes on plain"], name)
    close(mine[0]["zero join"], mine[0]["alone"], "join", 1e-4)
    own = numpy.array([other["own"] for other in mine])
    for name, width in {"quantized": own.shape[1], "by rows of 64": 64}.items():
        # A byte's step is the range of a rank's row, 0 with it, over 255; the mean is off by half a step of each rank at most.
        whole = numpy.pad(own, ((0, 0), (0, -own.shape[1] % width))).reshape(ranks, -1, width)
        steps = (numpy.maximum(whole.max(2), 0) - numpy.minimum(whole.min(2), 0)) / 255
        allowed = steps.mean(0).repeat(width)[: own.shape[1]] * 0.51 + 1e-6
        off = numpy.abs(backwards(mine[0][name], mine[0]["sizes"]) - own.mean(0))
        assert (off <= allowed).all() and off.max() > 1e-5, name
    close(mine[0]["batched PowerSGD 32"], mine[0]["no hook"] | {"stats": [1012 / 2048, 4048, 8192]}, "all columns", 1e-4)
    with pytest.raises(AssertionError):
        close(mine[0]["batched PowerSGD 2"], mine[0]["no hook"], "two columns", 1e-4)
    assert mine[0]["by name"] == mine[0]["quantized"]
    assert all(list(backwards(other["nothing sent"], other["sizes"])) == other["own"] for other in mine)
    pytest.importorskip("torch")
    theirs = results("hooks.py", ranks, tmp_path, ours=False)
    for rank in range(ranks):
        for name, expected in theirs[rank].items():
            close(mine[rank][name], expected, f"rank {rank} {name}", 2e-4)
