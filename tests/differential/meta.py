"""Every operator of PyTorch's database on the device `meta`: shape, strides and dtype of each result are those of the same call on the CPU.

`python -m tests.differential.meta [MOST] [LABEL ...]` runs up to MOST samples of each operator and prints what differs, and what asks for values here
although PyTorch knows the answer without them.
"""

from __future__ import annotations

import sys
from typing import Any

import flambeau
from flambeau.testing.compare import Input, _built, _flat
from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, Unsupported, cases, supported, torch

READS = (NotImplementedError, RuntimeError, TypeError)


def without_elements(module: Any, x: Any) -> Any:
    """An argument with its tensors on `meta`."""
    if isinstance(x, module.Tensor):
        whole = module.empty(x.untyped_storage().nbytes() // x.element_size(), dtype=x.dtype, device="meta")
        moved = whole.as_strided(tuple(x.shape), x.stride(), x.storage_offset())
        return moved.requires_grad_() if x.requires_grad else moved
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([without_elements(module, y) for y in x])
    if isinstance(x, dict):
        return {k: without_elements(module, v) for k, v in x.items()}
    return x


def outcome(function: Any, args: Any, kwargs: Any) -> Any:
    """Layouts of the results, or the error."""
    try:
        results = _flat(function(*args, **kwargs))
        return [(tuple(t.shape), t.stride() if t.numel() else None, str(t.dtype), t.requires_grad) for t in results if hasattr(t, "stride")]
    except Exception as error:
        return error


def reads(error: Any) -> bool:
    """Whether a call was refused because it looks at values."""
    text = str(error)
    return isinstance(error, READS) and any(part in text for part in ("no data!", "cannot be called on meta", "meta device type", "'meta' device"))


def differences(label: str, most: int, dtype: str = "float32") -> tuple[int, list[str], list[str]]:
    """(calls compared, what differs from the CPU, what reads values here and not in PyTorch)."""
    compared, wrong, refused = 0, [], []
    for case in cases(label, dtype, False, most):
        given = [_built(flambeau, a) for a in case.args], {k: _built(flambeau, v) for k, v in case.kwargs.items()}
        if not any(isinstance(x, Input) for x in _flat_inputs((case.args, case.kwargs))):
            continue
        bare = without_elements(flambeau, given[0]), without_elements(flambeau, given[1])
        there, here = outcome(case.function[0], *bare), outcome(case.function[0], *given)
        compared += 1
        if isinstance(there, Exception):
            if isinstance(here, Exception) and type(here) is type(there):
                continue
            if not reads(there):
                wrong.append(f"{case.text}: {type(there).__name__}: {there}")
                continue
            theirs = [_built(torch, a) for a in case.args], {k: _built(torch, v) for k, v in case.kwargs.items()}
            if not isinstance(outcome(case.function[1], without_elements(torch, theirs[0]), without_elements(torch, theirs[1])), Exception):
                refused.append(f"{case.text}: {there}")
        elif isinstance(here, Exception):
            if type(here).__name__ not in ("IndexRangeError", "LinAlgError", "_LinAlgError") and "must" not in str(here):
                wrong.append(f"{case.text}: on the CPU {type(here).__name__}: {here}")
        elif here != there:
            wrong.append(f"{case.text}: on meta {there}, on the CPU {here}")
    return compared, wrong, refused


def _flat_inputs(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    return [y for part in x for y in _flat_inputs(part)] if isinstance(x, (list, tuple)) else [x]


def main(most: int, labels: list[str]) -> None:
    """Run and print."""
    total = bad = 0
    for label in labels or sorted(set(OPERATORS) - INTERNAL):
        if not supported(label, "float32"):
            continue
        try:
            compared, wrong, refused = differences(label, most)
        except Unsupported:
            continue
        total, bad = total + compared, bad + len(wrong)
        for line in wrong:
            print("differs", line[:400], flush=True)
        for line in refused[:1]:
            print("reads  ", line[:300], flush=True)
    print(f"{total} calls, {bad} differ")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, sys.argv[2:])
