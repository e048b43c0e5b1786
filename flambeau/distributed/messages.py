"""Messages of tensors from rank to rank, as functions of torch.distributed."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.calls import root_of
from flambeau.distributed.group import ProcessGroup, get_rank, member
from flambeau.distributed.work import Work


def _peer(given: int | None, of_group: int | None, group: Any, what: str) -> tuple[ProcessGroup, int] | None:
    found = member(group)
    if found is None:
        return None
    if given is None and of_group is None:
        raise ValueError(f"torch.distributed: give {what} or group_{what}")
    place = root_of(found, given, of_group, what)
    if place == found.rank():
        kind = {"dst": "destination", "src": "source"}[what]
        raise ValueError(f"Invalid {kind} rank: {kind} rank should not be the same as the rank of the current process.")
    return found, place


def send(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to a rank; returns when its memory may be written again."""
    to = _peer(dst, group_dst, group, "dst")
    if to is not None:
        to[0].mail.send(tensor, to[1], tag, False)


def isend(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """send, beside the program."""
    to = _peer(dst, group_dst, group, "dst")
    return None if to is None else to[0].mail.send(tensor, to[1], tag, True)


def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive into a tensor from a rank, or from any; the sender's rank, -1 if this process is not in the group."""
    found = member(group)
    if found is None:
        return -1
    if src is None and group_src is None:
        return found.mail.receive_from_any(tensor, tag, False)._source
    sender = _peer(src, group_src, group, "src")
    assert sender is not None
    place = sender[1]
    found.mail.receive(tensor, place, tag, False)
    return found.ranks[place]


def irecv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """recv, beside the program."""
    found = member(group)
    if found is None:
        return None
    if src is None and group_src is None:
        return found.mail.receive_from_any(tensor, tag, True)
    sender = _peer(src, group_src, group, "src")
    assert sender is not None
    return sender[0].mail.receive(tensor, sender[1], tag, True)


class P2POp:
    """One message of batch_isend_irecv: `op` is isend or irecv."""

    def __init__(self, op: Any, tensor: Any, peer: int | None = None, group: Any = None, tag: int = 0, group_peer: int | None = None) -> None:
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start several messages; a Work of each."""
    if not isinstance(p2p_op_list, list) or not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    get_rank()  # ValueError without a group
    works = [op.op(op.tensor, op.peer, op.group, op.tag, op.group_peer) for op in p2p_op_list]
    return [work for work in works if work is not None]
