"""`.pt2` files both ways: what flambeau exports PyTorch loads and runs, what PyTorch exports flambeau loads and runs, with equal outputs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

import flambeau
from tests.export.models import models

OURS, THEIRS = models(flambeau), models(torch)


def _both(array: Any) -> tuple[Any, Any]:
    return flambeau.tensor(array), torch.tensor(array)


def _inputs(name: str, batch: int, steps: int = 9) -> tuple[tuple[Any, ...], dict[str, Any]]:
    r = np.random.default_rng(batch)
    if name in ("LSTM", "GPT"):
        return (r.integers(0, 20, (batch, steps)),), {}
    if name == "Tour":
        return (r.standard_normal((batch, 4)).astype("f"), {"a": [np.ones(2, "f")]}), {"k": np.float32(3.0)}
    shape = {"MLP": (12,), "CNN": (1, 8, 8), "ResNet": (3, 8, 8)}[name]
    return (r.standard_normal((batch, *shape)).astype("f"),), {}


def _of(package: Any, tree: Any) -> Any:
    if isinstance(tree, (tuple, list)):
        return type(tree)([_of(package, t) for t in tree])
    return {k: _of(package, v) for k, v in tree.items()} if isinstance(tree, dict) else package.tensor(tree)


def _dynamic(package: Any, name: str) -> Any:
    batch = package.export.Dim("batch", min=3, max=64)
    if name == "Tour":
        return {"x": {0: batch}, "y": {"a": [None]}, "k": None}
    if name == "GPT":
        return {"ids": {0: batch, 1: package.export.Dim("steps", min=2, max=24)}}
    return {"ids" if name == "LSTM" else "x": {0: batch}}


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for v in tree.values() for leaf in _leaves(v)]
    return [leaf for v in tree for leaf in _leaves(v)] if isinstance(tree, (tuple, list)) else [tree]


def _equal(ours: Any, theirs: Any) -> None:
    left, right = _leaves(ours), _leaves(theirs)
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        x, y = [np.asarray(v.detach() if hasattr(v, "detach") else v) for v in (a, b)]
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


def _ours(name: str) -> Any:
    flambeau.manual_seed(0)
    return getattr(OURS, name)().eval()


def _theirs(name: str, module: Any) -> Any:
    made = getattr(THEIRS, name)().eval()
    made.load_state_dict({k: torch.from_numpy(v.detach().numpy().copy()) for k, v in module.state_dict().items()})
    return made


NAMES = ["MLP", "CNN", "ResNet", "LSTM", "GPT", "Tour"]


@pytest.mark.parametrize("name", NAMES)
def test_pytorch_runs_what_flambeau_exports(name: str) -> None:
    module = _ours(name)
    reference = _theirs(name, module)
    args, kwargs = _inputs(name, 5)
    program = flambeau.export.export(module, _of(flambeau, args), _of(flambeau, kwargs), dynamic_shapes=_dynamic(flambeau, name))
    file = io.BytesIO()
    flambeau.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    again = flambeau.export.load(io.BytesIO(file.getvalue()))
    for batch in (5, 3, 11):
        args, kwargs = _inputs(name, batch, steps=batch + 2 if name == "GPT" else 9)
        wanted = reference(*_of(torch, args), **_of(torch, kwargs))
        _equal(program.module()(*_of(flambeau, args), **_of(flambeau, kwargs)), wanted)
        _equal(again.module()(*_of(flambeau, args), **_of(flambeau, kwargs)), wanted)
        _equal(loaded.module()(*_of(torch, args), **_of(torch, kwargs)), wanted)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("decomposed", [False, True])
def test_flambeau_runs_what_pytorch_exports(name: str, decomposed: bool) -> None:
    module = _ours(name)
    reference = _theirs(name, module)
    args, kwargs = _inputs(name, 5)
    program = torch.export.export(reference, _of(torch, args), _of(torch, kwargs), dynamic_shapes=_dynamic(torch, name))
    if decomposed:
        program = program.run_decompositions({})
    file = io.BytesIO()
    torch.export.save(program, file)
    loaded = flambeau.export.load(io.BytesIO(file.getvalue()))
    for batch in (5, 3, 11):
        args, kwargs = _inputs(name, batch, steps=batch + 2 if name == "GPT" else 9)
        _equal(loaded.module()(*_of(flambeau, args), **_of(flambeau, kwargs)), reference(*_of(torch, args), **_of(torch, kwargs)))


@pytest.mark.parametrize("name", ["MLP", "CNN", "ResNet", "LSTM", "GPT"])
def test_graphs_have_pytorchs_operators(name: str) -> None:
    """The same calls in the same order, but for assertions that PyTorch adds, and copies of what attention has laid out otherwise."""
    module = _ours(name)
    args, kwargs = _inputs(name, 5)
    ours = flambeau.export.export(module, _of(flambeau, args), _of(flambeau, kwargs))
    theirs = torch.export.export(_theirs(name, module), _of(torch, args), _of(torch, kwargs))

    def calls(program: Any) -> list[str]:
        found = [str(n.target) for n in program.graph.nodes if n.op == "call_function" and "aten" in str(n.target)]
        return [t for t in found if "assert" not in t and "contiguous" not in t]

    assert calls(ours) == calls(theirs)


def test_a_program_that_is_trained_further_gives_the_same_gradients() -> None:
    module = _ours("MLP")
    args, _ = _inputs("MLP", 5)
    file = io.BytesIO()
    flambeau.export.save(flambeau.export.export(module, _of(flambeau, args)), file)
    loaded = flambeau.export.load(io.BytesIO(file.getvalue())).module()
    x, _ = _both(args[0])
    module(x).sum().backward()
    loaded(x).sum().backward()
    for (n, p), (m, q) in zip(sorted(module.named_parameters()), sorted(loaded.named_parameters()), strict=True):
        assert n == m
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_buffers_change_in_the_loaded_program() -> None:
    args, kwargs = _inputs("Tour", 5)
    program = flambeau.export.export(_ours("Tour"), _of(flambeau, args), _of(flambeau, kwargs))
    file = io.BytesIO()
    flambeau.export.save(program, file)
    loaded = flambeau.export.load(io.BytesIO(file.getvalue())).module()
    for _ in range(3):
        loaded(*_of(flambeau, args), **_of(flambeau, kwargs))
    assert loaded.count.tolist() == [3.0] * 4
    assert set(loaded.state_dict()) == {"w", "count"}


def test_mapped_tensors_are_those_of_the_file(tmp_path):
    """archive.load_mapped: the same values over the file's bytes; writes stay in the process."""
    from flambeau.export.archive import load_mapped

    flambeau.manual_seed(0)
    module = flambeau.nn.Sequential(flambeau.nn.Linear(3, 70), flambeau.nn.BatchNorm1d(70)).eval()
    x = flambeau.randn(4, 3)
    path = tmp_path / "m.pt2"
    flambeau.export.save(flambeau.export.export(module, (x,)), str(path))
    before = path.read_bytes()
    mapped = load_mapped(path).module()
    with flambeau.no_grad():
        assert flambeau.equal(mapped(x), module(x))
        assert any(p._storage.buffer.owner is not None for p in mapped.parameters())
        for p in mapped.parameters():
            p.add_(1.0)
        assert not flambeau.equal(mapped(x), module(x))
    assert path.read_bytes() == before
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(RuntimeError, match=r"no \.pt2 file"):
        load_mapped(path)


