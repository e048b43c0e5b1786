"""torch.quasirandom: Sobol sequences, points that fill a cube more evenly than random ones."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.composed import sobol

__all__ = ["SobolEngine"]


class SobolEngine:
    """A Sobol sequence in `dimension` dims (1 to 21,201; direction numbers of Joe and Kuo), scrambled by Owen's method if `scramble`.

    `seed` is that of the scrambling. The points are PyTorch's. ValueError for another dimension.

    Example:
        >>> import flambeau as torch
        >>> torch.quasirandom.SobolEngine(dimension=3).draw(3).tolist()
        [[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25]]
    """

    MAXBIT = sobol.BITS
    MAXDIM = sobol.DIMENSIONS

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], but got {dimension}")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.sobolstate = torch.zeros(dimension, self.MAXBIT, dtype=torch.long)
        sobol._sobol_engine_initialize_state_(self.sobolstate, dimension)
        self.shift = torch.zeros(dimension, dtype=torch.long)
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next n points, (n, dimension), of `dtype` (the default dtype if None); written to `out` if it is given."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if self.num_generated == 0:
            result = self._first_point.to(dtype)
            if n != 1:
                more, self.quasi = sobol._sobol_engine_draw(self.quasi, n - 1, self.sobolstate, self.dimension, 0, dtype=dtype)
                result = torch.cat((result, more), dim=-2)
        else:
            result, self.quasi = sobol._sobol_engine_draw(self.quasi, n, self.sobolstate, self.dimension, self.num_generated - 1, dtype=dtype)
        self.num_generated += n
        return result if out is None else out.resize_as_(result).copy_(result)

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next 2**m points. ValueError where the number of all points would be no power of 2: their balance needs it."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin the sequence again."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out n points."""
        first = self.num_generated == 0
        sobol._sobol_engine_ff_(self.quasi, n - first, self.sobolstate, self.dimension, 0 if first else self.num_generated - 1)
        self.num_generated += n
        return self

    def _scramble(self) -> None:
        generator = None
        if self.seed is not None:
            generator = torch.Generator()
            generator.manual_seed(self.seed)
        shift = torch.randint(2, (self.dimension, self.MAXBIT), generator=generator)
        self.shift = torch.mv(shift, torch.pow(2, torch.arange(0, self.MAXBIT)))
        matrices = torch.randint(2, (self.dimension, self.MAXBIT, self.MAXBIT), generator=generator).tril()
        sobol._sobol_engine_scramble_(self.sobolstate, matrices, self.dimension)

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.quasirandom", globals())
