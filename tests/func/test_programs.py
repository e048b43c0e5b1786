"""PyTorch's tutorials on function transforms, written as they are, by both frameworks."""

from __future__ import annotations

import copy
from functools import partial

import pytest

import flambeau as ft
from tests.func.oracle import World, same


def _small_cnns(w: World, count: int):
    nn, F = w.nn, w.F

    class SimpleCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, 3, 1)
            self.conv2 = nn.Conv2d(4, 6, 3, 1)
            self.fc1 = nn.Linear(54, 16)
            self.fc2 = nn.Linear(16, 5)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.relu(self.conv2(x))
            x = F.max_pool2d(x, 2)
            x = w.torch.flatten(x, 1)
            x = F.relu(self.fc1(x))
            return F.log_softmax(self.fc2(x), dim=1)

    w.torch.manual_seed(0)
    return [SimpleCNN().double() for _ in range(count)]


def per_sample_gradients(w: World):
    """Per-sample-gradients: https://pytorch.org/tutorials/intermediate/per_sample_grads.html"""
    functional_call, vmap, grad = w.func.functional_call, w.torch.vmap, w.func.grad
    (model,) = _small_cnns(w, 1)
    params = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}

    def compute_loss(params, buffers, sample, target):
        predictions = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
        return w.F.nll_loss(predictions, target.unsqueeze(0))

    data, targets = w.array(4, 1, 10, 10), w.torch.tensor([0, 3, 1, 4])
    return vmap(grad(compute_loss), in_dims=(None, None, 0, 0))(params, buffers, data, targets)


def ensembling(w: World):
    """Model ensembling: https://pytorch.org/tutorials/intermediate/ensembling.html"""
    models = _small_cnns(w, 3)
    params, buffers = w.func.stack_module_state(models)
    base = copy.deepcopy(models[0])

    def fmodel(params, buffers, x):
        return w.func.functional_call(base, (params, buffers), (x,))

    minibatches, data = w.array(3, 2, 1, 10, 10), w.array(2, 1, 10, 10, seed=1)
    each = w.torch.vmap(fmodel)(params, buffers, minibatches)
    loss = each.sum()
    gradients = w.torch.autograd.grad(loss, list(params.values()))
    return each, w.torch.vmap(fmodel, in_dims=(0, 0, None))(params, buffers, data), gradients


def maml(w: World):
    """Model-agnostic meta-learning of sine waves: the example of functorch."""
    torch, F = w.torch, w.F
    torch.manual_seed(0)
    net = w.nn.Sequential(w.nn.Linear(1, 8), w.nn.ReLU(), w.nn.Linear(8, 1)).double()
    params = {k: v.detach().requires_grad_() for k, v in net.named_parameters()}
    optimizer = torch.optim.Adam(params.values(), lr=1e-2)

    def inner_loss(params, x, y):
        return F.mse_loss(w.func.functional_call(net, params, (x,)), y)

    def task(x1, y1, x2, y2):
        grads = w.func.grad(inner_loss)(params, x1, y1)
        new = {k: p - 0.1 * grads[k] for k, p in params.items()}
        return inner_loss(new, x2, y2)

    losses = []
    for step in range(3):
        x1, x2 = w.array(4, 5, 1, seed=step), w.array(4, 5, 1, seed=step + 100)
        meta = torch.vmap(task)(x1, x1.sin(), x2, x2.sin()).mean()
        optimizer.zero_grad()
        meta.backward()
        optimizer.step()
        losses.append(meta.detach())
    return losses, [p.detach() for p in params.values()]


def neural_tangent_kernel(w: World):
    """Neural tangent kernels: https://pytorch.org/tutorials/intermediate/neural_tangent_kernels.html"""
    vmap, jacrev, jvp, vjp = w.torch.vmap, w.func.jacrev, w.func.jvp, w.func.vjp
    w.torch.manual_seed(0)
    net = w.nn.Sequential(w.nn.Linear(3, 6), w.nn.Tanh(), w.nn.Linear(6, 2)).double()
    params = {k: v.detach() for k, v in net.named_parameters()}
    x1, x2 = w.array(4, 3), w.array(3, 3, seed=1)

    def fnet_single(params, x):
        return w.func.functional_call(net, params, (x.unsqueeze(0),)).squeeze(0)

    def by_contraction():
        jac1 = [j.flatten(2) for j in vmap(jacrev(fnet_single), (None, 0))(params, x1).values()]
        jac2 = [j.flatten(2) for j in vmap(jacrev(fnet_single), (None, 0))(params, x2).values()]
        return sum(w.torch.einsum("Naf,Mbf->NMab", a, b) for a, b in zip(jac1, jac2, strict=True))

    def by_vector_products():
        def get_ntk(x1, x2):
            output, vjp_fn = vjp(lambda p: fnet_single(p, x1), params)

            def get_ntk_slice(vec):
                vjps = vjp_fn(vec)
                _, jvps = jvp(lambda p: fnet_single(p, x2), (params,), vjps)
                return jvps

            return vmap(get_ntk_slice)(w.torch.eye(output.numel(), dtype=output.dtype).view(-1, *output.shape))

        return vmap(vmap(get_ntk, (None, 0)), (0, None))(x1, x2)

    return by_contraction(), by_vector_products()


