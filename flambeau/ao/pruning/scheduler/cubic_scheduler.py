"""CubicSL: sparsity that grows fast at first and slowly at the end (Zhu and Gupta, arXiv 1710.01878)."""

from __future__ import annotations

from typing import Any

from flambeau.ao.pruning.scheduler.base_scheduler import BaseScheduler
from flambeau.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier


class CubicSL(BaseScheduler):
    """From `init_sl` at `init_t` to each group's own level after `total_t` changes, one every `delta_t` epochs.

    Before `init_t` the level is `init_sl`, or 0 with `initially_zero`. Each argument may be a list, a value for each group.
    """

    def __init__(
        self,
        sparsifier: BaseSparsifier,
        init_sl: Any = 0.0,
        init_t: Any = 0,
        delta_t: Any = 10,
        total_t: Any = 100,
        initially_zero: Any = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.sparsifier = sparsifier
        self.init_sl = self._make_sure_a_list(init_sl)
        self.init_t = self._make_sure_a_list(init_t)
        self.delta_t = self._make_sure_a_list(delta_t)
        self.total_t = self._make_sure_a_list(total_t)
        self.initially_zero = self._make_sure_a_list(initially_zero)
        super().__init__(sparsifier, last_epoch, verbose)

    @staticmethod
    def sparsity_compute_fn(s_0: float, s_f: float, t: int, t_0: int, dt: int, n: int, initially_zero: bool = False) -> float:
        """s_f + (s_0 - s_f) (1 - (t - t_0) / (dt n))^3, between s_0 and s_f."""
        if initially_zero and t < t_0:
            return 0
        return max(s_0, min(s_f, s_f + (s_0 - s_f) * (1.0 - (t - t_0) / (dt * n)) ** 3))

    def get_sl(self) -> list[float]:
        """The levels for `last_epoch`."""
        self._ask_for_last()
        each = zip(self.init_sl, self.base_sl, self.init_t, self.delta_t, self.total_t, self.initially_zero, strict=False)
        return [self.sparsity_compute_fn(s_0, s_f, self.last_epoch, t_0, dt, n, zero) for s_0, s_f, t_0, dt, n, zero in each]
