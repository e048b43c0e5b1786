"""A few of the random distributions that distribution_programs.py compares with PyTorch; and that the comparison can fail."""

from __future__ import annotations

import pytest

import flambeau
from tests.distributions import distribution_programs

pytest.importorskip("torch")


@pytest.mark.parametrize("part", range(4))
def test_distributions_of_random_parameters(part: int) -> None:
    found = [shown for seed in range(8 * part, 8 * part + 8) if (shown := distribution_programs.difference(seed))]
    assert not found, "\n".join(found)


def test_a_wrong_density_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    families = {"Normal": distribution_programs.FAMILIES["Normal"]}
    monkeypatch.setattr(distribution_programs, "FAMILIES", families)
    normal = flambeau.distributions.Normal
    right = normal.log_prob
    monkeypatch.setattr(normal, "log_prob", lambda self, value: right(self, value) * 1.01)
    assert any(distribution_programs.difference(seed) for seed in range(8))


def test_the_programs_ask_for_everything() -> None:
    """Among a hundred programs each question is answered, and each way to wrap a distribution is there."""
    seen = [x for seed in range(100) for x in distribution_programs.run(flambeau, seed)]
    answered = {what for what, x in seen if not isinstance(x, str)}
    wanted = "mean variance mode stddev entropy log_prob cdf icdf sample rsample support perplexity enumerate_support divergence".split()
    assert set(wanted) <= answered
    assert {f"gradient of {name}" for name in ("log_prob", "entropy", "rsample", "divergence")} <= answered
    shapes = " ".join(x for what, x in seen if what == "shapes")
    assert all(name in shapes for name in ("Independent", "TransformedDistribution", "MixtureSameFamily"))
