"""Every option of gradcheck and gradgradcheck: PyTorch's verdicts, and the first words of its errors, for functions that are wrong in one way each."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau
from flambeau.autograd.gradcheck import GradcheckError

torch = pytest.importorskip("torch")

Make = Callable[[Any], Callable[..., Any]]


def custom(forward: Callable[..., Any], vjp: Callable[..., Any], jvp: Callable[..., Any] | None = None) -> Make:
    """A custom function of one tensor; `vjp` and `jvp` get the module, too."""

    def make(m: Any) -> Callable[..., Any]:
        class F(m.autograd.Function):  # type: ignore[misc,name-defined]
            generate_vmap_rule = True

            @staticmethod
            def forward(x: Any) -> Any:
                return forward(x)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.x = inputs[0]

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return vjp(m, g)

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return (jvp or vjp)(m, t)

        return F.apply  # type: ignore[no-any-return]

    return make


def hooked(change: Callable[[Any], Any]) -> Make:
    def make(m: Any) -> Callable[..., Any]:
        def function(x: Any) -> Any:
            y = x.clone()
            if y.requires_grad:
                y.register_hook(change)
            return y * 2

        return function

    return make


FUNCTIONS: dict[str, Make] = {
    "right": lambda m: lambda x: (x.sin() * 2, x.exp().sum()),
    "custom, right": custom(lambda x: x * 2, lambda m, g: g * 2),
    "wrong backward": custom(lambda x: x * 2, lambda m, g: g * 3, lambda m, t: t * 2),
    "wrong jvp": custom(lambda x: x * 2, lambda m, g: g * 2, lambda m, t: t * 3),
    "not the same twice": custom(lambda x: x * 2, lambda m, g: g * 2 + 1e-9 * m.rand_like(g) * g),
    "added to": hooked(lambda g: g + 1e-2),
    "slightly added to": hooked(lambda g: g + 1e-7),
    "of the imaginary part": lambda m: lambda x: m.complex(x, x * 3),
    "no history": lambda m: lambda x: x.detach() * 2,
    "constant": lambda m: lambda x: x.detach() * 0,
    "no results": lambda m: lambda x: (),
    "other sizes": lambda m: lambda x: m.cat([x, x]) if bool((x >= 1).all()) else x,
    "other dtypes": lambda m: lambda x: x.float() if bool((x >= 1).all()) else x,
}
OPTIONS: list[dict[str, Any]] = [
    {}, {"fast_mode": True}, {"check_forward_ad": True}, {"check_forward_ad": True, "fast_mode": True},
    {"check_forward_ad": True, "check_backward_ad": False}, {"check_batched_grad": True}, {"nondet_tol": 1e-3, "atol": 1e-3},
    {"check_forward_ad": True, "check_batched_forward_grad": True}, {"check_undefined_grad": False, "check_grad_dtypes": True},
    {"check_backward_ad": False}, {"check_batched_grad": True, "check_backward_ad": False, "check_forward_ad": True},
    {"check_batched_forward_grad": True},
]  # fmt: skip


def verdict(m: Any, check: str, name: str, dtype: str, options: dict[str, Any]) -> Any:
    m.manual_seed(0)
    x = m.ones(2, 2, dtype=getattr(m, dtype), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(m.autograd, check)(FUNCTIONS[name](m), (x,), **options)
        except Exception as error:
            words = str(error).replace("gradcheck(): ", "").replace("jacobians.slopes(): ", "")
            return type(error).__name__, " ".join(words.split()[:5])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_verdicts_of_gradcheck(name: str) -> None:
    wrong = []
    for options, dtype in itertools.product(OPTIONS, ("float64", "complex128")):
        if name in ("of the imaginary part", "other sizes", "other dtypes") and dtype == "complex128":
            continue  # they are of real numbers
        found = [verdict(m, "gradcheck", name, dtype, options) for m in (flambeau, torch)]
        if found[0] != found[1]:
            wrong.append((options, dtype, *found))
    assert not wrong


@pytest.mark.parametrize("name", ["right", "custom, right", "wrong backward"])
@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"nondet_tol": 1e-3}, {"check_batched_grad": True}, {"check_rev_over_rev": False}], ids=str)
def test_verdicts_of_gradgradcheck(name: str, options: dict[str, Any]) -> None:
    assert verdict(flambeau, "gradgradcheck", name, "float64", options) == verdict(torch, "gradgradcheck", name, "float64", options)


def test_no_exception_is_raised_where_none_is_asked_for() -> None:
    x = flambeau.ones(2, dtype=flambeau.float64, requires_grad=True)
    assert not flambeau.autograd.gradcheck(FUNCTIONS["wrong backward"](flambeau), x, raise_exception=False)
    with pytest.raises(GradcheckError, match="at input element 0, output element 0: numerical"):
        flambeau.autograd.gradcheck(FUNCTIONS["wrong backward"](flambeau), x)
    with pytest.raises(ZeroDivisionError):
        flambeau.autograd.gradcheck(lambda x: 1 // 0, x, raise_exception=False)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
@pytest.mark.parametrize("fast_mode", [True, False])
def test_sparse_inputs_with_a_mask(layout: str, fast_mode: bool) -> None:
    x = flambeau.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=flambeau.float64).to_sparse(layout=getattr(flambeau, layout)).requires_grad_()
    assert flambeau.autograd.gradcheck(lambda x: x.to_dense() * 2, x, masked=True, fast_mode=fast_mode)


def test_what_gradcheck_refuses() -> None:
    x = flambeau.ones(1, dtype=flambeau.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        flambeau.autograd.gradcheck(lambda x: x, x.expand(2, 2))
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        flambeau.autograd.gradcheck(lambda x: x, x.detach())
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision"):
        flambeau.autograd.gradcheck(lambda x: x, flambeau.ones(1, requires_grad=True), atol=0.1)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (1,), ()])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("fast_mode", [True, False])
def test_few_elements(shape: tuple[int, ...], dtype: str, fast_mode: bool) -> None:
    for m in (flambeau, torch):
        x = m.rand(shape, dtype=getattr(m, dtype)).requires_grad_()
        for function in (lambda x: x * 2, lambda x: (x.sum(), x.exp())):
            assert m.autograd.gradcheck(function, x, check_forward_ad=True, fast_mode=fast_mode)
            assert m.autograd.gradgradcheck(function, x, fast_mode=fast_mode)