def jacobians_and_hessians(w: World):
    """Jacobians, Hessians, hvp, vhp: https://pytorch.org/tutorials/intermediate/jacobians_hessians.html"""
    func, vmap = w.func, w.torch.vmap

    def predict(weight, bias, x):
        return w.F.linear(x, weight, bias).tanh()

    weight, bias, x = w.array(4, 4), w.array(4, seed=1), w.array(4, seed=2)
    jacobian = func.jacrev(predict, argnums=2)(weight, bias, x)
    forward = func.jacfwd(predict, argnums=2)(weight, bias, x)
    both = func.jacrev(predict, argnums=(0, 1))(weight, bias, x)
    hessian = func.hessian(predict, argnums=2)(weight, bias, x)
    batch = w.array(3, 4, seed=3)
    batched = vmap(func.jacrev(predict, argnums=2), in_dims=(None, None, 0))(weight, bias, batch)
    batched_hessian = vmap(func.hessian(predict, argnums=2), in_dims=(None, None, 0))(weight, bias, batch)

    def hvp(f, primals, tangents):
        return func.jvp(func.grad(f), primals, tangents)[1]

    product = hvp(lambda y: y.sin().sum(), (w.array(8),), (w.array(8, seed=4),))
    return jacobian, forward, both, hessian, batched, batched_hessian, product


def training(w: World):
    """A functional training loop: gradients of a loss, and a step of SGD, without an optimizer."""
    w.torch.manual_seed(1)
    net = w.nn.Sequential(w.nn.Linear(2, 8), w.nn.Tanh(), w.nn.Linear(8, 2)).double()
    params = {k: v.detach() for k, v in net.named_parameters()}
    x = w.array(16, 2)
    t = (x[:, 0] > 0).long()

    def loss_fn(params):
        out = w.func.functional_call(net, params, (x,))
        return w.F.cross_entropy(out, t), out

    losses = []
    for _ in range(4):
        grads, (loss, out) = w.func.grad_and_value(loss_fn, has_aux=True)(params)
        params = {k: p - 0.5 * grads[k] for k, p in params.items()}
        losses.append(loss)
    return losses, params, out


def batch_norm(w: World):
    """Batch norms: without statistics, or with the statistics as arguments."""
    w.torch.manual_seed(0)
    net = w.nn.Sequential(w.nn.Linear(3, 4), w.nn.BatchNorm1d(4)).double()
    params, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    x = w.array(5, 6, 3)
    state = {k: v.clone() for k, v in buffers.items()}
    first = w.func.functional_call(net, (params, state), (x[0],))
    unchanged = net[1].running_mean
    net.eval()
    evaluated = w.torch.vmap(lambda s: w.func.functional_call(net, (params, buffers), (s,)))(x)
    net.train()
    w.func.replace_all_batch_norm_modules_(net)
    return first, unchanged, evaluated, w.torch.vmap(net)(x)


def tied_weights(w: World):
    """functional_call with tied weights, with kwargs, and with dictionaries that the module writes to."""
    nn = w.nn

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight
            self.register_buffer("count", w.torch.zeros(()))

        def forward(self, x, scale=1.0):
            self.count = self.count + 1
            return self.b(self.a(x)) * scale

    w.torch.manual_seed(0)
    net = Tied().double()
    given = {"a.weight": w.array(3, 3), "count": w.torch.tensor(5.0)}
    x = w.array(2, 3)
    tied = w.func.functional_call(net, given, (x,), {"scale": 2.0})
    loose = w.func.functional_call(net, {"a.weight": w.array(3, 3)}, x, tie_weights=False)
    return tied, loose, given["count"], net.count


def custom_functions(w: World):
    """autograd.Function with torch.func: https://pytorch.org/docs/stable/notes/extending.func.html"""
    torch = w.torch

    class Cube(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3, 3 * x**2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output[1])
            ctx.save_for_forward(inputs[0], output[1])

        @staticmethod
        def backward(ctx, grad, grad_dx):
            x, dx = ctx.saved_tensors
            return grad * dx + grad_dx * 6 * x

        @staticmethod
        def jvp(ctx, tangent):
            x, dx = ctx.saved_tensors
            return tangent * dx, tangent * 6 * x

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(x, factor):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.factor = inputs[1]

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None

        @staticmethod
        def vmap(info, in_dims, x, factor):
            assert info.batch_size == 5 and info.randomness == "error"
            x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x
            return Scaled.apply(x, factor) + 0, 0

    x, v = w.array(5, 3), w.array(5, 3, seed=1)
    cube = lambda y: Cube.apply(y)[0]
    return (
        w.func.vmap(cube)(x), w.func.grad(lambda y: cube(y).sum())(x), w.func.vmap(w.func.grad(lambda y: cube(y).sum()))(x),
        w.func.jvp(cube, (x,), (v,)), w.func.vmap(w.func.jacrev(cube))(x), w.func.jacfwd(cube)(x[0]), w.func.hessian(lambda y: cube(y).sum())(x[0]),
        w.func.vmap(lambda y: Scaled.apply(y, 2.0))(x), w.func.vmap(w.func.grad(lambda y: Scaled.apply(y, 2.0).sum()))(x),
    )  # fmt: skip


