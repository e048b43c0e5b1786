"""Writes by index and by mask to tensors of which several elements are one place of memory: expanded ones, of which PyTorch warns, and others (`unfold`).

PyTorch writes the elements that are meant, in order, and leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import may_repeat
from flambeau.trace.mutation import assign, make_ready
from flambeau.trace.once import warn_here

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.meta import Meta


def _repeated(x: Any) -> list[int]:
    m = x._meta
    return [d for d, (size, stride) in enumerate(zip(m.shape, m.strides, strict=True)) if stride == 0 and size > 1]


def is_expanded(x: Any) -> bool:
    """Whether elements of a tensor are one place of memory because a dim was expanded. Not of conjugate and negative views: no write to them is allowed."""
    return 0 in x._meta.strides and bool(_repeated(x)) and x._meta.numel > 0 and not x._meta.bits


def _once(x: Tensor, name: str) -> Tensor:
    """The view of an expanded tensor that has each place once: its expanded dims have size 1."""
    warn_here(
        f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also applies to advanced "
        "indexing e.g. tensor[indices] = tensor",
    )  # fmt: skip
    for d in _repeated(x):
        x = x.narrow(d, 0, 1)
    return x


def put(x: Tensor, indices: tuple[Any, ...], values: Tensor, accumulate: bool) -> None:
    """x[indices] = values (or += with accumulate) for an expanded x; of several writes to one place the last counts."""
    from flambeau.ops.creation import arange
    from flambeau.ops.indexing import index_put, is_mask, refuse_other_dtype

    if len(indices) == 1 and is_mask(indices[0]) and values._meta.numel == 1:
        values = values.to(x.dtype)
    refuse_other_dtype(x._meta, values)
    once = _once(x, "index_put_")
    places = arange(once._meta.numel).reshape(tuple(once._meta.shape)).expand(tuple(x._meta.shape))[indices]  # type: ignore[attr-defined]
    shape = tuple(places.shape)
    while values.ndim > len(shape) and values.shape[0] == 1:
        values = values.squeeze(0)
    flat = values.expand(shape).reshape(-1)
    make_ready(once, (), "index_put_")
    written = index_put(once.reshape(-1), (places.reshape(-1),), flat, accumulate)
    assign(once, written.reshape(tuple(once.shape)), "index_put_")


def fill(name: str, x: Tensor, *args: Any) -> Tensor:
    """masked_fill_(mask, value) and index_fill_(dim, index, value) of an expanded x."""
    once: Any = _once(x, name)
    if name == "masked_fill_":
        mask, value = args
        mask = mask.expand(tuple(x._meta.shape))
        for d in _repeated(x):
            mask = mask.any(d, keepdim=True)
        once.masked_fill_(mask, value)
        return x
    from flambeau.ops.creation import zeros

    dim, index, value = args
    if dim % x._meta.ndim not in _repeated(x):
        once.index_fill_(dim, index, value)
    elif index._meta.numel:
        zeros((x.shape[dim],)).index_fill_(0, index, 0)  # raises what a wrong index does
        once.fill_(value)
    return x


def shares_places(m: Meta) -> bool:
    """Whether elements of a tensor are one place of memory though no dim was expanded, as in the windows of `unfold`."""
    return m.numel > 1 and 0 not in m.strides and not m.bits and may_repeat(m.shape, m.strides)


def agreeing(x: Tensor, result: Tensor, again: Callable[[Any], Any] | None = None) -> Tensor:
    """What to write to x where a function has written some elements: of those that are one place all are what the last write there says, as one that is
    left alone must not undo the write to its place by another one. The gradient of a place goes to one of them. The result itself, of most layouts of x.

    `again` is the function for another x: what does not depend on x is written, also where it is the number that was there. Of functions that add, only
    what changes is.
    """
    m = x._meta
    if not shares_places(m):
        return result
    from flambeau.grad_modes import no_grad
    from flambeau.ops.concatenated import cat
    from flambeau.ops.creation import arange
    from flambeau.ops.indexing import index_put

    reach = 1 + sum([(size - 1) * stride for size, stride in zip(m.shape, m.strides, strict=True)])
    places: Any = arange(reach).as_strided(m.shape, m.strides).reshape(-1)  # type: ignore[attr-defined]
    old, new = x.detach(), result.detach()
    same = (old == new) | ((old != old) & (new != new))
    if again is not None:
        with no_grad():
            same = same & (again(x.new_zeros(m.shape)) != again(x.new_ones(m.shape)))
    content = cat([x.as_strided((reach,), (1,), x.storage_offset()), x.reshape(-1)[:1]])  # and one behind the last place, which nobody reads
    changed = index_put(content, (places.masked_fill(same.reshape(-1), reach),), result.to(x.dtype).reshape(-1))
    found: Any = changed[places]
    if found.requires_grad:
        order = arange(m.numel)
        last = index_put(arange(reach), (places,), order)[places] == order
        found = found.where(last, found.detach())
    return found.reshape(m.shape)  # type: ignore[no-any-return]
