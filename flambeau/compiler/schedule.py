"""The order of a plan's kernels: dependencies, updates in place, and phases.

A plan is a list of *steps* (kernels and host calls) in phases: the steps of one phase do not depend on each other, and all
threads wait for each other between two phases. This file also decides which values must share a buffer:

- an update is written straight into the external buffer where every reader of the old value can run before the writer;
  elsewhere into a buffer of its own that is copied at the end;
- a kernel whose result starts as another value (scatter_view, put_rows, ...) works in that value's buffer if nobody needs
  it later, else in a copy.

A kernel that can fail runs before every write to an external buffer that it does not depend on: a failed plan leaves them
as they were.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from flambeau.compiler.graph import CONTRACT, Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels.host_step import HostCall
from flambeau.compiler.kernels.memory import clear_kernel, copy_kernel
from flambeau.symbols import roughly_less, roughly_over

Step = Kernel | HostCall
Home = tuple[str, int]  # ("input" | "output", position): an external buffer or a fresh one

_INDEXED: Final = frozenset(("take", "take_rows", "put_rows", "gather", "scatter", "put"))
# A kernel may join an earlier phase that has its equal if the results it keeps alive longer are at most this many bytes.
HOIST_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Schedule:
    """`phases[i]` is the phase of `steps[i]`. `shares[root]` is the root in whose buffer it lives; `homes` has the roots
    (after `shares`) that live in a given input's or output's buffer. `returned[j]`: the input whose buffer output j is.
    A step whose work is done by where its values live has no units."""

    steps: list[Step]
    phases: list[int]
    homes: dict[int, Home]
    shares: dict[int, int]
    returned: dict[int, int] = field(default_factory=dict)
    inside: dict[int, int] = field(default_factory=dict)  # roots that are a piece of the one they share with: byte offset in it

    def buffer(self, root: int) -> int:
        """The root that stands for the buffer of `root`."""
        return _buffer(self.shares, root)


def _buffer(shares: dict[int, int], root: int) -> int:
    while root in shares:
        root = shares[root]
    return root


def schedule(graph: Graph, groups: list[list[Step]]) -> Schedule:
    """Order the steps of all groups (given in an order that respects data) and choose the shared buffers."""
    builder = _Builder(graph, groups)
    builder.clear_first()
    builder.place_outputs()
    builder.write_updates()
    builder.share_starts()
    builder.copy_rest()
    builder.fail_early()
    order = builder.finish()
    make_pieces(graph, order)
    return order


def make_pieces(graph: Graph, order: Schedule) -> None:
    """Let values that are concatenated be written where the concatenation wants them: their copies have nothing left to do.

    Not where somebody outside sees a piece or an external buffer would be written earlier, or where another value lives in the
    buffer of either; and only if pieces are half of the whole, which lives from the first piece on.
    """
    values = graph.values
    lived_in = set(order.shares.values())
    by_target: dict[int, list[Kernel]] = {}
    for step in order.steps:
        if isinstance(step, Kernel) and step.moves is not None:
            source, target, _ = step.moves
            own = source not in order.homes and source not in order.shares and source not in lived_in
            own = own and target not in order.shares and target not in lived_in and order.homes.get(target, ("output", 0))[0] == "output"
            if own and source not in graph.parameters and values[source].numel < values[target].numel:
                by_target.setdefault(target, []).append(step)
    for target, copies in by_target.items():
        pieces: dict[int, Kernel] = {}
        for step in copies:
            assert step.moves is not None
            if step.moves[0] not in order.inside and target not in order.inside:  # a piece of one; no pieces of pieces
                pieces.setdefault(step.moves[0], step)
        if 2 * sum([values[source].numel for source in pieces]) < values[target].numel or any(s in by_target for s in pieces):
            continue
        for source, step in pieces.items():
            assert step.moves is not None
            order.shares[source], order.inside[source] = target, step.moves[2]
            step.units, step.moves = 0, None


class _Builder:
    """The dependency graph while it is made. Steps are numbered; `rank` orders steps that are ready together."""

    def __init__(self, graph: Graph, groups: list[list[Step]]) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        self.rank: list[float] = []
        self.before: list[set[int]] = []
        self.after: list[set[int]] = []
        self.writers: dict[int, list[int]] = {}
        self.readers: dict[int, list[int]] = {}
        self.homes: dict[int, Home] = {root: ("input", i) for i, root in enumerate(graph.inputs)}
        self.shares: dict[int, int] = {}
        self.returned: dict[int, int] = {}
        self.shared: set[tuple[int, int]] = set()  # (write, read) pairs of starts_as that are settled
        self.late_copies: list[tuple[int, int]] = []  # (source root, stand-in of the external buffer)
        self.reordered = False  # whether an edge goes against the order of ranks
        self.early: set[int] | None = None  # values that the steps that can fail need
        latest: dict[int, list[int]] = {}  # the writers since whose writes nobody wrote again
        since: dict[int, list[int]] = {}  # their readers
        group_of: list[int] = []
        for number, group in enumerate(groups):
            for step in group:
                index = self.add(step, self.program_order(step))
                group_of.append(number)
                writes = set(step.writes)
                for root in step.reads:
                    for writer in latest.get(root, ()):
                        self.edge(writer, index)
                    if root not in writes:
                        since.setdefault(root, []).append(index)
                for root in step.writes:
                    others = latest.get(root)
                    if others and root not in step.reads and group_of[others[0]] == number and not since.get(root):
                        others.append(index)  # kernels of one group write disjoint parts
                        continue
                    for earlier in (*(others or ()), *since.pop(root, ())):
                        if earlier != index:
                            self.edge(earlier, index)
                    latest[root] = [index]
        self.refine_ranks()
        self.fallible = self.unproved()

    def refine_ranks(self) -> None:
        """Ranks that respect the data. A step is wanted just before the first step that needs it, however late its last
        node stands; one that reads much more than it leaves behind, as soon as its inputs are there."""
        order = self.order()
        rank = self.rank
        for index in reversed(order):
            for follower in self.after[index]:
                rank[index] = min(rank[index], rank[follower] - 1e-3)
        pinned = {*self.graph.inputs, *self.graph.parameters, *self.graph.outputs, *[v for _, v in self.graph.updates]}
        for index in order:
            step, before = self.steps[index], self.before[index]
            read = self.nbytes([r for r in step.reads if r not in pinned])
            if before and roughly_over(read, HOIST_BYTES) and not roughly_less(read, 2 * self.nbytes([w for w in step.writes if w not in pinned])):
                rank[index] = min(rank[index], max([rank[b] for b in before]) + 1e-3)
        for position, index in enumerate(self.order()):
            rank[index] = float(position)
        self.reordered = False

    def nbytes(self, roots: Iterable[int]) -> int:
        """Bytes of the buffers of some roots."""
        values = self.graph.values
        return sum([values[r].numel * values[r].dtype.itemsize for r in roots])

    def program_order(self, step: Step) -> float:
        """Where the program computes it: a contraction at its own node, whatever its epilogue; a loop nest at its end."""
        nodes = self.graph.nodes
        for node in step.nodes:
            if nodes[node].op in CONTRACT:
                return float(node)
        return float(max(step.nodes, default=0))

    # -- the dependency graph -----------------------------------------------------------------------------------
    def add(self, step: Step, rank: float) -> int:
        index = len(self.steps)
        self.steps.append(step)
        self.rank.append(rank)
        self.before.append(set())
        self.after.append(set())
        for root in step.reads:
            self.readers.setdefault(root, []).append(index)
        for root in step.writes:
            self.writers.setdefault(root, []).append(index)
        return index

    def edge(self, first: int, then: int) -> None:
        if self.rank[first] > self.rank[then]:
            self.reordered = True
        self.before[then].add(first)
        self.after[first].add(then)

    def descendants(self, index: int) -> set[int]:
        seen = {index}
        stack = [index]
        while stack:
            fresh = self.after[stack.pop()] - seen
            seen |= fresh
            stack.extend(fresh)
        return seen

    def may_precede(self, firsts: list[int], then: int) -> bool:
        """Whether all of `firsts` can run before `then`."""
        if not self.reordered and all(self.rank[f] < self.rank[then] for f in firsts):
            return True
        return self.descendants(then).isdisjoint(firsts)

    # -- the parts of `schedule` ----------------------------------------------------------------------------------
    def clear_first(self) -> None:
        """A clearing step before the kernels that add into a result."""
        cleared: dict[int, int] = {}
        for index in range(len(self.steps)):
            step = self.steps[index]
            if isinstance(step, Kernel):
                for root in step.zero_first:
                    if root not in cleared:
                        writers = list(self.writers[root])
                        cleared[root] = self.add(clear_kernel(self.graph, root), self.rank[writers[0]] - 0.5)
                        for writer in writers:
                            self.edge(cleared[root], writer)

    def place_outputs(self) -> None:
        """Outputs live in fresh buffers; an update's value, or an external input, is returned as that input's buffer."""
        updated = {value: position for position, value in self.graph.updates}
        rewritten = {self.graph.inputs[p] for p, value in self.graph.updates if self.graph.inputs[p] != value}
        for j, root in enumerate(self.graph.outputs):
            home = self.homes.get(root)
            if home is not None and home[0] == "input" and root not in rewritten:
                self.returned[j] = home[1]
            elif home is not None:  # listed twice, or the old value of a storage that is updated
                self.copy_to(root, ("output", j))
            elif root in updated:
                self.returned[j] = updated[root]
            else:
                self.homes[root] = ("output", j)

    def copy_to(self, root: int, home: Home | None) -> int:
        """A copying step from `root` to a new root that lives in `home` (None: anywhere); the new step."""
        new = self.graph.add_value(replace(self.graph.values[root]))
        if home is not None:
            self.homes[new] = home
        rank = max((self.rank[w] for w in self.writers.get(root, ())), default=-1.0) + 0.25
        index = self.add(copy_kernel(self.graph, root, new), rank)
        for writer in self.writers.get(root, ()):
            self.edge(writer, index)
        return index

    def write_updates(self) -> None:
        """Give each update's value its external buffer, if the readers of the old value can all run before."""
        placed: set[int] = set()
        pending: list[tuple[int, int]] = []
        for position, value in self.graph.updates:
            target = self.graph.inputs[position]
            if value == target or self.graph.values[value].numel == 0:
                continue
            if value in placed or value in self.homes or not self.write_in_place(position, target, value):
                pending.append((position, value))
            else:
                placed.add(value)
        # What could not be written in place is copied at the end, through a temporary where the source is overwritten too.
        overwritten = {self.graph.inputs[p] for p, v in self.graph.updates if v != self.graph.inputs[p]}
        for position, value in pending:
            source = value
            if value in overwritten:
                copied = self.copy_to(value, None)
                (source,) = self.steps[copied].writes
                for root, home in self.homes.items():
                    if home == self.homes[value] and root != value:  # written in place: only after this
                        for writer in self.writers[root]:
                            self.edge(copied, writer)
            self.late_copies.append((source, position))

    def write_in_place(self, position: int, target: int, value: int) -> bool:
        """Try to let `value`, and the values that it starts as, live in the buffer of input `position`."""
        if self.overtakes(value):
            return False
        chain = [value]
        links: list[tuple[list[int], int]] = []  # (readers that must come before, step)
        copy_from: int | None = None
        pinned = {v for _, v in self.graph.updates}
        while True:
            head = chain[-1]
            read = self.starts_as(head)
            if read is None or read == target:
                break
            step = self.settling_step(head)
            others = [r for r in self.readers.get(read, ()) if r != step]
            if read in self.homes or read in pinned or read not in self.writers or not self.may_precede(others, step):
                copy_from = read
                break
            links.append((others, step))
            chain.append(read)
        writers = list(self.writers[head])
        readers = self.readers.get(target, [])
        if len(writers) == 1 and writers[0] in readers:
            writing = self.steps[writers[0]]
            if not isinstance(writing, Kernel) or (head, target) not in (*writing.in_place, *writing.starts_as):
                return False
            readers = [r for r in readers if r != writers[0]]
        if not all(self.may_precede(readers, w) for w in writers):
            return False
        for others, index in links:
            for other in others:
                self.edge(other, index)
        if copy_from is not None:
            writers.append(self.copy_before(head, copy_from))
        for reader in readers:
            for writer in writers:
                if reader != writer:
                    self.edge(reader, writer)
        for root in chain:
            self.homes[root] = ("input", position)
        self.shared.update(zip(chain, chain[1:], strict=False))
        self.shared.add((head, target))
        return True

    def overtakes(self, value: int) -> bool:
        """Whether a step makes this value together with what a step that can fail needs, which does not need the value itself: the program
        writes it after what fails."""
        fallible = self.fallible
        if not fallible:
            return False
        if self.early is None:
            self.early = set()
            nodes = {i for f in fallible for i in self.steps[f].nodes}
            for i in range(len(self.graph.nodes) - 1, -1, -1):
                node = self.graph.nodes[i]
                if i in nodes or not self.early.isdisjoint(node.outputs):
                    self.early.update(node.inputs)
                    self.early.update([self.graph.root(v) for v in node.inputs])
        return value not in self.early and any(not (self.descendants(w) - {w}).isdisjoint(fallible) for w in self.writers.get(value, ()))

    def starts_as(self, root: int) -> int | None:
        """The value as which `root`'s buffer must start, if any."""
        index = self.settling_step(root)
        return None if index < 0 else next(r for w, r in self.starts(index) if w == root)

    def settling_step(self, root: int) -> int:
        """The first step that wants `root` to start as another value; -1: none."""
        for index in self.writers.get(root, ()):
            if any(w == root for w, _ in self.starts(index)):
                return index
        return -1

    def starts(self, index: int) -> tuple[tuple[int, int], ...]:
        step = self.steps[index]
        return step.starts_as if isinstance(step, Kernel) else ()

    def copy_before(self, root: int, source: int) -> int:
        """A step that copies `source` into the buffer of `root` before all other writers of it."""
        writers = list(self.writers[root])
        index = self.add(copy_kernel(self.graph, source, root), self.rank[writers[0]] - 0.5)
        for writer in self.writers.get(source, ()):
            self.edge(writer, index)
        for writer in writers:
            self.edge(index, writer)
        self.shared.add((root, source))
        return index

    def share_starts(self) -> None:
        """Values that start as another value: the same buffer where that value dies, else a copy of it."""
        pinned = {v for _, v in self.graph.updates}
        for index in range(len(self.steps)):
            for root, read in self.starts(index):
                if (root, read) in self.shared or self.settling_step(root) != index:
                    continue
                others = [r for r in self.readers.get(read, ()) if r != index]
                internal = read in self.writers and read not in self.homes and read not in pinned
                taken = self.buffer(read) in self.homes
                if internal and not taken and root not in self.shares and self.may_precede(others, index):
                    for other in others:
                        self.edge(other, index)
                    buffer = self.buffer(read)
                    if root in self.homes:
                        self.homes[buffer] = self.homes.pop(root)
                    self.shares[root] = buffer
                    self.shared.add((root, read))
                else:
                    self.copy_before(root, read)

    def buffer(self, root: int) -> int:
        return _buffer(self.shares, root)

    def copy_rest(self) -> None:
        """Copies into external buffers at the end, after every reader of what stands there."""
        for source, position in self.late_copies:
            target = self.graph.inputs[position]
            before = [*self.readers.get(target, ()), *self.writers.get(source, ())]
            index = self.copy_to(source, ("input", position))
            self.rank[index] = float(len(self.steps)) + 1e9
            for other in before:
                if other != index:
                    self.edge(other, index)

    def fail_early(self) -> None:
        """Steps that can fail, before the writes to external buffers that they do not depend on."""
        fallible = self.unproved()
        if not fallible:
            return
        external = [i for i, s in enumerate(self.steps)
                    if any(self.homes.get(self.buffer(w), ("", 0))[0] == "input" for w in s.writes)]  # fmt: skip
        for index in external:
            late = self.reordered or any(self.rank[f] > self.rank[index] for f in fallible)
            later = self.descendants(index) if late else {index}
            for f in fallible:
                if f not in later:
                    self.edge(f, index)

    def unproved(self) -> list[int]:
        """Steps that can fail, without those whose indices another of these steps looks at, for the same bound, anyway
        (the gradient of an embedding, after its forward pass)."""
        checked: set[tuple[object, ...]] = set()
        found = []
        for index in sorted(range(len(self.steps)), key=self.rank.__getitem__):
            step = self.steps[index]
            if isinstance(step, HostCall):
                found.append(index)
            elif step.fails is not None:
                checks = self.index_checks(step)
                if not checks or not checks <= checked:
                    found.append(index)
                    checked |= checks
        return found

    def index_checks(self, step: Kernel) -> set[tuple[object, ...]]:
        """(where the indices stand, bound) of every look-up of a step; empty if something is not known."""
        values = self.graph.values
        checks: set[tuple[object, ...]] = set()
        for i in step.nodes:
            node = self.graph.nodes[i]
            if node.op in _INDEXED:
                x, index = values[node.inputs[0]], values[node.inputs[1]]
                dim = 0 if node.op in ("take", "put") else node.attr("dim")
                bound = x.shape[dim] if x.shape else 1
                where = (self.graph.root(node.inputs[1]), index.shape, index.strides, index.offset, index.dynamic)
                checks.add((*where, bound))
        return checks

    def order(self) -> list[int]:
        """The steps in order of rank, as dependencies allow."""
        waiting = [len(b) for b in self.before]
        ready = [(self.rank[i], i) for i, count in enumerate(waiting) if count == 0]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, index = heapq.heappop(ready)
            order.append(index)
            for follower in self.after[index]:
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    heapq.heappush(ready, (self.rank[follower], follower))
        if len(order) != len(self.steps):
            raise AssertionError("the steps of a plan depend on each other in a circle")
        return order

    def finish(self) -> Schedule:
        """The final order, and the phases."""
        order = self.order()
        phase_of: dict[int, int] = {}
        last = -1
        last_is_host = True
        with_key: dict[str, int] = {}
        for index in order:
            step = self.steps[index]
            earliest = max((phase_of[b] for b in self.before[index]), default=-1) + 1
            equal = with_key.get(step.key, -1)
            if isinstance(step, HostCall):
                last += 1
                last_is_host = True
                phase_of[index] = last
                continue
            if equal >= earliest and not roughly_over(self.kept_bytes(step), HOIST_BYTES):
                phase_of[index] = equal
                continue
            if earliest > last or last_is_host:
                last += 1
                last_is_host = False
            phase_of[index] = with_key[step.key] = last
        order.sort(key=phase_of.__getitem__)
        phases = [phase_of[i] for i in order]
        return Schedule([self.steps[i] for i in order], phases, self.homes, self.shares, self.returned)

    def kept_bytes(self, step: Kernel) -> int:
        """Bytes of the temporaries that the step writes."""
        return self.nbytes([w for w in step.writes if self.buffer(w) not in self.homes])
