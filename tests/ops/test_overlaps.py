"""Writes into what is read: refused where PyTorch refuses, and else as if what is read had been copied first."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.ops.registry import OPERATIONS

torch = pytest.importorskip("torch")

REFUSES = "single memory location"


def outcome(m: Any, call: Any, dtype: str, kind: str) -> str:
    """What comes of a call with a target and a source in one memory: "refused", "done", or another error."""
    base = (m.arange(20) % 5 + 1).to(getattr(m, dtype))
    places = {
        "part": (base[1:5], base[0:4]), "same": (base[1:5], base[1:5]), "apart": (base[0:4], base[4:8]), "turned": (base[:4].view(2, 2), base[:4].view(2, 2).T),
        "gaps": (base[0:8:2], base[1:9:2]), "gaps of one": (base[0:4], base[0:8:2]), "rows": (base[:4].view(2, 2), base[2:4]), "itself": (base, base),
    }  # fmt: skip
    target, source = places[kind]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(m, target, source)
        base.tolist()
    except Exception as error:  # functions that do not take such arguments are not the matter here
        return "refused" if REFUSES in str(error) else type(error).__name__
    return "done"


FEW = ("part", "same", "turned", "gaps of one")  # whether memory overlaps does not depend on the dtype: all kinds are for float32, and here for the rest
KINDS = ("part", "same", "apart", "turned", "gaps", "gaps of one", "rows", "itself")


def functions_with(form: str) -> list[str]:
    """Public operations with an in-place form and an operand beside it, or with `out=`, that PyTorch has, too."""
    found = []
    for name, record in sorted(OPERATIONS.items()):
        if form == "in place" and record.inplace is not None and len([k for k in record.kinds if k.startswith(("tensor", "operand"))]) > 1:
            if hasattr(torch.Tensor, name + "_"):
                found.append(name)
        elif form == "out" and record.out and "." not in name and hasattr(torch, name):
            found.append(name)
    return found


def arguments(record: Any) -> int:
    return len([k for k in record.kinds if k in ("tensor", "operand", "exponent")])


def of_dtypes(*names: str) -> Any:
    """(dtype, kinds): all kinds for float32; all for the others with the marker `slow`."""
    rest = [pytest.param(name, KINDS, marks=pytest.mark.slow, id=f"{name}-all") for name in names]
    few = [pytest.param(name, FEW, id=name) for name in names]
    return pytest.mark.parametrize(("dtype", "kinds"), [pytest.param("float32", KINDS, id="float32"), *few, *rest])


@of_dtypes("int64", "bool")
def test_forms_in_place(dtype: str, kinds: tuple[str, ...]) -> None:
    differ = []
    refused = 0
    for name in functions_with("in place"):
        count = arguments(OPERATIONS[name]) - 1
        for kind in kinds:
            for extra in ((), *([(count,)] if count > 1 else [])):
                rest = [0] * (extra[0] if extra else 1)

                def call(m: Any, target: Any, source: Any, name: str = name, rest: list[int] = rest) -> Any:
                    return getattr(target, name + "_")(*[source for _ in rest])

                expected, found = outcome(torch, call, dtype, kind), outcome(ft, call, dtype, kind)
                refused += expected == "refused"
                if "refused" in (expected, found) and "Error" not in expected and expected != found:
                    differ.append((name, kind, expected, found))
    assert not differ, differ
    assert refused > 20


TAKE_MORE = frozenset("addmm addr diff kron ldexp outer take take_along_dim".split())


@of_dtypes("int64", "bool", "complex64")
def test_out(dtype: str, kinds: tuple[str, ...]) -> None:
    differ = []
    refused = 0
    for name in functions_with("out"):
        count = arguments(OPERATIONS[name])
        for kind in kinds:
            if kind == "rows" and name in ("msort", "nan_to_num"):  # PyTorch makes the target larger before it looks
                continue

            def call(m: Any, target: Any, source: Any, name: str = name, count: int = count) -> Any:
                return getattr(m, name)(*[source] * max(count, 1), out=target)

            expected, found = outcome(torch, call, dtype, kind), outcome(ft, call, dtype, kind)
            refused += expected == "refused"
            if expected == "refused" and name in TAKE_MORE:  # ours computes from what was there before
                continue
            if "refused" in (expected, found) and "Error" not in expected and expected != found:
                differ.append((name, kind, expected, found))
    assert not differ, differ
    assert refused > 20


MORE = {
    "copy_": lambda m, t, s: t.copy_(s),
    "set": lambda m, t, s: t.__setitem__(..., s),
    "set rows": lambda m, t, s: t.__setitem__(slice(0, 2), s[:2]),
    "index_copy_": lambda m, t, s: t.index_copy_(0, m.arange(t.shape[0]), s),
    "index_add_": lambda m, t, s: t.index_add_(0, m.arange(t.shape[0]), s),
    "index_put_": lambda m, t, s: t.index_put_((m.arange(t.shape[0]),), s),
    "at indices": lambda m, t, s: t.__setitem__(m.arange(t.shape[0]), s),
    "scatter_": lambda m, t, s: t.scatter_(0, m.zeros_like(s, dtype=m.int64), s),
    "scatter_add_": lambda m, t, s: t.scatter_add_(0, m.zeros_like(s, dtype=m.int64), s),
    "put_": lambda m, t, s: t.put_(m.arange(t.numel()).view(t.shape), s),
    "add to": lambda m, t, s: t.__iadd__(s),
    "mul by": lambda m, t, s: t.__imul__(s),
    "addcmul_": lambda m, t, s: t.addcmul_(s, s + 1),
    "lerp_": lambda m, t, s: t.lerp_(s, 0.5),
    "foreach": lambda m, t, s: m._foreach_add_([t], [s]),
    "cat": lambda m, t, s: m.cat([s], out=t),
    "stack": lambda m, t, s: m.stack([s[0], s[0]], out=t),
    "gather": lambda m, t, s: m.gather(s, 0, m.zeros_like(s, dtype=m.int64), out=t),
    "index_select": lambda m, t, s: m.index_select(s, 0, m.arange(s.shape[0]), out=t),
    "mm": lambda m, t, s: m.mm(s, s, out=t),
    "sum": lambda m, t, s: m.sum(s, 0, out=t),
    "where": lambda m, t, s: m.where(m.ones_like(s, dtype=m.bool), s, s, out=t),
    "clamp": lambda m, t, s: m.clamp(s, 0, out=t),
    "copy of it": lambda m, t, s: t.copy_(s.clone()),
    "expanded": lambda m, t, s: t.copy_(s[:1].expand(t.shape)),
    "fill": lambda m, t, s: t.fill_(s.flatten()[0]),
    "masked_fill_": lambda m, t, s: t.masked_fill_(s > 0, 2),
}


@pytest.mark.parametrize("name", MORE)
def test_other_writes(name: str) -> None:
    for kind in KINDS:
        if name in ("cat", "stack", "gather") and kind not in ("part", "same", "apart"):  # PyTorch makes `out` larger first, or another tensor
            continue
        for dtype in ("float32", "int64"):
            expected, found = outcome(torch, MORE[name], dtype, kind), outcome(ft, MORE[name], dtype, kind)
            assert expected == found or "Error" in expected, (kind, dtype, expected, found)


def test_where_they_begin_is_looked_at_each_time() -> None:
    """On a learned path, too: the same calls, apart in one pass and not in the next."""
    for _ in range(3):
        for start in (4, 5, 2, 6, 4, 1, 7, 3, 0, 4):
            for write in (
                lambda t, i: t[i : i + 4].copy_(t[:4]), lambda t, i: t[i : i + 4].add_(t[:4]), lambda t, i: t.__setitem__(slice(i, i + 4), t[:4]),
                lambda t, i: ft.mul(t[:4], 2, out=t[i : i + 4]),
            ):  # fmt: skip
                t = ft.arange(12.0)
                t.sum().item()
                if 0 < start < 4:
                    with pytest.raises(RuntimeError, match=REFUSES):
                        write(t, start)
                    assert t.tolist() == list(range(12))
                else:
                    write(t, start)
                    assert t[:4].tolist() == [0, 1, 2, 3] or start == 0


def test_out_that_requires_gradients_is_written_without_them() -> None:
    for m in (ft, torch):
        p = m.arange(4.0).requires_grad_()
        y = p * 2
        for _ in range(3):
            with m.no_grad():
                m.mul(p.detach(), 3.0, out=p)
                m.add(y.detach()[1:], 1, out=y[1:])
                m.add(y, 1, out=y[...])
        assert p.tolist() == [0, 27, 54, 81] and p.is_leaf and p.requires_grad
        assert y.tolist() == [3, 8, 10, 12] and y.requires_grad
        y.sum().backward()
        assert p.grad.tolist() == [2, 2, 2, 2]
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            m.mul(p.detach(), 3.0, out=p)


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1), (2, 2), (1,), (0, 2), (1, 2, 1)])
@pytest.mark.parametrize("statement", [
    "x[None] = x", "x[0] = x", "x[None] = x[0]", "x[0] = x[None]", "x[0] = x[0, None]", "x[:, None] = x.unsqueeze(1)", "x[None, ...] = x.T", "x[..., None] = x",
    "x[0, None] = x", "x[..., None] = x[..., None]", "x.data[None] = x", "x[...] = x", "x[0] = x.real", "x[None] = x.view(-1)", "x[..., 0] = x",
    "x[-1:] = x[0]",
])  # fmt: skip
def test_assigned_to_itself(statement: str, shape: tuple[int, ...]) -> None:
    """What is assigned is expanded to what is written, after sizes of 1 in front are left out: then it is the same elements, or a part of them."""
    found = []
    for m in (torch, ft):
        x = m.arange(float(4))[: int(np.prod(shape))].reshape(shape)
        try:
            exec(statement, {"x": x})
            found.append(x.tolist())
        except Exception as error:
            found.append(type(error) if not issubclass(type(error), IndexError) else IndexError)
    assert found[0] == found[1]


def test_strides_of_one_element_expanded() -> None:
    for m in (torch, ft):
        one = m.tensor(3.0)
        strides = [one.expand(1), one.expand(1, 1), one.expand(2, 1), one.broadcast_to((1,)), m.ones(3).sum().expand(1), m.broadcast_tensors(one, m.ones(1))[0]]
        assert [t.stride() for t in strides] == [(0,), (0, 0), (0, 0), (0,), (0,), (0,)], m.__name__
        assert m.ones(1).expand(1, 1).stride() == (1, 1)


def _chosen(m: Any, name: str, target: Any, chooser: Any) -> Any:
    """`target` written in place by `name`, with `chooser` as the index or mask, or as what is written."""
    some = m.ones(chooser.numel(), dtype=target.dtype)
    return {
        "index_fill_": lambda: target.index_fill_(0, chooser, 7),
        "index_copy_": lambda: target.index_copy_(0, chooser, some),
        "index_add_": lambda: target.index_add_(0, chooser, some),
        "index_reduce_": lambda: target.index_reduce_(0, chooser, some, "prod"),
        "scatter_": lambda: target.scatter_(0, chooser, some),
        "scatter_add_": lambda: target.scatter_add_(0, chooser, some),
        "scatter_reduce_": lambda: target.scatter_reduce_(0, chooser, some, "sum"),
        "put_": lambda: target.put_(chooser, some),
        "index_put_": lambda: target.index_put_((chooser,), some),
        "masked_fill_": lambda: target.masked_fill_(chooser, 1),
        "masked_scatter_": lambda: target.masked_scatter_(chooser, some),
        "assigned": lambda: target.__setitem__(chooser, 1),
    }[name]()


@pytest.mark.parametrize(
    "name",
    "index_fill_ index_copy_ index_add_ index_reduce_ scatter_ scatter_add_ scatter_reduce_ put_ index_put_ masked_fill_ masked_scatter_ assigned".split(),
)
def test_what_says_which_elements_are_written_is_written_itself(name: str) -> None:
    """The tensor itself as the index or mask, and views of it that overlap in part, in order and not."""
    choosers = {
        "itself": lambda x: (x, x), "alias": lambda x: (x, x[:]), "later": lambda x: (x[1:], x[:-1]), "apart": lambda x: (x[:2], x[2:]),
        "empty": lambda x: (x[:0], x[:0]), "strided": lambda x: (x[::2], x[1::2]), "reversed": lambda x: (x, x.flip(0)),
    }  # fmt: skip
    kinds = ("bool",) if name.startswith("masked") else ("int64", "bool") if name == "assigned" else ("int64",)
    for kind in kinds:
        for how, views in choosers.items():
            found = []
            for m in (torch, ft):
                x = m.tensor([0, 1, 1, 0], dtype=getattr(m, kind))
                target, chooser = views(x)
                try:
                    _chosen(m, name, target, chooser)
                    found.append(x.tolist())
                except RuntimeError as error:
                    found.append("memory" if "memory location" in str(error) else str(error))
            assert found[0] == found[1], (name, kind, how)
