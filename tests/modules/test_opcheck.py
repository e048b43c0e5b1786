"""torch.library.opcheck: right and wrong operators; PyTorch finds the same of each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Optional

import pytest

import flambeau as ft

CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def _operator(torch: Any, name: str, fn: Callable[..., Any], schema: str, fake: Callable[..., Any] | None = None, mutates: Any = ()) -> Any:
    """An operator by custom_op whose schema is given, as annotations of PyTorch's tensors are not those of ours."""
    made = torch.library.custom_op(f"opcheck_cases::{name}", fn, mutates_args=mutates, schema=schema)
    if fake is not None:
        made.register_fake(fake)
    return made


def _by_numpy(torch: Any, x: Any) -> Any:
    return torch.from_numpy(x.detach().numpy().copy())


def sine(torch: Any) -> Any:
    op = _operator(torch, "sine", lambda x: _by_numpy(torch, x).sin(), "(Tensor x) -> Tensor", torch.empty_like)
    op.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    return op, (torch.randn(3, 4, requires_grad=True),), {}


def scaled_by_keyword(torch: Any) -> Any:
    op = _operator(torch, "scaled", lambda x, *, by=2.0: _by_numpy(torch, x) * by, "(Tensor x, *, float by=2.0) -> Tensor", lambda x, *, by=2.0: x * by)

    def setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.by = keyword_only_inputs["by"]

    op.register_autograd(lambda ctx, g: g * ctx.by, setup_context=setup)
    return op, (torch.randn(3, requires_grad=True),), {"by": 3.0}


def sum_of_a_list(torch: Any) -> Any:
    op = _operator(torch, "total", lambda xs: sum(_by_numpy(torch, x) for x in xs) + 0, "(Tensor[] xs) -> Tensor", lambda xs: torch.empty_like(xs[0]))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.count = len(inputs[0])

    op.register_autograd(lambda ctx, g: [g * 1] * ctx.count, setup_context=setup)
    return op, ([torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)],), {}


def two_results(torch: Any) -> Any:
    fn = lambda x, n: (_by_numpy(torch, x) * n, _by_numpy(torch, x).argmax())
    op = _operator(torch, "two", fn, "(Tensor x, int n=2) -> (Tensor, Tensor)", lambda x, n: (torch.empty_like(x), x.new_empty((), dtype=torch.int64)))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.n = inputs[1]
        ctx.mark_non_differentiable(output[1])

    op.register_autograd(lambda ctx, g, _: (g * ctx.n, None), setup_context=setup)
    return op, (torch.randn(4, requires_grad=True), 5), {}


def writes_what_it_says(torch: Any) -> Any:
    op = _operator(torch, "writes", lambda x: x.mul_(2) and None if x.numel() == 1 else (x.mul_(2), None)[1], "(Tensor(a!) x) -> ()", mutates=("x",))
    return op, (torch.randn(3),), {}


def sizes_by_values(torch: Any) -> Any:
    def fake(x: Any) -> Any:
        return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64)

    return _operator(torch, "places", lambda x: torch.nonzero(_by_numpy(torch, x)), "(Tensor x) -> Tensor", fake), (torch.tensor([0.0, 1.0, 2.0]),), {}


def writes_undeclared(torch: Any) -> Any:
    def fn(x: Any) -> Any:
        x.add_(1)
        return x.clone()

    return _operator(torch, "sly", fn, "(Tensor x) -> Tensor", torch.empty_like), (torch.randn(3),), {}


def writes_another(torch: Any) -> Any:
    def fn(x: Any, y: Any) -> None:
        x.add_(1)
        y.add_(1)

    return _operator(torch, "both", fn, "(Tensor(a!) x, Tensor y) -> ()", mutates=("x",)), (torch.randn(3), torch.randn(3)), {}


def returns_a_view(torch: Any) -> Any:
    return _operator(torch, "view", lambda x: x[1:], "(Tensor x) -> Tensor", lambda x: torch.empty_like(x[1:])), (torch.randn(3),), {}


def returns_its_input(torch: Any) -> Any:
    return _operator(torch, "same", lambda x: x, "(Tensor x) -> Tensor", torch.empty_like), (torch.randn(3),), {}


