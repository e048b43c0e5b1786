"""profile, record_function and the events: what is found, whose it is, and that the times add up."""

from __future__ import annotations

import time
from typing import Any

import pytest

import flambeau as torch
from flambeau.profiler import ProfilerActivity, profile, record_function
from flambeau.trace import evaluate
from tests.threads import Thread, join

pytestmark = pytest.mark.usefixtures("whole")


def kernels(prof: profile) -> list[Any]:
    return [e for e in prof.events() if e.kind == "kernel"]


def test_results_are_the_same() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)

    def work() -> tuple[list[float], float]:
        y = torch.nn.functional.gelu(x @ w).softmax(-1)
        values, index = y.sort(-1)
        loss = (values * index).sum()
        (g,) = torch.autograd.grad(loss, x)
        return g[0].tolist(), loss.item()

    plain = work()
    with profile():
        profiled = work()
    assert profiled == plain and work() == plain


def test_in_place_updates_and_random_numbers_happen_once() -> None:
    x = torch.zeros(1000)
    torch.manual_seed(3)
    expected = torch.rand(4).tolist()
    torch.manual_seed(3)
    with profile():
        for _ in range(5):
            x += 1
            x.sum().item()
        got = torch.rand(4).tolist()
    assert x.tolist() == [5.0] * 1000 and got == expected


def test_kernels_belong_to_the_range_that_recorded_them() -> None:
    a, b = torch.randn(96, 96), torch.randn(96, 96)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("product"):
            c = a @ b
        with record_function("order"):
            s, _ = torch.sort(a, -1)
        with record_function("look"):
            c.sum().item()
            s[0].tolist()
    by_name = {e.name: e for e in kernels(prof)}
    product = next(e for name, e in by_name.items() if name.startswith("matmul"))
    order = next(e for name, e in by_name.items() if name.startswith("sort"))
    assert product.owner.name == product.cpu_parent.name == "product" and "matmul" in product.sources
    assert order.owner.name == "order" and order.bytes > 0 and product.flops == 2 * 96**3
    averages = {e.key: e for e in prof.key_averages()}
    assert averages["product"].cpu_time_total >= product.cpu_time_total > 0
    assert averages["look"].count == 1


def test_own_times_add_up() -> None:
    x = torch.randn(512, 512)
    with profile() as prof, record_function("all"):
        for _ in range(3):
            with record_function("inner"):
                (x @ x).sum().item()
            time.sleep(0.002)
    (whole,) = [e for e in prof.events() if e.name == "all"]
    elapsed = whole.time_range.elapsed_us()
    inside = sum(e.self_cpu_time_total for e in prof.events())
    assert elapsed >= 6000 and inside == pytest.approx(elapsed, rel=0.02)
    assert whole.cpu_time_total == pytest.approx(elapsed, rel=0.02)
    total = prof.key_averages().total_average()
    assert total.self_cpu_time_total == pytest.approx(inside) and total.key == "Total"


def test_decorator_and_reuse() -> None:
    @record_function("work")
    def work(n: int) -> float:
        return work(n - 1) if n else torch.ones(3).sum().item()

    assert work(1) == 3.0
    again = record_function("again")
    with profile() as prof:
        assert work(2) == 3.0
        with again:
            pass
        with again:
            pass
    counts = {e.key: e.count for e in prof.key_averages()}
    assert counts["work"] == 3 and counts["again"] == 2
    assert work.__name__ == "work"


def test_nothing_is_on_afterwards() -> None:
    x = torch.ones(3)
    with pytest.raises(KeyError), profile() as prof, record_function("unfinished"):
        x.sum().item()
        raise KeyError
    assert evaluate.PROFILER is None and [e.name for e in prof.events() if e.kind == "range"] == ["unfinished"]
    with record_function("outside"):
        x.sum().item()
    with profile(), pytest.raises(RuntimeError, match="already enabled"):
        profile().start()
    assert evaluate.PROFILER is None


