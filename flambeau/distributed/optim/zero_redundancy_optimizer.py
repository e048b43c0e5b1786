"""torch.distributed.optim.zero_redundancy_optimizer: each rank keeps the state of some parameters, steps these, and hands them to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flambeau.distributed.algorithms.join import Join, Joinable, JoinHook
from flambeau.distributed.collectives import share_rows
from flambeau.distributed.group import ProcessGroup, default_group, member
from flambeau.distributed.objects import gather_object
from flambeau.grad_modes import no_grad
from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor


class _ZeROJoinHook(JoinHook):
    """A rank without inputs steps its share for the others."""

    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        self.zero._step_and_share(None, {})


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer of class `optimizer_class` whose state is spread over the ranks of `process_group`.

    Parameters go whole to the rank that has the fewest elements so far, the largest first. All ranks must have the same gradients (DistributedDataParallel).
    After a step all parameters are handed over in one collective, so `parameters_as_bucket_view` changes nothing. `defaults`: the optimizer's arguments.
    """

    optim: Optimizer

    def __init__(
        self, params: Any, optimizer_class: type[Optimizer], process_group: Any = None, parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:  # fmt: skip
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is not there (PyTorch refuses it with gloo, too): call step() after backward()"
            )
        entries = _entries(params)
        found = default_group() if process_group is None else member(process_group)
        if found is None:
            raise ValueError("ZeroRedundancyOptimizer: this process is not in process_group")
        self.initialized = False
        self.process_group: ProcessGroup = found
        self.world_size, self.rank, self.global_rank = found.size(), found.rank(), found.ranks[found.rank()]
        self.parameters_as_bucket_view = parameters_as_bucket_view
        Joinable.__init__(self)
        Optimizer.__init__(self, entries, defaults)
        self._sizes = [0] * self.world_size
        self._parts: list[list[dict[str, Any]]] = [[] for _ in range(self.world_size)]
        for group in self.param_groups:
            self._partition(group)
        self.optim = optimizer_class(self._parts[self.rank], **defaults)
        _copy_options(self.optim.param_groups, self.param_groups)
        self._all_state_dicts: list[dict[str, Any]] = []
        self.initialized = True

    # -- who has what -----------------------------------------------------------------------------------------------------------------
    def _partition(self, group: dict[str, Any]) -> None:
        """Give the parameters of a group to ranks."""
        shares: list[list[Tensor]] = [[] for _ in range(self.world_size)]
        for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
            rank = self._sizes.index(min(self._sizes))
            shares[rank].append(p)
            self._sizes[rank] += p.numel()
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        for part, share in zip(self._parts, shares, strict=True):
            part.append({**options, "params": share})

    def _partition_parameters(self) -> list[list[dict[str, Any]]]:
        """The parameter groups of each rank."""
        return self._parts

    @property
    def _param_to_rank(self) -> dict[Tensor, int]:
        return {p: rank for rank, groups in enumerate(self._parts) for group in groups for p in group["params"]}

    @property
    def _index_to_param(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @property
    def _param_to_index(self) -> dict[Tensor, int]:
        return {p: i for i, p in enumerate(self._index_to_param)}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; they go to ranks, too."""
        super().add_param_group(param_group)
        if self.initialized:
            self._partition(self.param_groups[-1])
            self.optim.add_param_group(self._parts[self.rank][-1])
            _copy_options(self.optim.param_groups[-1:], self.param_groups[-1:])

    # -- a step -----------------------------------------------------------------------------------------------------------------------
    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Step this rank's parameters, and take over the others'; the closure's loss."""
        Join.notify_join_context(self)
        return self._step_and_share(closure, kwargs)

    def _step_and_share(self, closure: Callable[[], Any] | None, options: dict[str, Any]) -> Any:
        _copy_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step(**options) if closure is None else self.optim.step(closure=closure, **options)
        _copy_options(self.optim.param_groups, self.param_groups)
        with no_grad():
            rows = [[p.detach() for group in groups for p in group["params"]] for groups in self._parts]
            share_rows(rows, self.process_group, "ZeroRedundancyOptimizer.step")
        return loss

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Steps without inputs. Give Join the DistributedDataParallel module first, whose gradients these steps take."""
        return _ZeROJoinHook(self)

    @property
    def join_device(self) -> Any:
        """The parameters' device."""
        return self._index_to_param[0].device

    @property
    def join_process_group(self) -> Any:
        """The process group."""
        return self.process_group

    # -- saving and loading -----------------------------------------------------------------------------------------------------------
    def consolidate_state_dict(self, to: int = 0) -> None:
        """All ranks call this: rank `to` of the group gets the state of all, for its state_dict(); no rank, if the group has none of that number."""
        _copy_options(self.param_groups, self.optim.param_groups)
        if not 0 <= to < self.world_size:  # trainers name a rank of the job's, whose size they do not know
            self._all_state_dicts = []
            return
        place: list[Any] | None = [None] * self.world_size if self.rank == to else None
        gather_object(self.optim.state_dict(), place, group=self.process_group, group_dst=to)
        self._all_state_dicts = place or []

    def state_dict(self) -> dict[str, Any]:
        """As of one optimizer of all parameters, on the rank to which it was consolidated. RuntimeError on others."""
        if not self._all_state_dicts:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.rank})` on all ranks beforehand if you meant to save the global state."
            )
        result = super().state_dict()
        places = self._param_to_index
        for groups, saved in zip(self._parts, self._all_state_dicts, strict=True):
            for group, numbers in zip(groups, saved["param_groups"], strict=True):
                for p, number in zip(group["params"], numbers["params"], strict=True):
                    if number in saved["state"]:
                        result["state"][places[p]] = saved["state"][number]
        result["state"] = dict(sorted(result["state"].items()))
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over groups' options, and of the states those of this rank's parameters."""
        super().load_state_dict({**state_dict, "state": {}})
        owners, params = self._param_to_rank, self._index_to_param
        places = {number: p for saved, p in zip(_numbers(state_dict), params, strict=True) for number in (saved,)}
        mine = {p: i for i, p in enumerate(p for group in self.optim.param_groups for p in group["params"])}
        states = {mine[p]: state for number, state in state_dict["state"].items() if (p := places[number]) is not None and owners[p] == self.rank}
        _copy_options(self.param_groups, self.optim.param_groups)
        self.optim.load_state_dict({"state": states, "param_groups": self.optim.state_dict()["param_groups"]})


def _numbers(state_dict: Mapping[str, Any]) -> list[Any]:
    return [number for group in state_dict["param_groups"] for number in group["params"]]


def _copy_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
    """Groups get the options of others: schedulers change those of one side, optimizers those of the other."""
    for theirs, mine in zip(source, target, strict=True):
        mine.update({key: value for key, value in theirs.items() if key not in ("params", "param_names")})


def _entries(params: Any) -> list[Any]:
    """The parameters, or groups of them, as a list, with PyTorch's errors."""
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise TypeError(f"`params` argument should be an iterable of Tensors, but got {type(params).__name__}")
    entries = list(params)
    if not entries:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    if not all(isinstance(entry, Tensor) for entry in entries) and not all(isinstance(entry, dict) for entry in entries):
        raise TypeError("`params` argument should be an iterable of Tensors or dicts")
    for group in entries:
        if isinstance(group, dict) and "params" not in group:
            raise ValueError("Each parameter group passed-in via `params` must have a 'params' key mapping to the parameters in the group")
    if isinstance(entries[0], dict):
        entries = [{**group, "params": [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])} for group in entries]
    flat = [p for entry in entries for p in (entry["params"] if isinstance(entry, dict) else [entry])]
    kinds = list(dict.fromkeys("sparse" if p.is_sparse else p.dtype for p in flat))
    if len(kinds) > 1 or "sparse" in kinds:
        raise ValueError(f"ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got {' and '.join(map(str, kinds))}")
    return entries
