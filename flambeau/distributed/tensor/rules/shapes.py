"""Views and other functions that move elements: reshaping, transposing, cutting, joining, indexing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import flambeau
from flambeau.distributed.tensor._utils import compute_local_shape_and_global_offset
from flambeau.distributed.tensor.calls import Call, Chosen, Rule, whole_shapes
from flambeau.distributed.tensor.placement_types import Replicate, Shard, _MaskPartial
from flambeau.distributed.tensor.rules.letters import WHOLE, by_letters, kept, names
from flambeau.tensor import Tensor


def _ndim(x: Any) -> int:
    return len(x._layout.shape)


def cut_free(ndim: int, dims: Any) -> str:
    """Letters for all dims but these, which are whole. None: all are."""
    if dims is None:
        return WHOLE * ndim
    given = {d % max(1, ndim) for d in (dims if isinstance(dims, (tuple, list)) else (dims,))}
    return "".join([WHOLE if d in given else letter for d, letter in enumerate(names(ndim))])


# -- reshaping ------------------------------------------------------------------------------------------------------------
def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Dims before and after that hold the same elements, in order; sizes 1 are left out."""
    found = []
    i, j = 0, 0
    while i < len(before) and j < len(after):
        if before[i] == 1 and after[j] != 1:
            i += 1
            continue
        if after[j] == 1 and before[i] != 1:
            j += 1
            continue
        ins, outs, a, b = [i], [j], before[i], after[j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                ins.append(i)
                a *= before[i]
                i += 1
            else:
                outs.append(j)
                b *= after[j]
                j += 1
        found.append((ins, outs))
    return found


def view(c: Call, x: Any, *shape: Any, **kwargs: Any) -> Rule:
    """The first dim of a group of dims that are joined or split stays cut where the parts are equal."""
    if any(not isinstance(n, (int, tuple, list)) for n in shape) or not _ndim(x):
        return Rule(by_letters([names(_ndim(x))], names(_ndim(x))))  # another dtype
    before, after = x._layout.shape, whole_shapes(c)[0]
    ins, outs = [WHOLE] * len(before), [WHOLE] * len(after)
    if prod(before):
        for letter, (left, right) in zip(names(26), _groups(before, after), strict=False):
            one = len(left) == len(right) == 1
            if one or (c.even(before[left[0]]) and c.even(after[right[0]])):
                ins[left[0]] = outs[right[0]] = letter
    return Rule(by_letters(["".join(ins)], "".join(outs), [[0]]), [tuple(after)], _reshaped)


def _reshaped(args: Any, kwargs: Any, chosen: Chosen) -> Any:
    return args[0].reshape(chosen.result.local_shape())


def expand(c: Call, x: Any, *sizes: Any, **kwargs: Any) -> Rule:
    """Dims of size 1 that become larger are whole."""
    after = whole_shapes(c)[0]
    out = names(len(after))
    new = len(after) - _ndim(x)
    letters = "".join([out[new + d] if n == after[new + d] else WHOLE for d, n in enumerate(x._layout.shape)])
    return Rule(by_letters([letters], out, [[0]]), [tuple(after)], lambda args, kwargs, chosen: args[0].expand(chosen.result.local_shape()))


def view_as(c: Call, x: Any, other: Any) -> Any:
    """view(other.shape)."""
    return x.reshape(other._layout.shape)


def expand_as(c: Call, x: Any, other: Any) -> Any:
    """expand(other.shape)."""
    return x.expand(other._layout.shape)


# -- the order of dims ----------------------------------------------------------------------------------------------------
def _ordered(c: Call, x: Any, order: Sequence[int]) -> Rule:
    letters = names(_ndim(x))
    return Rule(by_letters([letters], "".join([letters[d] for d in order]), [[0]]))


def transpose(c: Call, x: Any, dim0: int, dim1: int) -> Rule:
    """Two dims exchanged."""
    order = list(range(_ndim(x)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _ordered(c, x, order)


def t(c: Call, x: Any) -> Rule:
    """A matrix transposed."""
    return _ordered(c, x, list(range(_ndim(x)))[::-1])


def permute(c: Call, x: Any, *dims: Any) -> Rule:
    """Any order."""
    given = dims[0] if isinstance(dims[0], (tuple, list)) else dims
    return _ordered(c, x, [d % _ndim(x) for d in given])


def movedim(c: Call, x: Any, source: Any, destination: Any) -> Rule:
    """Some dims elsewhere."""
    n = _ndim(x)
    sources = [s % n for s in (source if isinstance(source, (tuple, list)) else (source,))]
    targets = [s % n for s in (destination if isinstance(destination, (tuple, list)) else (destination,))]
    order = [-1] * n
    for s, d in zip(sources, targets, strict=True):
        order[d] = s
    rest = iter([d for d in range(n) if d not in sources])
    return _ordered(c, x, [next(rest) if d < 0 else d for d in order])


def unsqueeze(c: Call, x: Any, dim: int) -> Rule:
    """A dim of size 1 more."""
    letters = names(_ndim(x))
    place = dim % (_ndim(x) + 1)
    return Rule(by_letters([letters], letters[:place] + WHOLE + letters[place:], [[0]]))


def squeeze(c: Call, x: Any, dim: Any = None) -> Rule:
    """Dims of size 1 less: which ones is said by the whole, not by a part."""
    shape = x._layout.shape
    given = range(len(shape)) if dim is None else [d % len(shape) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    gone = [d for d in given if shape[d] == 1]
    letters = "".join([WHOLE if d in gone else letter for d, letter in enumerate(names(len(shape)))])
    left = "".join([letter for d, letter in enumerate(letters) if d not in gone])
    return Rule(by_letters([letters], left, [[0]]), None, lambda args, kwargs, chosen: args[0].squeeze(tuple(gone)))


# -- cutting and joining --------------------------------------------------------------------------------------------------
def along(c: Call, x: Any, *args: Any, dim: int | None = None, **kwargs: Any) -> Rule:
    """Cut or moved along one dim, which is whole; the dim is the last positional number, or 0."""
    place = dim if dim is not None else 0
    letters = cut_free(_ndim(x), place)
    return Rule(by_letters([letters], letters, [[0]]))


def split(c: Call, x: Any, sizes: Any, dim: int = 0) -> Rule:
    """Along a dim, which is whole."""
    return along(c, x, dim=dim)


def narrow(c: Call, x: Any, dim: int, start: Any, length: Any) -> Rule:
    """Along a dim, which is whole."""
    return along(c, x, dim=dim)


def select(c: Call, x: Any, dim: int, index: Any) -> Rule:
    """One of a dim, which is whole."""
    letters = cut_free(_ndim(x), dim)
    return Rule(by_letters([letters], letters.replace(WHOLE, ""), [[0]]))


def unbind(c: Call, x: Any, dim: int = 0) -> Rule:
    """All of a dim, which is whole."""
    return select(c, x, dim, 0)


def cat(c: Call, tensors: Any, dim: int = 0, **kwargs: Any) -> Rule:
    """Along a dim, which is whole."""
    letters = cut_free(max(_ndim(x) for x in tensors), dim)
    ins = [letters if _ndim(x) == len(letters) else WHOLE * _ndim(x) for x in tensors]
    return Rule(by_letters(ins, letters, [range(len(ins))]))


def stack(c: Call, tensors: Any, dim: int = 0) -> Rule:
    """Along a new dim."""
    letters = names(_ndim(tensors[0]))
    place = dim % (len(letters) + 1)
    return Rule(by_letters([letters] * len(tensors), letters[:place] + WHOLE + letters[place:], [range(len(tensors))]))


def repeat(c: Call, x: Any, *sizes: Any) -> Rule:
    """Dims that are not repeated stay cut."""
    given = list(sizes[0]) if isinstance(sizes[0], (tuple, list)) else list(sizes)
    new = len(given) - _ndim(x)
    letters = "".join([letter if given[new + d] == 1 else WHOLE for d, letter in enumerate(names(_ndim(x)))])
    return Rule(by_letters([letters], WHOLE * new + letters, [[0]]))


def flip(c: Call, x: Any, *dims: Any) -> Rule:
    """Along dims that are whole."""
    return along(c, x, dim=dims[0] if isinstance(dims[0], (tuple, list)) else list(dims))  # type: ignore[arg-type]


def roll(c: Call, x: Any, shifts: Any, dims: Any = None) -> Rule:
    """Along dims that are whole."""
    letters = cut_free(_ndim(x), dims or None)
    return Rule(by_letters([letters], letters, [[0]]))


def matrices(c: Call, x: Any, *args: Any, **kwargs: Any) -> Rule:
    """Of matrices, whose two dims are whole."""
    letters = cut_free(_ndim(x), (-1, -2))
    return Rule(by_letters([letters], letters, [[0]]))


def pad(c: Call, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Rule:
    """Padded dims are whole."""
    touched = [_ndim(x) - 1 - i // 2 for i, n in enumerate(pad) if n]
    letters = cut_free(_ndim(x), touched)
    return Rule(by_letters([letters], letters))


# -- by index -------------------------------------------------------------------------------------------------------------
def getitem(c: Call, x: Any, index: Any) -> Rule:
    """Dims that are taken whole stay cut; where tensors are indices, everything is whole."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(i, (Tensor, list)) for i in items):
        return Rule(by_letters([WHOLE * len(t._layout.shape) for t in c.tensors], ""))
    used = sum(i is not None and i is not Ellipsis and not isinstance(i, bool) for i in items)
    spread: list[Any] = []
    for i in items:
        spread.extend([slice(None)] * (_ndim(x) - used) if i is Ellipsis else [i])
    spread += [slice(None)] * (_ndim(x) - sum(i is not None and not isinstance(i, bool) for i in spread))
    letters, left, names_ = "", "", iter(names(_ndim(x)))
    for i in spread:
        if i is None or isinstance(i, bool):
            left += WHOLE
            continue
        letter = next(names_)
        cut = isinstance(i, slice) and i == slice(None)
        letters += letter if cut else WHOLE
        left += letter if cut else WHOLE if isinstance(i, slice) else ""
    return Rule(by_letters([letters], left, [[0]]))


def index_select(c: Call, x: Any, dim: int, index: Any) -> Rule:
    """Along a dim, which is whole; so are the indices."""
    letters = cut_free(_ndim(x), dim)
    return Rule(by_letters([letters, WHOLE * _ndim(index)], letters))


def gather(c: Call, x: Any, dim: int, index: Any, **kwargs: Any) -> Rule:
    """Along a dim, which is whole; others are cut where both have the same size."""
    place = dim % max(1, _ndim(x))
    letters = _same_dims([x, index], place)
    ways = by_letters([letters] * 2, letters)
    if not _ndim(x):
        return Rule(ways)
    ways.append(((Replicate(), Shard(place)), Shard(place)))  # more or fewer places to look at
    if index._layout.shape[place] != 1:
        return Rule(ways)
    ways.append(((Shard(place), Replicate()), _MaskPartial()))  # one of each row: whoever has it gives it

    def run(local: Any, named: Any, chosen: Chosen) -> Any:
        spec = chosen.given[0]
        if not any(p.is_shard(place) for p in spec.placements):
            return c.func(*local, **named)
        sizes, offsets = compute_local_shape_and_global_offset(spec.shape, spec.mesh, spec.placements)
        part, at = local[0], next(t for t in (*local[1:], *named.values()) if isinstance(t, Tensor))
        here = (at >= offsets[place]) & (at < offsets[place] + sizes[place])
        if not sizes[place]:
            return part.new_zeros(tuple(at.shape)) + part.sum() * 0
        return part.gather(place, flambeau.where(here, at - offsets[place], 0)) * here.to(part.dtype)

    return Rule(ways, None, run)


def _same_dims(tensors: Sequence[Any], dim: int) -> str:
    """Letters for the dims but one in which all of these have the same size."""
    sizes = [t._layout.shape for t in tensors]
    ndim = len(sizes[0])
    return "".join([WHOLE if d == dim or any(len(s) != ndim or s[d] != sizes[0][d] for s in sizes) else a for d, a in enumerate(names(ndim))])


def scatter(c: Call, x: Any, dim: int, index: Any, src: Any = None, *args: Any, **kwargs: Any) -> Rule:
    """Along a dim, which is whole; others are cut where all have the same size."""
    letters = _same_dims(c.tensors, dim % max(1, _ndim(x)))
    together = [[0, 2]] if len(c.tensors) == 3 and (c.name == "scatter_add" or args[:1] in (("set",), ("add",))) else []
    return Rule(by_letters([letters] * len(c.tensors), letters, together))


def index_add(c: Call, x: Any, dim: int, index: Any, *args: Any, **kwargs: Any) -> Rule:
    """Rows written by index along a dim, which is whole, as the indices are."""
    letters = cut_free(_ndim(x), dim)
    ins = [letters, WHOLE * _ndim(index), *[letters if _ndim(t) == _ndim(x) else WHOLE * _ndim(t) for t in c.tensors[2:]]]
    return Rule(by_letters(ins, letters, [[0, 2]] if len(ins) == 3 and c.name in ("index_add", "index_copy") else []))


def all_whole(c: Call, *args: Any, **kwargs: Any) -> Rule:
    """Nothing is cut: elements move by what other elements are."""
    return Rule([kept(len(c.tensors))])


RULES: Final[dict[str, Any]] = {
    "view": view, "reshape": view, "flatten": view, "unflatten": view, "ravel": view, "view_as": view_as, "reshape_as": view_as, "expand": expand,
    "broadcast_to": expand, "expand_as": expand_as, "transpose": transpose, "swapaxes": transpose, "swapdims": transpose, "t": t, "permute": permute,
    "movedim": movedim, "moveaxis": movedim, "unsqueeze": unsqueeze, "squeeze": squeeze, "split": split, "chunk": split, "tensor_split": split,
    "narrow": narrow, "select": select, "unbind": unbind, "cat": cat, "concat": cat, "concatenate": cat, "stack": stack, "repeat": repeat, "flip": flip,
    "roll": roll, "tril": matrices, "triu": matrices, "pad": pad, "getitem": getitem, "index_select": index_select, "gather": gather,
    "scatter_values": scatter, "scatter_add": scatter, "scatter_reduce": scatter, "index_add": index_add, "index_copy": index_add, "index_fill": index_add,
    **dict.fromkeys("index_put_value masked_scatter masked_select nonzero take put kthvalue searchsorted bucketize histc bincount unique".split(), all_whole),
}  # fmt: skip