class Blocks(torch.nn.Module):
    """Blocks without autocast and without gradients, one inside the other, with results that are given inputs too."""

    def __init__(self, autocast: bool = False) -> None:
        super().__init__()
        self.linear, self.autocast = torch.nn.Linear(3, 3), autocast

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", enabled=self.autocast):
            y = self.linear(x).float()
            with torch.no_grad():
                z = y.exp() + 1
        with torch.no_grad():
            w = z * y
            first, second = w.split(2, 1)
        return w + y, z, first * y[:, :2], second


def test_blocks_of_pytorchs_programs_are_read() -> None:
    """PyTorch writes them as graphs of their own; values and gradients are those of its program."""
    theirs = torch.export.export(Blocks(), (torch.randn(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    assert "wrap_with_autocast" in str(theirs.graph) and "set_grad_enabled" in str(theirs.graph)
    file = io.BytesIO()
    torch.export.save(theirs, file)
    ours, x = flambeau.export.load(io.BytesIO(file.getvalue())), torch.randn(5, 3)
    a, b = ours.module(), theirs.module()
    found, expected = a(flambeau.tensor(x.numpy())), b(x)
    for f, e in zip(found, expected, strict=True):
        assert f.requires_grad == e.requires_grad and np.abs(f.detach().numpy() - e.detach().numpy()).max() < 1e-5
    found[0].sum().backward()
    expected[0].sum().backward()
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert np.allclose(p.grad.numpy(), q.grad.numpy(), atol=1e-5)


def test_a_block_with_autocast_is_refused() -> None:
    file = io.BytesIO()
    torch.export.save(torch.export.export(Blocks(autocast=True), (torch.randn(2, 3),)), file)
    with pytest.raises(NotImplementedError, match=r"block with autocast to torch.bfloat16 on 'cpu'.*without autocast"):
        flambeau.export.load(io.BytesIO(file.getvalue()))
