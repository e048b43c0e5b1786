"""Schedules and placements, proved by playing them: every step is done by the reference interpreter on the memory that
`place` gave it, the steps of a phase in random order. Whatever overwrites a value too early gives a wrong number."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.compiler import graph as g
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch
from flambeau.compiler.kernels.host_step import HostCall
from flambeau.compiler.place import ALIGNMENT, Placement, assign_offsets, offsets_of, place, turns_of
from flambeau.compiler.schedule import Schedule, Step, schedule
from tests.graphs import FLOAT32, INT64, GraphBuilder
from tests.reference import Interpreter, physical, run

STARTS = frozenset(("scatter_view", "put_rows", "scatter", "put"))


def fake_kernels(graph: Graph, scratch: int = 0) -> list[list[Step]]:
    """One kernel a node, with the facts that the real lowering gives, but no code."""
    groups: list[list[Step]] = []
    for index, node in enumerate(graph.nodes):
        if node.op in g.VIEWS:
            continue
        reads = tuple(dict.fromkeys(graph.root(i) for i in node.inputs if i not in graph.parameters))
        pairs = []
        out = graph.values[node.outputs[0]]
        if node.op in g.POINTWISE:
            for i in node.inputs:
                v = graph.values[i]
                root = graph.values[graph.root(i)]
                alone = [graph.root(j) for j in node.inputs].count(graph.root(i)) == 1
                same = v.shape == out.shape and v.strides == out.strides and v.offset == 0 and not v.dynamic
                if alone and same and v.dtype is out.dtype and root.numel == out.numel:
                    pairs.append((node.outputs[0], graph.root(i)))
        if node.op == "concatenate" and node.attr("dim") == 0:  # a kernel for each input
            pieces: list[Step] = []
            at = 0
            for i in node.inputs:
                from_, nbytes = graph.root(i), graph.values[i].numel * out.dtype.itemsize
                whole = graph.values[from_].numel == graph.values[i].numel
                moves = (from_, node.outputs[0], at) if whole else None
                copy = (graph.values[i].offset * out.dtype.itemsize, at, nbytes)
                pieces.append(Kernel("piece", "piece", lambda target: "", list(copy), (from_,), node.outputs, 1, 0, nodes=(index,), moves=moves))
                at += nbytes
            groups.append(pieces)
            continue
        starts = ((node.outputs[0], node.inputs[0]),) if node.op in STARTS else ()
        groups.append([Kernel(
            node.op, node.op, lambda target: "", [Scratch(scratch)] if scratch else [], reads, node.outputs, 1, 0, nodes=(index,),
            in_place=tuple(pairs), starts_as=starts, fails="bad {value}" if node.op in ("take", "take_rows") else None,
        )])  # fmt: skip
    return groups


class Machine(Interpreter):
    """Memory as the placement draws it; plays the schedule."""

    def __init__(self, graph: Graph, order: Schedule, placement: Placement, inputs: list[Any], parameters: list[Any]) -> None:
        super().__init__(graph, inputs, parameters)
        self.order, self.placement = order, placement
        self.external = [x.copy().view(np.uint8) for x in inputs]
        self.arena = np.full(placement.arena_bytes, 0xAB, np.uint8)
        values = graph.values
        self.fresh = [np.full(values[o].numel * values[o].dtype.itemsize, 0xCD, np.uint8) for o in graph.outputs]

    def window(self, root: int) -> Any:
        value = self.graph.values[root]
        nbytes = value.numel * value.dtype.itemsize
        kind, at = self.placement.places[root]
        memory = self.external[at] if kind == "input" else self.fresh[at] if kind == "output" else self.arena[at:]
        inside = self.order.inside.get(root, 0)
        return memory[inside : inside + nbytes]

    def play(self, seed: int) -> tuple[list[Any], list[Any]]:
        generator = random.Random(seed)
        phases: dict[int, list[int]] = {}
        for i, phase in enumerate(self.order.phases):
            phases.setdefault(phase, []).append(i)
        for phase in sorted(phases):
            indices = phases[phase]
            generator.shuffle(indices)
            for i in indices:
                self.step(self.order.steps[i])
        for j, position in self.order.returned.items():
            self.fresh[j] = self.external[position]
        return self.fresh, self.external

    def step(self, step: Step) -> None:
        assert isinstance(step, Kernel)
        if not step.nodes:
            if step.name == "copy_buffer":
                self.window(step.writes[0])[...] = self.window(step.reads[0]).copy()
            else:
                self.window(step.writes[0])[...] = 0
            return
        (index,) = step.nodes
        node = self.graph.nodes[index]
        if step.name == "piece":
            start, at, nbytes = (word for word in step.words if isinstance(word, int))
            source, target = self.window(step.reads[0])[start : start + nbytes], self.window(step.writes[0])[at : at + nbytes]
            if step.units == 0:
                assert source.ctypes.data == target.ctypes.data
            target[...] = source.copy()
            return
        for i in node.inputs:
            root = self.graph.root(i)
            if root not in self.numbers:
                self.buffers[root] = self.window(root).copy().view(np.dtype(self.graph.values[root].dtype.numpy_name))
        if node.op in STARTS:  # the kernel works on what it finds in its own buffer
            at = self.window(node.outputs[0]).copy()
            self.buffers[node.inputs[0]] = at.view(self.buffers[node.inputs[0]].dtype)
        for o, x in zip(node.outputs, self.apply(node), strict=True):
            self.window(o)[...] = physical(x, self.graph.values[o]).view(np.uint8)


def play(graph: Graph, inputs: list[Any], parameters: list[Any] | None = None, seeds: int = 3, scratch: int = 0) -> Schedule:
    """Check the plan of `graph` against the plain interpreter; returns the schedule for further checks."""
    parameters = parameters or []
    expected_out, expected_in = run(graph, inputs, parameters)
    order = schedule(graph, fake_kernels(graph, scratch))
    placement = place(graph, order, workers=2)
    for seed in range(seeds):
        out, after = Machine(graph, order, placement, inputs, parameters).play(seed)
        for a, b in zip(out, expected_out, strict=True):
            assert a.tobytes() == b.tobytes()
        for a, b in zip(after, expected_in, strict=True):
            assert a.tobytes() == b.tobytes()
    return order


def numbers(*sizes: int) -> list[Any]:
    return [np.arange(1, n + 1, dtype=np.float32) * (i + 1) for i, n in enumerate(sizes)]


def names(order: Schedule) -> list[str]:
    return [step.name for step in order.steps]


# -- Pieces of a concatenation --------------------------------------------------------------------------------------


def test_pieces_are_written_where_the_whole_wants_them() -> None:
    """Also a piece that others read in between; a piece that stands twice, or an input, is copied."""
    b = GraphBuilder()
    x, other = b.input((16, 4), FLOAT32), b.input((16, 4), FLOAT32)
    first = b.op("exp", x)
    second = b.op("mul", first, other)
    third = b.op("sub", second, first)
    whole = b.op("concatenate", first, second, first, other, third, dim=0)
    b.output(b.op("neg", whole))
    order = play(b.graph, numbers(64, 64))
    assert order.inside == {first: 0, second: 256, third: 1024}
    assert [step.units for step in order.steps if isinstance(step, Kernel)].count(0) == 3


def test_a_whole_that_is_returned_holds_its_pieces() -> None:
    b = GraphBuilder()
    x = b.input((16, 4), FLOAT32)
    first, second = b.op("exp", x), b.op("neg", x)
    whole = b.op("concatenate", first, second, dim=0)
    b.output(whole)
    b.output(b.op("mul", first, second))
    assert play(b.graph, numbers(64)).inside == {first: 0, second: 256}


def test_pieces_that_somebody_else_sees_are_copied() -> None:
    """An output, what a storage is updated to, a target that is an input's new value, and a piece of two wholes (of one of them)."""
    b = GraphBuilder()
    x, y = b.input((16, 4), FLOAT32), b.storage(128, FLOAT32)
    first, second, third = b.op("exp", x), b.op("neg", x), b.op("abs", x)
    b.output(first)
    b.update(0, second)
    b.output(b.op("neg", b.op("concatenate", first, second, dim=0)))
    b.update(1, b.op("concatenate", third, third, dim=0))
    fourth, fifth = b.op("sub", x, third), b.op("mul", x, x)
    b.output(b.op("abs", b.op("concatenate", fourth, fifth, dim=0)))
    b.output(b.op("neg", b.op("concatenate", fifth, fourth, dim=0)))
    assert y in b.graph.inputs
    order = play(b.graph, numbers(64, 128))
    assert order.inside == {fourth: 0, fifth: 256}


