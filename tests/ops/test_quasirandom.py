"""torch.quasirandom: the same points as PyTorch's, scrambled or not, however they are drawn."""

from __future__ import annotations

import pytest

import flambeau as ft
from flambeau.composed import sobol

torch = pytest.importorskip("torch")


def test_all_direction_numbers() -> None:
    theirs = torch.zeros(sobol.DIMENSIONS, sobol.BITS, dtype=torch.long)
    torch._sobol_engine_initialize_state_(theirs, sobol.DIMENSIONS)
    assert sobol._rows(sobol.DIMENSIONS) == theirs.tolist()


@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("dimension", [1, 2, 7, 150])
def test_points(dimension: int, scramble: bool) -> None:
    def points(m: object) -> list[object]:
        engine = m.quasirandom.SobolEngine(dimension, scramble=scramble, seed=5)  # type: ignore[attr-defined]
        found = [engine.draw(n).tolist() for n in (1, 1, 3, 8, 0, 21)]
        found.append(engine.fast_forward(100).draw(2, dtype=m.float64).tolist())  # type: ignore[attr-defined]
        found.append(engine.reset().draw_base2(4).tolist())
        found.append(engine.draw_base2(4, out=m.empty(0)).tolist())  # type: ignore[attr-defined]
        found.append(engine.reset().fast_forward(7).draw(3).tolist())
        found += [engine.quasi.tolist(), engine.num_generated, repr(engine)]
        m.manual_seed(3)  # type: ignore[attr-defined]
        found.append(m.quasirandom.SobolEngine(dimension, scramble=scramble).draw(4).tolist())  # type: ignore[attr-defined]
        return found

    assert points(ft) == points(torch)


def test_what_is_refused() -> None:
    for m in (ft, torch):
        for dimension in (0, 21202):
            with pytest.raises(ValueError, match="Supported range of dimensionality"):
                m.quasirandom.SobolEngine(dimension)
        engine = m.quasirandom.SobolEngine(2)
        engine.draw(3)
        with pytest.raises(ValueError, match="balance properties"):
            engine.draw_base2(2)
