"""Plans that need no generated loops: whole-buffer copies, host calls, matrix products; the io block; errors; speed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.explain import explain, passes
from flambeau.compiler.kernel import Address, ErrorRecord, Kernel
from flambeau.compiler.pipeline import assemble, compile_graph, disabled
from flambeau.compiler.plan import time_steps
from flambeau.runtime.jit import symbol
from flambeau.runtime.target import Target
from tests.graphs import FLOAT32, FLOAT64, INT64, GraphBuilder
from tests.native import array_of, buffer_of, check_graph
from tests.threads import Thread, join

X, Y = np.arange(8, dtype=np.float32), -np.arange(8, dtype=np.float32)


def swap() -> GraphBuilder:
    b = GraphBuilder()
    x, y = b.storage(8, FLOAT32), b.storage(8, FLOAT32)
    b.graph.updates = [(0, y), (1, x)]
    return b


def test_swap() -> None:
    check_graph(swap().graph, [X, Y])


def test_inputs_are_returned_as_they_are_and_old_values_as_copies() -> None:
    b = swap()
    z = b.storage(8, FLOAT32)
    b.graph.outputs = [z, b.graph.inputs[0], b.graph.inputs[0]]
    plan = check_graph(b.graph, [X, Y, X])
    buffers = [buffer_of(v) for v in (X, Y, X)]
    outputs = plan.run(buffers, [])
    assert outputs[0] is buffers[2]
    assert len({o.address for o in outputs} | {i.address for i in buffers}) == 5


def test_a_plan_runs_again_and_again() -> None:
    plan = compile_graph(swap().graph)
    buffers = [buffer_of(X), buffer_of(Y)]
    for _ in range(101):
        assert plan.run(buffers, []) == []
    np.testing.assert_array_equal(array_of(buffers[0], X), Y)


@pytest.mark.parametrize("size", [1, 100, 5000, 300_000])
def test_large_copies(size: int) -> None:
    b = GraphBuilder()
    x, y = b.storage(size, FLOAT32), b.storage(size, FLOAT32)
    b.graph.updates = [(0, y), (1, x)]
    data = np.random.default_rng(0).normal(size=size).astype(np.float32)
    plan = check_graph(b.graph, [data, data + 1])
    assert plan.arena_bytes >= 4 * size


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_threads_may_run_one_plan_at_once(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flambeau.compiler.plan.KEPT_ARENA_BYTES", kept)
    b = GraphBuilder()
    x = b.input((4000,), FLOAT32)
    total = b.op("sum", b.op("mul", x, x), dims=(0,))
    b.output(b.op("sub", b.op("add", x, total), b.op("sum", b.op("add", x, total), dims=(0,))))
    plan = compile_graph(b.graph, fuse=False)
    data = [np.random.default_rng(i).normal(size=4000).astype(np.float32) for i in range(4)]
    alone = [array_of(plan.run([buffer_of(x)], [])[0], x) for x in data]
    wrong: list[int] = []

    def work(i: int) -> None:
        mine = buffer_of(data[i])
        for _ in range(50):
            if array_of(plan.run([mine], [])[0], data[i]).tobytes() != alone[i].tobytes():
                wrong.append(i)

    workers = [Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    join(*workers)
    assert not wrong


def test_step_times() -> None:
    b = GraphBuilder()
    x = b.input((100,), FLOAT32)
    b.output(b.op("sum", b.op("exp", x), dims=(0,)))
    plan = compile_graph(b.graph, fuse=False)
    seconds = time_steps(plan, [buffer_of(np.ones(100, np.float32))], [])
    assert len(seconds) == len(plan.steps) and all(0 < s < 1 for s in seconds)
    assert "taken/us" in explain(plan, bandwidth=1e9, peak=1e9, seconds=seconds)


# -- Host calls -------------------------------------------------------------------------------------------------------


def test_host_call() -> None:
    b = GraphBuilder()
    x = b.input((3, 3), FLOAT64)
    b.output(b.host_call("cofactor", b.permute(x, 1, 0), results=[((3, 3), FLOAT64)]))
    plan = check_graph(b.graph, [np.random.default_rng(0).normal(size=9)])
    assert plan.kernel_count == 1 and not plan.kernels


def test_chain_of_host_calls_goes_through_the_arena() -> None:
    b = GraphBuilder()
    x = b.input((2, 3, 3), FLOAT32)
    y = b.host_call("cofactor", x, results=[((2, 3, 3), FLOAT32)])
    sign, size = b.host_call("slogdet", y, results=[((2,), FLOAT32), ((2,), FLOAT32)])
    b.output(sign, size)
    check_graph(b.graph, [np.random.default_rng(1).normal(size=18).astype(np.float32)])


def test_host_call_between_native_parts() -> None:
    b = GraphBuilder()
    x, y = b.storage(4, FLOAT64), b.storage(4, FLOAT64)
    square = b.as_strided(x, (2, 2), (2, 1))
    b.graph.updates = [(0, y), (1, b.host_call("cofactor", square, results=[((2, 2), FLOAT64)]))]
    plan = check_graph(b.graph, [np.array([1.0, 2, 3, 5]), np.ones(4)])
    assert [step.name for step in plan.steps] == ["cofactor", "copy_buffer"] or len(plan.steps) == 3


def test_a_failing_host_call_leaves_the_inputs_alone() -> None:
    b = GraphBuilder()
    x, y = b.storage(4, FLOAT64), b.storage(4, FLOAT64)
    b.graph.updates = [(0, y)]
    b.output(b.host_call("det", b.as_strided(x, (2, 2), (2, 1)), results=[((2, 2), FLOAT64)]))
    buffers = [buffer_of(np.ones(4)), buffer_of(np.zeros(4))]
    with pytest.raises(RuntimeError, match="the graph says"):
        compile_graph(b.graph).run(buffers, [])
    np.testing.assert_array_equal(array_of(buffers[0], np.ones(4)), np.ones(4))


def test_singular_matrix() -> None:
    b = GraphBuilder()
    x = b.input((2, 2), FLOAT64)
    _, info = b.host_call("inv", x, results=[((2, 2), FLOAT64), ((), dtypes.int32)])
    b.output(info)
    (result,) = compile_graph(b.graph).run([buffer_of(np.zeros(4))], [])
    assert array_of(result, np.zeros((), np.int32)) == 1  # the first pivot is zero


# -- Words: parameters, errors ------------------------------------------------------------------------------------------


def hand_written(b: GraphBuilder, body: str, name: str, words: list[Any], writes: tuple[int, ...], **more: Any) -> Kernel:
    key = f"test:{name}"

    def emit(target: Target) -> str:
        return f"define i64 @{symbol(key)}(ptr %args, i64 %begin, i64 %end, i64 %worker) {{\nentry:\n{body}\n}}\n"

    return Kernel(name, key, emit, words, tuple(b.graph.inputs), writes, units=1, bytes=8, **more)


STORE_PARAMETER = """
  %to = load ptr, ptr %args
  %fp = getelementptr i64, ptr %args, i64 1
  %from = load ptr, ptr %fp
  %x = load i64, ptr %from
  store i64 %x, ptr %to
  ret i64 0
