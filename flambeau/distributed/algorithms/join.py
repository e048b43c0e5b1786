"""torch.distributed.algorithms.join: ranks with different numbers of batches: who has none left takes part in the others' collectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from flambeau.distributed.group import get_rank
from flambeau.trace.once import warn_here


class JoinHook:
    """What a Joinable does once its rank has no inputs any more."""

    def main_hook(self) -> None:
        """Called for each batch of another rank: take part in its collectives."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all are done."""


@dataclass
class _JoinConfig:
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """Outside of a Join."""
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """What can take part in a Join."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What to do for others."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where its tensors are."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of its collectives."""


class Join:
    """A `with` block around a loop over inputs; at its end a rank takes part in the others' collectives until all are done.

    `throw_on_early_termination`: RuntimeError on all ranks as soon as one is done.
    """

    def __init__(self, joinables: list[Any], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._join_hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable, self._throw = enable, throw_on_early_termination
        for number, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, number == 0)
        groups = {id(joinable.join_process_group): joinable.join_process_group for joinable in joinables}
        if len(groups) != 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._group = next(iter(groups.values()))

    def __enter__(self) -> Join:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            if self._enable and kind is None:
                self._take_part()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig.construct_disabled_join_config()

    def _take_part(self) -> None:
        last, rounds = True, 0
        while _count(self._group, 0):
            if self._throw:
                _count(self._group, 1)
                raise RuntimeError(f"Rank {get_rank()} exhausted all inputs.")
            last = False
            rounds += 1
            if rounds == 1000:
                warn_here("Detected uneven input skew of greater than 1000: this rank has 1000 fewer inputs than another")
            for hook in self._join_hooks:
                hook.main_hook()
        for hook in self._join_hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Any) -> Any:
        """Called by a Joinable before its collectives: this rank still has inputs."""
        config = getattr(joinable, "_join_config", None)
        if config is None or not config.enable or not config.is_first_joinable:
            return None
        _count(joinable.join_process_group, 1)
        if config.throw_on_early_termination and _count(joinable.join_process_group, 0):
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return None


def _count(group: Any, own: int) -> int:
    """The sum of a number over the ranks."""
    import flambeau
    from flambeau.distributed.collectives import all_reduce

    number = flambeau.tensor([own], dtype=flambeau.int64)
    all_reduce(number, group=group)
    return int(number.item())
