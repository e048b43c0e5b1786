"""Numbers that decide something: a bool tensor as a dim, a beta of minus zero, thresholds that 16 bits do not hold, frequencies of no samples,
slopes below zero of what is written in place: PyTorch's results and errors."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")
NAN = float("nan")


def outcome(call: Callable[[Any], Any], m: Any) -> Any:
    """The values of a call as text (so that NaN and the signs of zeros count), or the class of its error."""
    try:
        result = call(m)
    except Exception as error:
        return type(error).__name__
    results = result if isinstance(result, (tuple, list)) else [result]
    return [repr(r.tolist()) if hasattr(r, "tolist") else repr(r) for r in results]


def same(call: Callable[[Any], Any], what: Any = None) -> None:
    assert outcome(call, flambeau) == outcome(call, torch), what


DIMS = """sum mean amax amin nansum argmax softmax log_softmax cumsum sort unbind norm prod all any max median logsumexp std var unsqueeze""".split()


@pytest.mark.parametrize("name", DIMS)
@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float32"])
def test_a_tensor_as_a_dim(name: str, dtype: str) -> None:
    for value in (0, 1):
        same(lambda m, v=value: getattr(m, name)(m.arange(6.0).reshape(2, 3), m.tensor(v, dtype=getattr(m, dtype))), value)
        same(lambda m, v=value: getattr(m.arange(6.0).reshape(2, 3), name)(m.tensor(v, dtype=getattr(m, dtype))), value)


@pytest.mark.parametrize("beta", [0.0, -0.0, 0])
@pytest.mark.parametrize("terms", [0, 2])
def test_beta_times_what_is_ignored(beta: float, terms: int) -> None:
    calls = {
        "addmm": lambda m, base, sign: m.addmm(m.tensor(base), sign * m.zeros(1, terms), m.ones(terms, 2), beta=beta),
        "baddbmm": lambda m, base, sign: m.baddbmm(m.tensor([base]), sign * m.zeros(1, 1, terms), m.ones(1, terms, 2), beta=beta),
        "addmv": lambda m, base, sign: m.addmv(m.tensor(base)[0], sign * m.zeros(2, terms), m.ones(terms), beta=beta),
        "addbmm": lambda m, base, sign: m.addbmm(m.tensor(base), sign * m.zeros(1, 1, terms), m.ones(1, terms, 2), beta=beta),
    }
    for name, base, sign in itertools.product(calls, ([[NAN, 1.0]], [[-0.0, 2.0]]), (1.0, -1.0)):
        same(lambda m, call=calls[name], base=base, sign=sign: call(m, base, sign), (name, base, sign))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_thresholds_keep_their_digits(dtype: str) -> None:
    for limit, value in ((0.1, 20.03), (0.1001, -0.1), (20.03, 2.7), (3, 20)):
        same(lambda m, t=limit, v=value: m.nn.Threshold(t, v)(m.tensor([0.1, 0.1001, 0.5, 20.03, 20, -1, NAN]).to(getattr(m, dtype))), (limit, value))


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies_of_few_samples(name: str) -> None:
    for n, d in itertools.product((0, 1, 2, 3, -1), (1.0, 0.5, 0.0, -0.0)):
        if (name, n, d) != ("rfftfreq", 0, 0.0):  # 0 / 0
            same(lambda m, n=n, d=d: getattr(m.fft, name)(n, d), (n, d))


@pytest.mark.parametrize("name", ["elu", "celu", "leaky_relu"])
@pytest.mark.parametrize("slope", [-1.0, -0.5, 0.5, 2.0])
@pytest.mark.parametrize("inplace", [True, False])
def test_slopes_below_zero_in_place(name: str, slope: float, inplace: bool) -> None:
    def call(m: Any) -> Any:
        x = m.tensor([-1.0, 2.0, -3.0], requires_grad=True)
        y = getattr(m.nn.functional, name)(x * 1, slope, inplace)
        value = y.detach().clone()
        y.sum().backward()
        return value.mul(1000).round(), x.grad.mul(1000).round()

    same(call)
    if inplace and slope < 0:
        with pytest.raises(RuntimeError, match="negative slope which is not supported"):
            call(flambeau)
        with flambeau.no_grad():
            assert getattr(flambeau.nn.functional, name)(flambeau.tensor([-1.0]), slope, True).isfinite().all()