def test_a_small_piece_does_not_hold_a_large_whole() -> None:
    b = GraphBuilder()
    x, large = b.input((16, 4), FLOAT32), b.input((160, 4), FLOAT32)
    b.output(b.op("neg", b.op("concatenate", b.op("exp", x), large, dim=0)))
    assert not play(b.graph, numbers(64, 640)).inside


# -- Updates in place -----------------------------------------------------------------------------------------------


def test_pointwise_update_is_written_in_place() -> None:
    b = GraphBuilder()
    x = b.input((4,), FLOAT32)
    b.update(0, b.op("mul", x, x))
    # x * x reads x twice through one layout: the fake kernels call that unsafe, so use a single read here.
    b.graph.nodes.pop()
    b.graph.updates[0] = (0, b.op("neg", x))
    order = play(b.graph, numbers(4))
    assert names(order) == ["neg"]


def test_reader_of_the_old_value_runs_first() -> None:
    b = GraphBuilder()
    x = b.input((4,), FLOAT32)
    b.update(0, b.op("neg", x))
    b.output(b.op("exp", x))
    order = play(b.graph, numbers(4))
    assert names(order) == ["exp", "neg"]


def test_reader_that_needs_the_new_value_forces_a_copy() -> None:
    b = GraphBuilder()
    x = b.input((4,), FLOAT32)
    new = b.op("neg", x)
    b.update(0, new)
    b.output(b.op("add", x, new))
    order = play(b.graph, numbers(4))
    assert names(order) == ["neg", "add", "copy_buffer"]


