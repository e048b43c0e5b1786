"""A fixed sample of generated programs beside PyTorch; CI runs 500 of each day (scripts/sweep)."""

from __future__ import annotations

import warnings

import pytest

from tests.engine.generated_programs import REPEATS, difference, printed, program_of, shortened

torch = pytest.importorskip("torch")
SAMPLE = (3, 9)


@pytest.mark.parametrize("seed", SAMPLE)
def test_programs(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of what is deprecated
        assert difference(program_of(seed), seed) is None


def test_what_differs_is_found_and_made_short() -> None:
    """A statement that tells the two libraries apart is all that is left of a program."""
    program = [f"v[{i % 6}] = v[{i % 5}] * 2" for i in range(12)]  # not those of a seed: each shorter program would be compiled
    program.insert(5, "s.note(torch.__name__)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short, repeats = shortened(program, 3)
    assert (short, repeats) == (["s.note(torch.__name__)"], REPEATS[:1])
    assert "import flambeau as torch" in printed(short, 3, repeats)
