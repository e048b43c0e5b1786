"""Products: matrix products in all their forms, einsum, linear layers."""

from __future__ import annotations

from typing import Any, Final

from flambeau.distributed.tensor.calls import Call, Rule
from flambeau.distributed.tensor.placement_types import Replicate
from flambeau.distributed.tensor.rules.letters import WHOLE, by_letters, names

_BOTH: Final = [[0], [1]]


def _fixed(*letters: str) -> Any:
    def rule(c: Call, *args: Any, **kwargs: Any) -> Rule:
        return Rule(by_letters(letters[:-1], letters[-1], _BOTH))

    return rule


def _batched(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[str, str, str]:
    """The letters of a matmul: batch dims are broadcast."""
    if len(y) == 1:
        rows = names(len(x) - 1)
        return rows + "z", "z", rows
    if len(x) == 1:
        batch = names(len(y) - 2)
        return "z", batch + "zy", batch + "y"
    count = max(len(x), len(y)) - 2
    batch = names(count)
    sides = []
    for shape in (x, y):
        sizes = shape[:-2]
        theirs = (y if shape is x else x)[:-2]
        mine = []
        for d in range(len(sizes)):
            other = theirs[d - len(sizes)] if len(sizes) - d <= len(theirs) else 1
            mine.append(batch[count - len(sizes) + d] if sizes[d] != 1 or other == 1 else WHOLE)
        sides.append("".join(mine))
    return sides[0] + "xz", sides[1] + "zy", batch + "xy"


def matmul(c: Call, x: Any, y: Any) -> Rule:
    """Of all numbers of dims."""
    left, right, out = _batched(x._layout.shape, y._layout.shape)
    return Rule(by_letters([left, right], out, _BOTH))


def rmatmul(c: Call, y: Any, x: Any) -> Rule:
    """x @ y as y's method."""
    left, right, out = _batched(x._layout.shape, y._layout.shape)
    return Rule(by_letters([right, left], out, _BOTH))


def linear(c: Call, input: Any, weight: Any, bias: Any = None) -> Any:
    """The bias is added to the sum, once: where the products are parts of sums they are put together first."""
    rows = names(len(input._layout.shape) - 1)
    out = rows + ("o" if len(weight._layout.shape) == 2 else "")
    ins = [rows + "z", "oz" if len(weight._layout.shape) == 2 else "z"]
    if bias is None:
        return Rule(by_letters(ins, out, _BOTH))
    ways = by_letters([*ins, "o" if bias._layout.shape else ""], out, sums=False)
    if _costs_a_product(c):
        return c.func(input, weight) + bias
    return Rule(ways)


def _costs_a_product(c: Call) -> bool:
    """Whether the dim that is summed over is cut, or something is a part of a sum: then no way with the bias is cheap."""
    x, weight = c.tensors[:2]
    for p, q in zip(x._layout.placements, weight._layout.placements, strict=True):
        if p.is_shard(len(x._layout.shape) - 1) or p.is_partial() or q.is_partial() or (q.is_shard(1) and len(weight._layout.shape) == 2):
            return True
    return False


def addmm(c: Call, input: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * input + alpha * (a @ b)."""
    product = a @ b
    return input * beta + (product if alpha == 1 else product * alpha) if beta != 1 else input + (product if alpha == 1 else product * alpha)


def einsum(c: Call, equation: Any, *operands: Any) -> Any:
    """Letters are given; those of an ellipsis are not cut apart."""
    given = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    left, arrow, right = equation.replace(" ", "").partition("->")
    ins = left.split(",")
    if "..." in equation or any(len(set(i)) < len(i) for i in ins):
        if _all_whole(given):
            return Rule(by_letters([WHOLE] * len(given), ""))
        return c.func(equation, *[t.redistribute(placements=[Replicate()] * c.mesh.ndim) for t in given])
    out = right if arrow else "".join(sorted(x for x in set("".join(ins)) if "".join(ins).count(x) == 1))
    return Rule(by_letters(ins, out, [[i] for i in range(len(given))]))


def _all_whole(given: Any) -> bool:
    return all(p.is_replicate() for t in given for p in t._layout.placements)


RULES: Final[dict[str, Any]] = {
    "mm": _fixed("xz", "zy", "xy"), "bmm": _fixed("axz", "azy", "axy"), "mv": _fixed("xz", "z", "x"), "dot": _fixed("z", "z", ""),
    "outer": _fixed("x", "y", "xy"), "matmul": matmul, "rmatmul": rmatmul, "linear": linear, "addmm": addmm, "baddbmm": addmm, "einsum": einsum,
}  # fmt: skip
