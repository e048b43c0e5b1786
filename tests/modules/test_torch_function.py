"""`__torch_function__`: subclasses, objects that are no tensors, modes; and that nobody else pays for them."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
import flambeau.nn.functional as F
from flambeau import overrides
from flambeau._C import DisableTorchFunctionSubclass
from flambeau.ops import instrument
from tests import processes

torch = pytest.importorskip("torch")


def logging_class(m: Any, log: list[Any]) -> Any:
    class Logged(m.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append((getattr(func, "__name__", "?"), tuple(t.__name__ for t in types if t.__name__ != "Tensor")))
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logged


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x + y": lambda m, x, y: x + y, "y * x": lambda m, x, y: y * x, "1 - x": lambda m, x, y: 1 - x, "x ** 2": lambda m, x, y: x**2,
    "x[0]": lambda m, x, y: x[0], "x == y": lambda m, x, y: x == y, "-x": lambda m, x, y: -x, "x @ y": lambda m, x, y: x @ y,
    "mean": lambda m, x, y: m.mean(x), "x.sum(0)": lambda m, x, y: x.sum(0), "cat": lambda m, x, y: m.cat([y, x]), "stack": lambda m, x, y: m.stack((x, y)),
    "relu": lambda m, x, y: m.nn.functional.relu(x), "linear": lambda m, x, y: m.nn.functional.linear(y, x), "shape": lambda m, x, y: x.shape,
    "T": lambda m, x, y: x.T, "max": lambda m, x, y: m.max(x, 0), "split": lambda m, x, y: x.split(1), "std": lambda m, x, y: m.std(x),
    "clone": lambda m, x, y: x.clone(), "view": lambda m, x, y: x.view(4), "zeros_like": lambda m, x, y: m.zeros_like(x), "len": lambda m, x, y: len(x),
    "item": lambda m, x, y: x.sum().item(), "einsum": lambda m, x, y: m.einsum("ij,jk->ik", x, y), "softmax": lambda m, x, y: x.softmax(-1),
    "mse_loss": lambda m, x, y: m.nn.functional.mse_loss(x, y), "where": lambda m, x, y: m.where(y > 0, x, y), "to": lambda m, x, y: x.to(m.float64),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_subclass_is_told_what_pytorch_tells_it(name: str) -> None:
    seen = []
    for m in (ft, torch):
        log: list[Any] = []
        x = m.tensor([[1.0, 2.0], [3.0, 4.0]]).as_subclass(logging_class(m, log))
        result = CALLS[name](m, x, m.ones(2, 2))
        kind = type(result).__name__
        with (DisableTorchFunctionSubclass if m is ft else torch._C.DisableTorchFunctionSubclass)():
            values = [r.tolist() if hasattr(r, "tolist") else r for r in (result if isinstance(result, tuple) else (result,))]
        seen.append((log[0] if name not in ("x ** 2", "1 - x") else log[0][1], kind, values))
    names = {"_reflected": "", "__rsub__": ""}
    assert seen[0][1:] == seen[1][1:], seen
    ours, theirs = seen[0][0], seen[1][0]
    assert ours == theirs or names.get(theirs[0]) == "", seen


class Plain(ft.Tensor):
    pass


def test_subclass_keeps_its_class_and_gradients() -> None:
    x = ft.randn(3, 3, requires_grad=True)
    y = x.as_subclass(Plain)
    assert type(y) is Plain and not y.is_leaf
    z = (y * 2).tanh()
    assert type(z) is Plain and type(z.sum()) is Plain
    z.sum().backward()
    expected = (2 / (2 * x).cosh() ** 2).detach()
    assert ft.allclose(x.grad, expected, atol=1e-6)
    leaf = Plain([1.0, 2.0]).requires_grad_()
    (leaf * leaf).sum().backward()
    assert leaf.grad.tolist() == [2.0, 4.0]
    leaf.add_(1) if not leaf.requires_grad else None
    assert type(copy.deepcopy(leaf)) is Plain and repr(Plain([1.0])) == "Plain([1.])"
    w = Plain([1.0, 2.0])
    assert w.add_(1) is w and w.tolist() == [2.0, 3.0] and type(w[0]) is Plain


def test_attributes_follow_through_operations() -> None:
    class Named(ft.Tensor):
        label: str

        @staticmethod
        def __new__(cls: Any, data: Any, label: str) -> Any:
            return super().__new__(cls, data)

        def __init__(self, data: Any, label: str) -> None:
            self.label = label

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(result, Named):
                result.label = next(a.label for a in args if isinstance(a, Named))
            return result

    a = Named([1.0, 2.0], "a")
    assert (a * 2).label == "a" and a.sum().label == "a" and ft.exp(a).label == "a"


def test_parameters() -> None:
    class Own(ft.nn.Parameter):
        pass

    own = Own(ft.ones(2))
    assert type(own * 2) is ft.Tensor and not instrument._entries.get(F.linear)
    p = ft.nn.Parameter(ft.ones(2, 3).as_subclass(Plain))
    assert isinstance(p, ft.nn.Parameter) and isinstance(p, Plain) and p.requires_grad and p.is_leaf
    layer = ft.nn.Linear(3, 2)
    layer.weight = p
    assert dict(layer.named_parameters())["weight"] is p
    out = layer(ft.ones(1, 3))
    assert type(out) is Plain
    out.sum().backward()
    ft.optim.SGD(layer.parameters(), 0.5).step()
    assert p.tolist() == [[0.5] * 3] * 2 and type(p * 1) is Plain


def test_objects_that_are_no_tensors() -> None:
    calls: list[Any] = []

    class Duck:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append((func, args, kwargs))
            return NotImplemented if func is ft.exp else len(calls)

    duck = Duck()
    assert ft.add(duck, 1) == 1 and calls[-1][0] is ft.add and calls[-1][1] == (duck, 1)
    assert ft.ones(2) + duck == 2 and ft.cat([duck, ft.ones(1)]) == 3 and F.relu(duck) == 4
    assert ft.std(duck) == 5 and calls[-1][0] is ft.std
    with pytest.raises(TypeError, match="no implementation found for 'torch"):
        ft.exp(duck)

    class Reflecting:
        def __radd__(self, other: Any) -> str:
            return "mine"

    assert ft.ones(2) + Reflecting() == "mine"
    with pytest.raises(TypeError, match="unsupported operand"):
        ft.ones(2) + "text"
    with pytest.raises(TypeError, match="must be Tensor or Number"):
        ft.add(ft.ones(2), "text")


def test_names_do_not_depend_on_what_was_looked_up() -> None:
    program = (
        "import sys, flambeau as ft; from flambeau import overrides\n"
        "if sys.argv[1:]: ft.softmax\n"
        "overrides.resolve_name(ft.relu)  # reads the names\n"
        "print([overrides.resolve_name(f) for f in (ft.softmax, ft.nn.functional.softmax)])"
    )
    for arguments in ([], ["first"]):
        done = processes.python("-c", program, *arguments, check=True)
        assert done.stdout.strip() == "['torch.softmax', 'torch.nn.functional.softmax']"


def test_modes_see_every_call_and_leave_nothing_behind() -> None:
    class Counting(overrides.TorchFunctionMode):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(overrides.resolve_name(func) or func.__name__)
            return func(*args, **(kwargs or {}))

    before = (F.relu.__code__, ft.zeros.__code__, ft.Tensor.tolist.__code__)
    x = ft.ones(3)
    F.relu(x)
    ft.zeros(3)  # a function's code is written at its first call
    before = (F.relu.__code__, ft.zeros.__code__, ft.Tensor.tolist.__code__)
    with Counting() as outer, Counting() as inner:
        y = F.relu(x) + ft.zeros(3)
        assert ft.softmax(y, 0).sum().item() == pytest.approx(1.0)
    assert inner.seen == outer.seen == ["torch.nn.functional.relu", "torch.zeros", "torch.add", "torch.softmax", "torch.sum", "torch.Tensor.item"]
    assert (F.relu.__code__, ft.zeros.__code__, ft.Tensor.tolist.__code__) == before
    assert y.tolist() == [1.0, 1.0, 1.0]


def test_public_functions_of_overrides() -> None:
    assert overrides.resolve_name(F.gelu) == "torch.nn.functional.gelu" and overrides.resolve_name(print) is None
    functions = overrides.get_overridable_functions()
    assert F.conv2d in functions[F] and ft.add in functions[ft] and len(functions[ft.Tensor]) > 400
    assert ft.zeros in overrides.get_ignored_functions() and ft.zeros not in functions[ft]
    assert overrides.get_testing_overrides()[ft.sum](1, dim=2) == -1
    assert overrides.is_tensor_like(ft.ones(1)) and not overrides.is_tensor_like(3)
    assert overrides.is_tensor_method_or_property(ft.Tensor.tolist) and not overrides.is_tensor_method_or_property(F.gelu)

    @overrides.wrap_torch_function(lambda a, b: (a, b))
    def mine(a: Any, b: Any) -> str:
        return "plain"

    class Duck:
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return ("asked", func is mine)

    assert mine(1, 2) == "plain" and mine(1, Duck()) == ("asked", True)
    assert overrides.has_torch_function((Duck(),)) and not overrides.has_torch_function((ft.ones(1), ft.nn.Parameter(ft.ones(1))))
    with overrides._get_current_function_mode() or DisableTorchFunctionSubclass():
        assert not overrides.has_torch_function((Plain([1.0]),))


def test_plain_calls_have_no_stub() -> None:
    """A fresh process: no function asks before somebody wants to be asked, and an operation never does."""

    code = (
        "import flambeau as t, flambeau.nn.functional as F\n"
        "from flambeau.ops import instrument\n"
        "assert not instrument._entries\n"
        "class T(t.Tensor):\n    pass\n"
        "assert instrument._entries and not any(hasattr(f, 'operation') for f in instrument._entries)\n"
    )
    processes.run([sys.executable, "-c", code], check=True)


def test_what_was_plain_when_it_was_called_is_plain_when_it_is_done_again():
    """A call that ran at once is recorded later, when a recorded call takes its result: its argument's class is not asked then either."""

    class Asked(ft.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"asked for {func.__name__}")

    def alias(t, cls):
        with DisableTorchFunctionSubclass():
            return t.as_subclass(cls)

    for _ in range(40):
        alias(alias(ft.randn(3), Asked), ft.Tensor).tolist()
    for _ in range(3):
        plain = alias(alias(ft.arange(3.0), Asked), ft.Tensor)
        assert (plain + 1).tolist() == [1.0, 2.0, 3.0]


