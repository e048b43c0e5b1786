"""Strides of results, and the memory that they share with their inputs, for all operators and inputs of many layouts: against PyTorch.

`python -m tests.differential.layouts [DTYPE] [MOST] [--writes] [OPERATOR ...]` prints what differs. Strides are compared as they are
reported, those of dims of size 1 too. Sharing is seen by writing: through each result, and then looking at the inputs' memory, and the other way round.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import flambeau
from flambeau.testing.agreement import array_of
from flambeau.testing.compare import Input, _built
from flambeau.trace.recorder import storage_of
from tests.differential.forms import _like, _mapped
from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, Case, Unsupported, cases, supported, text_of, torch

Change = Callable[[Input, random.Random], Input]


# -- layouts of inputs --------------------------------------------------------------------------------------------


def _steps(shape: tuple[int, ...], order: list[int], gap: int = 0) -> tuple[int, ...]:
    """Strides with the dims of `order` from the fastest on, `gap` elements between neighbours' rows."""
    steps, step = [0] * len(shape), 1
    for d in order:
        steps[d] = step
        step = step * max(shape[d], 1) + gap
    return tuple(steps)


def _reversed(x: Input, _: random.Random) -> Input:
    return _like(x, x.values, strides=_steps(x.values.shape, list(range(x.values.ndim))))


def _permuted(x: Input, rng: random.Random) -> Input:
    order = list(range(x.values.ndim))
    rng.shuffle(order)
    return _like(x, x.values, strides=_steps(x.values.shape, order))


def _swapped(x: Input, _: random.Random) -> Input:
    """The last two dims exchanged in memory."""
    order = list(range(x.values.ndim))[::-1]
    order[:2] = order[:2][::-1]
    return _like(x, x.values, strides=_steps(x.values.shape, order))


def _channels_last(x: Input, _: random.Random) -> Input:
    n = x.values.ndim
    order = list(range(n))[::-1]
    if n >= 3:
        order = [1, *range(n - 1, 1, -1), 0]
    return _like(x, x.values, strides=_steps(x.values.shape, order))


def _gaps(x: Input, rng: random.Random) -> Input:
    order = list(range(x.values.ndim))[::-1]
    if rng.random() < 0.5:
        rng.shuffle(order)
    return _like(x, x.values, strides=_steps(x.values.shape, order, 1), offset=3)


def _stepped(x: Input, _: random.Random) -> Input:
    """Every second element of the last dim."""
    return _like(x, x.values, strides=tuple(2 * s for s in _steps(x.values.shape, list(range(x.values.ndim))[::-1])), offset=1)


def _expanded(x: Input, rng: random.Random) -> Input:
    a = x.values
    if not a.ndim or not a.size:
        return _like(x, a)
    d = rng.randrange(a.ndim)
    one = np.take(a, [0], axis=d)
    steps = list(_steps(one.shape, list(range(a.ndim))[::-1]))
    steps[d] = 0
    return _like(x, np.broadcast_to(one, a.shape), strides=tuple(steps))


def _one(x: Input, rng: random.Random) -> Input:
    """One dim of size 1, whose stride may be anything."""
    a = x.values
    if not a.ndim or not a.size:
        return _like(x, a)
    d = rng.randrange(a.ndim)
    one = np.take(a, [0], axis=d)
    order = list(range(a.ndim))
    rng.shuffle(order)
    steps = list(_steps(one.shape, order))
    if rng.random() < 0.5:
        steps[d] = rng.choice((1, 7, 100))
    return _like(x, one, strides=tuple(steps))


def _ones(x: Input, rng: random.Random) -> Input:
    """Only the first element of each dim but one."""
    a = x.values
    if not a.ndim or not a.size:
        return _like(x, a)
    keep = rng.randrange(a.ndim)
    return _like(x, a[tuple(slice(None) if d == keep else slice(0, 1) for d in range(a.ndim))])


def _empty(x: Input, rng: random.Random) -> Input:
    a = x.values
    if not a.ndim:
        return _like(x, a)
    d = rng.randrange(a.ndim)
    none = np.take(a, [], axis=d)
    order = list(range(a.ndim))
    rng.shuffle(order)
    return _like(x, none, strides=_steps(none.shape, order) if rng.random() < 0.5 else None)


def _same(x: Input, _: random.Random) -> Input:
    return x


CHANGES: dict[str, Change] = {
    "as it is": _same, "reversed": _reversed, "swapped": _swapped, "channels last": _channels_last, "permuted": _permuted, "gaps": _gaps,
    "stepped": _stepped, "expanded": _expanded, "one": _one, "ones": _ones, "empty": _empty,
}  # fmt: skip


FIRST = "first"  # only the first tensor is permuted
ALL = (*CHANGES, "mixed", "mixed ", FIRST)
UNSAFE = frozenset(("native_batch_norm", "nn.functional.batch_norm"))  # PyTorch reads past the end where sizes do not fit


def change_of(name: str, rng: random.Random) -> Callable[[Input], Input]:
    """What is done to the tensors of a call: one of CHANGES, several of them in a mixture, or the first tensor permuted."""
    left = [FIRST]

    def change(x: Input) -> Input:
        if name == FIRST:
            return _permuted(x, rng) if left and left.pop() else x
        chosen = rng.choice(list(CHANGES)[:8]) if name.startswith("mixed") else name
        return CHANGES[chosen](x, rng)

    return change


