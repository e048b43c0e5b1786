"""Collectives of Python objects, as pickles: only for groups all of whose ranks are trusted."""

from __future__ import annotations

import ctypes
import io
import pickle
from typing import Any

from flambeau.distributed import own_backends
from flambeau.distributed.agreement import collective
from flambeau.distributed.calls import root_of
from flambeau.distributed.group import ProcessGroup, member
from flambeau.distributed.memory import scratch


def _pickled(value: Any) -> bytes:
    stream = io.BytesIO()
    pickle.Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def _share(group: ProcessGroup, name: str, detail: str, own: list[bytes], wanted: Any) -> list[list[bytes]]:
    """Every rank hands out a list of texts; the lists of all ranks, in which only texts are that `wanted(rank, place)` says."""
    if group.own_backend is not None:
        rows = own_backends.shared(group, own)
        return [[content for place, content in enumerate(row) if wanted(rank, place)] for rank, row in enumerate(rows)]
    n = group.size()
    text, key = collective(name, detail, None, None)
    found: list[list[bytes]] = []

    def run() -> None:
        window = group.window
        window.begin(text, key)
        counts = (ctypes.c_int64 * n)()
        count = ctypes.c_int64(len(own))
        window.swap([(ctypes.addressof(count), 8)], 8, [(r, 0, ctypes.addressof(counts) + 8 * r, 8) for r in range(n)])
        lengths = [(ctypes.c_int64 * counts[r])() for r in range(n)]
        mine = (ctypes.c_int64 * len(own))(*map(len, own))
        sends = [(ctypes.addressof(mine), 8 * len(own))]
        window.swap(sends, 8 * max(counts), [(r, 0, ctypes.addressof(lengths[r]), 8 * counts[r]) for r in range(n)])
        receives, buffers = [], []
        for r in range(n):
            start = 0
            for place, length in enumerate(lengths[r]):
                if wanted(r, place):
                    address, buffer = scratch(length)
                    receives.append((r, start, address, length))
                    buffers.append((r, buffer, length))
                start += length
        whole = ctypes.create_string_buffer(b"".join(own), max(1, sum(map(len, own))))
        window.swap([(ctypes.addressof(whole), sum(map(len, own)))], max(sum(row) for row in lengths), receives)
        found.extend([] for _ in range(n))
        for r, buffer, length in buffers:
            found[r].append(buffer.tobytes()[:length])

    group.lane.now(run)
    return found


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """object_list[r] becomes a copy of the object of rank r."""
    members = member(group)
    if members is None:
        return
    if len(object_list) != members.size():
        raise ValueError(f"all_gather_object: object_list must have one place a rank: {members.size()}, got {len(object_list)}")
    found = _share(members, "all_gather_object", "", [_pickled(obj)], lambda rank, place: True)
    object_list[:] = [pickle.loads(texts[0]) for texts in found]


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None) -> None:
    """On rank `dst` object_gather_list[r] becomes a copy of the object of rank r."""
    members = member(group)
    if members is None:
        return
    root = root_of(members, dst, group_dst, "dst")
    is_root = root == members.rank()
    if is_root and (object_gather_list is None or len(object_gather_list) != members.size()):
        raise ValueError(f"Argument ``object_gather_list`` must be specified on the destination rank, with {members.size()} places.")
    if not is_root and object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    found = _share(members, "gather_object", f"to {root}", [_pickled(obj)], lambda rank, place: is_root)
    if is_root:
        assert object_gather_list is not None
        object_gather_list[:] = [pickle.loads(texts[0]) for texts in found]


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None, use_batch: bool = False
) -> None:
    """The objects become copies of those of rank `src`."""
    members = member(group)
    if members is None:
        return
    if not isinstance(object_list, list):
        raise TypeError(f"broadcast_object_list: object_list must be a list, got {type(object_list).__name__}")
    root = root_of(members, src, group_src, "src")
    is_root = root == members.rank()
    own = [_pickled(value) for value in object_list] if is_root else []
    found = _share(members, "broadcast_object_list", f"{len(object_list)} from {root}", own, lambda rank, place: not is_root)
    if not is_root:
        object_list[:] = [pickle.loads(text) for text in found[root]]


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None, group: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """The output's first place becomes a copy of the object in this rank's place of the list of rank `src`."""
    members = member(group)
    if members is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = root_of(members, src, group_src, "src")
    own: list[bytes] = []
    if root == members.rank():
        if scatter_object_input_list is None or len(scatter_object_input_list) != members.size():
            raise ValueError(f"scatter_object_list: scatter_object_input_list must have one object a rank: {members.size()}")
        own = [_pickled(value) for value in scatter_object_input_list]
    found = _share(members, "scatter_object_list", f"from {root}", own, lambda rank, place: rank == root and place == members.rank())
    scatter_object_output_list[0] = pickle.loads(found[root][0])


def _as_message(value: Any) -> Any:
    import flambeau

    return flambeau.frombuffer(bytearray(_pickled(value)), dtype=flambeau.uint8)


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None, use_batch: bool = False
) -> None:
    """Send objects to a rank."""
    import flambeau
    from flambeau.distributed.messages import send

    messages = [_as_message(value) for value in object_list]
    send(flambeau.tensor([m.numel() for m in messages], dtype=flambeau.int64), dst, group, 0, group_dst)
    for message in messages:
        send(message, dst, group, 0, group_dst)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None, use_batch: bool = False
) -> int:
    """Receive as many objects as the list has places; the sender's rank."""
    import flambeau
    from flambeau.distributed.messages import recv

    lengths = flambeau.zeros(len(object_list), dtype=flambeau.int64)
    sender = recv(lengths, src, group, 0, group_src)
    for i, length in enumerate(lengths.tolist()):
        message = flambeau.empty(length, dtype=flambeau.uint8)
        recv(message, sender, group)
        object_list[i] = pickle.loads(message.numpy().tobytes())
    return sender
