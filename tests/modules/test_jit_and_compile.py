"""torch.jit, torch.compile, torch.compiler: what programs write around their functions and modules."""

from __future__ import annotations

import copy
import io
import zipfile
from typing import Any

import pytest

import flambeau as ft
from flambeau import nn

torch = pytest.importorskip("torch")


class Net(nn.Module):
    """Layers of many kinds, a branch on the mode, a parameter and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.rnn = nn.LSTM(8, 5, batch_first=True)
        self.head = nn.Sequential(nn.Linear(5, 3), nn.GELU())
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.register_buffer("shift", ft.arange(3.0))
        self.scale = nn.Parameter(ft.ones(3))

    def forward(self, x: Any) -> Any:
        x = ft.relu(self.bn(self.conv(x)))
        y, _ = self.rnn(x.view(x.shape[0], -1, 8))
        z = self.encoder(x.flatten(2).transpose(1, 2))
        return self.head(y[:, -1]) * self.scale + self.shift, z.mean(dim=(1, 2))


def double(x: Any) -> Any:
    return x * 2


def test_script_and_trace_give_the_module_itself() -> None:
    ft.manual_seed(0)
    net, x = Net(), ft.randn(2, 1, 8, 8)
    net.eval()
    scripted, traced = ft.jit.script(net), ft.jit.trace(net, x)
    for made in (scripted, traced, ft.jit.freeze(scripted), ft.jit.optimize_for_inference(scripted)):
        assert isinstance(made, ft.jit.ScriptModule) and isinstance(made, nn.Module)
        assert [t.tolist() for t in made(x)] == [t.tolist() for t in net(x)]
    assert list(scripted.state_dict()) == list(net.state_dict()) and scripted.original_name == "Net"
    assert repr(scripted).startswith("RecursiveScriptModule(\n  original_name=Net") and repr(traced).startswith("Net(\n  original_name=Net")
    assert scripted.code.startswith("def forward(self, x") and "call_module[target=conv]" in str(scripted.graph)
    scripted.train()
    assert net.training and net.bn.training
    assert ft.jit.script(scripted) is scripted and isinstance(copy.deepcopy(scripted), ft.jit.ScriptModule)
    with pytest.raises(RuntimeError, match="eval mode"):
        ft.jit.freeze(scripted)
    scripted.head[0].weight.data.zero_()
    assert net.head[0].weight.abs().sum().item() == 0.0


def test_functions_and_decorators() -> None:
    scripted = ft.jit.script(double)
    assert scripted(ft.ones(1)).item() == 2.0 and scripted.name == "double" and scripted.code.startswith("def double(x")
    assert "operator.mul" in str(scripted.graph) and isinstance(scripted, ft.jit.ScriptFunction)

    class Decorated(nn.Module):
        limit: ft.jit.Final[int] = 3

        @ft.jit.export
        def other(self, x: Any) -> Any:
            return x + self.limit

        @ft.jit.ignore
        def ignored(self, x: Any) -> Any:
            return x

        @ft.jit.ignore(drop=True)
        def dropped(self, x: Any) -> Any:
            return x

        @ft.jit.unused
        def unused(self, x: Any) -> Any:
            return x

        def forward(self, x: Any) -> Any:
            kept: list[int] = ft.jit.annotate(list[int], [1])
            return self.other(x) if not ft.jit.is_scripting() else kept

    assert ft.jit.script(Decorated())(ft.ones(1)).item() == 4.0 and ft.jit.script(Decorated()).other(ft.ones(1)).item() == 4.0

    @ft.jit.interface
    class Interface:
        pass

    class Scripted(ft.jit.ScriptModule):
        @ft.jit.script_method
        def forward(self, x: Any) -> Any:
            return x - 1

    assert Scripted()(ft.ones(1)).item() == 0.0
    assert ft.jit.wait(ft.jit.fork(double, ft.ones(1))).item() == 2.0
    with pytest.raises(ZeroDivisionError):
        ft.jit.wait(ft.jit.fork(lambda: 1 / 0))
    assert ft.jit.isinstance([1], list[int]) and not ft.jit.isinstance([1.0], list[int]) and ft.jit.isinstance(None, int | None)
    assert ft.jit.isinstance({"a": ft.ones(1)}, dict[str, ft.Tensor]) and ft.jit.isinstance((1, "a"), tuple[int, str])
    with pytest.raises(TypeError, match="is a built-in class"):
        ft.jit.script(5)


def test_trace_checks_its_example() -> None:
    flags = []

    def watched(x: Any) -> Any:
        flags.append((ft.jit.is_tracing(), ft.is_grad_enabled()))
        return x + ft.rand(1)

    ft.manual_seed(1)
    ft.jit.trace(watched, ft.ones(1))
    after = ft.rand(1).item()
    ft.manual_seed(1)
    assert flags == [(True, False)] and after == ft.rand(1).item() and not ft.jit.is_tracing()
    for m in (ft, torch):
        with pytest.raises(RuntimeError, match="Encountering a dict at the output of the tracer"):
            m.jit.trace(lambda x: {"a": x}, m.ones(1))
        with pytest.raises(RuntimeError, match="Tracer cannot infer type of"):
            m.jit.trace(lambda x: print, m.ones(1))
    assert ft.jit.trace(lambda x: {"a": x}, ft.ones(1), strict=False)(ft.ones(1))["a"].item() == 1.0


def test_programs_in_files(tmp_path: Any) -> None:
    ft.manual_seed(0)
    net, x = Net(), ft.randn(2, 1, 8, 8)
    net(x)
    net.eval()
    path = tmp_path / "net.pt"
    ft.jit.save(ft.jit.script(net), path, _extra_files={"note": "text"})
    extra = {"note": ""}
    loaded = ft.jit.load(path, _extra_files=extra)
    assert extra == {"note": "text"} and sorted(loaded.state_dict()) == sorted(net.state_dict()) and not loaded.training
    assert [t.tolist() for t in loaded(x)] == [t.tolist() for t in net(x)] and loaded.original_name
    loaded(x)[0].sum().backward()
    assert loaded.scale.grad is not None and "self.conv(x)" in loaded.code
    stream = io.BytesIO()
    ft.jit.trace(double, ft.ones(1)).save(stream)
    stream.seek(0)
    assert ft.jit.load(stream)(ft.ones(2)).tolist() == [2.0, 2.0]
    again = io.BytesIO()
    ft.jit.save(loaded, again)
    again.seek(0)
    assert [t.tolist() for t in ft.jit.load(again)(x)] == [t.tolist() for t in net(x)]


def _dropped_rows(x: Any, p: float, training: bool) -> Any:
    if not training:
        return x
    noise = ft.empty([x.shape[0]] + [1] * (x.ndim - 1), dtype=x.dtype).bernoulli_(1 - p)
    return x * noise


ft.fx.wrap("_dropped_rows")


class _WithWrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return _dropped_rows(self.linear(x), 0.5, self.training) + 2


@pytest.mark.parametrize("training", [False, True])
def test_a_file_opens_functions_that_fx_keeps_whole(tmp_path: Any, training: bool) -> None:
    model = _WithWrapped().train(training)
    kept = [n.target for n in ft.fx.symbolic_trace(model).graph.nodes if n.op == "call_function"]
    assert _dropped_rows in kept
    ft.jit.save(ft.jit.script(model), tmp_path / "wrapped.pt")
    loaded, x = ft.jit.load(tmp_path / "wrapped.pt"), ft.ones(64, 3)
    if training:
        zero = (loaded(x) == 2).all(1).sum().item()
        assert 10 < zero < 54
    else:
        assert loaded(x).tolist() == model(x).tolist()


def test_what_a_file_cannot_hold(tmp_path: Any) -> None:
    with pytest.raises(RuntimeError, match="could not be written as a graph"):
        ft.jit.save(ft.jit.script(lambda x: x if x.sum() > 0 else -x), tmp_path / "a.pt")
    with pytest.raises(RuntimeError, match="expected a ScriptModule"):
        ft.jit.save(nn.Linear(1, 1), tmp_path / "a.pt")
    ft.save({"a": ft.ones(1)}, tmp_path / "plain.pt")
    with pytest.raises(RuntimeError, match="was not written by"):
        ft.jit.load(tmp_path / "plain.pt")


def test_a_file_cannot_call_what_it_likes(tmp_path: Any) -> None:
    path = tmp_path / "a.pt"
    ft.jit.save(ft.jit.script(lambda x: x.sum() + 1), path)
    content = ft.load(path)
    assert zipfile.is_zipfile(path)
    for before, after, error in (
        ("operator.add", "os.system", "which a saved program may not call"), ('"sum"', '"__reduce__"', "which a saved program may not"),
        ("operator.add", "builtins.eval", "which a saved program may not call"),
    ):  # fmt: skip
        ft.save({**content, "graph": content["graph"].replace(before, after)}, path)
        with pytest.raises(RuntimeError, match=error):
            ft.jit.load(path)


def test_compile() -> None:
    layer = nn.Linear(2, 2)
    compiled = ft.compile(layer, mode="reduce-overhead", fullgraph=True, dynamic=False)
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]  # PyTorch's keys and repr (2.13)
    assert repr(compiled) == "OptimizedModule(\n  (_orig_mod): Linear(in_features=2, out_features=2, bias=True)\n)"
    assert compiled._orig_mod is layer and compiled.weight is layer.weight and compiled.in_features == 2
    x = ft.ones(1, 2)
    assert compiled(x).tolist() == layer(x).tolist() and list(compiled.parameters()) == list(layer.parameters())
    compiled.eval()
    assert not layer.training
    compiled.extra = 3
    assert layer.extra == 3
    compiled.load_state_dict(compiled.state_dict())
    assert ft.compile(double) is double and ft.compile(mode="max-autotune")(double) is double and ft.compile(layer, disable=True) is layer

    @ft.compile(backend="eager", options={"a": 1})
    def decorated(x: Any) -> Any:
        return x + 1

    assert decorated(x).tolist() == [[2.0, 2.0]]
    with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
        ft.compile(double, mode="default", options={"a": 1})
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        ft.compile(double, mode="fast")
    with pytest.raises(RuntimeError, match="Invalid backend: 'mine'"):
        ft.compile(double, backend="mine")


def test_backends_get_a_graph() -> None:
    seen: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        seen.append((str(gm.graph), [tuple(t.shape) for t in example_inputs]))
        return gm.forward

    compiled = ft.compile(double, backend=backend)
    assert compiled(ft.ones(2)).tolist() == compiled(ft.ones(2)).tolist() == [2.0, 2.0]
    assert len(seen) == 1 and "operator.mul" in seen[0][0] and seen[0][1] == [(2,)]
    ft._dynamo.register_backend(backend, name="mine too")
    assert "mine too" in ft.compiler.list_backends() and ft.compile(nn.Linear(2, 2), backend="mine too")(ft.ones(1, 2)).shape == (1, 2)


def test_compiler_and_dynamo() -> None:
    assert ft.compiler.disable(double) is double and ft.compiler.disable(recursive=False)(double) is double
    assert not ft.compiler.is_compiling() and not ft.compiler.is_exporting() and not ft.compiler.is_dynamo_compiling()
    ft.compiler.reset(), ft.compiler.cudagraph_mark_step_begin(), ft._dynamo.reset(), ft._dynamo.graph_break()
    with ft.compiler.set_stance("force_eager"):
        pass
    ft._dynamo.config.cache_size_limit = 64
    with ft._dynamo.config.patch(suppress_errors=True):
        assert ft._dynamo.config.suppress_errors
    assert not ft._dynamo.config.suppress_errors and set(torch.compiler.__all__) == {*ft.compiling.__all__, "config"}
    with pytest.raises(RuntimeError, match="stance"):
        ft.compiler.set_stance("lazy")
    assert ft.export.export(nn.Linear(1, 1), (ft.ones(1, 1),)).run_decompositions().graph_module is not None


def test_methods_that_a_scripted_module_has_not() -> None:
    """What neither forward nor an exported method reaches is left out, as TorchScript compiles nothing else; marked methods stay."""
    torch = pytest.importorskip("torch")
    found = []
    for m in (ft, torch):
        layer = m.nn.Linear(2, 2)

        class Base(m.nn.Module):  # type: ignore[name-defined,misc]
            def training_step(self, x):  # type: ignore[no-untyped-def]
                return self.forward(x)

            def helper(self, x):  # type: ignore[no-untyped-def]
                return self.deeper(x)

            def deeper(self, x):  # type: ignore[no-untyped-def]
                return x + 1

        class Net(Base):
            def __init__(self, layer: Any) -> None:
                super().__init__()
                self.linear = layer

            def forward(self, x):  # type: ignore[no-untyped-def]
                return self.helper(self.linear(x))

            @m.jit.export
            def exported(self, x):  # type: ignore[no-untyped-def]
                return self.behind(x)

            def behind(self, x):  # type: ignore[no-untyped-def]
                return x * 2

            @m.jit.ignore
            def ignored(self, x):  # type: ignore[no-untyped-def]
                return x

            @m.jit.unused
            def unused(self, x):  # type: ignore[no-untyped-def]
                return x

        net = Net(layer)
        scripted = m.jit.script(net)
        names = "training_step helper deeper exported behind ignored unused forward linear state_dict".split()
        found.append([[name for name in names if hasattr(scripted, name)], scripted.exported(m.ones(2)).tolist(), tuple(scripted(m.ones(1, 2)).shape)])
        assert hasattr(net, "training_step")
        with pytest.raises(AttributeError, match="training_step"):
            scripted.training_step(m.ones(1, 2))
    assert found[0] == found[1] and "training_step" not in found[0][0]