def test_swap_of_two_buffers() -> None:
    b = GraphBuilder()
    x, y = b.input((4,), FLOAT32), b.input((4,), FLOAT32)
    storage_x, storage_y = b.graph.root(x), b.graph.root(y)
    b.graph.updates = [(0, storage_y), (1, storage_x)]
    play(b.graph, numbers(4, 4))


def test_swap_through_copies() -> None:
    b = GraphBuilder()
    x, y = b.input((4,), FLOAT32), b.input((4,), FLOAT32)
    b.update(0, b.op("copy", y))
    b.update(1, b.op("copy", x))
    play(b.graph, numbers(4, 4))


def test_rotation_with_one_computed() -> None:
    b = GraphBuilder()
    x, y, z = (b.input((4,), FLOAT32) for _ in range(3))
    b.graph.updates = [(0, b.graph.root(y)), (1, b.op("add", z, x)), (2, b.graph.root(x))]
    b.output(b.op("add", y, z))
    play(b.graph, numbers(4, 4, 4))


def test_one_value_updates_two_storages_and_is_returned() -> None:
    b = GraphBuilder()
    x, y = b.input((4,), FLOAT32), b.input((4,), FLOAT32)
    new = b.op("add", x, y)
    b.graph.updates = [(0, new), (1, new)]
    b.output(new)
    order = play(b.graph, numbers(4, 4))
    assert order.returned.keys() == {0}


def test_outputs_may_repeat_and_be_inputs() -> None:
    b = GraphBuilder()
    x, y = b.input((4,), FLOAT32), b.input((4,), FLOAT32)
    s = b.op("add", x, y)
    b.output(s, s)
    b.graph.outputs += [b.graph.inputs[0], b.graph.inputs[1]]
    b.update(1, b.op("neg", y))
    order = play(b.graph, numbers(4, 4))
    assert order.returned == {2: 0}  # the old value of input 1 is copied before it is overwritten


def test_write_into_a_cache_is_in_place() -> None:
    b = GraphBuilder()
    cache = b.storage(12, FLOAT32)
    at = b.parameter(INT64)
    row = b.input((3,), FLOAT32)
    whole = b.as_strided(cache, (4, 3), (3, 1))
    new = b.write(cache, b.select(whole, 0, parameter=at), row)
    b.graph.updates = [(0, new)]
    b.output(b.op("sum", b.as_strided(new, (4, 3), (3, 1)), dims=(0,)))
    order = play(b.graph, numbers(12, 3), [2])
    assert names(order) == ["scatter_view", "sum"]


def test_chain_of_writes_is_in_place() -> None:
    b = GraphBuilder()
    x = b.storage(6, FLOAT32)
    current = x
    for i in range(3):
        one = b.input((), FLOAT32)
        current = b.write(current, b.as_strided(current, (), (), i), one)
    b.graph.updates = [(0, current)]
    order = play(b.graph, numbers(6, 1, 1, 1))
    assert names(order) == ["scatter_view"] * 3


def test_chain_of_writes_copies_when_the_old_value_is_needed_later() -> None:
    b = GraphBuilder()
    x = b.storage(6, FLOAT32)
    one = b.input((), FLOAT32)
    first = b.write(x, b.as_strided(x, (), (), 0), one)
    second = b.write(first, b.as_strided(first, (), (), 1), b.op("neg", one))
    b.graph.updates = [(0, second)]
    b.output(b.op("sub", first, second))
    order = play(b.graph, numbers(6, 1))
    assert names(order).count("copy_buffer") == 2  # x -> first, first -> the storage


