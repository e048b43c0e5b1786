"""Whether a change of the compiler changes code: the texts of kernels for several machines, with and without a matrix unit, as digests in a file.

    python benchmarks/kernel_texts.py before.json          # in the tree before
    python benchmarks/kernel_texts.py after.json before.json          # in the tree after: which graphs differ

Where a text reads an argument word, the digest has the word's value: words may change places. So may functions of a module, and its names.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flambeau import dtypes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Function, Word
from flambeau.compiler.pipeline import compile_graph
from flambeau.compiler.plan import Plan
from flambeau.runtime.target import Target
from tests.graphs import GraphBuilder

UNIT: Final = Target.named("sapphirerapids", 2)
TARGETS: Final = {name: Target.named(name, 2) for name in ("znver4", "x86-64-v3", "aarch64-linux", "wasm32", "sapphirerapids")} | {
    "float16 unit": replace(UNIT, matrix=(UNIT.matrix or frozenset()) | {"float16"})
}
SIZES: Final = ((1, 300, 200), (3, 257, 300), (20, 1024, 512), (70, 90, 40), (200, 300, 700), (16, 16, 5000), (512, 512, 64))
# Batch, inputs, outputs, size of an image, groups, stride, size of the kernel.
CONVOLUTIONS: Final = (
    (2, 3, 16, 20, 1, 1, 3), (32, 64, 64, 7, 1, 1, 3), (2, 32, 48, 24, 1, 2, 3), (2, 16, 16, 20, 16, 1, 3), (2, 64, 64, 28, 1, 1, 1), (2, 64, 3, 28, 1, 1, 3),
    (4, 64, 64, 56, 1, 1, 3), (32, 128, 128, 14, 1, 2, 3), (2, 8, 8, 30, 1, 1, 7), (32, 64, 64, 8, 1, 2, 3),
)  # fmt: skip
FLOATS: Final = (dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float64)
_ARGUMENT: Final = re.compile(r"  (%\w+) = getelementptr i64, ptr %args, i64 (\d+)")
_LOAD: Final = re.compile(r"  (%\w+) = load (?:ptr|i64), ptr (%\w+), align 8")


def product(d: dtypes.dtype, m: int, n: int, k: int, turned: bool, batch: tuple[int, ...]) -> Graph:
    """A product, and what follows it where that fuses."""
    b = GraphBuilder()
    left, right = b.input((*batch, m, k), d), b.input((*batch, k, n), d, (*[k * n] * len(batch), 1, k) if turned else None)
    y = b.op("matmul", left, right)
    b.output(b.op("exp", y) if d.is_floating_point and not turned else y)
    return b.graph


def convolution(d: dtypes.dtype, batch: int, inputs: int, outputs: int, size: int, groups: int, stride: int, kernel: int) -> Graph:
    """A convolution and its gradients."""
    b = GraphBuilder()
    shape, weights = (batch, inputs, size, size), (outputs, inputs // groups, kernel, kernel)
    x, w = b.input(shape, d), b.input(weights, d)
    common: dict[str, Any] = {"stride": (stride, stride), "padding": (kernel // 2, kernel // 2), "dilation": (1, 1), "groups": groups}
    y = b.op("convolution", x, w, **common)
    b.output(b.op("exp", y))
    g = b.input(b.graph.values[y].shape, d)
    b.output(b.op("convolution_input_gradient", g, w, shape=shape, **common))
    b.output(b.op("convolution_weight_gradient", g, x, shape=weights, **common))
    return b.graph


def graphs() -> Iterator[tuple[str, Callable[[], Graph]]]:
    """What is compiled, by name."""
    for d, sizes, turned in itertools.product((*FLOATS, dtypes.int8, dtypes.int64, dtypes.complex64), SIZES, (False, True)):
        yield f"product {d.name} {sizes} {turned}", partial(product, d, *sizes, turned, ())
    for d, items in itertools.product(FLOATS, ((40, 8, 8, 8), (3, 70, 70, 70))):
        yield f"products {d.name} {items}", partial(product, d, *items[1:], False, items[:1])
    for d, sizes_of in itertools.product(FLOATS, CONVOLUTIONS):
        yield f"convolution {d.name} {sizes_of}", partial(convolution, d, *sizes_of)


def function_text(text: str, words: list[Word]) -> str:
    """A function's text with the values of argument words, and names in their order."""
    places, values = {"%args": 0}, {}
    kept = []
    for line in text.splitlines():
        if found := _ARGUMENT.fullmatch(line):
            places[found[1]] = int(found[2])
        elif (found := _LOAD.fullmatch(line)) and found[2] in places and places[found[2]] < len(words):
            word = words[places[found[2]]]
            values[found[1]] = f"<{word.key if isinstance(word, Function) else word}>"
        else:
            kept.append(re.sub(r"^(\w+):$", r"%\1:", line))
    names: dict[str, str] = {}
    return re.sub(r"%[A-Za-z_]\w*", lambda m: values.get(m[0]) or names.setdefault(m[0], f"%{len(names)}"), "\n".join(kept))


def digest(text: str, words: list[Word]) -> str:
    """Of a module."""
    text = re.sub(r"k_[0-9a-f]{20}", "symbol", text)
    functions = re.findall(r"^define .*?^}$", text, re.MULTILINE | re.DOTALL)
    rest = sorted(line for line in re.sub(r"^define .*?^}$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines() if line)
    whole = "\n".join([*rest, *sorted(function_text(one, words) for one in functions)])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def digests(plan: Plan) -> list[str]:
    """Of the kernels of a plan and of the functions that they call."""
    target = plan.interface.target
    found = {digest(kernel.emit(target), kernel.words) for kernel in plan.kernels}
    called = [(word, kernel.words) for kernel in plan.kernels for word in kernel.words if isinstance(word, Function)]
    return sorted(found | {digest(word.emit(target), words) for word, words in called})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path, help="where to write the digests")
    parser.add_argument("before", type=Path, nargs="?", help="a file to compare with")
    given = parser.parse_args()
    made = {f"{name}: {graph}": digests(compile_graph(make(), target=target)) for name, target in TARGETS.items() for graph, make in graphs()}
    given.file.write_text(json.dumps(made, indent=0), encoding="utf-8")
    print(f"{len(made)} graphs, {len({one for found in made.values() for one in found})} texts")
    if given.before is None:
        return 0
    before = json.loads(given.before.read_text(encoding="utf-8"))
    differ = [name for name, found in made.items() if before.get(name) != found]
    print("\n".join([*differ, f"{len(differ)} differ"]))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
