"""Collectives of a group of one process: copies. Without a group they raise PyTorch's ValueError."""

from __future__ import annotations

import copy
import enum
from typing import Any

from flambeau.autograd.modes import no_grad
from flambeau.distributed.group import default_group


class ReduceOp(enum.Enum):
    """How the tensors of all processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # of PyTorch's two classes the one that has the names


class Work:
    """A collective that has been started: in one process it is done."""

    def wait(self, timeout: Any = None) -> bool:
        """True."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def get_future(self) -> Any:
        """A future that is done."""
        from flambeau.futures import Future

        made: Future[Any] = Future()
        made.set_result(None)
        return made


class P2POp:
    """One message of batch_isend_irecv."""

    def __init__(self, op: Any, tensor: Any, peer: int | None = None, group: Any = None, tag: int = 0, group_peer: int | None = None) -> None:
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag


def _done(async_op: bool) -> Work | None:
    return Work() if async_op else None


def _check_root(place: int | None, what: str) -> None:
    default_group()
    if place not in (0, None):
        raise ValueError(f"torch.distributed: {what} is {place}, but the group has one process, of rank 0")


def _copy(target: Any, source: Any) -> None:
    if target is not source:
        with no_grad():
            target.copy_(source.reshape(target.shape))


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensor stays: it is the sum over one process."""
    default_group()
    return _done(async_op)


def all_reduce_coalesced(tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensors stay."""
    default_group()
    return _done(async_op)


def reduce(tensor: Any, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False, group_dst: int | None = None) -> Work | None:
    """The tensor stays."""
    _check_root(dst, "dst")
    return _done(async_op)


def broadcast(tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Work | None:
    """The tensor stays."""
    _check_root(src, "src")
    return _done(async_op)


def all_gather(tensor_list: list[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """tensor_list[0] becomes the tensor."""
    default_group()
    _copy(tensor_list[0], tensor)
    return _done(async_op)


def all_gather_coalesced(output_tensor_lists: list[list[Any]], input_tensor_list: list[Any], group: Any = None, async_op: bool = False) -> Work | None:
    """all_gather of several tensors."""
    for outputs, tensor in zip(output_tensor_lists, input_tensor_list, strict=True):
        all_gather(outputs, tensor)
    return _done(async_op)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """The output becomes the input."""
    default_group()
    _copy(output_tensor, input_tensor)
    return _done(async_op)


def gather(
    tensor: Any, gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, async_op: bool = False, group_dst: int | None = None
) -> Work | None:
    """gather_list[0] becomes the tensor."""
    _check_root(dst, "dst")
    if gather_list:
        _copy(gather_list[0], tensor)
    return _done(async_op)


def scatter(
    tensor: Any, scatter_list: list[Any] | None = None, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """The tensor becomes scatter_list[0]."""
    _check_root(src, "src")
    if scatter_list:
        _copy(tensor, scatter_list[0])
    return _done(async_op)


def reduce_scatter(output: Any, input_list: list[Any], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The output becomes input_list[0]."""
    default_group()
    _copy(output, input_list[0])
    return _done(async_op)


def reduce_scatter_tensor(output: Any, input: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The output becomes the input."""
    default_group()
    _copy(output, input)
    return _done(async_op)


def all_to_all(output_tensor_list: list[Any], input_tensor_list: list[Any], group: Any = None, async_op: bool = False) -> Work | None:
    """The output becomes the input."""
    default_group()
    _copy(output_tensor_list[0], input_tensor_list[0])
    return _done(async_op)


def all_to_all_single(
    output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None, async_op: bool = False
) -> Work | None:
    """The output becomes the input."""
    default_group()
    _copy(output, input)
    return _done(async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Nobody to wait for."""
    default_group()
    return _done(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Nobody to wait for."""
    default_group()


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """object_list[0] becomes a copy of the object."""
    default_group()
    object_list[0] = copy.deepcopy(obj)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None) -> None:
    """object_gather_list[0] becomes a copy of the object."""
    _check_root(dst, "dst")
    if object_gather_list:
        object_gather_list[0] = copy.deepcopy(obj)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None, use_batch: bool = False
) -> None:
    """The list stays."""
    _check_root(src, "src")


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None, group: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """The output's first becomes the input's first."""
    _check_root(src, "src")
    if scatter_object_input_list:
        scatter_object_output_list[0] = copy.deepcopy(scatter_object_input_list[0])


def _no_peer(name: str) -> None:
    default_group()
    raise ValueError(f"torch.distributed.{name}: the group has one process, which cannot send itself a message")


def send(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """ValueError: there is nobody to send to."""
    _no_peer("send")


def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """ValueError: there is nobody to receive from."""
    _no_peer("recv")
    return -1


def isend(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """ValueError: there is nobody to send to."""
    _no_peer("isend")
    return None


def irecv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """ValueError: there is nobody to receive from."""
    _no_peer("irecv")
    return None


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """ValueError: there is nobody to send to or receive from."""
    _no_peer("batch_isend_irecv")
    return []
