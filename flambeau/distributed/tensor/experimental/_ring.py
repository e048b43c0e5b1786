"""Ring attention: queries, keys and values of one sequence spread over ranks, each of which has a part along the sequence.

Each rank attends with its queries to the keys of one rank after the other; results of parts are put together by their log-sum-exps. Balanced causal
attention: rank r of n has the r-th of 2 n blocks and the r-th from behind, so that all ranks have as much to do: beside its own part, half of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau.autograd.function import Function
from flambeau.distributed import collectives as c
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.nn.functional.engine import Tensor, functional
from flambeau.ops import primitives as prim

Half = slice  # rows of a rank's part


@functional
def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """(result, log-sum-exp) of one part."""
    return prim.attention(q, k, v, causal=causal, dropout=0.0, masked=False, scale=scale)


@functional
def _attend_back(g: Tensor, q: Tensor, k: Tensor, v: Tensor, lse: Tensor, delta: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a part's queries, keys and values; `lse` and `delta` are the whole rows'."""
    return prim.attention_gradient(g, q, k, v, lse, delta, causal=causal, dropout=0.0, masked=False, scale=scale)


def _steps(rank: int, size: int, causal: bool, balanced: bool) -> Iterator[tuple[int, Half, Half, bool]]:
    """(rank whose keys these are, rows of queries, rows of keys, whether the block is causal) of the blocks that this rank computes.

    Halves are given by slices of a half's number: 0, 1, or both.
    """
    both, first, second = slice(0, 2), slice(0, 1), slice(1, 2)
    yield rank, both, both, causal
    for i in range(1, size):
        source = (rank - i) % size
        if not causal:
            yield source, both, both, False
        elif source < rank:
            yield source, both, first if balanced else both, False
        elif balanced:
            yield source, second, both, False


def _rows(x: Any, halves: Half) -> Any:
    """These halves of a tensor along its dim -2, or -1 for sums over rows."""
    if halves == slice(0, 2):
        return x
    length = x.shape[-2] // 2
    return x.narrow(-2, halves.start * length, length).contiguous()


def _as_queries(x: Any, query: Any) -> Any:
    """Keys or values in the queries' heads: with fewer heads, groups of queries share one."""
    if x.shape[:-2] == query.shape[:-2]:
        return x
    groups = query.shape[-3] // x.shape[-3]
    return x.repeat_interleave(groups, -3)


