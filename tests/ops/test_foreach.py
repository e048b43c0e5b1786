"""`torch._foreach_*` against PyTorch: every name, what each form returns, its values, and the errors of lists that do not go together."""

import pytest
import torch

import flambeau

NAMES = sorted(n for n in dir(torch) if n.startswith("_foreach_"))
X = [[0.25, 0.5, 0.75], [0.3]]
UNARY = [
    n
    for n in NAMES
    if n.rstrip("_").removeprefix("_foreach_") not in "add sub mul div maximum minimum clamp_max clamp_min pow lerp copy addcmul addcdiv mm".split()
]


def lists(m, *shift):
    return [[m.tensor([v + s for v in row]) for row in X] for s in (0.0, *shift)]


def outcome(call):
    try:
        return call()
    except Exception as error:
        return error


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.reshape(-1).tolist() == pytest.approx(b.reshape(-1).tolist(), rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name):
    assert callable(getattr(flambeau, name))


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_list(name):
    (ours,), (theirs,) = lists(flambeau), lists(torch)
    a, b = getattr(flambeau, name)(ours), getattr(torch, name)(theirs)
    assert (a is ours) == (b is theirs) == name.endswith("_")
    same(a, b)
    same(ours, theirs)


CALLS = {
    "list": lambda m, f, x, y: f(x, y),
    "number": lambda m, f, x, y: f(x, 2),
    "numbers": lambda m, f, x, y: f(x, [2.0, 3.0]),
    "tensor": lambda m, f, x, y: f(x, m.tensor(2.0)),
    "tensor of one element": lambda m, f, x, y: f(x, m.ones(1)),
    "too few": lambda m, f, x, y: f(x, y[:1]),
    "too few numbers": lambda m, f, x, y: f(x, [1.0]),
    "no numbers": lambda m, f, x, y: f(x, []),
    "nothing and a list": lambda m, f, x, y: f([], y),
    "nothing": lambda m, f, x, y: f([], []),
    "nothing and a number": lambda m, f, x, y: f([], 1),
    "by name": lambda m, f, x, y: f(x, other=y),
    "number by name": lambda m, f, x, y: f(x, scalar=2),
    "numbers by name": lambda m, f, x, y: f(x, scalars=[2.0, 3.0]),
}


@pytest.mark.parametrize("end", ["", "_"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min"])
@pytest.mark.parametrize("call", CALLS)
def test_functions_of_two_lists(call, name, end):
    results = []
    for m in (flambeau, torch):
        x, y = lists(m, 0.125)
        found = outcome(lambda m=m, x=x, y=y: CALLS[call](m, getattr(m, f"_foreach_{name}{end}"), x, y))
        results.append((found, found is x, x))
    (a, a_is_x, x), (b, b_is_x, y) = results
    if call == "tensor of one element" and name not in ("add", "mul", "div"):
        return  # PyTorch reads it as a list of its elements
    if call == "tensor" and name not in ("add", "mul", "div"):
        return
    if isinstance(b, Exception):
        assert type(a) is type(b)
        if isinstance(b, RuntimeError):
            assert str(b).rstrip(".") in str(a)
    else:
        assert a_is_x == b_is_x
        same(a, b)
        same(x, y)


@pytest.mark.parametrize("number", [2, 0.5])
def test_a_number_to_the_powers_of_a_list(number):
    same(flambeau._foreach_pow(number, lists(flambeau)[0]), torch._foreach_pow(number, lists(torch)[0]))


def test_functions_of_three_lists_by_name():
    for call in (
        lambda m, x, y: m._foreach_addcmul(x, tensor1=y, tensor2=y, scalars=[1.0, 2.0]),
        lambda m, x, y: m._foreach_addcdiv(x, y, y, value=2.0),
        lambda m, x, y: m._foreach_lerp(x, tensors1=y, weights=y),
        lambda m, x, y: m._foreach_copy_(x, src=y),
        lambda m, x, y: m._foreach_pow(x, exponent=2),
        lambda m, x, y: m._foreach_mm(self=[m.eye(3)], mat2=[x[0].reshape(3, 1)]),
        lambda m, x, y: m._foreach_powsum(x, 3),
    ):
        same(call(flambeau, *lists(flambeau, 1.0)), call(torch, *lists(torch, 1.0)))


def test_an_element_that_cannot_be_cast_is_refused():
    for m in (flambeau, torch):
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            m._foreach_acos_([m.ones(1, dtype=m.uint8)])
