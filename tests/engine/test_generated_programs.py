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


def test_gradients_compute_memory_read_as_reals_again() -> None:
    """Of a complex result that a known path views as real numbers: seed 7000000430, made short."""
    program = """
v[4] = v[3].abs() if v[3].dtype != s.m.bool else v[3].clone()
v[1] = v[4].sum()
s.item(v[5], 2)
r = s.rows(v[2], 3)[None]; v[0] = torch.nn.functional.scaled_dot_product_attention(r, r, r, dropout_p=0.25)
s.require(v[1])
v[2] = s.cast(v[0], torch.complex64)
v[5] = torch.view_as_real(v[2])
v[4] = floating(s, v[4]) - v[2]
v[3] = v[5] * v[1]
"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert difference(program.strip().splitlines(), 7000000430, REPEATS[:1]) is None
