"""Programs about gradients and user code (see autograd_programs.py): hooks, custom functions, checkpoints."""

from __future__ import annotations

from typing import Any

from tests.engine.autograd_programs import Program, leaf, refused

PROGRAMS: dict[str, Program] = {}


def program(f: Program) -> Program:
    """Add a program to those that are run."""
    PROGRAMS[f.__name__] = f
    return f


# -- hooks ------------------------------------------------------------------------------------------------------------


@program
def hooks(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    seen: list[Any] = []
    y = see(x * 2)
    first = x.register_hook(lambda g: seen.append(g.clone()))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.clone()))
    see((y * y).sum()).backward()
    first.remove()
    (x * 3).sum().backward()
    return [seen, x.grad, len(seen)]


@program
def hooks_on_one_of_several_results(m: Any, see: Any) -> Any:
    x = leaf(m, 5)
    seen: list[Any] = []
    y = see(x * 2)
    v, _ = y.topk(3)
    v.retain_grad()
    v.register_hook(lambda g: seen.append(g.clone()))
    ordered, _ = see(y.exp()).sort()
    ordered.register_hook(lambda g: g * 10)
    high, low = m.aminmax(see(x.sin()), dim=0)
    low.register_hook(lambda g: g * 3)
    high.register_hook(lambda g: g * 7)
    ((v * v).sum() + ordered.sum() + low * high).backward()
    return [x.grad, v.grad, seen]


