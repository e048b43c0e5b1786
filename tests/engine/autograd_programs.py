"""Programs about gradients (see test_autograd.py): passes over graphs, modes, writes in place, views, histories.

A program is `f(m, see)`: `m` is the module, `see(t)` returns t after looking at its values, or at once. It returns numbers,
tensors, strings and lists of these, which must be those of PyTorch. `refused(call, *words)` is the type of the exception that
`call` raises, once its message has been found to contain the words: PyTorch's own, so that both messages must.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[[Any, Callable[[Any], Any]], Any]
PROGRAMS: dict[str, Program] = {}


def program(f: Program) -> Program:
    """Add a program to those that are run."""
    PROGRAMS[f.__name__] = f
    return f


def refused(call: Callable[[], Any], *words: str) -> str:
    """The type's name of the exception that `call` raises; its message must contain the words."""
    try:
        call()
    except Exception as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return type(error).__name__
    raise AssertionError(f"nothing was raised, expected an error with {words}")


def leaf(m: Any, *shape: int, start: float = 1.0) -> Any:
    """Increasing numbers, float64, with gradients."""
    n = 1
    for s in shape:
        n *= s
    return ((m.arange(n, dtype=m.float64) * 0.25) + start).reshape(shape).detach().requires_grad_()


# -- passes over a graph ----------------------------------------------------------------------------------------------


@program
def a_pass(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x.sin() * x)
    see(y.exp().sum()).backward()
    return [x.grad, y.grad_fn is not None, x.grad_fn is None, x.is_leaf, y.is_leaf, y.requires_grad]


