"""Decoding token by token: a program that maps whole texts to scores, run for the newest token of each sequence only, with what attention has seen kept.

The program's graph is run in two other forms. `read` runs it over a prompt and gives the keys and values of each attention, too. `append` runs it over one
token of each sequence: attention sees the keys and values that are kept and those of the token, and what depends on positions alone (embeddings of positions,
rotations, masks) is computed once for all positions, of which each sequence takes its own. A program whose positions meet elsewhere (a convolution along the
text, a mean) would give other scores so; nothing of this is guessed from the graph: both forms are compared with the program when it is loaded.

Keys and values lie in one array for each attention, a row for each sequence of the batch, with room for all positions up to the next of a few lengths. A row
changes hands when sequences come and go; what is displaced and still wanted is kept by its sequence.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.fx.node import Node, map_arg
from flambeau.nn import functional as F
from flambeau.runtime.buffers import allocate
from flambeau.runtime.memory import view_as_numpy
from flambeau.serve.prepared import prepare
from flambeau.tensor import Tensor

_SHORTEST: Final = 32  # positions that there is room for at least
_MOST: Final = 1 << 15  # positions of which what depends on them alone is computed ahead


class WholeOnly(Exception):
    """Why a program cannot be run token by token; the text is for the log."""


class Kept:
    """A sequence: how many tokens have been read, and its keys and values while it has no row."""

    __slots__ = ("__weakref__", "length", "row", "stored")

    def __init__(self, length: int, stored: list[Any]) -> None:
        self.length, self.stored, self.row = length, stored, -1


def lengths(most: int) -> list[int]:
    """The numbers of positions that rows have room for: 32, 64, 128, ..., the last of them `most` or a little more."""
    sizes: list[int] = []
    last = -(-most // _SHORTEST) * _SHORTEST
    while not sizes or sizes[-1] < last:
        sizes.append(min(_SHORTEST << len(sizes), last))
    return sizes


class Forms:
    """The forms of a graph module. WholeOnly if it has not the form that they ask for."""

    def __init__(self, module: Any, context: int) -> None:
        if not 2 <= context <= _MOST:
            raise WholeOnly(f"texts may have {context} tokens; a limit of 2 to {_MOST} is wanted (Dim(..., max=...))")
        self.module, self.graph, self.context = module, module.graph, context
        nodes = list(self.graph.nodes)
        given = [n for n in nodes if n.op == "placeholder"]
        if len(given) != 1:
            raise WholeOnly(f"the program has {len(given)} inputs")
        self.tokens = given[0]
        self.follows: set[Node] = {self.tokens}  # what depends on the tokens themselves
        for n in nodes:
            if n.op not in ("placeholder", "get_attr") and not self._asks_size(n) and any(i in self.follows for i in n.all_input_nodes):
                self.follows.add(n)
        self.attentions = [n for n in nodes if n in self.follows and _name(n) == "scaled_dot_product_attention"]
        if not self.attentions:
            raise WholeOnly("it has no scaled_dot_product_attention")
        for n in self.attentions:
            if any(not isinstance(a, Node) or a not in self.follows for a in n.args[:3]):
                raise WholeOnly(f"{n.name} has a query, keys or values that do not depend on the tokens")
            mask = _argument(n, 3, "attn_mask")
            if mask is None and not _argument(n, 5, "is_causal", False):
                raise WholeOnly(f"{n.name} is not causal")
            if mask is not None and (not isinstance(mask, Node) or mask in self.follows):
                raise WholeOnly(f"{n.name} has a mask that depends on the tokens")
        self.tables = self._tables(nodes)
        with flambeau.no_grad():
            kept = self.read(flambeau.zeros(1, 2, dtype=flambeau.int64))[1:]
        if any(t.dim() != 4 or t.shape[0] != 1 or t.shape[2] != 2 or t.dtype is not flambeau.float32 for t in kept):
            raise WholeOnly(
                f"keys and values of two tokens are {kept[0].dtype} of shape {list(kept[0].shape)}: float32 (batch, heads, length, features) is wanted"
            )
        self.rows = [(t.shape[1], t.shape[3]) for t in kept]  # of each array of keys or values: heads and features

    def _asks_size(self, n: Node) -> bool:
        return _name(n) == "sym_size" and n.args[0] is self.tokens

    def _tables(self, nodes: Sequence[Node]) -> dict[Node, tuple[Tensor, tuple[int, ...]]]:
        """Of each tensor that depends on the length alone and is used with one of the tokens': its value at the greatest length, and the dims that grow."""
        wanted = list(dict.fromkeys([i for n in nodes if n in self.follows for i in n.all_input_nodes if i not in self.follows]))
        long, short = (self._run({}, 1, length, wanted) for length in (self.context, self.context - 1))
        found = {}
        for n in wanted:
            a, b = long[n], short[n]
            if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape != b.shape:
                found[n] = a.detach(), tuple([d for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if x != y])
        return found

    def _run(
        self, known: dict[Node, Any], batch: int, length: int, wanted: Sequence[Node], special: Callable[[Node], Any] | None = None
    ) -> dict[Node, Any]:  # fmt: skip
        """The values of the nodes that `wanted` ones need, in order; `special` gives a node's value, or NotImplemented."""
        needed, pending = set(known), [n for n in wanted if n not in known]
        while pending:
            n = pending.pop()
            if n not in needed:
                needed.add(n)
                pending += [] if self._asks_size(n) else n.all_input_nodes
        for n in self.graph.nodes:
            if n not in needed or n in known:
                continue
            if self._asks_size(n):
                known[n] = (batch, length)[int(n.args[1])]
            elif n.op == "get_attr":
                known[n] = _attribute(self.module, n.target)
            elif n.op == "call_function":
                value = NotImplemented if special is None else special(n)
                if value is NotImplemented:
                    args, kwargs = map_arg(n.args, lambda i: known[i]), map_arg(dict(n.kwargs), lambda i: known[i])
                    value = n.target(*args, **kwargs)
                known[n] = value
            else:
                raise WholeOnly(f"the graph has a node {n.op} ({n.name})")
        return known

    def _result(self) -> Node:
        made = next(n for n in self.graph.nodes if n.op == "output").args[0]
        flat = list(made) if isinstance(made, tuple | list) else [made]
        if len(flat) != 1 or not isinstance(flat[0], Node):
            raise WholeOnly("the program has not one result")
        return flat[0]

    def read(self, tokens: Tensor) -> list[Tensor]:
        """[scores (n, length, vocabulary), keys and values of each attention]."""
        n, length = tokens.shape
        known = self._run({self.tokens: tokens}, n, length, [self._result(), *[a for x in self.attentions for a in x.args[1:3]]])
        return [known[self._result()], *[_dense(known[a]) for x in self.attentions for a in x.args[1:3]]]

    def append(self, tokens: Tensor, positions: Tensor, *kept: Tensor) -> list[Tensor]:
        """[scores (n, 1, vocabulary), the tokens' keys and values] of tokens (n, 1) at positions (n), after the keys and values (n, heads, room, features)."""
        n = tokens.shape[0]
        room = kept[0].shape[2]
        place = flambeau.arange(room)
        here = place.view(1, 1, room, 1) == positions.view(n, 1, 1, 1)
        seen = place.view(1, 1, 1, room) <= positions.view(n, 1, 1, 1)
        made: dict[Node, list[Tensor]] = {}
        known: dict[Node, Any] = {self.tokens: tokens}

        def value(i: Node, rank: int) -> Any:
            return self._at(i, positions, rank) if i in self.tables else known[i]

        def special(node: Node) -> Any:
            if node in made_by:
                at = made_by[node]
                q, k, v = (known[a] for a in node.args[:3])
                if k.dim() != 4 or k.shape[0] != n or k.shape[2] != 1:
                    raise WholeOnly(f"{node.name} has keys of shape {list(k.shape)} for {n} tokens")
                made[node] = [k, v]
                whole = [flambeau.where(here, new, old) for new, old in zip((k, v), kept[2 * at : 2 * at + 2], strict=True)]
                mask = _argument(node, 3, "attn_mask")
                allowed: Any = seen
                if mask is not None:
                    own = self._of_rows(mask, positions, room)
                    allowed = own & seen if own.dtype is flambeau.bool else flambeau.where(seen, own, -math.inf)
                grouped = bool(_argument(node, 7, "enable_gqa", False))
                return F.scaled_dot_product_attention(q, whole[0], whole[1], attn_mask=allowed, scale=_argument(node, 6, "scale"), enable_gqa=grouped)
            if node not in self.follows or not any(i in self.tables for i in node.all_input_nodes):
                return NotImplemented
            rank = max([known[i].dim() for i in node.all_input_nodes if i in self.follows and isinstance(known[i], Tensor)], default=0)
            args, kwargs = map_arg(node.args, lambda i: value(i, rank)), map_arg(dict(node.kwargs), lambda i: value(i, rank))
            return node.target(*args, **kwargs)

        made_by = {node: at for at, node in enumerate(self.attentions)}
        known |= dict.fromkeys(self.tables)  # they are not computed
        self._run(known, n, 1, [self._result(), *self.attentions], special)
        return [known[self._result()], *[_dense(t) for node in self.attentions for t in made[node]]]

    def _at(self, i: Node, positions: Tensor, rank: int) -> Tensor:
        """Of what depends on positions, that of each sequence's, beside tensors of a rank whose dim 0 is the batch."""
        table, grows = self.tables[i]
        rank = max(rank, table.dim())
        shape = (1,) * (rank - table.dim()) + tuple(table.shape)
        d = grows[0] + rank - table.dim()
        if len(grows) != 1 or d == 0 or shape[0] != 1:
            raise WholeOnly(f"{i.name} has shape {list(table.shape)} for {self.context} positions: a dim of it must be the position's, after the batch")
        return table.view(shape).index_select(d, positions).transpose(0, d)

    def _of_rows(self, i: Node, positions: Tensor, room: int) -> Tensor:
        """The rows of a mask (..., length, length) for each sequence: (n, heads or 1, 1, room)."""
        if i not in self.tables:
            raise WholeOnly(f"the mask {i.name} does not grow with the text")
        table, grows = self.tables[i]
        if grows != (table.dim() - 2, table.dim() - 1) or (table.dim() == 4 and table.shape[0] != 1) or table.dim() > 4:
            raise WholeOnly(f"the mask {i.name} has shape {list(table.shape)} for {self.context} positions")
        rows = table.view((1,) * (4 - table.dim()) + tuple(table.shape)).index_select(2, positions).transpose(0, 2)
        return F.pad(rows, (0, max(0, room - self.context)))[..., :room]


