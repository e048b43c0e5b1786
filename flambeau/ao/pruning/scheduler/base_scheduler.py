"""BaseScheduler: sparsity levels of a sparsifier's groups by the number of steps."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from flambeau.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier
from flambeau.trace.once import warn_here


class BaseScheduler:
    """Sets `sparsity_level` of each group to what `get_sl` says for `last_epoch`; call `step` after the sparsifier's."""

    def __init__(self, sparsifier: BaseSparsifier, last_epoch: int = -1, verbose: bool = False) -> None:
        if not isinstance(sparsifier, BaseSparsifier):
            raise TypeError(f"{type(sparsifier).__name__} is not an instance of torch.ao.pruning.BaseSparsifier")
        self.sparsifier: Any = sparsifier
        self.base_sl = [group["sparsity_level"] for group in sparsifier.groups]
        self.last_epoch = last_epoch
        self._count_steps()
        self._step_count = 0
        self.verbose = verbose
        self._get_sl_called_within_step = False
        self.step()

    def _count_steps(self) -> None:
        """The sparsifier's `step` counts its calls, so that an order that makes no sense is told. No cycle of references: they are weak."""
        self.sparsifier._step_count = 0
        method = self.sparsifier.step
        if getattr(method, "_with_counter", False):
            return
        ref, function = weakref.ref(self.sparsifier), method.__func__

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            instance: Any = ref()
            instance._step_count += 1
            return function(instance, *args, **kwargs)

        counted._with_counter = True  # type: ignore[attr-defined]
        self.sparsifier.step = counted

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows, but for the sparsifier."""
        return {key: value for key, value in self.__dict__.items() if key != "sparsifier"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        self.__dict__.update(state_dict)

    def get_last_sl(self) -> list[float]:
        """The levels that were set last."""
        return self._last_sl

    def _ask_for_last(self) -> None:
        if not self._get_sl_called_within_step:
            warn_here("To get the last sparsity level computed by the scheduler, please use `get_last_sl()`.")

    def get_sl(self) -> list[float]:
        """The levels for `last_epoch`, one for each group; classes that derive from this one say them."""
        self._ask_for_last()
        raise NotImplementedError

    def print_sl(self, is_verbose: bool, group: int, sl: float, epoch: int | None = None) -> None:
        """Say which level a group has from now on."""
        if is_verbose:
            if epoch is None:
                print(f"Adjusting sparsity level of group {group} to {sl:.4e}.")
            else:
                print(f"Epoch {epoch:5d}: adjusting sparsity level of group {group} to {sl:.4e}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__} (\nSparsifier {self.sparsifier}\n    base_sl: {self.base_sl}\n)"

    def step(self, epoch: int | None = None) -> None:
        """The next epoch's levels."""
        if self._step_count == 1:
            if not hasattr(self.sparsifier.step, "_with_counter"):
                warn_here(
                    "Seems like `sparsifier.step()` has been overridden after sparsity scheduler initialization. Please, make sure to call "
                    "`sparsifier.step()` before `scheduler.step()`.",
                )
            elif self.sparsifier._step_count < 1:
                warn_here(
                    "Detected call of `scheduler.step()` before `sparsifier.step()`. You have to make sure you run the sparsifier.step() BEFORE any "
                    "calls to the scheduler.step().",
                )
        self._step_count += 1
        self._get_sl_called_within_step = True
        try:
            self.last_epoch += 1
            levels = self.get_sl()
        finally:
            self._get_sl_called_within_step = False
        for i, (group, level) in enumerate(zip(self.sparsifier.groups, levels, strict=False)):
            group["sparsity_level"] = level
            self.print_sl(self.verbose, i, level, epoch)
        self._last_sl = [group["sparsity_level"] for group in self.sparsifier.groups]
        self.sparsifier.enable_mask_update = True

    def _make_sure_a_list(self, var: Any) -> list[Any]:
        """One value for each group."""
        n = len(self.sparsifier.groups)
        if not isinstance(var, (list, tuple)):
            return [var] * n
        if len(var) != n:
            raise ValueError(f"Expected variable of length {n}, but got {len(var)}")
        return list(var)