@program
def twice_is_refused(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see((see(x * x) * x).sum())
    y.backward()
    return [refused(y.backward, "second time", "retain_graph=True"), x.grad]


@program
def twice_through_a_linear_graph(m: Any, see: Any) -> Any:
    """Nothing is saved for sums, so that a second pass is allowed."""
    x = leaf(m, 3)
    y = see(see(-x + x.reshape(1, 3)).sum())
    y.backward()
    y.backward()
    return x.grad


@program
def retained(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see((x**3).sum())
    y.backward(retain_graph=True)
    first = see(x.grad.clone())
    y.backward(retain_graph=True)
    second = see(x.grad.clone())
    y.backward()
    return [first, second, x.grad, refused(y.backward, "second time")]


@program
def part_of_a_freed_graph(m: Any, see: Any) -> Any:
    """Two results share a freed trunk."""
    x = leaf(m, 3)
    trunk = see(x.exp())
    a, b = see((trunk * trunk).sum()), see((trunk * 3.0).sum())
    a.backward()
    return [refused(b.backward, "second time"), x.grad]


@program
def part_of_a_retained_graph(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    trunk = see(x.exp())
    a, b = see((trunk * trunk).sum()), see((trunk * 3.0).sum())
    a.backward(retain_graph=True)
    b.backward()
    return x.grad


@program
def accumulation(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    seen = []
    for k in range(4):
        see((x * x * float(k)).sum()).backward()
        seen.append(x.grad.clone())
    first = x.grad
    (x * 2).sum().backward()
    return [seen, x.grad is first, first]


@program
def accumulation_into_a_given_gradient(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    x.grad = m.full((3,), 10.0, dtype=m.float64)
    see((x * x).sum()).backward()
    seen = x.grad.clone()
    x.grad = None
    (x * x).sum().backward()
    return [seen, x.grad, refused(lambda: setattr(x, "grad", m.ones(4, dtype=m.float64)), "size"),
            refused(lambda: setattr(x, "grad", 3), "Tensor")]  # fmt: skip


@program
def many_roots(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3, start=-1.0)
    y, z = see(x * w), see((w * w).sum())
    m.autograd.backward([y, z], [m.ones(3, dtype=m.float64) * 2, None])
    return [x.grad, w.grad]


@program
def not_a_scalar(m: Any, see: Any) -> Any:
    x = leaf(m, 2, 2)
    y = see(x * x)
    given = m.arange(4, dtype=m.float64).reshape(2, 2)
    kinds = [refused(y.backward, "grad can be implicitly created only for scalar outputs"),
             refused(lambda: y.backward(m.ones(2, dtype=m.float64)), "Mismatch in shape")]  # fmt: skip
    y.backward(given)
    return [kinds, x.grad]


@program
def one_element_is_a_scalar(m: Any, see: Any) -> Any:
    x = leaf(m, 1, 1)
    see(x * x).backward()
    return x.grad


@program
def without_history(m: Any, see: Any) -> Any:
    x = m.ones(3, dtype=m.float64)
    return [refused((x * 2).sum().backward, "does not require grad and does not have a grad_fn"), x.grad is None]


@program
def a_leaf_as_root(m: Any, see: Any) -> Any:
    x = leaf(m)
    x.backward()
    return x.grad


@program
def integers_have_no_gradients(m: Any, see: Any) -> Any:
    i = m.arange(3)
    return [
        refused(i.requires_grad_, "loating point"), refused(lambda: m.ones(2, dtype=m.bool, requires_grad=True), "loating point"),
        refused(lambda: m.tensor([1, 2], requires_grad=True), "loating point"), (leaf(m, 3) > 1).requires_grad, leaf(m, 3).argmax().requires_grad,
        leaf(m, 3).to(m.int64).requires_grad,
    ]  # fmt: skip


@program
def complex_leaves(m: Any, see: Any) -> Any:
    z = m.tensor([1.0 + 2.0j, -1.0 + 0.5j], dtype=m.complex128, requires_grad=True)
    see((see(z * z).real * 2 + (z * z.conj()).real).sum()).backward()
    return [z.grad.real, z.grad.imag]


@program
def mixed_dtypes(m: Any, see: Any) -> Any:
    x = m.arange(3.0).requires_grad_()
    w = leaf(m, 3)
    see(see(x * w).sum() + (x * m.arange(3)).sum()).backward()
    return [x.grad, w.grad]


@program
def inputs_of_backward(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3)
    y = see(x * w)
    see((y * y).sum()).backward(inputs=[w])
    return [x.grad is None, w.grad]


@program
def deep(m: Any, see: Any) -> Any:
    x = leaf(m, 2)
    y = x
    for k in range(60):
        y = y * 0.9 + x.sin()
        if k % 20 == 7:
            y = see(y)
    y.sum().backward()
    return x.grad


@program
def any_control_flow(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = x
    while y.sum().item() < 50:
        y = y * 2 if y[0].item() < 3 else y + x
    y.sum().backward()
    return [x.grad, y]


@program
def unused_leaf(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3)
    see((x * 2).sum()).backward()
    return [x.grad, w.grad is None]


# -- autograd.grad ----------------------------------------------------------------------------------------------------


@program
def grad_leaves_no_trace(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3, start=2.0)
    y = see((x * x * w).sum())
    found = m.autograd.grad(y, [x, w])
    return [found, x.grad is None, w.grad is None, type(found).__name__, m.autograd.grad((x * 2).sum(), x)]


@program
def grad_of_values_between(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x.exp())
    z = see(y * y)
    return [m.autograd.grad(z.sum(), [y, x, z])]


@program
def grad_unused(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 2)
    y = see((x * x).sum())
    kind = refused(lambda: m.autograd.grad(y, [x, w], retain_graph=True), "appears to not have been used in the graph", "allow_unused=True")
    a, b = m.autograd.grad(y, [x, w], allow_unused=True, retain_graph=True)
    c, d = m.autograd.grad(y, [x, w], materialize_grads=True)
    return [kind, a, b is None, c, d]


@program
def grad_refusals(m: Any, see: Any) -> Any:
    x, plain = leaf(m, 3), m.ones(3, dtype=m.float64)
    return [
        refused(lambda: m.autograd.grad((x * 2).sum(), plain), "does not require grad"),
        refused(lambda: m.autograd.grad((plain * 2).sum(), x), "does not require grad"),
        refused(lambda: m.autograd.grad(x * 2, x), "scalar"),
    ]


@program
def grad_outputs(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x.exp())
    v = m.tensor([1.0, -1.0, 2.0], dtype=m.float64)
    return m.autograd.grad([y, (x * x).sum()], [x], grad_outputs=[v, None])


@program
def grads_batched(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3)
    y = see(x * x * w)
    rows = m.eye(3, dtype=m.float64)
    return m.autograd.grad(y, [x, w], grad_outputs=rows, is_grads_batched=True)


@program
def gradients_of_gradients(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see((x**4).sum())
    (g,) = m.autograd.grad(y, x, create_graph=True)
    (h,) = m.autograd.grad(see(g).sum(), x, create_graph=True)
    (k,) = m.autograd.grad(see(h).sum(), x)
    return [g, h, k]


@program
def penalty_on_a_gradient(m: Any, see: Any) -> Any:
    x, w = leaf(m, 2, 3), leaf(m, 3, 2, start=-0.5)
    y = see((x @ w).tanh().sum())
    (g,) = m.autograd.grad(y, x, create_graph=True)
    see(y + see(g * g).sum()).backward()
    return [x.grad, w.grad]


@program
def backward_with_create_graph(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    see((x**3).sum()).backward(create_graph=True)
    g = x.grad
    again = m.autograd.grad(see(g).sum(), x)
    x.grad = None
    return [g, again]


@program
def hessian_vector_products(m: Any, see: Any) -> Any:
    x = leaf(m, 4)
    f = see((x.roll(1) * x * x).sum() + x.prod())
    (g,) = m.autograd.grad(f, x, create_graph=True)
    return [m.autograd.grad(g, x, row, retain_graph=True)[0] for row in m.eye(4, dtype=m.float64)]


# -- modes and detach -------------------------------------------------------------------------------------------------


@program
def modes(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    with m.no_grad():
        a = see(x * 2)
        with m.enable_grad():
            b = see(x * 3)
        c = b * 2
    with m.set_grad_enabled(False):
        d = x * 2
    with m.inference_mode():
        e = see(x * 2)

    @m.no_grad()
    def f(t: Any) -> Any:
        return t * 5

    m.set_grad_enabled(False)
    g = x + 1
    was = m.is_grad_enabled()
    m.set_grad_enabled(True)
    b.sum().backward()
    return [[t.requires_grad for t in (a, b, c, d, e, f(x), g, x * 1)], was, x.grad, m.is_grad_enabled()]


@program
def modes_and_errors(m: Any, see: Any) -> Any:
    """The mode is restored when the block ends by an exception."""
    x = leaf(m, 3)
    try:
        with m.no_grad():
            raise KeyError
    except KeyError:
        pass
    return (x * 2).requires_grad


@program
def detached(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x * 2)
    d = y.detach()
    shares = d.data_ptr() == y.data_ptr()
    see((y * d).sum()).backward()
    z = (x * 3).detach_()
    return [x.grad, d.requires_grad, d.is_leaf, shares, z.requires_grad, x.data.requires_grad]


@program
def writes_to_a_detached_alias(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    x.detach().mul_(2.0)
    x.data[0] = 7.0
    see((x * x).sum()).backward()
    return [x, x.grad]


@program
def requires_grad_of_results(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x * 2)
    kind = refused(lambda: y.requires_grad_(False), "you can only change requires_grad flags of leaf variables")
    z = m.ones(3, dtype=m.float64) * 3
    z.requires_grad_()
    see((z * z).sum()).backward()
    x.requires_grad_(False)
    return [kind, z.grad, z.is_leaf, (x * 2).requires_grad]
