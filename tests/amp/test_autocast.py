"""autocast: its state, nesting, threads, gradients, and what it leaves alone."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch as pytorch

import flambeau as torch
from flambeau.autograd.checkpoint import checkpoint
from tests.threads import Thread, join


def test_state_inside_and_outside() -> None:
    assert not torch.is_autocast_enabled("cpu") and not torch.is_autocast_cpu_enabled()
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16 and torch.get_autocast_dtype("cuda") is torch.float16
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.is_autocast_enabled("cpu") and torch.get_autocast_cpu_dtype() is torch.float16
        assert not torch.is_autocast_enabled()
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16


def test_nesting_and_reentry() -> None:
    a = torch.randn(4, 4)
    region = torch.autocast("cpu", torch.bfloat16)
    with region:
        first = a @ a
        with torch.autocast("cpu", enabled=False):
            second = a @ a
            with torch.amp.autocast("cpu", dtype=torch.float16):
                third = a @ a
            fourth = a @ a
        with region:
            fifth = a @ a
        sixth = a @ a
    seventh = a @ a
    got = [t.dtype for t in (first, second, third, fourth, fifth, sixth, seventh)]
    b, f, h = torch.bfloat16, torch.float32, torch.float16
    assert got == [b, f, h, f, b, b, f]


def test_state_survives_an_observation() -> None:
    """A trace that ends inside the region must not take the next calls outside it."""
    a = torch.randn(4, 4)
    before = a + 1
    with torch.autocast("cpu"):
        (a @ a).sum().item()
        assert (a @ a).dtype is torch.bfloat16
        before.sum().item()
    assert (a @ a).dtype is torch.float32
    with torch.no_grad():
        before.sum().item()
        x = torch.randn(3, requires_grad=True)
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_exception_restores() -> None:
    with pytest.raises(KeyError), torch.autocast("cpu"):
        raise KeyError
    assert not torch.is_autocast_enabled("cpu")


def test_decorator() -> None:
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(a: Any, depth: int = 2) -> Any:
        return product(a, depth - 1) if depth else a @ a

    assert product(torch.randn(3, 3)).dtype is torch.bfloat16
    assert product.__name__ == "product"
    with pytest.raises(TypeError, match="requires a callable"):
        torch.autocast("cpu")(3)  # type: ignore[arg-type]


def test_setters() -> None:
    a = torch.randn(3, 3)
    torch.set_autocast_enabled("cpu", True)
    try:
        torch.set_autocast_dtype("cpu", torch.float16)
        assert (a @ a).dtype is torch.float16
    finally:
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_cpu_dtype(torch.bfloat16)
    assert (a @ a).dtype is torch.float32


def test_thread_has_its_own_state() -> None:
    seen = []
    with torch.autocast("cpu"):
        thread = Thread(target=lambda: seen.append((torch.randn(2, 2) @ torch.randn(2, 2)).dtype))
        thread.start()
        join(thread)
    assert seen == [torch.float32]


def test_devices_and_dtypes_that_are_refused() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available"), torch.autocast("cuda"):
        assert (torch.randn(2, 2) @ torch.randn(2, 2)).dtype is torch.float32
    with pytest.warns(UserWarning, match="not supported. Disabling"), torch.autocast("cpu", dtype=torch.float32):
        assert not torch.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        torch.autocast("tpu")
    with pytest.raises(ValueError, match="of type `str`"):
        torch.autocast(torch.device("cpu"))  # type: ignore[arg-type]
    assert torch.amp.is_autocast_available("cpu") and not torch.amp.is_autocast_available("tpu")


def test_old_names_warn() -> None:

    with pytest.warns(FutureWarning), torch.cpu.amp.autocast():
        assert torch.is_autocast_enabled("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.cuda.amp.autocast():
            assert not torch.is_autocast_enabled("cpu")
        assert not torch.cuda.amp.GradScaler().is_enabled()


def test_inplace_and_out_forms_are_not_cast() -> None:
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    exact = a.double() @ b.double()
    with torch.autocast("cpu"):
        c = torch.zeros(8, 8).addmm_(a, b)
        out = torch.empty(8, 8)
        torch.mm(a, b, out=out)
    for result in (c, out):
        assert result.dtype is torch.float32
        assert (result.double() - exact).abs().max().item() < 1e-5


def run(module: Any, x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> list[Any]:
    x_ = module.tensor(x, requires_grad=True)
    w_ = module.tensor(w, requires_grad=True)
    with module.autocast("cpu", dtype=module.bfloat16):
        h = module.nn.functional.linear(x_, w_)
        h = module.nn.functional.gelu(h)
        y = h @ w_
        loss = module.nn.functional.mse_loss(y, module.zeros_like(y))
    loss.backward()
    assert str(x_.grad.dtype) == str(w_.grad.dtype) == "torch.float32"
    return [loss.detach().float().numpy(), x_.grad.numpy(), w_.grad.numpy()]


def test_gradients_are_float32_and_near_pytorch() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((16, 32), np.float32), rng.standard_normal((32, 32), np.float32) / 6
    for ours, theirs in zip(run(torch, x, w), run(pytorch, x, w), strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, atol=2e-2 * scale)  # bfloat16 has 8 bits; roundings differ in order


@pytest.mark.usefixtures("whole")
def test_one_cast_of_a_weight_used_twice() -> None:
    """The casts of a weight are common subexpressions of a trace: one kernel reads the float32 values."""
    from flambeau.trace import evaluate

    plans: list[Any] = []
    observer = lambda plan, reason: plans.append(plan)
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    (x.sum() + w.sum()).item()
    evaluate.OBSERVERS.append(observer)
    try:
        with torch.autocast("cpu"), torch.no_grad():
            y = torch.nn.functional.linear(torch.nn.functional.linear(x, w), w)
        y.float().sum().item()
    finally:
        evaluate.OBSERVERS.remove(observer)
    casts = [n for n in plans[-1].plan.graph.nodes if n.op == "cast" and plans[-1].plan.graph.values[n.outputs[0]].dtype is torch.bfloat16]
    assert len(casts) == 2  # of x and of w


def test_cast_of_a_weight_follows_its_values() -> None:
    w = torch.nn.Parameter(torch.ones(2, 2))
    x = torch.ones(1, 2)
    with torch.autocast("cpu"), torch.no_grad():
        before = x @ w
        w.mul_(2)
        after = x @ w
    assert before.tolist() == [[2, 2]] and after.tolist() == [[4, 4]]


def test_custom_function() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a.mm(b)

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            a, b = ctx.saved_tensors
            assert torch.is_autocast_enabled("cpu")
            return grad.mm(b.t()), a.t().mm(grad)

    class Full(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx: Any, a: Any) -> Any:
            assert not torch.is_autocast_enabled("cpu")
            return a @ a

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            assert not torch.is_autocast_enabled("cpu")
            return grad

    a = torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu"):
        y = Product.apply(a, a)
        z = Full.apply(a.to(torch.bfloat16))
    assert y.dtype is torch.bfloat16 and z.dtype is torch.float32
    (y.float().sum() + z.sum()).backward()
    assert a.grad is not None and a.grad.dtype is torch.float32


def test_checkpoint_recomputes_under_the_same_state() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8, requires_grad=True)
    seen = []

    def block(x: Any) -> Any:
        y = layer(x)
        seen.append(y.dtype)
        return y.float().square()

    with torch.autocast("cpu"):
        y = checkpoint(block, x, use_reentrant=False)
    y.sum().backward()
    assert seen == [torch.bfloat16, torch.bfloat16] and not torch.is_autocast_enabled("cpu")


def test_cost_of_a_known_call_is_the_same() -> None:
    """No test of the state on the fast path: the generated sources do not mention it, and edges are found as without."""
    from flambeau.statistics import counters

    a = torch.randn(3, 3)
    for _ in range(2):
        with torch.autocast("cpu"):
            (a @ a).float().sum().item()
        before = counters.slow_path_entries
    with torch.autocast("cpu"):
        (a @ a).float().sum().item()
    assert counters.slow_path_entries == before