def test_write_into_a_fresh_value_needs_no_copy() -> None:
    b = GraphBuilder()
    x = b.input((6,), FLOAT32)
    base = b.op("exp", x)
    b.output(b.write(base, b.slice(base, 0, 0, 2), b.slice(x, 0, 3, 5)))
    assert names(play(b.graph, numbers(6))) == ["exp", "scatter_view"]


def test_write_into_an_input_that_stays_copies_it() -> None:
    b = GraphBuilder()
    x = b.storage(6, FLOAT32)
    y = b.input((2,), FLOAT32)
    b.output(b.write(x, b.as_strided(x, (2,), (1,), 1), y))
    assert names(play(b.graph, numbers(6, 2))) == ["copy_buffer", "scatter_view"]


def test_cleared_results() -> None:
    b = GraphBuilder()
    x = b.input((4,), FLOAT32)
    y = b.op("exp", x)
    b.output(y)
    steps = fake_kernels(b.graph)
    kernel = steps[0][0]
    assert isinstance(kernel, Kernel)
    kernel.zero_first = (y,)
    order = schedule(b.graph, steps)
    assert names(order) == ["clear_buffer", "exp"] and order.phases == [0, 1]


# -- Failure before damage --------------------------------------------------------------------------------------------


def test_fallible_kernels_run_before_updates() -> None:
    b = GraphBuilder()
    x, table = b.input((4,), FLOAT32), b.input((5,), FLOAT32)
    index = b.input((3,), INT64)
    b.update(0, b.op("neg", x))
    b.output(b.op("take", table, index))
    order = play(b.graph, [*numbers(4, 5), np.array([1, 2, 0])])
    phase = dict(zip(names(order), order.phases, strict=True))
    assert phase["take"] < phase["neg"]


def test_fallible_kernel_that_needs_the_update_stays_behind_it() -> None:
    b = GraphBuilder()
    x = b.input((4,), FLOAT32)
    index = b.input((3,), INT64)
    new = b.op("neg", x)
    b.update(0, new)
    b.output(b.op("take", new, index))
    order = play(b.graph, [*numbers(4), np.array([1, 2, 0])])
    assert names(order) == ["neg", "take"]


def test_indices_that_were_looked_at_before_hold_nothing_up() -> None:
    b = GraphBuilder()
    x, table = b.input((4,), FLOAT32), b.input((5,), FLOAT32)
    index = b.input((3,), INT64)
    rows = b.op("take", table, index)
    b.update(0, b.op("neg", x))
    late = b.op("put_rows", b.op("neg", table), index, b.op("exp", rows), dim=0, mode="set")
    b.output(late)
    steps = fake_kernels(b.graph)
    last = steps[-1][0]
    assert isinstance(last, Kernel)
    last.fails = "bad {value}"
    order = schedule(b.graph, steps)
    phase = {step.nodes: at for step, at in zip(order.steps, order.phases, strict=True)}
    assert phase[steps[0][0].nodes] < phase[steps[1][0].nodes] < phase[last.nodes]


# -- Phases and memory ------------------------------------------------------------------------------------------------