def _as_keys(gradient: Any, like: Any) -> Any:
    """The sum over the queries' heads that shared one."""
    if gradient.shape == like.shape:
        return gradient
    return gradient.unflatten(-3, (like.shape[-3], gradient.shape[-3] // like.shape[-3])).sum(-3)


class _Parts:
    """What all ranks have of some tensors, one rank after the other: gathered at once, or handed on around the ring."""

    def __init__(self, group: Any, tensors: list[Any], gathers: bool) -> None:
        self.group, self.like = group, tensors
        self.size, self.rank = group.size(), group.rank()
        self.now, self.source = [t.contiguous() for t in tensors], self.rank
        self.all: list[list[Any]] | None = None
        if gathers and self.size > 1:
            self.all = [[flambeau.empty_like(t) for t in self.now] for _ in range(self.size)]
            for i, t in enumerate(self.now):
                c.all_gather([each[i] for each in self.all], t, group)

    def at(self, source: int) -> list[Any]:
        """The tensors of a rank, which comes before this one in the ring no earlier than those asked for before."""
        if self.all is not None:
            return self.all[source]
        while self.source != source:
            self.now = handed_on(self.now, self.group)
            self.source = (self.source - 1) % self.size
        return self.now

    def finish(self) -> None:
        """Take part in what others hand on."""
        if self.all is None:
            self.at((self.rank + 1) % self.size)


def handed_on(tensors: list[Any], group: Any) -> list[Any]:
    """What the rank before has, for what this one has, which the next one gets."""
    size, rank = group.size(), group.rank()
    flat = flambeau.cat([t.reshape(-1) for t in tensors])
    empty = flat.new_empty(0)
    sends = [flat if r == (rank + 1) % size else empty for r in range(size)]
    got = flambeau.empty_like(flat)
    receives = [got if r == (rank - 1) % size else flat.new_empty(0) for r in range(size)]
    c.all_to_all(receives, sends, group)
    return [part.reshape(t.shape) for part, t in zip(got.split([t.numel() for t in tensors]), tensors, strict=True)]


class _Ring(Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, group: Any, causal: bool, scale: float, balanced: bool, gathers: bool) -> Any:
        wide = flambeau.float64 if q.dtype == flambeau.float64 else flambeau.float32
        rank, size = group.rank(), group.size()
        parts = _Parts(group, [k, v], gathers)
        halves = 2 if causal and balanced else 1
        # Of each half of the queries: the log-sum-exp so far, and the result.
        sums: list[Any] = [None] * halves
        outs: list[Any] = [None] * halves
        for source, queries, keys, is_causal in _steps(rank, size, causal, balanced):
            k_part, v_part = (_rows(_as_queries(x, q), keys) for x in parts.at(source))
            out, lse = _attend(_rows(q, queries), k_part, v_part, is_causal, scale)
            some = list(range(halves))[queries] if halves == 2 else [0]
            for half, o, s in zip(some, out.chunk(len(some), -2), lse.unsqueeze(-1).chunk(len(some), -2), strict=True):
                if sums[half] is None:
                    outs[half], sums[half] = o.to(wide), s
                else:
                    total = flambeau.logaddexp(sums[half], s)
                    outs[half] = outs[half] * (sums[half] - total).exp() + o.to(wide) * (s - total).exp()
                    sums[half] = total
        parts.finish()
        result = flambeau.cat(outs, -2).to(q.dtype)
        ctx.save_for_backward(q, k, v, result, flambeau.cat(sums, -2).squeeze(-1))
        ctx.rest = group, causal, scale, balanced, gathers
        return result

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        group, causal, scale, balanced, gathers = ctx.rest
        rank, size = group.rank(), group.size()
        delta = (g.to(lse.dtype) * out.to(lse.dtype)).sum(-1)
        dq = flambeau.zeros(q.shape, dtype=lse.dtype)
        # Gradients of all ranks' keys and values, which are added up over the ranks at the end.
        dk, dv = (flambeau.zeros((size, *x.shape), dtype=lse.dtype) for x in (k, v))
        parts = _Parts(group, [k, v], gathers)
        for source, queries, keys, is_causal in _steps(rank, size, causal, balanced):
            k_part, v_part = (_rows(_as_queries(x, q), keys) for x in parts.at(source))
            rows = [_rows(x, queries) for x in (g, q, lse.unsqueeze(-1), delta.unsqueeze(-1))]
            found = _attend_back(rows[0], rows[1], k_part, v_part, rows[2].squeeze(-1), rows[3].squeeze(-1), is_causal, scale)
            for target, gradient, like, where in ((dq, found[0], q, queries), (dk[source], found[1], k, keys), (dv[source], found[2], v, keys)):
                length = target.shape[-2] // 2
                place = target if where == slice(0, 2) else target.narrow(-2, where.start * length, length)
                place += _as_keys(gradient.to(lse.dtype), like) if like is not q else gradient.to(lse.dtype)
        parts.finish()
        results = [dq.to(q.dtype)]
        for all_ranks, like in ((dk, k), (dv, v)):
            own = flambeau.empty(like.shape, dtype=lse.dtype)
            c.reduce_scatter(own, list(all_ranks), ReduceOp.SUM, group)
            results.append(own.to(like.dtype))
        return (*results, None, None, None, None, None)


def ring_attention(group: Any, balanced: bool, gathers: bool) -> Callable[..., Any]:
    """What takes scaled_dot_product_attention's place: the same of a sequence that is spread over the group."""

    def scaled_dot_product_attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if attn_mask is not None:
            raise NotImplementedError("context parallel attention takes no attn_mask; is_causal is there")
        if dropout_p:
            raise NotImplementedError("context parallel attention has no dropout: each rank would need the others' random numbers")
        shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
        if is_causal and query.shape[-2] != key.shape[-2]:
            raise NotImplementedError(f"is_causal requires the same query and context sequence lengths, got {shapes}")
        if balanced and not is_causal:
            raise RuntimeError("Load balancing requires `is_causal=True`.")
        if not enable_gqa and query.shape[:-2] != key.shape[:-2]:
            raise RuntimeError(f"context parallel attention needs the same batch and heads without enable_gqa, got {shapes}")
        factor = 1.0 / math.sqrt(max(1, query.shape[-1])) if scale is None else float(scale)
        return _Ring.apply(query, key, value, group, is_causal, factor, balanced, gathers)

    return scaled_dot_product_attention
