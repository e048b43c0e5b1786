"""An argument that is given twice, by two names or by position and by name, and one that a function does not have: PyTorch's TypeError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

# Functions that take `axis` for `dim`: their arguments before and after it, and the dim.
DIMS: dict[str, tuple[Any, ...]] = {
    "sum": (), "mean": (), "prod": (), "amax": (), "amin": (), "argmax": (), "argmin": (), "cumsum": (), "cumprod": (), "cummax": (), "cummin": (),
    "logcumsumexp": (), "logsumexp": (), "nansum": (), "nanmean": (), "median": (), "nanmedian": (), "mode": (), "max": (), "min": (), "sort": (),
    "argsort": (), "any": (), "all": (), "std": (), "var": (), "std_mean": (), "var_mean": (), "unbind": (), "softmax": (), "log_softmax": (), "diff": (),
    "squeeze": (), "unsqueeze": (), "aminmax": (), "count_nonzero": (), "norm": (2.0,), "kthvalue": (1,), "topk": (1,), "chunk": (2,), "split": (1,),
    "quantile": (0.5,), "nanquantile": (0.5,), "tensor_split": (2,), "renorm": (2.0,), "flip": (), "gradient": (),
}  # fmt: skip
SIZES: dict[str, tuple[str, Any]] = {
    "reshape": ("shape", (4,)), "view": ("size", (4,)), "permute": ("dims", (1, 0)), "expand": ("size", (2, 2)), "flip": ("dims", (0,)),
    "repeat": ("repeats", (1, 1)), "tile": ("dims", (1, 1)), "sum_to_size": ("size", (1, 2)), "broadcast_to": ("size", (2, 2)),
    "unflatten": ("sizes", (1, 2)),
}  # fmt: skip


def _kind(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "taken"


@pytest.mark.parametrize("name", DIMS)
def test_dim_and_axis(name: str) -> None:
    """`axis` beside a `dim` that is not the default, by name and by position."""
    for form in ("function", "method"):
        for by_name in (True, False):
            for axis in (0, 1):
                found = []
                for m in (torch, flambeau):
                    x = m.tensor([[1.0, 2.0], [4.0, 3.0]])
                    target = getattr(m, name, None) if form == "function" else getattr(x, name, None)
                    if target is None:
                        found.append("absent")
                        continue
                    first = (x, *DIMS[name]) if form == "function" else DIMS[name]
                    dim = (0,) if name == "flip" else 1 if name in ("unbind", "chunk", "split", "tensor_split") else 0
                    rest = (*first, *(() if by_name or name == "renorm" else (dim,)))
                    named = {"dim" if name not in ("flip",) else "dims": dim} if by_name or name == "renorm" else {}
                    if name == "renorm":
                        named["maxnorm"] = 1.0
                    if name in ("diff", "std", "var", "std_mean", "var_mean", "norm") and not by_name:
                        continue  # other arguments come first
                    found.append(_kind(lambda target=target, rest=rest, named=named, axis=axis: target(*rest, **named, axis=axis)))  # type: ignore[misc]
                assert len(set(found)) <= 1, (name, form, by_name, axis, found)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_twice(name: str) -> None:
    keyword, sizes = SIZES[name]
    for given in ((sizes,), sizes):
        first = (0,) if name == "unflatten" else ()
        found = [_kind(lambda m=m, given=given, first=first: getattr(m.ones(2, 2), name)(*first, *given, **{keyword: sizes})) for m in (torch, flambeau)]  # type: ignore[misc]
        assert found[0] == found[1], (name, given, found)


CALLS: dict[str, Callable[[Any], Any]] = {
    "matrix_rank": lambda m: m.linalg.matrix_rank(m.ones(2, 2), 0.1, rtol=0.1),
    "matrix_rank, atol": lambda m: m.linalg.matrix_rank(m.ones(2, 2), 0.1, atol=0.1),
    "pinv": lambda m: m.linalg.pinv(m.ones(2, 2), 0.1, rtol=0.1),
    "pinv, atol": lambda m: m.linalg.pinv(m.ones(2, 2), rcond=0.1, atol=0.1),
    "to": lambda m: m.ones(2).to(dtype="q"),
    "alias_copy": lambda m: m.alias_copy(m.ones(2), 1),
    "selu": lambda m: m.selu(m.ones(2), inplace=True),
    "celu": lambda m: m.celu(m.ones(2), 1.0, True),
    "norm": lambda m: m.norm(m.ones(2, 2), keepdim=m.tensor([2.0])),
    **{f"pad {mode}": lambda m, mode=mode: m.nn.functional.pad(m.ones(1, 3, 3), (0.5, 1), mode) for mode in ("constant", "reflect", "replicate", "circular")},
    **{
        f"{name} {d}": lambda m, name=name, d=d: getattr(m.fft, name)(m.ones(2, 2), out=m.zeros(0, dtype=getattr(m, d)))
        for name in ("hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")
        for d in ("complex64", "complex128", "int64", "float64")
    },
    **{
        f"adaptive_{kind}_pool{d}d of {shape}": lambda m, kind=kind, d=d, shape=shape: getattr(m.nn.functional, f"adaptive_{kind}_pool{d}d")(
            m.ones(*shape, *[4] * d), 1
        )
        for kind in ("max", "avg")
        for d in (1, 2, 3)
        for shape in ((0,), (0, 2), (2, 0))
    },
    **{
        f"grid_sample {d} {dims}": lambda m, d=d, dims=dims: m.nn.functional.grid_sample(
            m.ones(1, 1, *[2] * dims), m.ones(*[1] * (dims + 1), dims, dtype=getattr(m, d)), align_corners=False
        )
        for d in ("float32", "float64", "bfloat16")
        for dims in (2, 3)
    },
    **{
        f"{name} {y} {x}": lambda m, name=name, y=y, x=x: getattr(m, name)(m.ones(y), m.ones(x))
        for name in ("trapezoid", "trapz", "cumulative_trapezoid")
        for y, x in (((6,), (1, 6)), ((1, 6), (6,)), ((2, 6), (6,)), ((6,), (2, 6)), ((3, 2), (3, 2)), ((2, 3, 4), (3, 4)))
    },
    **{
        f"instance_norm {which} {stats}": lambda m, which=which, stats=stats: m.nn.functional.instance_norm(
            m.ones(3, 2, 4), m.zeros(2, requires_grad=which == 0), m.ones(2, requires_grad=which == 1), use_input_stats=stats
        )
        for which in (0, 1, 2)
        for stats in (True, False)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_judged_alike(name: str) -> None:
    call = CALLS[name]
    assert _kind(lambda: call(flambeau)) == _kind(lambda: call(torch))