def layout_cases(label: str, dtype: str, most: int, names: Sequence[str] = ALL) -> Iterator[Case]:
    """Calls of an operator with inputs of every layout: at most `most` samples, each in the layouts `names`."""
    for i, case in enumerate(cases(label, dtype, False, most)):
        for name in names:
            if label in UNSAFE and name in ("one", "ones", "empty", "expanded"):
                continue
            change = change_of(name, random.Random(zlib.crc32(f"{label} {i} {name}".encode())))
            args, kwargs = _mapped(case.args, change), _mapped(case.kwargs, change)
            yield case._replace(args=args, kwargs=kwargs, text=f"{name} {label}{text_of(args, kwargs)}")


# -- what is seen of a call ---------------------------------------------------------------------------------------


def _leaves(module: Any, x: Any) -> list[Any]:
    if isinstance(x, (tuple, list)):
        return [leaf for part in x for leaf in _leaves(module, part)]
    if isinstance(x, dict):
        return [leaf for key in x for leaf in _leaves(module, x[key])]
    return [x] if isinstance(x, module.Tensor) and x.layout == module.strided else []


def _memory(t: Any) -> Any:
    """All of a tensor's storage, as one dim."""
    t = t.detach()
    size = t.untyped_storage().nbytes() // t.element_size()
    return t.as_strided((size,), (1,), 0)


def _storage(module: Any, t: Any) -> Any:
    """What is the same for tensors over one storage, also where it is empty."""
    return t.untyped_storage()._cdata if module is torch else storage_of(t)


def _mark(module: Any, t: Any) -> None:
    """Change the first element."""
    e = t.detach()
    if e.is_conj():
        e = e.conj()
    while e.ndim:
        e = e.select(0, e.shape[0] - 1)
    if e.dtype == module.bool:
        e.logical_not_()
    else:
        e.add_(1)


def _bits(t: Any) -> bytes:
    return np.ascontiguousarray(array_of(t)).tobytes()


def seen(module: Any, function: Any, args: Any, kwargs: Any, writes: bool = True) -> Any:
    """For each result: shape, strides, which it is of the inputs, whether it is contiguous, whose memory it shares and where it begins in it.

    `writes`: also which inputs' memory changes where its last element is written to; and for each input, which results change then.
    """
    given, named = _built(module, args), _built(module, kwargs)
    inputs = _leaves(module, [given, named])
    module.manual_seed(0)
    results = _leaves(module, function(*given, **named))
    facts: list[Any] = []
    for r in results:
        same = next((i for i, t in enumerate(inputs) if t is r), None)
        together = [i for i, t in enumerate(inputs) if _storage(module, t) == _storage(module, r)]
        facts.append([tuple(r.shape), tuple(r.stride()), same, r.is_contiguous(), together, r.storage_offset() if together else None])
    if not writes:
        return facts
    before = [_bits(_memory(t)) for t in inputs]
    for r, fact in zip(results, facts, strict=True):
        if r.numel():
            _mark(module, r)
            now = [_bits(_memory(t)) for t in inputs]
            fact.append(("written", [i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]))
            before = now
    values = [_bits(r) for r in results]
    for i, t in enumerate(inputs):
        if t.numel():
            _mark(module, t)
            now = [_bits(r) for r in results]
            facts.append((f"input {i} changes", [k for k, (a, b) in enumerate(zip(values, now, strict=True)) if a != b]))
            values = now
    return facts


def difference(case: Case, writes: bool) -> str | None:
    """What differs of one call, or None; "" where PyTorch refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = seen(torch, case.function[1], case.args, case.kwargs, writes)
        except Exception:
            return ""
        try:
            ours = seen(flambeau, case.function[0], case.args, case.kwargs, writes)
        except Exception:
            return ""  # a refusal is a matter of test_operators.py
    return None if ours == theirs else f"{case.text[:500]}\n        {ours}\n        expected\n        {theirs}"


def differences(label: str, dtype: str, most: int, writes: bool = True, names: Sequence[str] = ALL) -> tuple[int, list[str]]:
    """How many calls of an operator were compared, and a line on each that differs."""
    told = [text for case in layout_cases(label, dtype, most, names) if (text := difference(case, writes)) != ""]
    return len(told), [text for text in told if text is not None]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.layouts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dtype", nargs="?", default="float64")
    parser.add_argument("most", nargs="?", type=int, default=2, help="samples of each operator")
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--writes", action="store_true", help="see sharing by writing, too")
    options = parser.parse_intermixed_args(arguments)
    total = wrong = 0
    for label in options.operators or list(OPERATORS):
        if label in INTERNAL or not supported(label, options.dtype):
            continue
        try:
            count, found = differences(label, options.dtype, options.most, options.writes)
        except (AttributeError, Unsupported) as error:
            count, found = 1, [f"{label}: missing: {error}"]
        total += count
        wrong += len(found)
        for text in found[:3]:
            print("-", text, flush=True)
    print(f"{wrong} differences in {total} calls of {options.dtype}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
