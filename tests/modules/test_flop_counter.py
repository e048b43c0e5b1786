"""torch.utils.flop_counter against PyTorch: the same counts for each module and operator, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau
from flambeau.utils import flop_counter as ours

torch = pytest.importorskip("torch")
from torch.utils import flop_counter as theirs  # noqa: E402


def _net(m: Any) -> Any:
    return m.nn.Sequential(m.nn.Conv2d(2, 4, 3, groups=2), m.nn.Flatten(), m.nn.Sequential(m.nn.Linear(16, 2)))


CALLS: dict[str, Any] = {
    "net": lambda m, a, b, q: _net(m)(m.ones(1, 2, 4, 4)), "its input": lambda m, a, b, q: _net(m)(q[:, :, :4].expand(1, 2, 4, 4)),
    "transposed": lambda m, a, b, q: m.nn.ConvTranspose1d(3, 4, 2, stride=2)(m.ones(2, 3, 5)), "bmm": lambda m, a, b, q: m.bmm(a, b),
    "no batch": lambda m, a, b, q: m.nn.Conv1d(2, 3, 2)(m.ones(2, 5)), "matmul": lambda m, a, b, q: a @ b, "rows": lambda m, a, b, q: a @ m.ones(4, 2),
    "added": lambda m, a, b, q: m.baddbmm(m.ones(1), a, b), "mm": lambda m, a, b, q: m.mm(a[0], b[0].detach()), "mv": lambda m, a, b, q: m.mv(a[0], m.ones(4)),
    "linear": lambda m, a, b, q: m.nn.functional.linear(a, m.ones(6, 4)), "bias": lambda m, a, b, q: m.nn.Linear(4, 6)(a),
    "attention": lambda m, a, b, q: m.nn.functional.scaled_dot_product_attention(q, q, q),
    "heads": lambda m, a, b, q: m.nn.MultiheadAttention(4, 2)(*[m.ones(3, 1, 4)] * 3)[0], "einsum": lambda m, a, b, q: m.einsum("bij,bjk->bik", a, b),
    "lstm": lambda m, a, b, q: m.nn.LSTM(3, 4)(m.ones(2, 1, 3))[0], "convolution": lambda m, a, b, q: m.nn.functional.conv2d(q, m.ones(3, 2, 2, 2), padding=1),
}  # fmt: skip


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_counts(call: Any, backward: bool) -> None:
    found = []
    for m, counter in ((flambeau, ours), (torch, theirs)):
        a, b, q = (m.ones(*shape, requires_grad=True) for shape in ((2, 3, 4), (2, 4, 5), (1, 2, 4, 4)))
        with counter.FlopCounterMode(display=False) as counted:
            result = call(m, a, b, q)
            if backward:
                result.sum().backward()
        counts = {name: {str(op): n for op, n in of.items()} for name, of in counted.get_flop_counts().items()}
        found.append(({k: v for k, v in counts.items() if v}, counted.get_total_flops()))
    assert found[0] == found[1]


def test_formulas_and_tables(capsys: Any) -> None:
    with ours.FlopCounterMode(custom_mapping={flambeau.ops.aten.sin: lambda shape, out_shape=None: 7 * shape[0]}, depth=1) as counted:
        flambeau.ones(3).sin()
        flambeau.nn.Linear(2, 2)(flambeau.ones(1, 2))
    assert counted.get_total_flops() == 21 + 8
    assert "Linear" in capsys.readouterr().out and "aten.sin" in counted.get_table(2)
    with pytest.raises(RuntimeError, match="duplicate"):
        ours.register_flop_formula(flambeau.ops.aten.mm)(ours.mm_flop)


def test_names_that_are_modules_here_are_operators_there() -> None:
    x, w = flambeau.ones(2, 3), flambeau.ones(4, 3)
    assert flambeau.ops.aten.linear(x, w).tolist() == (x @ w.T).tolist()