def _name(n: Node) -> str:
    return str(getattr(getattr(n.target, "overloadpacket", None), "__name__", "")) if n.op == "call_function" else ""


def _argument(n: Node, at: int, name: str, default: Any = None) -> Any:
    return n.args[at] if len(n.args) > at else n.kwargs.get(name, default)


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _dense(t: Tensor) -> Tensor:
    """Memory of its own: results of a plan are no views."""
    return flambeau.clone(t, memory_format=flambeau.contiguous_format)


class Decoder:
    """Keys and values of sequences, and plans that append a token to each. `rows`: batch sizes that get plans."""

    def __init__(self, forms: Forms, rows: Sequence[int]) -> None:
        self.forms, self.steps = forms, sorted(rows)
        self.lengths = lengths(forms.context)
        self.room = 0
        self.owners: list[Any] = []  # of each row, a weak reference to its sequence
        self.arrays: list[Any] = []  # of each attention's keys and values
        self._buffers: list[Any] = []
        self._plans: dict[tuple[int, int], _Plan] = {}

    def append(self, states: Sequence[Kept], tokens: Sequence[int]) -> Any:
        """Scores [sequences, vocabulary] after one more token of each."""
        n = len(states)
        size = next((s for s in self.steps if s >= n), n)
        self._place(states, size)
        plan = self._plans.get((size, self.room))
        if plan is None:
            plan = self._plans[size, self.room] = _Plan(self.forms, size, [a[:size] for a in self.arrays], self._buffers)
        order = np.array([s.row for s in states])
        plan.tokens[:] = 0
        plan.positions[:] = 0
        plan.tokens[order, 0] = tokens
        at = np.array([s.length for s in states])
        plan.positions[order] = at
        scores, *made = plan.run()
        for array, new in zip(self.arrays, made, strict=True):
            array[order, :, at] = new[order, :, 0]
        for s in states:
            s.length += 1
        return scores[order, 0].astype(np.float32)

    def _place(self, states: Sequence[Kept], size: int) -> None:
        """Bring the sequences into rows below `size` that have room for one more token."""
        need = max([s.length for s in states]) + 1
        room = next(n for n in self.lengths if n >= need)
        if need > self.room or 2 * room <= self.room or size > len(self.owners):
            self._resize(max(size, len(self.owners)), room if need > self.room or 2 * room <= self.room else self.room)
        wanted = {id(s) for s in states}
        free = [r for r in range(size) if self.owners[r] is None or id(self.owners[r]()) not in wanted]
        for s in states:
            if 0 <= s.row < size:
                continue
            row = free.pop()
            self._put_out(row)
            kept = s.stored if s.row < 0 else [a[s.row, :, : s.length] for a in self.arrays]
            if s.row >= 0:
                self.owners[s.row] = None
            for array, own in zip(self.arrays, kept, strict=True):
                array[row, :, : s.length] = own
            s.stored, s.row = [], row
            self.owners[row] = weakref.ref(s)

    def _put_out(self, row: int) -> None:
        """Who has a row, and may still be wanted, keeps what is in it."""
        owner = self.owners[row]() if self.owners[row] is not None else None
        if owner is not None:
            owner.stored = [a[row, :, : owner.length].copy() for a in self.arrays]
            owner.row = -1
        self.owners[row] = None

    def _resize(self, rows: int, room: int) -> None:
        """New arrays; sequences that they have no room for keep their own."""
        for row, reference in enumerate(self.owners):
            owner = reference() if reference is not None else None
            if owner is None or owner.length >= room:
                self._put_out(row)
        old, held = self.arrays, min(self.room, room)
        self._buffers, self.arrays = [], []
        for at, (heads, features) in enumerate(self.forms.rows):
            shape = (rows, heads, room, features)
            buffer = allocate(4 * math.prod(shape))
            array = view_as_numpy(buffer.address, buffer.nbytes, buffer)[: 4 * math.prod(shape)].view(np.float32).reshape(shape)
            array[...] = 0
            if old:
                array[: len(self.owners), :, :held] = old[at][:, :, :held]
            self._buffers.append(buffer)
            self.arrays.append(array)
        self.owners += [None] * (rows - len(self.owners))
        self.room = room
        self._plans = {key: plan for key, plan in self._plans.items() if plan.call is not None}
        for plan in self._plans.values():
            plan.kept = self._buffers