def test_equal_updates_share_a_phase() -> None:
    b = GraphBuilder()
    for i in range(10):
        x, grad = b.input((i + 1,), FLOAT32), b.input((i + 1,), FLOAT32)
        b.update(2 * i, b.op("sub", x, b.op("mul", grad, grad)))
    order = play(b.graph, numbers(*[i // 2 + 1 for i in range(20)]), seeds=1)
    assert len({(phase, step.key) for step, phase in zip(order.steps, order.phases, strict=True)}) == 2


def test_chain_reuses_one_buffer() -> None:
    b = GraphBuilder()
    x = b.input((1000,), FLOAT32)
    for _ in range(10):
        x = b.op("exp", x)
    b.output(b.op("sum", x, dims=(0,)))
    placement = place(b.graph, schedule(b.graph, fake_kernels(b.graph)), 1)
    assert placement.arena_bytes == 4032 and placement.unshared_bytes == 4032  # 4,000 bytes in whole cache lines


def test_chain_ends_in_its_output() -> None:
    b = GraphBuilder()
    x = b.input((1000,), FLOAT32)
    for _ in range(10):
        x = b.op("exp", x)
    b.output(x)
    assert place(b.graph, schedule(b.graph, fake_kernels(b.graph)), 1).arena_bytes == 0


def test_scratch_lives_for_its_phase_only() -> None:
    b = GraphBuilder()
    x = b.input((16,), FLOAT32)
    for _ in range(5):
        x = b.op("sum", b.expand(b.reshape(x, 1, 16), 16, 16), dims=(1,))
    b.output(x)
    order = schedule(b.graph, fake_kernels(b.graph, scratch=4096))
    placement = place(b.graph, order, workers=3)
    assert 3 * 4096 <= placement.arena_bytes <= 3 * 4096 + 4 * 64
    assert len(placement.scratch) == 5 and all(at % ALIGNMENT == 0 for at in placement.scratch.values())


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(0, 1000)), max_size=40))
def test_offsets_of_meeting_lives_do_not_overlap(blocks: list[tuple[int, int, int]]) -> None:
    lives = [(first, first + more, nbytes) for first, more, nbytes in blocks]
    offsets, top = assign_offsets(lives)
    for i, (a, at) in enumerate(zip(lives, offsets, strict=True)):
        assert (at % ALIGNMENT == 0 and at + a[2] <= top) or a[2] == 0
        for b, other in zip(lives[:i], offsets[:i], strict=True):
            if a[0] <= b[1] and b[0] <= a[1] and a[2] and b[2]:
                assert at + a[2] <= other or other + b[2] <= at


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(0, 1000), st.integers(0, 1000)), max_size=40))
def test_turns_of_lives_serve_all_sizes(blocks: list[tuple[int, int, int, int]]) -> None:
    turns = turns_of([(first, first + more) for first, more, _, _ in blocks])
    for sizes in ([n for _, _, n, _ in blocks], [n for _, _, _, n in blocks]):
        offsets, top = offsets_of(turns, sizes)
        assert (offsets, top) == assign_offsets([(first, first + more, n) for (first, more, _, _), n in zip(blocks, sizes, strict=True)])
        used: dict[int, list[tuple[int, int]]] = {}
        for (first, more, _, _), n, at in zip(blocks, sizes, offsets, strict=True):
            for phase in range(first, first + more + 1):
                used.setdefault(phase, []).append((at, at + n))
        for spans in used.values():
            spans = sorted(s for s in spans if s[0] < s[1])
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)) and all(end <= top for _, end in spans)


# -- Random programs --------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Values of 4 or 8 elements, written into, swapped, returned and updated in every way."""
    b = GraphBuilder()
    for _ in range(draw(st.integers(1, 4))):
        b.storage(8, FLOAT32)
    pool = list(b.graph.inputs)
    index = None
    for _ in range(draw(st.integers(1, 12))):
        x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        match draw(st.sampled_from(["unary", "binary", "write", "copy", "take"])):
            case "unary":
                pool.append(b.op("neg", x))
            case "binary":
                pool.append(b.op("sub", x, y))
            case "copy":
                pool.append(b.op("copy", x))
            case "take":
                if index is None:
                    index = b.input((8,), INT64)
                pool.append(b.op("take", x, index))
            case "write":
                at = draw(st.integers(0, 4))
                pool.append(b.write(x, b.slice(x, 0, at, at + 4), b.slice(y, 0, 0, 4)))
    positions = [i for i, root in enumerate(b.graph.inputs) if b.graph.values[root].dtype is FLOAT32]
    for position in draw(st.lists(st.sampled_from(positions), unique=True)):
        b.graph.updates.append((position, draw(st.sampled_from(pool))))
    b.graph.outputs += draw(st.lists(st.sampled_from(pool), max_size=4))
    return b.graph


@settings(max_examples=300, deadline=None)
@given(programs())
def test_random_programs(graph: Graph) -> None:
    inputs: list[Any] = [np.arange(8, dtype=np.float32) + 10 * i for i in range(len(graph.inputs))]
    inputs = [x if graph.values[i].dtype is FLOAT32 else np.arange(8)[::-1].copy() for i, x in zip(graph.inputs, inputs, strict=True)]
    for j, root in enumerate(graph.outputs):  # an update's value is returned as the storage that it updates
        assert root < len(graph.values) and j < 4
    play(graph, inputs, seeds=2)


def test_host_calls_have_a_phase_of_their_own() -> None:
    b = GraphBuilder()
    x = b.input((2, 2), FLOAT32)
    y = b.host_call("inv", b.op("neg", x), results=[((2, 2), FLOAT32)])
    b.output(b.op("neg", y))
    steps = fake_kernels(b.graph)
    kernel = steps[1][0]
    steps[1] = [HostCall("inv", "host:inv", "inv", {}, (kernel.reads[0],), (y,), kernel.reads, (y,), 0, (2,))]
    assert schedule(b.graph, steps).phases == [0, 1, 2]


if __name__ == "__main__":
    pytest.main([__file__])
