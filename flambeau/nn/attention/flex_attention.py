"""torch.nn.attention.flex_attention: attention whose scores pass through functions of the user's.

`score_mod(score, batch, head, query index, key index)` and `mask_mod(batch, head, query index, key index)` are called once, with index
tensors that broadcast to (batch, heads, queries, keys); a function that cannot be called so is mapped over the indices by vmap, as
PyTorch does. The scores are a tensor of that shape, as in PyTorch without torch.compile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.tensor import Tensor
from flambeau.upward import upward

_BLOCK = _DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What flex_attention is to return beside the output."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Log-sum-exp of the scores, and their maxima, (batch, heads, queries)."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask_mod that masks nothing."""
    return torch.ones((), dtype=torch.bool)  # type: ignore[no-any-return]


@upward
def vmap(func: Any, in_dims: Any) -> Any:
    """A function over a batch (func/mapping.py)."""
    raise NotImplementedError


def _combined(mask_mods: tuple[Any, ...], name: str, both: Callable[[Any, Any], Any]) -> Any:
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Any:
        result = mask_mods[0](b, h, q, kv)
        for mod in mask_mods[1:]:
            result = both(result, mod(b, h, q, kv))
        return result

    mask.__name__ = name
    return mask


def and_masks(*mask_mods: Any) -> Any:
    """True where all mask_mods are."""
    return _combined(mask_mods, "and_mask", lambda a, b: a & b)


def or_masks(*mask_mods: Any) -> Any:
    """True where one of the mask_mods is."""
    return _combined(mask_mods, "or_mask", lambda a, b: a | b)


def _over_indices(mod: Any, shape: tuple[int, int, int, int], score: Tensor | None = None) -> Tensor:
    """`mod` of all index tuples (and scores), as a tensor of this shape."""
    grid = [torch.arange(n).reshape([-1 if i == d else 1 for i in range(4)]) for d, n in enumerate(shape)]
    first = () if score is None else (score,)
    try:
        result = torch.as_tensor(mod(*first, *grid))
        return result.expand(shape)  # type: ignore[no-any-return]
    except (RuntimeError, IndexError, ValueError, TypeError):
        mapped = mod
        for d in (3, 2, 1, 0):
            dims = tuple(0 if i == d else None for i in range(4))
            mapped = vmap(mapped, in_dims=(0, *dims) if score is not None else dims)
        return mapped(*first, *(g.reshape(-1) for g in grid))  # type: ignore[no-any-return]


