"""torch.nested beside PyTorch's: values, shapes, errors and gradients of jagged and strided nested tensors."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """PyTorch's attention tells at length why it takes which kernel."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def _operands(m: Any) -> tuple[Any, ...]:
    """A jagged leaf, a strided one, a weight and a bias, another jagged one with the same offsets, one with lengths."""
    a = m.arange(20.0).view(5, 4).sin()
    nt = m.nested.nested_tensor([a[:2], a[2:]], layout=m.jagged, requires_grad=True)
    s = m.nested.nested_tensor([a[:2], a[2:, :3]])
    same = m.nested.nested_tensor_from_jagged(a.clone() * 2, nt.offsets())
    holes = m.nested.nested_tensor_from_jagged(a.clone(), m.tensor([0, 3, 5]), lengths=m.tensor([2, 1]))
    return nt, s, (m.arange(20.0).view(5, 4) * 0.1).cos(), m.arange(5.0), same, holes


def _plain(m: Any, x: Any) -> Any:
    if isinstance(x, m.Tensor):
        if x.is_nested:
            return "nested", str(x.layout), [_plain(m, p) for p in x.unbind()]
        return str(x.dtype), tuple(x.shape), [round(float(v), 4) for v in x.detach().reshape(-1).to(m.float64).tolist()]
    if isinstance(x, (list, tuple)):
        return [_plain(m, y) for y in x]
    return x


def _gradient(m: Any, x: Any, function: Callable[[Any], Any]) -> Any:
    function(x).backward()
    return x.grad