def randomness(w: World):
    """PyTorch's numbers for the same seed, one draw for all samples or one for each."""
    torch = w.torch
    torch.manual_seed(0)
    x = w.array(4, 3, dtype="float32")
    different = partial(w.func.vmap, randomness="different")
    same_for_all = partial(w.func.vmap, randomness="same")
    results = [
        different(lambda y: y + torch.randn(3))(x), different(lambda y: y + torch.rand(2, 1))(x), different(lambda y: torch.randn_like(y))(x),
        different(lambda y: y[torch.randperm(3)])(x), different(lambda y: torch.bernoulli(y.sigmoid()))(x), different(lambda y: y.clone().normal_())(x),
        different(lambda y: torch.randint(0, 9, (2,)))(x), different(lambda y: torch.multinomial(y.exp(), 2))(x),
        same_for_all(lambda y: y + torch.randn(3))(x), same_for_all(lambda y: y + torch.randint(0, 9, (3,)))(x), same_for_all(lambda y: y * torch.rand(3))(x),
    ]  # fmt: skip
    return [*results, torch.rand(2)]


PROGRAMS = [
    per_sample_gradients, ensembling, maml, neural_tangent_kernel, jacobians_and_hessians, training, batch_norm, tied_weights, custom_functions, randomness,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program(program) -> None:
    same(program, 1e-6 if program is randomness else 1e-9)


def test_dropout_draws_for_each_sample_or_once() -> None:
    x = ft.ones(4, 500)
    each = ft.vmap(ft.nn.functional.dropout, randomness="different")(x)
    once = ft.vmap(ft.nn.functional.dropout, randomness="same")(x)
    shared = ft.vmap(lambda i: ft.nn.functional.dropout(x[0]) + 0 * i, randomness="different")(ft.zeros(4))
    assert not ft.equal(each[0], each[1]) and not ft.equal(shared[0], shared[1])
    assert ft.equal(once[0], once[1]) and not ft.equal(once[0], each[0])
    for result in (each, once, shared):
        assert set(result.unique().tolist()) == {0.0, 2.0}
        assert 0.4 < float((result == 0).float().mean()) < 0.6


def test_modules_over_samples() -> None:
    """Layers with inner state machines: recurrent, attention, transformer."""
    x = ft.randn(3, 5, 2, 8)
    nn = ft.nn
    for module in (nn.LSTM(8, 4), nn.GRU(8, 4, bidirectional=True), nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)):
        got = ft.vmap(lambda y, module=module: module(y)[0] if isinstance(module, nn.RNNBase) else module(y))(x)
        wanted = ft.stack([module(y)[0] if isinstance(module, nn.RNNBase) else module(y) for y in x])
        assert float((got - wanted).abs().max()) < 1e-5


def test_rearrange() -> None:
    rearrange = ft.func.rearrange
    x = ft.arange(24).reshape(2, 3, 4)
    assert ft.equal(rearrange(x, "b c w -> b w c"), x.permute(0, 2, 1))
    assert ft.equal(rearrange(x, "b c (h s) -> (b s) h c", s=2), x.reshape(2, 3, 2, 2).permute(0, 3, 2, 1).reshape(4, 2, 3))
    assert rearrange(x, "b ... -> ... b 1").shape == (3, 4, 2, 1)
    assert ft.equal(rearrange([x, x], "n b c w -> (n b) (c w)"), ft.cat([x, x]).reshape(4, 12))
    for pattern in ("b c -> c b", "b c w -> b c", "b c (h s) -> b c h s", "b c w", "b b w -> b w"):
        with pytest.raises(ValueError):
            rearrange(x, pattern)


def test_dropout_of_attention_draws_for_each_sample_or_once() -> None:
    def attention(q: ft.Tensor) -> ft.Tensor:
        return ft.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    q = ft.randn(2, 40, 8)
    batch = q.expand(3, 2, 40, 8)
    for transform in (attention, ft.func.grad(lambda q: attention(q).sum()), lambda i: attention(q) + i.mean()):
        each = ft.vmap(transform, randomness="different")(batch)
        once = ft.vmap(transform, randomness="same")(batch)
        assert (once[0] == once[1]).all() and (once[0] == once[2]).all()
        assert not (each[0] == each[1]).all() and not (each[1] == each[2]).all()


def test_batched_gradients_see_the_mask_of_the_forward_pass() -> None:
    q = ft.randn(2, 40, 8, requires_grad=True)
    y = ft.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    directions = ft.randn(3, 2, 40, 8)
    (batched,) = ft.autograd.grad(y, q, directions, is_grads_batched=True, retain_graph=True)
    for found, direction in zip(batched, directions, strict=True):
        (expected,) = ft.autograd.grad(y, q, direction, retain_graph=True)
        assert (found - expected).abs().max() < 1e-5
