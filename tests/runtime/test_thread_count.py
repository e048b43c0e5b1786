"""The number of threads: where it comes from, and that a change after first use changes what runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.runtime import resources, threads
from flambeau.statistics import counters
from tests import processes


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = threads.count()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("whole")
def test_more_threads_after_first_use() -> None:
    torch.set_num_threads(1)
    x = torch.randn(1 << 21)
    w = torch.randn(300, 300)

    def work() -> tuple[float, list[float]]:
        return (x * 3 + 1).sum().item(), (w @ w)[0].tolist()

    alone = work()
    before = counters.parallel_phases
    assert work() == alone and counters.parallel_phases == before
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    assert work() == alone  # the same bits
    together = counters.parallel_phases
    assert together > before
    made = counters.plans_made
    assert work() == alone and counters.parallel_phases > together and counters.plans_made == made
    torch.set_num_threads(1)  # fewer: the plans that are there will do
    parallel = counters.parallel_phases
    assert work() == alone and counters.plans_made == made
    torch.set_num_threads(2)
    assert work() == alone and counters.plans_made == made and counters.parallel_phases >= parallel


def test_training_goes_on_after_a_change() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    x = torch.randn(512, 256)
    losses = []
    for step in range(6):
        if step == 3:
            torch.set_num_threads(3)
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_errors_and_other_settings() -> None:
    with pytest.raises(RuntimeError, match="positive integer, got 0"):
        torch.set_num_threads(0)
    with pytest.raises(TypeError, match="expects an int"):
        torch.set_num_threads("2")  # type: ignore[arg-type]
    torch.set_num_interop_threads(4)
    assert torch.get_num_interop_threads() == 1
    with pytest.raises(RuntimeError, match="positive"):
        torch.set_num_interop_threads(0)


@pytest.fixture
def deterministic_modes() -> Iterator[None]:
    """Afterwards they are what they were."""
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic_modes")
def test_deterministic_modes_are_what_was_set() -> None:
    torch.use_deterministic_algorithms(False)
    assert not torch.are_deterministic_algorithms_enabled() and torch.get_deterministic_debug_mode() == 0
    torch.use_deterministic_algorithms(True)
    assert torch.are_deterministic_algorithms_enabled() and torch.get_deterministic_debug_mode() == 2
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.is_deterministic_algorithms_warn_only_enabled() and torch.get_deterministic_debug_mode() == 1
    torch.set_deterministic_debug_mode("error")
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    with pytest.raises(TypeError, match="must be bool"):
        torch.use_deterministic_algorithms(1)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="invalid value"):
        torch.set_deterministic_debug_mode("loud")


@pytest.mark.parametrize(
    "variables, expected",
    [({"FLAMBEAU_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3), ({"OMP_NUM_THREADS": "5"}, 5), ({"OMP_NUM_THREADS": "7,2"}, 7)],
)  # fmt: skip
def test_environment(variables: dict[str, str], expected: int) -> None:
    kept = {k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS")}
    program = "import flambeau as torch; print(torch.get_num_threads()); x = torch.ones(1 << 20); print((x + x).sum().item())"
    root = Path(__file__).resolve().parents[2]
    done = processes.python("-c", program, env={**kept, **variables, "PYTHONPATH": str(root)}, check=True)
    assert done.stdout.split() == [str(expected), str(float(2 << 20))]


@pytest.mark.parametrize("text, expected", [("150000 100000", 1), ("250000 100000", 2), ("50000 100000", 1), ("max 100000", None)])
def test_quota_of_a_control_group(text: str, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotas are read at the group itself and at all above it; the least counts."""
    for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    own = tmp_path / "groups" / "outer" / "inner"
    own.mkdir(parents=True)
    (tmp_path / "self").write_text("0::/outer/inner\n")
    (own / "cpu.max").write_text("max 100000\n")
    (own.parent / "cpu.max").write_text(text + "\n")
    monkeypatch.setattr(resources, "_CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(resources, "_OWN_GROUPS", tmp_path / "self")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert resources.usable_processors() == (8 if expected is None else expected)