CASES: dict[str, Callable[..., Any]] = {
    "repr": lambda t, nt, s, w, b, n2, ll: repr(nt.detach()),
    "reprs": lambda t, nt, s, w, b, n2, ll: repr(s),
    "size": lambda t, nt, *_: (
        nt.size(0),
        nt.size(-1),
        nt.dim(),
        nt.ndim,
        len(nt),
        nt.numel(),
        nt.is_nested,
        str(nt.layout),
        nt.shape[1] == (nt * 2).shape[1],
        nt.is_contiguous(),
    ),
    "mul": lambda t, nt, *_: nt * 2,
    "add": lambda t, nt, s, w, b, n2, ll: nt + n2,
    "sub": lambda t, nt, *_: 1 - nt,
    "dense": lambda t, nt, *_: nt + t.ones(2, 1, 4) * t.arange(2.0).view(2, 1, 1),
    "dense4": lambda t, nt, *_: nt * t.arange(4.0),
    "sum1": lambda t, nt, *_: nt.sum(dim=1),
    "sum1k": lambda t, nt, *_: nt.sum(dim=1, keepdim=True),
    "sumk": lambda t, nt, *_: nt.sum(-1),
    "sum": lambda t, nt, *_: nt.sum(),
    "mean1": lambda t, nt, *_: nt.mean(1),
    "mean": lambda t, nt, *_: nt.mean(),
    "sum01": lambda t, nt, *_: nt.sum((0, 1)),
    "max1": lambda t, nt, *_: nt.max(1),
    "amax": lambda t, nt, *_: nt.amax(1),
    "argmax": lambda t, nt, *_: nt.argmax(1),
    "min": lambda t, nt, *_: nt.amin(1),
    "softmax": lambda t, nt, *_: nt.softmax(-1),
    "softmax1": lambda t, nt, *_: nt.softmax(1),
    "logsm": lambda t, nt, *_: t.log_softmax(nt, -1),
    "sumdim0": lambda t, nt, *_: nt.sum(0),
    "linear": lambda t, nt, s, w, b, *_: t.nn.functional.linear(nt, w, b),
    "matmul": lambda t, nt, s, w, *_: nt @ w.t(),
    "layernorm": lambda t, nt, *_: t.nn.functional.layer_norm(nt, (4,)),
    "module": lambda t, nt, *_: t.nn.LayerNorm(4)(nt),
    "seq": lambda t, nt, *_: t.nn.Sequential(t.nn.GELU(), t.nn.ReLU())(nt),
    "dropout": lambda t, nt, *_: t.nn.functional.dropout(nt, 0.0),
    "unbind": lambda t, nt, *_: nt.unbind(),
    "item0": lambda t, nt, *_: nt[0],
    "itemm": lambda t, nt, *_: nt[1, 0],
    "ell": lambda t, nt, *_: nt[..., 0],
    "badslice": lambda t, nt, *_: nt[:, 1],
    "pad": lambda t, nt, *_: nt.to_padded_tensor(-1.0),
    "pad2": lambda t, nt, *_: t.nested.to_padded_tensor(nt, 0.0, output_size=(2, 5, 4)),
    "tr": lambda t, nt, *_: nt.transpose(1, 2),
    "unsq": lambda t, nt, *_: nt.unsqueeze(-1),
    "unsq1": lambda t, nt, *_: nt.unsqueeze(2),
    "view": lambda t, nt, *_: nt.view(2, -1, 2, 2),
    "reshape": lambda t, nt, *_: nt.reshape(2, -1, 2, 2).flatten(-2),
    "unfl": lambda t, nt, *_: nt.unflatten(-1, (2, 2)),
    "cat": lambda t, nt, *_: t.cat([nt, nt], -1),
    "chunk": lambda t, nt, *_: nt.chunk(2, -1),
    "split": lambda t, nt, *_: nt.split(1, -1),
    "where": lambda t, nt, *_: t.where(nt > 0, nt, 0.0),
    "mf": lambda t, nt, *_: nt.masked_fill(nt > 0, 0.0),
    "half": lambda t, nt, *_: nt.to(t.float64),
    "clone": lambda t, nt, *_: nt.clone(),
    "det": lambda t, nt, *_: nt.detach(),
    "badadd": lambda t, nt, *_: nt + t.nested.nested_tensor([t.ones(1, 4), t.ones(4, 4)], layout=t.jagged),
    "zl": lambda t, nt, *_: t.zeros_like(nt),
    "eq": lambda t, nt, *_: nt == nt,
    "isnan": lambda t, nt, *_: nt.isnan(),
    "any": lambda t, nt, *_: (nt > 0).any(),
    "tolist": lambda t, nt, *_: nt.tolist(),
    "numpy": lambda t, nt, *_: nt.numpy(),
    "sm": lambda t, nt, s, *_: s * 2,
    "ssize": lambda t, nt, s, *_: (s.size(0), s.dim(), s.numel()),
    "ssize1": lambda t, nt, s, *_: s.size(1),
    "sshape": lambda t, nt, s, *_: s.shape,
    "spad": lambda t, nt, s, *_: s.to_padded_tensor(0.0),
    "sunb": lambda t, nt, s, *_: s.unbind(),
    "srelu": lambda t, nt, s, *_: t.relu(s),
    "sadd": lambda t, nt, s, *_: s + s,
    "ssoft": lambda t, nt, s, *_: s.softmax(-1),
    "slin": lambda t, nt, s, w, b, *_: t.nn.functional.linear(t.nested.nested_tensor([t.ones(2, 4), t.ones(3, 4)]), w, b),
    "ntsize": lambda t, nt, s, *_: s._nested_tensor_size(),
    "asn": lambda t, nt, *_: t.nested.as_nested_tensor(t.ones(2, 3, 4), layout=t.jagged),
    "narrow": lambda t, nt, *_: t.nested.narrow(t.arange(12.0).view(3, 4), 1, t.tensor([0, 1, 1]), t.tensor([1, 2, 3]), layout=t.jagged).unbind(),
    "msel": lambda t, nt, *_: t.nested.masked_select(t.ones(2, 3), t.tensor([[True, False, True], [True] * 3])),
    "emb": lambda t, nt, *_: t.nn.functional.embedding(t.nested.nested_tensor([t.tensor([1, 2]), t.tensor([0])], layout=t.jagged), t.arange(15.0).view(3, 5)),
    "badlist": lambda t, nt, *_: t.nested.nested_tensor([t.ones(2, 3), t.ones(3, 4)], layout=t.jagged),
    "badargs": lambda t, nt, *_: t.nested.nested_tensor(3),
    "inplace": lambda t, nt, *_: nt.detach().clone().mul_(3),
    "iadd": lambda t, nt, s, w, b, n2, ll: n2.clone().add_(1),
    "pow": lambda t, nt, *_: nt**2,
    "neg": lambda t, nt, *_: -nt,
    "stack": lambda t, nt, *_: t.stack([nt, nt]),
    "stride": lambda t, nt, *_: len(nt.stride()),
    "iter": lambda t, nt, *_: list(nt),
    "std": lambda t, nt, *_: nt.std(1),
    "perm": lambda t, nt, *_: nt.permute(0, 2, 1).shape[2] == nt.shape[1],
    "flat": lambda t, nt, *_: nt.flatten(),
    "sdpa": lambda t, nt, *_: (
        t.nn.functional.scaled_dot_product_attention(
            *[
                t.nested.nested_tensor([t.arange(48.0).view(3, 16).sin(), t.arange(80.0).view(5, 16).cos()], layout=t.jagged)
                .unflatten(-1, (2, 8))
                .transpose(1, 2)
            ]
            * 3
        )
        .transpose(1, 2)
        .contiguous()
    ),
    "gradpad": lambda t, nt, s, w, b, n2, ll: (lambda: ((nt.to_padded_tensor(0.0) ** 2).sum().backward(), nt.grad)[1])(),
    "gradas": lambda t, nt, s, w, b, n2, ll: (lambda x: ((t.nested.as_nested_tensor([x[:2], x[1:]], layout=t.jagged) ** 2).sum().backward(), x.grad)[1])(
        t.ones(3, 4, requires_grad=True)
    ),
    "lengths": lambda t, nt, s, w, b, n2, ll: (ll.lengths(), ll.offsets(), ll.unbind()),
}
# What PyTorch has not: reductions over the ragged dim and a later one, gradients of `sum` over the ragged dim and of selections.
OURS: dict[str, Callable[..., Any]] = {
    "sum12": lambda t, nt, *_: (nt.sum((1, 2)), [x.sum() for x in nt.unbind()]),
    "gradient of sum": lambda t, nt, *_: (
        _gradient(t, nt, lambda x: (x.sum(1) ** 2).sum())._values, t.cat([x.sum(0).expand(x.shape) * 2 for x in nt.detach()]),
    ),
    "gradient of select": lambda t, nt, *_: (_gradient(t, nt, lambda x: (x[..., 0] ** 2).sum()).values()[:, 0], nt.detach().values()[:, 0] * 2),
}  # fmt: skip


