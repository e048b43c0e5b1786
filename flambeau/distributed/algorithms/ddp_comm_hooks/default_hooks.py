"""torch.distributed.algorithms.ddp_comm_hooks.default_hooks: gradients as their mean, also compressed to 16 bits on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.distributed.collectives import all_reduce
from flambeau.distributed.group import ProcessGroup, default_group

Hook = Callable[[Any, Any], Any]


def _mean(group: ProcessGroup | None, tensor: Any) -> Any:
    """A future of a tensor's mean over the ranks, which is put into it."""
    found = default_group() if group is None else group
    work = all_reduce(tensor.div_(found.size()), group=found, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def finished(value: Any) -> Any:
    """A future that is done: of hooks that do all at once."""
    from flambeau.futures import Future

    future: Any = Future()
    future.set_result(value)
    return future


def allreduce_hook(process_group: ProcessGroup | None, bucket: Any) -> Any:
    """The mean, as without a hook."""
    return _mean(process_group, bucket.buffer())


def _compressed(kind: Any, process_group: ProcessGroup | None, bucket: Any) -> Any:
    buffer = bucket.buffer()
    return _mean(process_group, buffer.to(kind)).then(lambda done: buffer.copy_(done.value()))


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: Any) -> Any:
    """The mean of the gradients as float16."""
    return _compressed(flambeau.float16, process_group, bucket)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: Any) -> Any:
    """The mean of the gradients as bfloat16."""
    return _compressed(flambeau.bfloat16, process_group, bucket)


def _wrapper(kind: Any, hook: Hook) -> Hook:
    def compressed(state: Any, bucket: Any) -> Any:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(kind))
        return hook(state, bucket).then(lambda done: buffer.copy_(_first(done.value())))

    return compressed


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) else value


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, of gradients as float16."""
    return _wrapper(flambeau.float16, hook)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, of gradients as bfloat16."""
    return _wrapper(flambeau.bfloat16, hook)
