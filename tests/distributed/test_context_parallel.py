"""context_parallel: attention of a sequence that is spread over ranks, with its gradients, and a training step, as in one process."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results


@pytest.mark.parametrize("ranks", [2, 3])
def test_as_one_process(ranks, tmp_path):
    for found in results("context.py", ranks, tmp_path):
        errors = found.pop("errors")
        assert found.pop("functional")
        assert errors == ["RuntimeError", "NotImplementedError", "NotImplementedError"]
        assert len(found) == 25
        wrong = {name: value for name, value in found.items() if not value < (3e-6 if "float32" in name else 1e-13)}
        assert not wrong