def test_pending_work_is_not_mixed_up() -> None:
    """Work recorded before the profile is not in it; work recorded inside is, also if nobody looked at it."""
    x = torch.randn(64, 64)
    before = x @ x
    with profile() as prof:
        after = torch.sort(x, -1)[0]
    names = [e.name for e in kernels(prof)]
    assert any(n.startswith("sort") for n in names) and not any(n.startswith("matmul") for n in names)
    assert before.shape == after.shape


def test_error_in_a_kernel() -> None:
    x, index = torch.randn(4), torch.tensor([7])
    with profile() as prof:
        with pytest.raises(IndexError):
            torch.index_select(x, 0, index).tolist()
        x.sum().item()
    assert kernels(prof)


def test_threads() -> None:
    def work() -> None:
        with record_function("in thread"):
            torch.ones(8).cumsum(0).tolist()

    with profile() as prof:
        thread = Thread(target=work)
        thread.start()
        join(thread)
        torch.ones(8).sum().item()
    threads = {e.thread for e in prof.events()}
    (inside,) = [e for e in prof.events() if e.name == "in thread"]
    assert len(threads) == 2
    assert all(e.owner is inside for e in kernels(prof) if e.thread == inside.thread)


def test_shapes_memory_stacks_and_flops() -> None:
    x, w = torch.randn(32, 16), torch.randn(16, 8)
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True) as prof:
        with record_function("mine"):
            y = x @ w
        y.tolist()
    (product,) = [e for e in kernels(prof) if "matmul" in e.sources]
    assert product.input_shapes == [[32, 16], [16, 8]] and product.input_dtypes == ["float32", "float32"]
    assert product.memory == y.numel() * 4
    (mine,) = [e for e in prof.events() if e.name == "mine"]
    assert "test_profile.py" in mine.stack[0] and "test_shapes_memory_stacks_and_flops" in mine.stack[0]
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="flops")
    for column in ("Input Shapes", "CPU Mem", "FLOPs", "[[32, 16], [16, 8]]"):
        assert column in table
    two = [torch.randn(n, n) for n in (8, 24)]
    with profile(record_shapes=True) as prof:
        for a in two:
            (a @ a).tolist()
    products = [e for e in prof.key_averages(group_by_input_shape=True) if "matmul" in e.sources]
    assert sum(e.count for e in products) == 2 and len({str(e.input_shapes) for e in products}) == 2


def test_host_calls_and_compilation_are_events() -> None:
    x = torch.randn(6, 6) @ torch.randn(6, 6) + 7.5
    with profile() as prof:
        (x.cos() * 3.25).sin().sum().item()
    assert any(e.kind == "compile" for e in prof.events())
    (plan,) = [e for e in prof.events() if e.kind == "plan"]
    assert plan.recorded is not None and {"cos", "sin", "sum"} <= set(plan.recorded) and plan.note


def test_floor_and_share() -> None:
    x = torch.randn(1 << 22)
    for _ in range(2):
        with profile() as prof:
            (x * 2).data_ptr()
    (kernel,) = kernels(prof)
    assert kernel.bytes == pytest.approx(2 * 4 * x.numel(), abs=64)
    assert kernel.floor_us > 0 and 0.05 < kernel.share < 20
    table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=1)
    assert "Floor" in table and "Share" in table and "Kernels:" in table


def test_zero_cost_when_off() -> None:
    """Off, a run of a plan goes to the plan's own `run`: the hook is one test."""
    x = torch.randn(8)
    seen = []
    (x + 1).tolist()

    class Spy:
        def run(self, plan: Any, state: Any, inputs: Any, parameters: Any, reason: str) -> Any:
            seen.append(reason)
            return plan.run(inputs, parameters)

    evaluate.PROFILER = Spy()
    try:
        (x + 1).tolist()
    finally:
        evaluate.PROFILER = None
    (x + 1).tolist()
    assert len(seen) == 1