@program
def hook_that_looks(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    seen: list[float] = []
    y = see(x.exp())
    z = y * x
    z.register_hook(lambda g: seen.append(g.sum().item()))
    y.register_hook(lambda g: g.clamp(max=float(g.mean())))
    see(z.sum()).backward()
    return [seen, x.grad]


@program
def hook_refusals(m: Any, see: Any) -> Any:
    x = m.ones(3)
    y = leaf(m, 3) * 2
    return [refused(lambda: x.register_hook(print), "doesn't require gradient"), refused(x.retain_grad, "can't retain_grad"),
            refused(lambda: y.register_post_accumulate_grad_hook(print), "non-leaf")]  # fmt: skip


@program
def hooks_after_accumulation(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    seen: list[Any] = []

    def hook(t: Any) -> None:
        seen.append(t.grad.clone())
        t.grad = None

    handle = x.register_post_accumulate_grad_hook(hook)
    see((x * x).sum()).backward()
    (x * 2).sum().backward()
    handle.remove()
    (x * 5).sum().backward()
    return [seen, x.grad]


@program
def retained_gradients(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x * 2)
    z = see(y * y)
    y.retain_grad()
    z.retain_grad()
    x.retain_grad()
    z.sum().backward(retain_graph=True)
    first = [y.grad.clone(), z.grad.clone()]
    z.sum().backward()
    return [first, y.grad, z.grad, x.grad, y.retains_grad, x.retains_grad]


@program
def hook_on_a_view_and_a_root(m: Any, see: Any) -> Any:
    x = leaf(m, 4)
    seen: list[Any] = []
    y = see(x * 2)
    v = y[1:3]
    v.register_hook(lambda g: seen.append(g.clone()))
    loss = (v * v).sum() + y.sum()
    loss.register_hook(lambda g: g * 3)
    see(loss).backward()
    return [seen, x.grad]


@program
def hook_with_grad(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x.sin())
    y.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)
    return [m.autograd.grad((y * y).sum(), [x], retain_graph=True), m.autograd.grad((y * y).sum(), [y])]


@program
def module_hooks(m: Any, see: Any) -> Any:
    layer = m.nn.Linear(2, 2).to(m.float64)
    with m.no_grad():
        layer.weight.copy_(m.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.fill_(0.5)
    seen: list[Any] = []
    layer.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    layer.register_forward_hook(lambda mod, args, out: out * 3)
    layer.register_full_backward_hook(lambda mod, gi, go: seen.append([gi[0].clone(), go[0].clone()]))
    x = leaf(m, 1, 2)
    see(layer(x).sum()).backward()
    return [seen, x.grad, layer.weight.grad, layer.bias.grad]


# -- custom functions ---------------------------------------------------------------------------------------------------


@program
def custom(m: Any, see: Any) -> Any:
    class Cube(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            ctx.save_for_backward(x)
            ctx.scale = scale
            return see(x**3 * scale)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x * x * g * ctx.scale, None

    x = leaf(m, 3)
    y = Cube.apply(see(x * 2), 0.5)
    name = type(y.grad_fn).__name__
    see((y * x).sum()).backward()
    return [x.grad, y.requires_grad, name]


@program
def custom_twice_differentiable(m: Any, see: Any) -> Any:
    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = leaf(m, 3)
    (g,) = m.autograd.grad(see(Square.apply(x)).exp().sum(), x, create_graph=True)
    return [g, m.autograd.grad(see(g).sum(), x)]


@program
def custom_several(m: Any, see: Any) -> Any:
    wanted: list[Any] = []

    class Parts(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, n: int) -> Any:
            ctx.save_for_backward(x, w)
            count = (x > 0).sum()
            ctx.mark_non_differentiable(count)
            return x * w, x + w * n, count

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            x, w = ctx.saved_tensors
            wanted.append(ctx.needs_input_grad)
            return a * w + b, (a * x + b * 2) if ctx.needs_input_grad[1] else None, None

    x, w, fixed = leaf(m, 3), leaf(m, 3, start=-1.0), m.full((3,), 2.0, dtype=m.float64)
    a, b, c = Parts.apply(x, w, 2)
    flags = [a.requires_grad, b.requires_grad, c.requires_grad]
    see((a * b).sum()).backward()
    p, _, _ = Parts.apply(x, fixed, 2)
    see(p.sum()).backward()
    return [flags, x.grad, w.grad, c, wanted]


@program
def custom_unused_results(m: Any, see: Any) -> Any:
    seen: list[Any] = []

    class Two(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, materialize: bool) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append(b is None)
            return a * 2 if b is None else a * 2 + b * 3, None

    x = leaf(m, 3)
    for materialize in (True, False):
        see(Two.apply(x, materialize)[0].sum()).backward()
    return [seen, x.grad]


@program
def custom_once(m: Any, see: Any) -> Any:
    from importlib import import_module

    once = import_module(f"{m.__name__}.autograd.function").once_differentiable

    class Sine(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @once
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * x.cos()

    x = leaf(m, 3)
    (g,) = m.autograd.grad(see(Sine.apply(x)).exp().sum(), x, create_graph=True)
    return [g.detach(), refused(lambda: (g * x).sum().backward(), "once_differentiable")]


@program
def custom_setup_context(m: Any, see: Any) -> Any:
    class Scaled(m.autograd.Function):
        @staticmethod
        def forward(x: Any, k: float) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.k, None

    x = leaf(m, 3)
    see(Scaled.apply(see(x * x), 4.0).sum()).backward()
    return x.grad


@program
def custom_returns_its_input(m: Any, see: Any) -> Any:
    class Reverse(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return -g

    x = leaf(m, 3)
    see((Reverse.apply(see(x * 2)) * x).sum()).backward()
    return x.grad


@program
def custom_refusals(m: Any, see: Any) -> Any:
    class Bad(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x)
            return x * w

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    class Kept(Bad):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0], None

    x, w = leaf(m, 3), leaf(m, 3)
    kinds = [refused(see(Bad.apply(x, w).sum()).backward, "returned an incorrect number of gradients (expected 2, got 1)")]
    y = see(Kept.apply(x, w).sum())
    y.backward(retain_graph=True)
    y.backward()
    kinds.append(refused(y.backward, "second time"))
    y = see(x * 2)
    z = see(Kept.apply(y, w).sum())
    y.add_(1)
    kinds.append(refused(z.backward, "modified by an inplace operation"))
    kinds.append(refused(lambda: Kept.forward(None, x), "argument"))
    return [kinds, x.grad]


@program
def custom_that_differentiates_inside(m: Any, see: Any) -> Any:
    class Inner(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with m.enable_grad():
                inside = x.detach().requires_grad_()
                out = (inside**2).sin()
            ctx.save_for_backward(inside, out)
            return out.detach()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            with m.enable_grad():
                inside = ctx.saved_tensors[0].detach().requires_grad_()
                out = (inside**2).sin()
                return m.autograd.grad(out, inside, g)[0]

    x = leaf(m, 3)
    see(Inner.apply(see(x * 0.5)).sum()).backward()
    return x.grad


# -- checkpoints, gradcheck -----------------------------------------------------------------------------------------------


def _checkpoint(m: Any) -> Any:
    from importlib import import_module

    return import_module(f"{m.__name__}.utils.checkpoint").checkpoint


@program
def checkpoints(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3, start=-1.0)
    calls: list[int] = []

    def block(t: Any, k: float) -> Any:
        calls.append(1)
        return (t * w).tanh() * k

    h = x
    for k in (1.0, 2.0):
        h = see(_checkpoint(m)(block, h, k, use_reentrant=False))
    see((h * h).sum()).backward()
    return [x.grad, w.grad, len(calls), h]


@program
def checkpoint_only_parameters(m: Any, see: Any) -> Any:
    x, w = m.ones(3, dtype=m.float64), leaf(m, 3)
    y = see(_checkpoint(m)(lambda t: (t * w).exp(), x, use_reentrant=False))
    y.sum().backward()
    return [w.grad, y.requires_grad]


@program
def checkpoint_several_results(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    a, b = _checkpoint(m)(lambda t: (t.exp(), t * 2), x, use_reentrant=False)
    see((a * b).sum()).backward()
    return x.grad


@program
def checkpoint_repeats_its_dropout(m: Any, see: Any) -> Any:
    x = m.ones(100, dtype=m.float64, requires_grad=True)
    y = see(_checkpoint(m)(lambda t: m.nn.functional.dropout(t * t, 0.5), x, use_reentrant=False))
    y.sum().backward()
    return bool((y * 2 == x.grad).all())


@program
def gradchecks(m: Any, see: Any) -> Any:
    class Wrong(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    x = leaf(m, 3)
    return [m.autograd.gradcheck(lambda t: (t * t).sin(), (x,)), m.autograd.gradgradcheck(lambda t: t.exp() * t, (x,)),
            m.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)]  # fmt: skip


@program
def steps_have_no_second_gradient(m: Any, see: Any) -> Any:
    found = []
    for name in ("sign", "round", "ceil", "floor", "trunc"):
        x = leaf(m, 3)
        y = getattr(see(x * 2), name)()
        (g,) = m.autograd.grad((y * y).sum(), x, create_graph=True)
        (h,) = m.autograd.grad(getattr(m.tensor([1.0, 2.0, 3.0]) * x, name)(), x, m.tensor([float("inf"), 1.0, 2.0]))
        found += [g, h]
    return found
