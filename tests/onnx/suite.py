"""ONNX's own suite against flambeau: `python -m tests.onnx.suite [words]` prints how many of its tests pass, and why others do not.

The package `onnx` brings the models, their inputs and what must come out: 1,884 of single nodes, 23 simple ones, 82 that were converted from PyTorch's
modules and 35 from its operators. Each word narrows the tests to those with it in their names.
"""

from __future__ import annotations

import sys
import unittest
import warnings
from collections import Counter
from typing import Any

from flambeau.onnx import backend

KINDS = ("NodeModel", "SimpleModel", "PyTorchConvertedModel", "PyTorchOperatorModel")


def items() -> dict[str, dict[str, Any]]:
    """The tests of each kind, by name."""
    warnings.simplefilter("ignore")
    from onnx.backend.test.runner import Runner

    found = Runner(backend, "flambeau")._test_items
    return {kind: {n: item for n, item in found[kind].items() if n.endswith("_cpu")} for kind in KINDS}


def run(item: Any) -> str | None:
    """Why a test fails; None if it passes."""
    try:
        item.func(unittest.TestCase())
    except unittest.SkipTest as why:
        return f"skipped: {why}"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None


def main(words: list[str]) -> int:
    """Run the tests and print counts; the exit status is 1 if fewer than 1,900 of all pass."""
    passed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for kind, tests in items().items():
        for name, item in sorted(tests.items()):
            if words and not any(w in name for w in words):
                continue
            total[kind] += 1
            why = run(item)
            if why is None:
                passed[kind] += 1
            else:
                print(f"{name}: {why}", flush=True)
    for kind in KINDS:
        print(f"{kind}: {passed[kind]} of {total[kind]} pass")
    print(f"all: {passed.total()} of {total.total()} pass")
    return 0 if words or passed.total() >= 1900 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
