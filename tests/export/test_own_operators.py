"""Operators of torch.library in recorded programs: one call each in torch.export, torch.fx and a compile backend, as in PyTorch, and in `.pt2` files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

import flambeau

CALLS: list[str] = []


def _operators(package: Any) -> None:
    """The same operators in either package; their functions leave a mark in CALLS and cannot be looked into."""

    def sine(x: Any, k: float = 2.0) -> Any:
        CALLS.append("sine")
        return package.from_numpy(np.sin(x.detach().numpy() * k))

    def add_into(x: Any, out: Any) -> None:
        CALLS.append("add_into")
        out.detach().numpy()[...] += x.detach().numpy()

    def halves(x: Any) -> Any:
        CALLS.append("halves")
        a = x.detach().numpy()
        return package.from_numpy(a[:, : a.shape[1] // 2].copy()), package.from_numpy(a[:, a.shape[1] // 2 :].copy())

    def total(xs: Any, *, by: float = 1.0) -> Any:
        CALLS.append("total")
        return package.from_numpy(sum(x.detach().numpy() for x in xs) * np.float32(by))

    def half_shapes(x: Any) -> Any:
        n = x.shape[1] // 2
        return x.new_empty(x.shape[0], n), x.new_empty(x.shape[0], x.shape[1] - n)

    make = package.library.custom_op
    one = make("own_cases::sine", sine, mutates_args=(), schema="(Tensor x, float k=2.0) -> Tensor")
    one.register_fake(lambda x, k=2.0: package.empty_like(x))

    def set_up(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    one.register_autograd(lambda ctx, g: (g * ctx.k * (ctx.saved_tensors[0] * ctx.k).cos(), None), setup_context=set_up)
    make("own_cases::add_into", add_into, mutates_args=("out",), schema="(Tensor x, Tensor(a!) out) -> ()")
    make("own_cases::halves", halves, mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor)").register_fake(half_shapes)
    make("own_cases::total", total, mutates_args=(), schema="(Tensor[] xs, *, float by=1.0) -> Tensor").register_fake(
        lambda xs, *, by=1.0: package.empty_like(xs[0])
    )
    library = package.library.Library("own_cases", "FRAGMENT")
    library.define("cubed(Tensor x) -> Tensor")
    library.impl("cubed", lambda x: package.from_numpy(x.detach().numpy() ** 3), "CPU")
    library.impl("cubed", package.empty_like, "Meta")
    package.own_cases_library = library  # PyTorch forgets an operator with its library


for _package in (flambeau, torch):
    _operators(_package)


def _model(package: Any) -> Any:
    ops = package.ops.own_cases

    class Model(package.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.w = package.nn.Parameter(package.tensor([1.0, 2.0, 3.0, 4.0]))

        def forward(self, x: Any) -> Any:
            y = ops.sine.default(x * self.w)
            z = ops.sine.default(y, 3.0)
            out = package.zeros_like(z)
            ops.add_into.default(z, out)
            left, right = ops.halves.default(out + y)
            return ops.total.default([left, right, ops.cubed.default(left)], by=2.0)

    return Model()


def _exported(package: Any, array: Any) -> Any:
    return package.export.export(_model(package), (package.tensor(array),), dynamic_shapes={"x": {0: package.export.Dim("batch", min=2, max=64)}})


def _calls(graph: Any) -> list[str]:
    return [f"{n.target}({', '.join(map(str, n.args))}; {n.kwargs})" for n in graph.nodes if n.op == "call_function" and "own_cases" in str(n.target)]


ARRAY = np.random.default_rng(0).standard_normal((3, 4)).astype("f")
OTHER = np.random.default_rng(1).standard_normal((7, 4)).astype("f")


def test_an_export_has_one_call_of_each_and_runs_no_function() -> None:
    CALLS.clear()
    ours = _exported(flambeau, ARRAY)
    assert CALLS == []
    theirs = _exported(torch, ARRAY)
    assert _calls(ours.graph) == _calls(theirs.graph)
    assert len(_calls(ours.graph)) == 6
    value = next(n for n in ours.graph.nodes if n.target is flambeau.ops.own_cases.halves.default).meta["val"]
    assert [str(v.shape[0]) for v in value] == [str(value[0].shape[0])] * 2 and value[0].shape[1] == 2
    for array in (ARRAY, OTHER):
        expected = _model(torch)(torch.tensor(array)).detach().numpy()
        np.testing.assert_allclose(ours.module()(flambeau.tensor(array)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_files_go_both_ways() -> None:
    ours, theirs = io.BytesIO(), io.BytesIO()
    flambeau.export.save(_exported(flambeau, ARRAY), ours)
    torch.export.save(_exported(torch, ARRAY), theirs)
    expected = _model(torch)(torch.tensor(OTHER)).detach().numpy()
    for file in (ours, theirs):
        for package in (flambeau, torch):
            file.seek(0)
            found = package.export.load(file).module()(package.tensor(OTHER))
            np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_file_with_an_operator_that_is_not_registered_is_told_at_its_load() -> None:
    flambeau.library.custom_op("own_gone::f", lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor").register_fake(flambeau.empty_like)

    class Model(flambeau.nn.Module):
        def forward(self, x: Any) -> Any:
            return flambeau.ops.own_gone.f(x)

    file = io.BytesIO()
    flambeau.export.save(flambeau.export.export(Model(), (flambeau.ones(2),)), file)
    del flambeau.library._registered["own_gone::f"]
    del flambeau.ops.own_gone.f
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"own_gone::f, which is not registered"):
        flambeau.export.load(file)


def test_without_a_function_for_shapes_an_export_is_refused() -> None:
    flambeau.library.custom_op("own_cases::shapeless", lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor")

    class Model(flambeau.nn.Module):
        def forward(self, x: Any) -> Any:
            return flambeau.ops.own_cases.shapeless(x)

    with pytest.raises(RuntimeError, match=r"own_cases::shapeless.*register_fake"):
        flambeau.export.export(Model(), (flambeau.ones(2),))


def test_arguments_that_the_schema_does_not_take_are_told() -> None:
    class Model(flambeau.nn.Module):
        def forward(self, x: Any) -> Any:
            return flambeau.ops.own_cases.sine(x, "three")

    with pytest.raises(TypeError, match=r"own_cases::sine does not take .*'three'"):
        flambeau.export.export(Model(), (flambeau.ones(2),))


def test_gradients_of_an_exported_program_are_those_that_were_registered() -> None:
    class Model(flambeau.nn.Module):
        def forward(self, x: Any) -> Any:
            return flambeau.ops.own_cases.sine(x * 2.0, 3.0).sum()

    program = flambeau.export.export(Model(), (flambeau.tensor(ARRAY),)).module()
    x = flambeau.tensor(ARRAY, requires_grad=True)
    program(x).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 6 * np.cos(ARRAY * 6), rtol=1e-4, atol=1e-5)


def test_decompositions_keep_them_and_what_they_write() -> None:
    program = _exported(flambeau, ARRAY).run_decompositions()
    assert len(_calls(program.graph)) == 6
    expected = _model(torch)(torch.tensor(OTHER)).detach().numpy()
    np.testing.assert_allclose(program.module()(flambeau.tensor(OTHER)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_write_to_an_input_is_an_output_of_the_decomposed_program() -> None:
    class Model(flambeau.nn.Module):
        def forward(self, x: Any, out: Any) -> Any:
            flambeau.ops.own_cases.add_into(x, out)
            return out * 2

    program = flambeau.export.export(Model(), (flambeau.ones(3), flambeau.ones(3)))
    for p in (program, program.run_decompositions()):
        out = flambeau.zeros(3)
        assert p.module()(flambeau.ones(3), out).tolist() == [2, 2, 2]
        assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize("way", ["fx", "backend"])
def test_fx_and_a_compile_backend_see_one_call_of_each(way: str) -> None:
    CALLS.clear()
    graphs: dict[str, Any] = {}
    for package in (flambeau, torch):
        model = _model(package)
        # PyTorch's compiler writes more into a graph than a symbolic trace does (how it names inputs): its trace is what both are held against
        if way == "fx" or package is torch:
            graphs[package.__name__] = package.fx.symbolic_trace(model).graph
        else:

            def backend(module: Any, inputs: Any) -> Any:
                graphs["flambeau"] = module.graph
                return module.forward

            made = package.compile(model, backend=backend)(package.tensor(ARRAY))
            np.testing.assert_allclose(made.detach().numpy(), _model(torch)(torch.tensor(ARRAY)).detach().numpy(), rtol=1e-5, atol=1e-6)
            CALLS.clear()
    assert CALLS == [] or way == "backend"
    assert _calls(graphs["flambeau"]) == _calls(graphs["torch"])
    module = flambeau.fx.GraphModule(_model(flambeau), graphs["flambeau"])
    assert not module.graph.eliminate_dead_code()  # the call that only writes stays