class PassesOn:
    """No tensor: it answers for itself, and passes every look-up on to the tensor that it wraps (kornia's vectors and scalars do)."""

    def __init__(self, data):
        self._data = data

    def __getattr__(self, name):
        if name == "_data" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._data, name)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = func(*[a._data if isinstance(a, cls) else a for a in args], **(kwargs or {}))
        return cls(made) if isinstance(made, ft.Tensor) else made


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda t, w: t * w, lambda t, w: t < w, lambda t, w: t @ w, lambda t, w: 2.0 * t - w, lambda t, w: t ** w, lambda t, w: ft.sin(w),
        lambda t, w: ft.maximum(t, w), lambda t, w: ft.addcmul(t, t, w), lambda t, w: ft.where(t > 1, t, w), lambda t, w: t.clone().add_(w),
        lambda t, w: ft.nn.functional.relu(w), lambda t, w: ft.einsum("i,i->", t, w), lambda t, w: t.clamp(min=w),
    ],
)  # fmt: skip
def test_wrappers_that_look_like_the_tensor_they_wrap_are_asked(call, pending):
    for _ in range(3):  # also where the call with the tensor itself is known
        t, inner = ft.arange(3.0), ft.full((3,), 2.0)
        if pending:
            t, inner = t + 1, inner * 1.5
        plain = call(t, inner)
        made = call(t, PassesOn(inner))
        assert type(plain) is ft.Tensor and type(made) is PassesOn and made._data.tolist() == plain.tolist()


