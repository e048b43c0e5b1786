"""How tensors and storages are pickled for another process: the memory is shared, and only a handle on it is sent.

A storage that is sent becomes shared in place, so that what one process writes the other sees. It is sent as a copy in shared memory where
changing it in place could meet another thread's work: by any thread but the main one (feeders of queues, handlers of pools).
"""

from __future__ import annotations

import threading
import weakref
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

from flambeau.dtypes import dtype
from flambeau.io.pickling import attributes, bits_of, restore_tensor, restore_wrapper, wrapper_layout
from flambeau.nn.parameter import Buffer, Parameter
from flambeau.ops.dispatch import Dispatched
from flambeau.runtime import shared_memory
from flambeau.storage import TypedStorage, UntypedStorage
from flambeau.tensor import Tensor
from flambeau.trace.storage import Storage

_KNOWN: weakref.WeakValueDictionary[tuple[int, int], Storage] = weakref.WeakValueDictionary()  # shared storages by the file under them


def reduce_storage(storage: UntypedStorage) -> Any:
    """A handle on the shared memory of a storage, which is moved there first."""
    from flambeau.multiprocessing import get_sharing_strategy

    block = shared_memory.block_of(storage._observed().buffer)
    if block is None:
        if threading.current_thread() is not threading.main_thread():
            storage = storage.clone()
        block = storage._shared_block(get_sharing_strategy())
    _KNOWN[block.identity] = storage._storage
    if block.has_links:
        return rebuild_storage_filename, (block.link(), block.nbytes)
    return rebuild_storage_fd, (reduction.DupFd(block.handle), block.nbytes, block.identity)


def rebuild_storage_fd(handle: Any, nbytes: int, identity: tuple[int, int]) -> UntypedStorage:
    """The storage over an open file that another process sent."""
    try:
        descriptor = handle.detach()
    except (ConnectionError, EOFError, FileNotFoundError) as error:
        known = _KNOWN.get(identity)  # it may have come from here
        if known is not None:
            return UntypedStorage(wrap=known)
        raise RuntimeError("the process that sent a tensor has ended before it was received: keep it alive until then, or receive before joining it") from error
    return _over(shared_memory.from_handle(descriptor, nbytes))


def rebuild_storage_filename(name: str, nbytes: int) -> UntypedStorage:
    """The storage over a named file that another process made."""
    try:
        block = shared_memory.from_name(name, nbytes)
    except FileNotFoundError as error:
        raise RuntimeError(f"the shared memory {name} is gone: the program that made it has ended") from error
    return _over(block)


def _over(block: shared_memory.Block) -> UntypedStorage:
    known = _KNOWN.get(block.identity)
    if known is None:
        known = Storage(block.buffer())
        known.external = True  # others write to it at any time
        _KNOWN[block.identity] = known
    return UntypedStorage(wrap=known)


def reduce_tensor(t: Tensor) -> Any:
    """Layout, flags and storage; of results of recorded operations RuntimeError if they require gradients."""
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing process "
            "boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing (e.g., putting it on "
            "the queue)."
        )
    if isinstance(t, Dispatched):
        return restore_wrapper, (type(t), *wrapper_layout(t), attributes(t))
    layout = t.dtype, t.storage_offset(), tuple(t.shape), tuple(t.stride())
    return restore_tensor, (type(t), t.untyped_storage(), *layout, t.requires_grad, attributes(t), *bits_of(t))


def reduce_typed_storage(storage: TypedStorage) -> Any:
    """As its untyped storage."""
    return rebuild_typed_storage, (storage.untyped(), storage.dtype)


def rebuild_typed_storage(untyped: UntypedStorage, d: dtype) -> TypedStorage:
    """The inverse of reduce_typed_storage."""
    return TypedStorage(wrap_storage=untyped, dtype=d)


def init_reductions() -> None:
    """Teach multiprocessing how our objects are sent."""
    ForkingPickler.register(UntypedStorage, reduce_storage)
    ForkingPickler.register(TypedStorage, reduce_typed_storage)
    for kind in (Tensor, Parameter, Buffer):
        ForkingPickler.register(kind, reduce_tensor)


__all__ = ["init_reductions", "rebuild_storage_fd", "rebuild_storage_filename", "reduce_storage", "reduce_tensor"]