"""
FAIL = """
  %rp = load ptr, ptr %args
  %r1 = getelementptr i64, ptr %rp, i64 1
  %r2 = getelementptr i64, ptr %rp, i64 2
  store i64 1, ptr %rp
  store i64 -7, ptr %r1
  store i64 5, ptr %r2
  ret i64 1
"""


@pytest.mark.parametrize("value", [3, -(2**40), 2.5, True])
def test_parameter_words(value: Any) -> None:
    b = GraphBuilder()
    p = b.parameter(FLOAT64 if isinstance(value, float) else INT64)
    y = b.op("neg", p)
    b.output(y)
    kernel = hand_written(b, STORE_PARAMETER, "store", [Address(y), Address(p)], (y,), nodes=(0,))
    out = assemble(b.graph, [[kernel]]).run([], [value])[0]
    assert array_of(out, np.zeros(1, np.float64 if isinstance(value, float) else np.int64))[0] == value


@pytest.mark.parametrize("pooled", [False, True])
def test_dynamic_addresses(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flambeau.compiler.plan.KEPT_ARENA_BYTES", 0 if pooled else 1 << 20)
    b = GraphBuilder()
    x = b.storage(8, FLOAT64)
    i, j = b.parameter(INT64), b.parameter(INT64)
    middle, y = b.op("copy", x), b.op("neg", b.constant(0.0, FLOAT64))
    b.output(y)
    copy = hand_written(b, "\n".join([
        "  %to = load ptr, ptr %args", "  %fp = getelementptr i64, ptr %args, i64 1", "  %from = load ptr, ptr %fp",
        "  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 64, i1 false)", "  ret i64 0"]),
        "copy64", [Address(middle), Address(x)], (middle,), nodes=(0,))  # fmt: skip
    pick = hand_written(b, STORE_PARAMETER, "store", [Address(y), Address(middle, 8, ((i, 8), (j, 16)))], (y,), nodes=(2,))
    pick.reads = (middle,)
    plan = assemble(b.graph, [[copy], [pick]])
    assert plan.arena_bytes == 64
    for a, c in ((0, 0), (2, 1), (-1, 3)):
        out = plan.run([buffer_of(np.arange(8.0))], [a, c])[0]
        assert array_of(out, np.zeros(1))[0] == 1 + a + 2 * c


def test_a_failing_kernel_raises_index_error_with_its_text() -> None:
    b = GraphBuilder()
    x = b.storage(1, FLOAT64)
    y = b.op("neg", x)
    b.update(0, y)
    fail = hand_written(b, FAIL, "fail", [ErrorRecord()], (), nodes=(0,), fails="index {value} is out of bounds for {bound}")
    store = hand_written(b, STORE_PARAMETER, "store", [Address(y), Address(y)], (y,), nodes=(0,), in_place=((y, x),))
    plan = assemble(b.graph, [[store], [fail]])
    assert [step.name for step in plan.steps] == ["fail", "store"]
    with pytest.raises(IndexError, match="index -7 is out of bounds for 5"):
        plan.run([buffer_of(np.ones(1))], [])


# -- Counting, explaining, speed ----------------------------------------------------------------------------------------


def test_explain_names_phases_traffic_and_floor() -> None:
    text = explain(compile_graph(swap().graph), bandwidth=1e9, peak=1e9)
    assert "copy_buffer" in text and "floor" in text and "2 kernels" in text
    assert "dead code" in passes()


def test_unknown_pass_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no such pass"), disabled("magic"):
        pass


def test_a_small_plan_costs_little_python() -> None:
    """The whole cost of a run beyond the kernels' own work; the bound is three times what was measured (see report)."""
    plan = compile_graph(swap().graph)
    buffers = [buffer_of(X), buffer_of(Y)]
    best = 1.0
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(200):
            plan.run(buffers, [])
        best = min(best, (time.perf_counter() - start) / 200)
    assert best < 10e-6
