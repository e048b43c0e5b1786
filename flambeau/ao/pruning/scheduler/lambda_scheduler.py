"""LambdaSL: each group's sparsity level times a function of the epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau.ao.pruning.scheduler.base_scheduler import BaseScheduler
from flambeau.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier


class LambdaSL(BaseScheduler):
    """The level of each group is the one that it was given, times `sl_lambda(epoch)`; a list has a function for each group."""

    def __init__(
        self,
        sparsifier: BaseSparsifier,
        sl_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.sparsifier = sparsifier
        if not isinstance(sl_lambda, (list, tuple)):
            self.sl_lambdas = [sl_lambda] * len(sparsifier.groups)
        elif len(sl_lambda) != len(sparsifier.groups):
            raise ValueError(f"Expected {len(sparsifier.groups)} lr_lambdas, but got {len(sl_lambda)}")
        else:
            self.sl_lambdas = list(sl_lambda)
        super().__init__(sparsifier, last_epoch, verbose)

    def get_sl(self) -> list[float]:
        """The levels for `last_epoch`."""
        self._ask_for_last()
        return [base * function(self.last_epoch) for function, base in zip(self.sl_lambdas, self.base_sl, strict=False)]