def returns_one_tensor_twice(torch: Any) -> Any:
    def fn(x: Any) -> Any:
        y = x + 1
        return y, y[0]

    fake = lambda x: (torch.empty_like(x), torch.empty_like(x[0]))
    return _operator(torch, "twice", fn, "(Tensor x) -> (Tensor, Tensor)", fake), (torch.randn(3),), {}


def no_fake(torch: Any) -> Any:
    return _operator(torch, "bare", lambda x: x * 2, "(Tensor x) -> Tensor"), (torch.randn(3),), {}


def fake_of_another_shape(torch: Any) -> Any:
    return _operator(torch, "shape", lambda x: x * 2, "(Tensor x) -> Tensor", lambda x: x.new_empty(2)), (torch.randn(3),), {}


def fake_of_another_dtype(torch: Any) -> Any:
    return _operator(torch, "kind", lambda x: x * 2, "(Tensor x) -> Tensor", lambda x: torch.empty_like(x, dtype=torch.float64)), (torch.randn(3),), {}


def fake_of_other_strides(torch: Any) -> Any:
    op = _operator(torch, "strides", lambda x: x.t().contiguous().t(), "(Tensor x) -> Tensor", torch.empty_like)
    return op, (torch.randn(3, 4),), {}


def fake_that_asks_for_values(torch: Any) -> Any:
    return _operator(torch, "asks", lambda x: x * 2, "(Tensor x) -> Tensor", lambda x: x.new_empty(int(x.sum().item()))), (torch.ones(3),), {}


def no_gradient(torch: Any) -> Any:
    return _operator(torch, "flat", lambda x: _by_numpy(torch, x) * 2, "(Tensor x) -> Tensor", torch.empty_like), (torch.randn(3, requires_grad=True),), {}


def backward_by_numpy(torch: Any) -> Any:
    op = _operator(torch, "outside", lambda x: _by_numpy(torch, x) * 2, "(Tensor x) -> Tensor", torch.empty_like)
    op.register_autograd(lambda ctx, g: torch.from_numpy(g.numpy() * 2))
    return op, (torch.randn(3, requires_grad=True),), {}


def backward_by_count(torch: Any) -> Any:
    op = _operator(torch, "counts", lambda x: _by_numpy(torch, x) * 2, "(Tensor x) -> Tensor", torch.empty_like)
    calls: list[int] = []

    def backward(ctx: Any, g: Any) -> Any:
        calls.append(1)
        return g * len(calls)

    op.register_autograd(backward)
    return op, (torch.randn(3, requires_grad=True),), {}


def result_by_count(torch: Any) -> Any:
    calls: list[int] = []

    def fn(x: Any) -> Any:
        calls.append(1)
        return x * len(calls)

    return _operator(torch, "state", fn, "(Tensor x) -> Tensor", torch.empty_like), (torch.randn(3),), {}


def _defined(torch: Any, name: str, fn: Callable[..., Any], key: str, fake: Callable[..., Any] | None = None) -> Any:
    lib = torch.library.Library("opcheck_cases", "FRAGMENT")
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, fn, key)
    if fake is not None:
        lib.impl(name, fake, "Meta")
    _LIBRARIES.append(lib)  # PyTorch takes the operators back with the library
    return getattr(torch.ops.opcheck_cases, name).default


_LIBRARIES: list[Any] = []


def gradients_behind_autograd(torch: Any) -> Any:
    return _defined(torch, "behind", lambda x: x.sin(), "CPU", torch.empty_like), (torch.randn(3, requires_grad=True),), {}


def defined_without_fake(torch: Any) -> Any:
    return _defined(torch, "nothing_else", lambda x: x.sin(), "CPU"), (torch.randn(3),), {}


def composite(torch: Any) -> Any:
    return _defined(torch, "parts", lambda x: x.sin() * 2, "CompositeImplicitAutograd"), (torch.randn(3, requires_grad=True),), {}