class _Plan:
    """`Forms.append` at one batch size and room: a prepared plan over the arrays' own memory, or where there is none the call itself."""

    def __init__(self, forms: Forms, size: int, arrays: Sequence[Any], kept: list[Any]) -> None:
        self.forms, self.kept, self.arrays = forms, kept, list(arrays)
        self._buffers = [allocate(8 * size), allocate(8 * size)]
        views = [view_as_numpy(b.address, b.nbytes, b)[: 8 * size].view(np.int64) for b in self._buffers]
        self.tokens, self.positions = views[0].reshape(size, 1), views[1]
        self.tokens[:], self.positions[:] = 0, 0
        examples = [flambeau.zeros(size, 1, dtype=flambeau.int64), flambeau.zeros(size, dtype=flambeau.int64)]
        examples += [flambeau.zeros(a.shape) for a in arrays]
        self.call = prepare(forms.append, examples)
        self.shapes: list[Any] = []
        if self.call is not None:
            self.shapes = [(tuple(r.shape), np.dtype(r.dtype.numpy_name)) for r in self.call.results]
            self.call.results = []

    def run(self) -> list[Any]:
        """The results as arrays."""
        if self.call is None:
            with flambeau.no_grad():
                given = [flambeau.from_numpy(a) for a in (self.tokens, self.positions, *self.arrays)]
                return [t.float().numpy() if t.is_floating_point() else t.numpy() for t in self.forms.append(*given)]
        made = []
        for buffer, (shape, dtype) in zip(self.call.run([*self._buffers, *self.kept]), self.shapes, strict=True):
            count = math.prod(shape) * dtype.itemsize
            made.append(view_as_numpy(buffer.address, buffer.nbytes, buffer)[:count].view(dtype).reshape(shape))
        return made