def create_mask(mod_fn: Any, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """The mask of a mask_mod as a bool tensor (B, H, Q_LEN, KV_LEN); a score_mod's is False where it gives -inf."""
    import inspect

    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    positional = [p for p in inspect.signature(mod_fn).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len([p for p in positional if p.default is p.empty]) == 5:
        return torch.where(torch.isneginf(_over_indices(mod_fn, shape, torch.zeros(shape))), False, True)  # type: ignore[no-any-return]
    return _over_indices(mod_fn, shape).to(torch.bool).contiguous()  # type: ignore[no-any-return]


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are wanted, and their columns, the wanted ones first."""
    blocks = blocks.to(torch.int32)
    return blocks.sum(-1).to(torch.int32), torch.argsort(blocks, dim=-1, descending=True, stable=True).to(torch.int32)


def _dense(counts: Tensor, indices: Tensor, columns: int) -> Tensor:
    """The inverse of _ordered: 0 and 1 for each block."""
    wanted = torch.arange(indices.shape[-1]) < counts.unsqueeze(-1)
    out = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.int32)
    target = torch.where(wanted, indices.to(torch.int64), columns)
    return out.scatter(-1, target, torch.ones_like(target, dtype=torch.int32))[..., :columns]  # type: ignore[no-any-return]


class BlockMask:
    """A mask_mod, and which blocks of (queries, keys) it wants: partly (`kv_*`) or wholly (`full_kv_*`).

    `kv_num_blocks` (B, H, rows of blocks) counts, `kv_indices` (B, H, rows, columns) lists columns, the wanted ones first; `q_*` are the
    same by columns.
    """

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None, q_num_blocks: Tensor | None, q_indices: Tensor | None, full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None, BLOCK_SIZE: tuple[int, int] = (_BLOCK, _BLOCK), mask_mod: Any = noop_mask,
    ) -> None:  # fmt: skip
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks = kv_num_blocks
        self.kv_indices = kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.q_num_blocks = q_num_blocks
        self.q_indices = q_indices
        self.full_q_num_blocks = full_q_num_blocks
        self.full_q_indices = full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None, full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _BLOCK, mask_mod: Any = None, seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:  # fmt: skip
        """From the tables by rows; those by columns follow."""
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        columns = kv_indices.shape[-1]
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], columns * size[1])
        by_column: list[Any] = [None, None, None, None]
        if compute_q_blocks:
            by_column[:2] = _ordered(_dense(kv_num_blocks, kv_indices, columns).transpose(-2, -1))
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                by_column[2:] = _ordered(_dense(full_kv_num_blocks, full_kv_indices, columns).transpose(-2, -1))
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *by_column, BLOCK_SIZE=size,
            mask_mod=mask_mod or noop_mask,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, heads, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of elements of the mask."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """1 for each block (batch, heads, rows, columns) that is wanted."""
        columns = self.kv_indices.shape[-1]
        dense = _dense(self.kv_num_blocks, self.kv_indices, columns)
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            dense = dense | _dense(self.full_kv_num_blocks, self.full_kv_indices, columns)
        return dense

    def sparsity(self) -> float:
        """The percentage of elements that lie in blocks that are not wanted (negative where blocks stand out over the end)."""
        blocks = int(self.kv_num_blocks.sum()) + (0 if self.full_kv_num_blocks is None else int(self.full_kv_num_blocks.sum()))
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """The fields, in the order of the constructor's arguments."""
        size = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        lengths = self.seq_lengths if flatten else (self.seq_lengths,)
        return (
            *lengths, self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices, self.q_num_blocks, self.q_indices,
            self.full_q_num_blocks, self.full_q_indices, *size, self.mask_mod,
        )  # fmt: skip

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches and heads (and rows of blocks)."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple(slice(i, i + 1 if i != -1 else None) if isinstance(i, int) else i for i in index)
        parts = [None if t is None else t[index] for t in (self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices)]
        rows = parts[1].shape[-2]  # type: ignore[union-attr]
        queries = self.seq_lengths[0] if len(index) < 3 else min(rows * self.BLOCK_SIZE[0], self.seq_lengths[0])
        return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced, seq_lengths=(queries, self.seq_lengths[1]))  # type: ignore[arg-type]

    def to(self, device: Any) -> BlockMask:
        """This mask: it is on the CPU."""
        return self

    def to_string(self, grid_size: Any = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks for each batch and head."""
        dense = self.to_dense()
        lines = []
        for place in list(_places(tuple(dense.shape[:-2])))[:limit]:
            rows = dense[place].tolist()
            lines += [str(place), *("".join("██" if wanted else "  " for wanted in row) for row in rows), ""]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().rstrip()}\n)"


def _places(shape: tuple[int, ...]) -> Any:
    import itertools

    return itertools.product(*map(range, shape))


def _sliced(*_: Any) -> Any:
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask: set block_mask.mask_mod to one that is right for the slice")


def create_block_mask(
    mask_mod: Any, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None, BLOCK_SIZE: int | tuple[int, int] = _BLOCK,
    _compile: bool = False, separate_full_blocks: bool = True, compute_dq_write_order: bool = False, dq_kv_order: bool = True,
) -> BlockMask:  # fmt: skip
    """Which blocks a mask_mod wants. B and H None: the same for all. The last three arguments are PyTorch's for GPUs."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
    padded = torch.nn.functional.pad(mask.to(torch.int32), (0, -KV_LEN % size[1], 0, -Q_LEN % size[0]))
    b, h, rows, columns = padded.shape
    sums = padded.reshape(b, h, rows // size[0], size[0], columns // size[1], size[1]).sum((3, 5))
    full = sums == size[0] * size[1]
    tables: list[Any]
    if separate_full_blocks:
        tables = [*_ordered((sums > 0) & ~full), *_ordered(full)]
    else:
        tables = [*_ordered(sums > 0), None, None]
    return BlockMask.from_kv_blocks(*tables, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN))


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    if not query.ndim == key.ndim == value.ndim == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.dtype is not key.dtype or query.dtype is not value.dtype:
        raise ValueError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype}, key.dtype: {key.dtype}, and "
            f"value.dtype: {value.dtype} instead."
        )
    if query.size(-1) != key.size(-1):
        raise ValueError(f"Expect query and key/value to have the same embedding dimension but got E={query.size(-1)} and E={key.size(-1)}.")
    if not enable_gqa and query.size(-3) != key.size(-3):
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={query.size(-3)} and Hkv={key.size(-3)}. Try setting "
            "enable_gqa=True for GQA."
        )
    if enable_gqa and query.size(1) % key.size(1):
        raise ValueError(f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={query.size(1)} and Hkv={key.size(1)}.")
    if query.size(0) != key.size(0) and key.size(0) != 1:
        raise ValueError(f"Expect Bq = Bkv or Bkv = 1, but got Bq={query.size(0)} and Bkv={key.size(0)}.")
    if block_mask is not None and block_mask.seq_lengths != (query.size(-2), key.size(-2)):
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={query.size(-2)} and kv_len={key.size(-2)}: create "
            "a new block mask for these lengths."
        )


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any = None, block_mask: BlockMask | None = None, scale: float | None = None,
    enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *, return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """softmax(score_mod(query key^T * scale)) value, over keys that the block mask's mask_mod wants; a query that wants none gets zeros.

    query (B, Hq, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev) -> (B, Hq, L, Ev); with `return_lse` also the log-sum-exp (B, Hq, L).
    """
    _check(query, key, value, block_mask, enable_gqa)
    groups = query.size(1) // key.size(1)
    if groups != 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    working = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = (query @ key.transpose(-2, -1)).to(working) * (1.0 / math.sqrt(query.size(-1)) if scale is None else scale)
    shape = tuple(scores.shape)
    if score_mod is not None:
        scores = _over_indices(score_mod, shape, scores)  # type: ignore[arg-type]
    if block_mask is not None and block_mask.mask_mod is not noop_mask:
        scores = torch.where(_over_indices(block_mask.mask_mod, shape), scores, -math.inf)  # type: ignore[arg-type]
    nothing = (scores == -math.inf).all(dim=-1, keepdim=True)
    weights = torch.where(nothing, 0.0, torch.softmax(torch.where(nothing, 0.0, scores), dim=-1))
    out = weights.to(query.dtype) @ value
    if not return_lse and return_aux is None:
        return out
    lse = torch.where(nothing.squeeze(-1), -math.inf, torch.logsumexp(torch.where(nothing, 0.0, scores), dim=-1))
    if return_aux is None:
        return out, lse
    return out, AuxOutput(lse if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)


__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