class _Kept(ft.Tensor):
    """A subclass whose constructor asks for more than the data."""

    def __init__(self, data: Any, *, kind: str) -> None:
        self.kind = kind

    @staticmethod
    def __new__(cls, data: Any, *, kind: str) -> Any:
        return ft.Tensor.as_subclass(data, cls)


def test_a_parameter_of_a_subclass_is_not_constructed_again() -> None:
    p = ft.nn.Parameter(_Kept(ft.ones(2), kind="a"))
    assert isinstance(p, _Kept) and isinstance(p, ft.nn.Parameter) and p.requires_grad and p._is_param
    module = ft.nn.ParameterList([p]).to("meta")
    assert module[0].device.type == "meta" and isinstance(module[0], _Kept)
    assert isinstance(type(p), ft.nn.parameter._ParameterMeta)


def test_constructors_of_subclasses_of_parameters_and_buffers_take_what_they_ask_for() -> None:
    """As PyTorch's, Parameter and Buffer have no `__init__`, which would refuse what a subclass's `__new__` takes (geoopt's parameters on manifolds)."""

    class OnManifold(ft.nn.Parameter):
        manifold: str

        def __new__(cls, data: Any, manifold: str = "", requires_grad: bool = True) -> Any:
            made = ft.Tensor._make_subclass(cls, data, requires_grad)
            made.manifold = manifold
            return made

    class Tagged(ft.nn.Buffer):
        tag: int

        def __new__(cls, data: Any, tag: int, *, persistent: bool = True) -> Any:
            made: Any = super().__new__(cls, data, persistent=persistent)
            made.tag = tag
            return made

    p = OnManifold(ft.ones(2), manifold="sphere")
    b = Tagged(ft.ones(2), 7, persistent=False)
    assert p.manifold == "sphere" and p.requires_grad and b.tag == 7 and not b.persistent
    for wrong in (lambda: ft.nn.Parameter(ft.ones(1), True, 3), lambda: ft.nn.Parameter(ft.ones(1), bad=3)):  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            wrong()


