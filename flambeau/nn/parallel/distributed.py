"""DistributedDataParallel: a module whose gradients are the mean over all ranks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.distributed.algorithms.join import Join, Joinable, JoinHook
from flambeau.distributed.group import ProcessGroup, default_group, is_initialized, member
from flambeau.grad_modes import no_grad
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.sparse import Embedding, EmbeddingBag

if TYPE_CHECKING:
    from flambeau.distributed.reducer import Reducer
    from flambeau.tensor import Tensor


class DistributedDataParallel(Module, Joinable):
    """Holds `module` under the key "module", calls it, and after each backward pass makes its gradients the mean over the ranks of `process_group`.

    At construction parameters and buffers become those of rank 0; with `broadcast_buffers` buffers do before each forward pass, too. Gradients are exchanged
    where they lie, all of a dtype in one go, once the pass has ended: buckets matter to communication hooks only (`bucket_cap_mb`), and
    `gradient_as_bucket_view` changes nothing. Without a process group (init_process_group was not called) the module is only called.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool | None = None,
        init_sync: bool = True, process_group: Any = None, bucket_cap_mb: float | None = None, find_unused_parameters: bool = False,
        check_reduction: bool = False, gradient_as_bucket_view: bool = False, static_graph: bool = False, delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None, mixed_precision: Any = None, device_mesh: Any = None, skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Any = None, batched_grad_copy: bool = False, forward_sync_buffers: Any = None,
    ) -> None:  # fmt: skip
        Module.__init__(self)
        self._join_config = flambeau.distributed.algorithms.join._JoinConfig.construct_disabled_join_config()
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        if mixed_precision is not None:
            raise NotImplementedError("DistributedDataParallel: mixed_precision is not there yet; use torch.autocast, or a hook that compresses")
        self.module = module
        self.device_ids = None if device_ids is None else list(device_ids)
        self.output_device = output_device
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers is not False
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 1024 * 1024)
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.process_group: ProcessGroup | None = member(process_group) if process_group is not None or is_initialized() else None
        self.reducer: Reducer | None = None
        if self.process_group is not None and self.process_group.size() > 1:
            self._prepare(self.process_group, init_sync)

    def _prepare(self, group: ProcessGroup, init_sync: bool) -> None:
        from flambeau.distributed.reducer import Reducer, same_everywhere

        module, ignored = self.module, self.parameters_to_ignore
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad and name not in ignored}
        if init_sync:
            same_everywhere(list(trained.values()), group)
            self._send_state(0)
        self.reducer = Reducer(trained, group, self.find_unused_parameters, self.static_graph, self.bucket_bytes_cap)
        self.reducer.sparse = {i for i, p in enumerate(trained.values()) if any(p is weight for weight in self._sparse_weights(module))}

    @staticmethod
    def _sparse_weights(module: Module) -> list[Any]:
        """The tables in a module whose gradients are sparse."""
        return [each.weight for each in module.modules() if isinstance(each, (Embedding, EmbeddingBag)) and each.sparse]

    def _state(self) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters, and the buffers."""
        ignored = self.parameters_to_ignore
        parameters = [p.detach() for name, p in self.module.named_parameters() if name not in ignored]
        return parameters, [b for name, b in self.module.named_buffers() if name not in ignored]

    def _send_state(self, root: int) -> None:
        """Parameters and buffers become those of a rank."""
        from flambeau.distributed.reducer import send_all

        assert self.process_group is not None
        parameters, buffers = self._state()
        send_all([*parameters, *buffers], root, self.process_group)

    # -- pickles: without the group, which becomes the default one -------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not None and self.process_group is not default_group():
            raise RuntimeError("DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, when you have called "
                               "init_process_group and have not passed process_group argument to DDP constructor")  # fmt: skip
        return {name: value for name, value in self.__dict__.items() if name not in ("process_group", "reducer")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("require_forward_param_sync", True)
        self.__dict__.setdefault("require_backward_grad_sync", True)
        self.process_group = default_group() if is_initialized() else None
        self.reducer = None
        if self.process_group is not None and self.process_group.size() > 1:
            self._prepare(self.process_group, False)

    # -- a step -----------------------------------------------------------------------------------------------------------------
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._pre_forward(*inputs, **kwargs)
        return self._post_forward(self.module(*inputs, **kwargs))

    def _pre_forward(self, *inputs: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What goes before the module's forward pass; its arguments."""
        reducer = self.reducer
        if reducer is None:
            return inputs, kwargs
        trains = flambeau.is_grad_enabled() and self.require_backward_grad_sync
        reducer.check_finished()
        self._begun = True
        reducer.times.mark("forward_start")
        root = 0
        if self._join_config.enable:
            Join.notify_join_context(self)
            root = self._agree(True, trains)
        if self.will_sync_module_buffers():
            self._send_buffers(root)
        reducer.armed = trains
        self.require_forward_param_sync = trains
        return inputs, kwargs

    def _post_forward(self, output: Any) -> Any:
        """What goes after the module's forward pass; its result."""
        if self.reducer is not None:
            self.reducer.times.mark("forward_end")
        return output

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass begins with the buffers of rank 0."""
        return self.require_forward_param_sync and self.broadcast_buffers and next(self.module.buffers(), None) is not None

    def _send_buffers(self, root: int) -> None:
        from flambeau.distributed.reducer import send_all

        assert self.process_group is not None
        send_all(self._state()[1], root, self.process_group)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose forward passes lead to backward passes that exchange no gradients: they add up, until a pass outside of it."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # -- inputs of different numbers ----------------------------------------------------------------------------------------------
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Any:
        """A `with` block around a loop over inputs of which ranks have different numbers. See torch.distributed.algorithms.join.Join."""
        if self.reducer is None:
            return Join([self], False, throw_on_early_termination)
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without inputs does for the others."""
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """The CPU."""
        return flambeau.device("cpu")

    @property
    def join_process_group(self) -> Any:
        """The process group."""
        return self.process_group

    def _agree(self, has_inputs: bool, trains: bool) -> int:
        """In a Join, before each step: who has inputs, and whether gradients will be exchanged. The rank whose buffers count; sets `_others_train`."""
        from flambeau.distributed.collectives import all_reduce

        assert self.process_group is not None and self.reducer is not None
        n, rank = self.process_group.size(), self.process_group.rank()
        flags = flambeau.zeros(2 * n, dtype=flambeau.int64)
        if has_inputs:
            flags[rank] = 1
            flags[n + rank] = int(trains)
        all_reduce(flags, group=self.process_group)
        found = flags.tolist()
        self._others_train = any(found[n:])
        if not self._divides_by_all:
            self.reducer.divisor = max(1, sum(found[:n]))
        return max(r for r in range(n) if found[r])

    _begun = False  # whether there was a forward pass
    _others_train = True
    _divides_by_all = True

    # -- communication hooks --------------------------------------------------------------------------------------------------------
    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """`hook(state, bucket)` exchanges each bucket's gradients in place of the mean; it returns a future of the flat tensor that they become."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        try:
            _check_annotations(hook)
        except ValueError as error:
            if self.reducer is not None:
                self.reducer.times.error = str(error)
            raise
        if self.reducer is not None:
            if self.reducer.hook is not None:
                raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
            self.reducer.hook, self.reducer.hook_state = hook, state

    def _set_static_graph(self) -> None:
        """The same parameters are used in each pass. RuntimeError after the first one."""
        if self._begun:
            text = "DistributedDataParallel._set_static_graph should be called before training loop starts: the first forward pass was made"
            if self.reducer is not None:
                self.reducer.times.error = text
            raise RuntimeError(text)
        self.static_graph = True
        if self.reducer is not None:
            self.reducer.static = True

    # -- what it tells of itself ------------------------------------------------------------------------------------------------------
    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Settings, and the times of the last step that was measured (the first ten, then each hundredth); nothing in one process."""
        from flambeau.distributed.ddp_logging import logging_data

        return {} if self.reducer is None else logging_data(self, self.reducer)

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        """Of how many steps one is measured."""
        if sample_rate < 1:
            raise ValueError("DDP runtime logging sample rate should be equal or greater than 1")
        if self.reducer is not None:
            self.reducer.times.rate = sample_rate

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """A hook of `torch.distributed.BuiltinCommHookType`."""
        from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks

        self.register_comm_hook(self.process_group, getattr(default_hooks, comm_hook_type.value))
        if self.reducer is not None:
            self.reducer.hook_name = str(comm_hook_type)

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Sequence[str]) -> None:
        """Names of parameters and buffers that are left alone."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore  # type: ignore[assignment]


class _DDPJoinHook(JoinHook):
    """Takes part in the steps of other ranks: with buffers that are overwritten, and gradients of zero."""

    def __init__(self, ddp: DistributedDataParallel, divides_by_all: bool) -> None:
        self.ddp = ddp
        ddp._divides_by_all = divides_by_all
        if ddp.reducer is not None:
            ddp.reducer.joins = True

    def main_hook(self) -> None:
        ddp = self.ddp
        assert ddp.reducer is not None
        root = ddp._agree(False, False)
        if ddp.will_sync_module_buffers():
            ddp._send_buffers(root)
        ddp.require_forward_param_sync = ddp._others_train
        if ddp._others_train:
            for p in ddp.reducer.parameters:
                p.grad = None
            ddp.reducer.exchange(set())

    def post_hook(self, is_last_joiner: bool) -> None:
        ddp = self.ddp
        group = ddp.process_group
        assert ddp.reducer is not None and group is not None
        ddp.reducer.joins, ddp.reducer.divisor = False, group.size()
        from flambeau.distributed.collectives import all_reduce
        from flambeau.distributed.reduce_op import ReduceOp

        last = flambeau.tensor([group.rank() if is_last_joiner else -1])
        all_reduce(last, ReduceOp.MAX, group)
        with no_grad():
            ddp._send_state(int(last.item()))


def _check_annotations(hook: Any) -> None:
    """ValueError where a communication hook says that it takes or returns something else. (Annotations that are text are not looked into.)"""
    from flambeau.distributed.reducer import GradBucket
    from flambeau.futures import Future

    found = inspect.signature(hook)
    bucket = found.parameters["bucket"].annotation if "bucket" in found.parameters else inspect.Parameter.empty
    if bucket is not inspect.Parameter.empty and not isinstance(bucket, str) and bucket is not GradBucket:
        raise ValueError(f"Communication hook: bucket annotation should be dist.GradBucket, got {bucket}")
    result = found.return_annotation
    if result is not inspect.Signature.empty and not isinstance(result, str) and getattr(result, "__origin__", result) is not Future:
        raise ValueError(f"Communication hook: return annotation should be torch.futures.Future[torch.Tensor], got {result}")


def _dump_DDP_relevant_env_vars() -> None:
    """Print the environment variables that matter to distributed training."""
    from flambeau.distributed.ddp_logging import RELEVANT, environment

    print(environment(RELEVANT))


__all__ = ["DistributedDataParallel"]
