"""torch.library: operators by schema, their functions by dispatch key, overloads, and libraries in C++ that cannot be loaded."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft


def test_defined_then_implemented() -> None:
    lib = ft.library.Library("parts", "DEF")
    assert lib.define("twice(Tensor x, float by=2.0) -> Tensor") == "twice"
    with pytest.raises(NotImplementedError, match=r"parts::twice.*no function for the CPU"):
        ft.ops.parts.twice(ft.ones(1))
    lib.impl("twice", lambda x, by=2.0: x * by, "CPU")
    lib.impl("twice", lambda x, by=2.0: x * 100, "Meta")
    assert ft.ops.parts.twice(ft.ones(1)).item() == 2.0 and ft.ops.parts.twice.default(ft.ones(1), by=3.0).item() == 3.0
    assert str(ft.ops.parts.twice.default) == "parts.twice.default" and ft.ops.parts.twice.default.name() == "parts::twice"
    with pytest.raises(ValueError, match="Unsupported kind"):
        ft.library.Library("parts", "NEW")


def test_overloads_are_operators_of_their_own() -> None:
    ft.library.define("parts::minus", "(Tensor x) -> Tensor")
    ft.library.define("parts::minus.out", "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")

    @ft.library.impl("parts::minus", "default")
    def minus(x: Any) -> Any:
        return -x

    @ft.library.impl("parts::minus.out", ("cpu", "cuda"))
    def minus_out(x: Any, *, out: Any) -> Any:
        return out.copy_(-x)

    out = ft.zeros(1)
    assert ft.ops.parts.minus(ft.ones(1)).item() == -1.0 and ft.ops.parts.minus.out(ft.ones(1), out=out) is out and out.item() == -1.0


def test_autograd_and_autocast_functions_call_the_operator() -> None:
    called = []
    lib = ft.library.Library("parts", "FRAGMENT")
    lib.define("scaled(Tensor x) -> Tensor")
    lib.impl("scaled", lambda x: x * 3, "CPU")

    class Scaled(ft.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return ft.ops.parts.scaled(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 7

    def autocast(x: Any) -> Any:
        called.append(x.dtype)
        with ft._C._ExcludeDispatchKeyGuard(ft._C.DispatchKeySet(ft._C.DispatchKey.AutocastCPU) | ft._C.DispatchKeySet(ft._C.DispatchKey.AutocastCUDA)):
            return ft.ops.parts.scaled(x.float())

    lib.impl("scaled", Scaled.apply, "Autograd")
    lib.impl(ft.ops.parts.scaled.default, autocast, "AutocastCPU")
    x = ft.ones(2, requires_grad=True)
    ft.ops.parts.scaled(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [7.0, 7.0] and called == []
    with ft.autocast("cpu", dtype=ft.bfloat16):
        assert ft.ops.parts.scaled(x.detach().bfloat16()).dtype is ft.float32
    assert called == [ft.bfloat16] and ft.ops.parts.scaled(ft.ones(1)).item() == 3.0


def test_gradients_may_be_registered_before_the_function() -> None:
    ft.library.define("parts::late", "(Tensor x) -> Tensor")
    ft.library.register_autograd("parts::late", lambda ctx, g: g * 5)
    ft.library.impl("parts::late", "cpu", lambda x: x + 1)
    x = ft.ones(1, requires_grad=True)
    ft.ops.parts.late(x).sum().backward()
    assert x.grad is not None and x.grad.item() == 5.0
    with pytest.raises(RuntimeError, match="operator parts::nothing does not exist"):
        ft.library.register_autograd("parts::nothing", lambda ctx, g: g)


def test_libraries_in_cpp_are_refused_as_packages_expect() -> None:
    with pytest.raises(OSError, match=r"/somewhere/pack/_C.so.*C\+\+"):
        ft.ops.load_library("/somewhere/pack/_C.so")


NAMES = (
    ("_to_copy", lambda o, x: o._to_copy.default(x, dtype=ft.float64), lambda x: x.double()), ("alias", lambda o, x: o.alias(x), lambda x: x),
    ("slice", lambda o, x: o.slice.Tensor(x, 1, -3, None, 2), lambda x: x[:, -3::2]),
    ("slice past the end", lambda o, x: o.slice(x, 0, 1, 99), lambda x: x[1:]),
    ("_unsafe_view", lambda o, x: o._unsafe_view(x, [4, 3]), lambda x: x.view(4, 3)),
    ("_is_all_true", lambda o, x: o._is_all_true(x > 0), lambda x: (x > 0).all()),
)  # fmt: skip


@pytest.mark.parametrize(("call", "wanted"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES])
def test_dispatchers_names(call: Any, wanted: Any) -> None:
    x = ft.arange(12.0).reshape(3, 4)
    found = call(ft.ops.aten, x)
    assert ft.equal(found, wanted(x)) and found.dtype is wanted(x).dtype