def _outcome(m: Any, function: Callable[..., Any]) -> Any:
    try:
        return _plain(m, function(m, *_operands(m)))
    except Exception as error:
        return f"raises {type(error).__name__}"


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    assert _outcome(flambeau, CASES[name]) == _outcome(torch, CASES[name])


@pytest.mark.parametrize("name", OURS)
def test_more_than_pytorch(name: str) -> None:
    ours, wanted = OURS[name](flambeau, *_operands(flambeau))
    flat = wanted if isinstance(wanted, flambeau.Tensor) else flambeau.stack(wanted)
    assert flambeau.allclose(ours, flat, atol=1e-5)


def test_training() -> None:
    """Parameters learn from nested inputs as from the padded ones."""
    results = []
    for nested in (True, False):
        flambeau.manual_seed(0)
        rows = [flambeau.randn(n, 4) for n in (3, 1, 5)]
        model = flambeau.nn.Sequential(flambeau.nn.Linear(4, 8), flambeau.nn.LayerNorm(8), flambeau.nn.GELU(), flambeau.nn.Linear(8, 2))
        optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            if nested:
                out = model(flambeau.nested.nested_tensor(rows, layout=flambeau.jagged)).sum(dim=1)
            else:
                out = flambeau.stack([model(r).sum(0) for r in rows])
            (out**2).mean().backward()
            optimizer.step()
        results.append(flambeau.cat([p.detach().reshape(-1) for p in model.parameters()]))
    assert flambeau.allclose(*results, atol=1e-5)


def test_copies() -> None:
    nt = _operands(flambeau)[0]
    for made in (copy.deepcopy(nt), pickle.loads(pickle.dumps(nt))):
        assert made.requires_grad and made.is_leaf and _plain(flambeau, made) == _plain(flambeau, nt)
    with pytest.raises(NotImplementedError, match=r"cumsum\(\): not supported for nested tensors"):
        nt.cumsum(1)
    assert repr(nt.shape[1] * 4).startswith("4*j") and nt.shape == (nt * 2).shape and nt.shape[1] >= 2


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(1, 3), st.booleans())
def test_views_of_buffers_are_pytorchs(lengths: list[int], width: int, gaps: bool) -> None:
    """Components one after the other share the buffer's memory; with room between them they are what lies there."""
    found = []
    for t in (flambeau, torch):
        sizes = t.tensor([[n, width] for n in lengths])
        strides, offsets = t._nested_compute_contiguous_strides_offsets(sizes)
        offsets = offsets + t.arange(len(lengths)) * 2 if gaps else offsets
        buffer = t.arange(float(sum(lengths) * width + gaps * 2 * len(lengths))).requires_grad_(not gaps)  # with gaps PyTorch has no gradient
        made = t._nested_view_from_buffer(buffer, sizes, strides, offsets)
        if not gaps:
            sum([(part * (i + 1)).sum() for i, part in enumerate(made.unbind())]).backward()
        found.append([strides.tolist(), offsets.tolist(), [part.tolist() for part in made.unbind()], None if gaps else buffer.grad.tolist()])
    assert found[0] == found[1]


def test_a_view_of_a_buffer_that_is_outside_is_told() -> None:
    sizes = flambeau.tensor([[2, 2]])
    strides, offsets = flambeau._nested_compute_contiguous_strides_offsets(sizes)
    with pytest.raises(RuntimeError, match="lies outside of a buffer of 3 elements"):
        flambeau._nested_view_from_buffer(flambeau.ones(3), sizes, strides, offsets)
    with pytest.raises(RuntimeError, match="contiguous vector"):
        flambeau._nested_view_from_buffer(flambeau.ones(2, 2), sizes, strides, offsets)
    with pytest.raises(RuntimeError, match="a row of int64 sizes"):
        flambeau._nested_compute_contiguous_strides_offsets(flambeau.ones(2))
    buffer = flambeau.zeros(4)
    view = flambeau._nested_view_from_buffer(buffer, sizes, strides, offsets)
    buffer.add_(1)
    assert view.unbind()[0].tolist() == [[1.0, 1.0], [1.0, 1.0]] and isinstance(buffer.untyped_storage(), flambeau.StorageBase)
