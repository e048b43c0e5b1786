"""The strides of results over two operands that lie in different orders are PyTorch's: of every function of two tensors, whatever their dtypes."""

import itertools
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

FUNCTIONS = """add sub rsub mul div true_divide floor_divide remainder fmod pow float_power atan2 copysign xlogy ldexp hypot logaddexp logaddexp2 fmin fmax
minimum maximum nextafter heaviside gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift eq ne lt ge isclose logical_and logical_xor igamma igammac
special.xlog1py special.zeta nn.functional.soft_margin_loss nn.functional.kl_div""".split()


def _operands(m: Any) -> dict[str, Any]:
    """One shape in many layouts: permuted, expanded and permuted, row-major, every second element, reversed, and what broadcasts to it."""
    count = m.arange(1, 25)
    return {
        "permuted": count.reshape(2, 3, 4).permute(2, 0, 1),
        "expanded": m.arange(1, 4).reshape(1, 3, 1).expand(2, 3, 4).permute(2, 0, 1),
        "row-major": count.reshape(4, 2, 3),
        "every second": m.arange(1, 49).reshape(2, 3, 8)[:, :, ::2].permute(2, 0, 1),
        "no dims": m.tensor(2),
        "column": m.arange(1, 5).reshape(4, 1, 1),
    }


def _strides(m: Any, name: str, a: str, b: str, kinds: tuple[str, str]) -> Any:
    function = m
    for part in name.split("."):
        function = getattr(function, part)
    operands = _operands(m)
    x, y = (operands[n] if k == "int64" else operands[n].to(getattr(m, k)) for n, k in zip((a, b), kinds, strict=True))
    try:
        result = function(x, y, **({"reduction": "none"} if name.startswith("nn.") else {}))
    except Exception:
        return "refused"
    return tuple(result.stride())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_lie_as_pytorchs(name: str) -> None:
    wrong = []
    for a, b in itertools.product(_operands(flambeau), repeat=2):
        if a in ("no dims", "column") and name == "ldexp":
            continue  # PyTorch resizes a result of its own there, and warns of it
        for kinds in itertools.product(("int64", "float32"), repeat=2):
            ours, expected = _strides(flambeau, name, a, b, kinds), _strides(torch, name, a, b, kinds)
            if ours != expected and "refused" not in (ours, expected):
                wrong.append((a, b, kinds, ours, expected))
    assert not wrong


@pytest.mark.parametrize("function", ["quantile", "nanquantile"])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("dim", [None, 0, 1, 2])
def test_quantiles_of_a_row_lie_side_by_side(function: str, dim: int | None, keepdim: bool) -> None:
    for name in ("permuted", "expanded", "row-major", "every second"):
        for q in ([0.1, 0.5], [0.25], 0.5):
            found = [getattr(m, function)(_operands(m)[name].double(), m.tensor(q, dtype=m.float64), dim, keepdim) for m in (flambeau, torch)]
            assert found[0].stride() == found[1].stride(), (name, q)
            assert found[0].tolist() == found[1].tolist(), (name, q)
