"""torch.fx: graphs and code as PyTorch's, and what can be done with them."""

from __future__ import annotations

import copy
import importlib
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau import fx

torch = pytest.importorskip("torch")
import torch.fx as torch_fx  # noqa: E402


def network(m: Any) -> Any:
    class Scale(m.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = m.nn.Parameter(m.ones(3))

        def forward(self, x):  # type: ignore[no-untyped-def]
            return x * self.w

    class Network(m.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = m.nn.Linear(3, 3)
            self.scale = Scale()
            self.register_buffer("b", m.ones(3))
            self.seq = m.nn.Sequential(m.nn.ReLU(), m.nn.Linear(3, 2))

        def forward(self, x, y=None, *, factor=2.0):  # type: ignore[no-untyped-def]
            a = self.lin(x).relu()
            b = m.cat([a, self.scale(x)], dim=-1)
            c = b[:, :3] + self.b
            d = c.view(c.shape[0], -1)
            e = operator.neg(d) * factor
            f = -e // 2
            return {"o": self.seq(d), "p": (e.sum().mul_(2), f), "q": x.size(0), "r": x**2, "s": a.float()}

    return Network()


def gathered(x, *args, **kw):  # type: ignore[no-untyped-def]
    return x.add(args[0]) + kw["z"]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "unpack": lambda x: (lambda a: a[0] + a[1])(x.chunk(2)),
    "gathered": gathered,
    "comparison": lambda x, y: (x > y) & ~(x == 1) | (y <= 2),
    "constants": lambda x: x.to("cpu") * float("inf") - x.sum(dim=(0, 1), keepdim=True),
    "slices": lambda x: x[..., None, 1:, ::2],
    "right": lambda x: 2 / (1 - x) + 3**x % 2,
    "attributes": lambda x: x.T.shape[-1] * x.real,
    "inplace": lambda x: operator.iadd(x, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_code_and_graph_are_pytorchs(name: str) -> None:
    ours, theirs = fx.symbolic_trace(FUNCTIONS[name]), torch_fx.symbolic_trace(FUNCTIONS[name])
    assert ours.code == theirs.code
    assert str(ours.graph) == str(theirs.graph)


FUNCTIONAL = {
    "relu": (), "elu": (), "dropout": (), "sigmoid": (), "normalize": (), "softmax": (-1,), "log_softmax": (-1,), "hardtanh": (), "glu": (),
    "max_pool2d": (2,), "layer_norm": ((3,),), "group_norm": (2,), "pad": ((1, 1),), "unfold": (2,), "pixel_shuffle": (2,), "adaptive_avg_pool2d": (1,),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FUNCTIONAL, "cross_entropy", "mse_loss", "embedding", "batch_norm", "interpolate", "conv2d"])
def test_functions_of_nn_are_recorded_as_pytorch_does(name: str) -> None:
    def program(m: Any) -> Any:
        f = getattr(m.nn.functional, name)
        if name in FUNCTIONAL:
            return lambda x: f(x, *FUNCTIONAL[name])
        return {"batch_norm": lambda x: f(x, x, x), "interpolate": lambda x: f(x, scale_factor=2)}.get(name, lambda x: f(x, x))

    assert fx.symbolic_trace(program(ft)).code == torch_fx.symbolic_trace(program(torch)).code


def test_module() -> None:
    ft.manual_seed(0)
    net = network(ft)
    traced, theirs = fx.symbolic_trace(net), torch_fx.symbolic_trace(network(torch))
    assert traced.code == theirs.code and str(traced.graph) == str(theirs.graph)
    assert list(traced.state_dict()) == list(theirs.state_dict()) and traced.lin is net.lin
    x = ft.randn(2, 3)
    for a, b in zip(ft.utils._pytree.tree_leaves(net(x)), ft.utils._pytree.tree_leaves(traced(x)), strict=True):
        assert (a.tolist() if hasattr(a, "tolist") else a) == (b.tolist() if hasattr(b, "tolist") else b)
    traced.graph.lint()
    traced(x)["o"].sum().backward()
    assert net.lin.weight.grad is not None
    assert [n.op for n in traced.graph.nodes][:3] == ["placeholder"] * 3 and isinstance(traced, ft.nn.Module)


@pytest.mark.parametrize(
    "program, error",
    [
        (lambda x: x if x.sum() > 0 else -x, "symbolically traced variables cannot be used as inputs to control flow"),
        (lambda x: tuple(a for a in x), "Proxy object cannot be iterated"), (lambda x: len(x), "'len' is not supported in symbolic tracing"),
        (lambda x: range(x), "cannot be interpreted as an integer"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced_says_so(program: Any, error: str) -> None:
    for trace in (fx.symbolic_trace, torch_fx.symbolic_trace):
        with pytest.raises((ValueError, RuntimeError, TypeError), match=error):
            trace(program)
    assert ft.relu(ft.ones(1)).item() == 1.0  # all is as it was


def test_math_and_wrapped_functions_and_creation_are_recorded() -> None:
    traced = fx.symbolic_trace(lambda x: ft.zeros(x.shape[0], 2) + math.sqrt(x.size(1)))
    assert [getattr(n.target, "__name__", n.target) for n in traced.graph.nodes if n.op == "call_function"] == ["getattr", "getitem", "zeros", "sqrt", "add"]
    assert traced(ft.ones(3, 4)).tolist() == [[2.0, 2.0]] * 3
    assert math.sqrt(4) == 2.0


def count(x: Any) -> int:
    return len(x)


fx.wrap("count")


def test_wrap() -> None:
    traced = fx.symbolic_trace(lambda x: x * count(x))
    assert "count(x)" in traced.code and traced(ft.ones(3)).tolist() == [3.0] * 3
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("max")


def test_concrete_arguments() -> None:
    traced = fx.symbolic_trace(lambda x, flag: x + 1 if flag else x - 1, concrete_args={"flag": True})
    assert traced(ft.ones(1), True).item() == 2.0
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        traced(ft.ones(1), False)


def test_copies_and_pickles() -> None:
    traced = fx.symbolic_trace(network(ft))
    x = ft.randn(2, 3)
    expected = traced(x)["o"].tolist()
    for other in (copy.deepcopy(traced), copy.copy(traced)):
        assert other(x)["o"].tolist() == expected and other.graph.owning_module is other
    small = fx.symbolic_trace(ft.nn.Sequential(ft.nn.Linear(3, 2), ft.nn.Tanh()))
    again = pickle.loads(pickle.dumps(small))
    assert again.code == small.code and again(x).tolist() == small(x).tolist()


def test_graphs_by_hand() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(ft.add, (x, 1))
    unused = graph.call_method("relu", (y,))
    graph.output(y)
    with pytest.raises(RuntimeError, match="still had 2 users"):
        graph.erase_node(y)
    assert list(unused.all_input_nodes) == [y] and list(y.users) == [unused, graph.output_node()]
    assert graph.eliminate_dead_code() and len(graph.nodes) == 3
    with graph.inserting_before(y):
        z = graph.call_function(operator.mul, (x, 3))
    y.args = (z, 1)
    module = fx.GraphModule(ft.nn.Module(), graph)
    assert module(ft.ones(2)).tolist() == [4.0, 4.0]
    y.replace_all_uses_with(z)
    module.graph.erase_node(y)
    module.recompile()
    assert module(ft.ones(2)).tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match="does not support mutation"):
        z.args[0].graph.call_function(ft.cat, ([x, z],)).args[0].append(x)
    bad = fx.Graph()
    a = bad.placeholder("a")
    b = bad.call_function(ft.exp, (a,))
    a.prepend(b)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        bad.lint()


def test_interpreter_and_transformer() -> None:
    traced = fx.symbolic_trace(lambda x: ft.sigmoid(ft.neg(x)) + 1)

    class Swap(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(ft.tanh if target is ft.sigmoid else target, args, kwargs)

    x = ft.randn(4)
    assert fx.Interpreter(traced).run(x).tolist() == traced(x).tolist()
    assert Swap(traced).transform()(x).tolist() == (ft.tanh(-x) + 1).tolist()

    class Counting(fx.Interpreter):
        count = 0

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            self.count += 1
            return super().call_function(target, args, kwargs)

    counting = Counting(traced)
    counting.run(x)
    assert counting.count == 3
    with pytest.raises(RuntimeError) as error:
        fx.Interpreter(fx.symbolic_trace(lambda a: a.view(5))).run(x)
    assert any("While executing %view" in note for note in error.value.__notes__)


def test_patterns() -> None:
    def patterns(m: Any) -> Any:
        return lambda x, y: m.relu(x + y), lambda x, y: m.sigmoid(x * y)

    def program(m: Any) -> Any:
        return lambda a, b: m.relu(a + b) - m.relu(b + a)

    found = []
    for m, space in ((ft, fx), (torch, torch_fx)):
        traced = space.symbolic_trace(program(m))
        matches = space.replace_pattern(traced, *patterns(m))
        found.append((len(matches), traced.code))
    assert found[0] == found[1]
    # a value on the way that somebody else needs is no match
    traced = fx.symbolic_trace(lambda a, b: (ft.relu(a + b), a + b * 2 - (a + b)))
    assert len(fx.replace_pattern(traced, lambda x, y: ft.relu(x + y), lambda x, y: ft.exp(x - y))) == 1


def test_folder(tmp_path: Any) -> None:
    traced = fx.symbolic_trace(network(ft))
    traced.to_folder(tmp_path / "made", "Made")
    assert "class Made(torch.nn.Module)" in (tmp_path / "made" / "module.py").read_text()


def test_networks_of_layers_trace() -> None:
    nn = ft.nn
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    x = ft.randn(2, 1, 8, 8)
    assert fx.symbolic_trace(net)(x).tolist() == net(x).tolist()


def test_shapes() -> None:
    from flambeau.fx.passes.shape_prop import ShapeProp

    traced = fx.symbolic_trace(lambda x: (x @ x.T).sum(0))
    assert ShapeProp(traced).propagate(ft.ones(2, 3)).tolist() == [6.0, 6.0]
    shapes = {n.name: tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes if n.op != "output"}
    assert shapes == {"x": (2, 3), "getattr_1": (3, 2), "matmul": (2, 2), "sum_1": (2,)}
    seen = []
    fx.symbolic_trace(lambda x: (seen.append(fx._symbolic_trace.is_fx_tracing()), x)[1])
    assert seen == [True] and not fx._symbolic_trace.is_fx_tracing()


def test_named_tuples_and_modules_that_change_themselves() -> None:
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    traced = fx.symbolic_trace(lambda x: Pair(x, x + 1))
    assert [n.op for n in traced.graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
    result = traced(ft.ones(1))
    assert type(result) is Pair and result.b.item() == 2.0


def test_inner_names_that_packages_use() -> None:
    """Attributes at dotted names, and forward from a source, as torch.fx.graph_module has them."""
    inner, theirs = importlib.import_module("flambeau.fx.graph_module"), importlib.import_module("torch.fx.graph_module")
    for m, module in ((ft, inner), (torch, theirs)):
        root, to = network(m), m.nn.Module()
        module._copy_attr(root, to, "seq.1.weight")
        module._copy_attr(root, to, "b")
        module._copy_attr(root, to, "scale")
        module._copy_attr(root, to, "scale.w")  # its parent is there already
        assert module._get_attr(to, "seq.1.weight") is root.seq[1].weight and dict(to.named_buffers()).keys() == {"b"} and to.scale is root.scale
        module._assign_attr(m.ones(2), to, "x.y")
        assert module is theirs or (module._has_attr(to, "x.y") and not module._has_attr(to, "x.z"))  # PyTorch's answers for one name only
        assert isinstance(to.get_buffer("x.y"), m.Tensor)
        module._del_attr(to, "x.y")
        assert not hasattr(to.x, "y")
        with pytest.raises(AssertionError, match="'nothing' not found"):
            module._get_attr(to, "nothing.y")
        assert module._forward_from_src("def forward(self, x):\n    return x + k", {"k": 2})(None, 1) == 3
        assert module._USER_PRESERVED_ATTRIBUTES_KEY == "_user_preserved_attributes"