class _Marked(ft.Tensor):
    """A subclass whose parameters are saved."""


def test_a_parameter_of_a_subclass_is_pickled_as_the_subclass() -> None:
    p = ft.nn.Parameter(ft.arange(3.0).as_subclass(_Marked))
    for loaded in (pickle.loads(pickle.dumps(p)), _saved(p)):
        assert isinstance(loaded, _Marked) and isinstance(loaded, ft.nn.Parameter) and type(loaded) is type(p)
        assert loaded.tolist() == [0.0, 1.0, 2.0] and loaded.requires_grad


def _saved(p: Any) -> Any:
    file = io.BytesIO()
    ft.save(p, file)
    file.seek(0)
    return ft.load(file, weights_only=False)


def test_constants_of_structures() -> None:
    @dataclasses.dataclass(frozen=True)
    class Config:
        norm: str

    for m in (ft, torch):
        pytree = m.utils._pytree
        pytree.register_constant(Config)
        leaves, spec = pytree.tree_flatten([m.ones(1), Config("l2")])
        assert len(leaves) == 1 and spec == pytree.tree_structure([m.ones(1), Config("l2")]) != pytree.tree_structure([m.ones(1), Config("l1")])
        assert pytree.tree_map(lambda x: x, [1, Config("l2")]) == [1, Config("l2")] and pytree.is_constant_class(Config)
        with pytest.raises(TypeError, match="__eq__"):
            pytree.register_constant(type("Plain", (), {}))