def gradient_at_autograd(torch: Any) -> Any:
    op = _defined(torch, "keyed", lambda x: _by_numpy(torch, x).sin(), "CPU", torch.empty_like)

    class Sine(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            if torch is ft:
                return op(x)
            with torch._C._AutoDispatchBelowAutograd():
                return op(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0].cos()

    _LIBRARIES[-1].impl("keyed", Sine.apply, "Autograd")
    return op, (torch.randn(3, requires_grad=True),), {}


def of_aten(torch: Any) -> Any:
    return torch.ops.aten.sin.default, (torch.randn(3, requires_grad=True),), {}


CASES = [
    sine, scaled_by_keyword, sum_of_a_list, two_results, writes_what_it_says, sizes_by_values, writes_undeclared, writes_another, returns_a_view,
    returns_its_input, returns_one_tensor_twice, no_fake, fake_of_another_shape, fake_of_another_dtype, fake_of_other_strides, fake_that_asks_for_values,
    no_gradient, backward_by_numpy, backward_by_count, result_by_count, gradients_behind_autograd, defined_without_fake, composite, gradient_at_autograd,
    of_aten,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_as_pytorch(case: Any) -> None:
    torch = pytest.importorskip("torch")
    op, args, kwargs = case(torch)
    wanted = torch.library.opcheck(op, args, kwargs, raise_exception=False)
    op, args, kwargs = case(ft)
    found = ft.library.opcheck(op, args, kwargs, raise_exception=False)
    passed = {name: result == "SUCCESS" for name, result in wanted.items()}
    assert {name: result == "SUCCESS" for name, result in found.items()} == passed, (found, wanted)


def test_errors_and_names_of_checks() -> None:
    op, args, kwargs = writes_undeclared(ft)
    with pytest.raises(
        importlib.import_module("flambeau.testing._internal.optests").OpCheckError, match="test_schema failed with Argument x is not defined as mut"
    ):
        ft.library.opcheck(op, args, kwargs)
    assert isinstance(ft.library.opcheck(op, args, test_utils="test_schema", raise_exception=False)["test_schema"], RuntimeError)
    with pytest.raises(ValueError, match="expected test_utils to be subset"):
        ft.library.opcheck(op, args, test_utils="test_nothing")
    with pytest.raises(ValueError, match=r"op must be instance of torch\._ops\.OpOverload"):
        ft.library.opcheck(len, args)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="you must specify both"):
        ft.library.opcheck(op, args, rtol=0.1)
    assert args[0].shape == (3,) and tuple(ft.library.opcheck(ft.ops.aten.sin, (ft.ones(2),), test_utils="ALL"))[-1] == "test_aot_dispatch_dynamic"


def test_shapes_come_from_the_registered_function() -> None:
    from flambeau._subclasses.fake_tensor import FakeTensorMode

    ran = []

    def fn(x: Any) -> Any:
        ran.append(x)
        return x.new_ones(2, 2)

    op = _operator(ft, "asked", fn, "(Tensor x) -> Tensor", lambda x: x.new_empty((5, x.shape[0])))
    assert op(ft.empty(3, device="meta")).shape == (5, 3) and ran == []
    mode = FakeTensorMode()
    found = op(mode.from_tensor(ft.ones(4)))
    assert found.shape == (5, 4) and found.device.type == "cpu" and ran == []
    assert op(ft.ones(3)).shape == (2, 2) and len(ran) == 1
    with pytest.raises(RuntimeError, match="There was no fake impl registered for <CustomOpDef"):
        no_fake(ft)[0](ft.empty(3, device="meta"))
    places = sizes_by_values(ft)[0]
    with pytest.raises(RuntimeError, match="depends on values"):
        places(mode.from_tensor(ft.ones(4)))
    with pytest.raises(RuntimeError, match=r"get_ctx\(\) can only be called inside"):
        ft.library.get_ctx()


def test_a_mode_sees_the_operator_and_gradients_pass() -> None:
    from flambeau.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    op, (x,), _ = sine(ft)
    with Names():
        y = op(x)
    y.sum().backward()
    assert seen[0] == "opcheck_cases.sine.default" and x.grad is not None and ft.allclose(x.grad, x.detach().cos())


def test_results_that_share_memory_are_refused_at_the_call() -> None:
    for case in (returns_a_view, returns_its_input, returns_one_tensor_twice):
        op, args, _ = case(ft)
        with pytest.raises(RuntimeError, match="must not also be an input to this custom operator"):
            op(*args)
    with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional operator"):
        writes_what_it_says(ft)[0].register_autograd(lambda ctx, g: g)


ANNOTATED = (
    "def f(x: Tensor, n: int, f: float = 1.5, b: bool = True, s: str = 'a') -> Tensor: ...",
    "def f(xs: list[Tensor], n: Sequence[int], x: Optional[Tensor] = None, p: Tensor | None = None) -> list[Tensor]: ...",
    "def f(x: Tensor, *, d: torch.dtype = torch.float32, w: Optional[torch.device] = None) -> tuple[Tensor, Tensor]: ...",
    "def f(x: Tensor, y: Tensor) -> None: ...",
    "def f(x: Tensor) -> tuple[Tensor]: ...",
    "def f(x: Sequence[Optional[Tensor]], y: Optional[Sequence[int]]) -> int: ...",
    "def f(x, y: Tensor) -> Tensor: ...",
    "def f(*x: Tensor) -> Tensor: ...",
    "def f(x: dict[str, Tensor]) -> Tensor: ...",
    "def f(x: tuple[Tensor, Tensor]) -> Tensor: ...",
    "def f(x: Tensor): ...",
)


def test_kernels_for_meta_make_results_of_fake_tensors() -> None:
    torch = pytest.importorskip("torch")
    for w in (ft, torch):
        lib = w.library.Library("meta_kernels", "FRAGMENT")
        lib.define("places(Tensor x) -> (Tensor, Tensor)")
        lib.impl("places", lambda x, w=w: (x + 1, w.zeros(x.shape, dtype=w.int32)), "CPU")
        lib.impl("places", lambda x, w=w: (w.empty_like(x), w.empty(x.shape, dtype=w.int32, device="meta")), "Meta")
        op = w.ops.meta_kernels.places.default
        assert set(w.library.opcheck(op, (w.ones(3),), test_utils=("test_schema", "test_faketensor")).values()) == {"SUCCESS"}
        with w._subclasses.fake_tensor.FakeTensorMode() as mode:
            assert [t.device.type for t in op(mode.from_tensor(w.ones(3)))] == ["cpu", "cpu"]
        assert [t.device.type for t in op(w.ones(3, device="meta"))] == ["meta", "meta"]

    class Calls(ft.nn.Module):
        def forward(self, x: Any) -> Any:
            return ft.ops.meta_kernels.places(x)[1] + 1

    program = ft.export.export(Calls(), (ft.ones(3),))
    assert {n.meta["val"].device.type for n in program.graph.nodes if isinstance(n.meta.get("val"), ft.Tensor)} == {"cpu"}


def _annotated(torch: Any, text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"Tensor": torch.Tensor, "torch": torch, "Optional": Optional, "Sequence": Sequence}
    exec(text, space)
    return space["f"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", ANNOTATED)
@pytest.mark.parametrize("mutates", [(), ("x",), "unknown", ("z",), "some"], ids=str)
def test_schemas_of_annotations_as_pytorch(mutates: Any, text: str) -> None:
    torch = pytest.importorskip("torch")
    try:
        wanted = torch.library.infer_schema(_annotated(torch, text), mutates_args=mutates, op_name="f")
    except ValueError:
        with pytest.raises(ValueError, match=r"infer_schema|mutates_args"):
            ft.library.infer_schema(_annotated(ft, text), mutates_args=mutates, op_name="f")
    else:
        assert ft.library.infer_schema(_annotated(ft, text), mutates_args=mutates, op_name="f") == wanted


def test_atens_schemas_say_what_is_written_and_viewed() -> None:
    writes = ft.ops.aten.add_.Tensor._schema
    assert writes.name == "aten::add_" and writes.overload_name == "Tensor" and writes.is_mutable and writes.arguments[0].is_write
    view = ft.ops.aten.split.Tensor._schema
    assert view.may_contain_alias(view.returns[0], view.arguments[0]) and not view.is_mutable
    plain = ft.ops.aten.sin.default._schema
    assert str(plain) == "aten::sin(Tensor self) -> Tensor" and not plain.may_contain_alias(plain.returns[0], plain.arguments[0])
    with pytest.raises(TypeError, match="'other' is none of its arguments"):
        plain.bound((1,), {"other": 2})
