"""`grad_fn.next_functions` beside PyTorch's: the whole graph, node by node, for the calls of test_node_names.py and for networks."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import flambeau
from flambeau.trace import tiers
from tests.documentation.test_node_names import EXPRESSIONS, in_both
from tests.engine.test_diamonds import COUNT, diamonds
from tests.nn.oracle import torch


def graph(node: Any, leaves: dict[int, str]) -> Any:
    """A node as (name, what it leads to), leaves by their names; a node that was met before is its number."""
    numbers: dict[int, int] = {}
    held = []

    def of(node: Any) -> Any:
        if node is None:
            return None
        if id(node) in numbers:
            return numbers[id(node)]
        numbers[id(node)] = len(numbers)
        held.append(node)
        if hasattr(node, "variable"):
            return leaves.get(id(node.variable), "?")
        return [type(node).__name__, *[(of(next_node), result) for next_node, result in node.next_functions]]

    return of(node)


MORE = """
x.chunk(3)[1]|x.split([1, 2])[1]|x.unbind()[2]|x.max(0, keepdim=True)[0]|x.sum((0, 1))|x.mean(1, keepdim=True)|F.linear(b.transpose(0, 1), x, v)|
F.linear(b.transpose(0, 1), x)|F.linear(v, x, v)|F.linear(v, x)|F.conv1d(b[0], b)|F.conv2d(i[0], i, v[:1])|F.avg_pool1d(b, 2)|F.avg_pool2d(i, 2)|
F.adaptive_avg_pool1d(b, 2)|F.adaptive_max_pool2d(i, 2)|m.addcmul(x, x, v)|m.addcdiv(x, x, v)|x.index_add(0, m.tensor([0]), x[:1])|
x.scatter_add(0, m.zeros(1, 3, dtype=m.int64), x)|x.scatter(1, m.zeros(3, 1, dtype=m.int64), x)|m.rsub(x, x)|x.fmod(x)|m.floor_divide(x, x)|
x.clamp(x.detach(), None)|x.clamp_min(v)|m.lerp(x, x, x)|x.masked_fill(x > 0, v[0])|x.where(x > 0, v)|m.meshgrid(v, v)[1]|
m.vstack([v, v])|m.logaddexp(x, v)|m.hypot(x, x)|x.logcumsumexp(0)|x.cummax(0)[0]|x.kthvalue(1)[0]|x.var()|x.std(0, keepdim=True)|
m.var_mean(x)[1]|x.norm(p=1)|m.linalg.vector_norm(x)|m.cdist(x, x)|m.linalg.cholesky(x @ x.t() + 3 * m.eye(3))|m.linalg.eigh(x @ x.t())[0]|
m.linalg.qr(x)[1]|m.linalg.svd(x)[1]|m.det(x)|m.logdet(x @ x.t() + m.eye(3))|m.slogdet(x)[1]|m.complex(x, x).abs()|m.view_as_real(m.complex(x, x))|
F.log_softmax(x, 1)|F.layer_norm(x, (3,), v, v)|F.group_norm(i, 3, v, v)|F.instance_norm(b)|F.batch_norm(x, v.detach(), v.detach() + 1, v, v)|
F.rms_norm(x, (3,))|F.dropout(x, training=False)|F.embedding(m.tensor([[0, 1]]), x)|F.nll_loss(i.log_softmax(1), m.zeros(1, 4, 4, dtype=m.int64))|
F.cross_entropy(i, m.zeros(1, 4, 4, dtype=m.int64), v.detach())|F.mse_loss(x, x.detach(), reduction='sum')|F.l1_loss(x, v.expand(3, 3), reduction='none')|
F.softplus(x) * F.threshold(x, 0.1, 0.0)|F.hardsigmoid(x)|F.celu(x)|F.unfold(i, 2)|F.fold(b, (3, 1), (1, 3), padding=(0, 1))|F.pad(x, (1, 1), value=2.0)|
F.interpolate(i, size=(2, 2), mode='nearest')|F.grid_sample(i, i.permute(0, 2, 3, 1)[..., :2], align_corners=False)|F.pixel_shuffle(i.repeat(1, 4, 1, 1), 2)|
(x * 2).squeeze(0).add_(v)|(lambda y: (y[:, 1:].add_(v[:2]), y)[1])(x * 1)|(lambda y: (y[0].fill_(2.0), y)[1])(x * 1)|
(lambda y: (y[0].copy_(v), y[1].mul_(v), y)[2])(x * 1)|(lambda y: (y.t().mul_(2), y)[1])(x * 1)|(x * 1).masked_fill_(x > 0, 1.0)|
(lambda y: (y.mul_(y), y)[1])(x * 1)|(x * 1).index_add_(0, m.tensor([0]), x[:1])|
F.cross_entropy(x, x.detach().softmax(1))|F.cross_entropy(x, x.softmax(1), reduction='none')|F.cross_entropy(x, x.softmax(1), label_smoothing=0.1)|
F.cross_entropy(x, m.tensor([0, 1, 2]), label_smoothing=0.1)|F.cross_entropy(i, m.zeros(1, 4, 4, dtype=m.int64), label_smoothing=0.1, reduction='sum')|
F.kl_div(x, x)|F.kl_div(x, x, log_target=True)|F.kl_div(x, x, reduction='none')|F.instance_norm(b, weight=v, bias=v)|F.rms_norm(x, (3,), v)|x.clamp(v, v)|
m.baddbmm(b, b, b)|F.conv2d(i.double(), i.double())|x.expand(2, 3, 3).reshape(6, 3)|F.cosine_similarity(x, v)|
x.detach() + x|x.detach().requires_grad_().add(v)|(x + x.int())|x.double() @ x.double()|x.to(m.float32) * 1|x.type(m.float64)|x + v.double()
"""
# Several nodes in PyTorch, one here (docs/differences.md).
ONE_NODE = ("einsum(",)
ALL = [e.strip() for text in (EXPRESSIONS, MORE) for e in text.replace("\n", "").split("|") if not any(name in e for name in ONE_NODE)]


@pytest.mark.parametrize("expression", ALL)
def test_graph_of_a_call(expression: str) -> None:
    graphs = [graph(result.grad_fn, {id(t): n for n, t in leaves.items()}) for leaves, result in in_both(expression)]
    assert graphs[1] == graphs[0]
    assert graphs[2] == graphs[0]


def mlp(m: Any) -> Any:
    net = m.nn.Sequential(m.nn.Linear(4, 8), m.nn.ReLU(), m.nn.Linear(8, 8, bias=False), m.nn.Tanh(), m.nn.LayerNorm(8), m.nn.Linear(8, 3))
    return net, lambda: m.nn.functional.cross_entropy(net(m.ones(5, 4)), m.tensor([0, 1, 2, 0, 1]))


def convolutional(m: Any) -> Any:
    net = m.nn.Sequential(
        m.nn.Conv2d(3, 4, 3, padding=1), m.nn.BatchNorm2d(4), m.nn.ReLU(inplace=True), m.nn.MaxPool2d(2), m.nn.Conv2d(4, 4, 3, groups=2), m.nn.GroupNorm(2, 4),
        m.nn.SiLU(), m.nn.AdaptiveAvgPool2d(1), m.nn.Flatten(), m.nn.Dropout(0.5), m.nn.Linear(4, 2),
    )  # fmt: skip
    return net, lambda: net(m.ones(2, 3, 8, 8)).mean()


def residual(m: Any) -> Any:
    class Block(m.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = m.nn.Conv1d(4, 4, 3, padding=1), m.nn.Conv1d(4, 4, 1)
            self.norm = m.nn.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.a(x)).relu_()
            y += self.b(x)
            return y

    net = m.nn.Sequential(Block(), Block())
    return net, lambda: net(m.ones(2, 4, 6)).pow(2).sum()


def attention(m: Any) -> Any:
    qkv, out = m.nn.Linear(8, 24), m.nn.Linear(8, 8)
    net = m.nn.ModuleList([qkv, out])

    def loss() -> Any:
        x = m.ones(2, 5, 8)
        q, k, v = [t.view(2, 5, 2, 4).transpose(1, 2) for t in qkv(x).split(8, dim=2)]
        weights = (q @ k.transpose(-2, -1)) * 0.5
        weights = weights.masked_fill(m.ones(5, 5).tril() == 0, float("-inf")).softmax(-1)
        return out((weights @ v).transpose(1, 2).contiguous().view(2, 5, 8)).sum()

    return net, loss


def transformer(m: Any) -> Any:
    embedding, positions = m.nn.Embedding(7, 8), m.nn.Embedding(5, 8)
    norm, first, second = m.nn.LayerNorm(8), m.nn.Linear(8, 16), m.nn.Linear(16, 8)
    net = m.nn.ModuleList([embedding, positions, norm, first, second])

    def loss() -> Any:
        x = embedding(m.tensor([[0, 1, 2, 3, 4]])) + positions(m.arange(5))
        heads = norm(x).view(1, 5, 2, 4).transpose(1, 2)
        mixed = m.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).reshape(1, 5, 8)
        x = x + second(m.nn.functional.gelu(first(mixed)))
        logits = x @ embedding.weight.t()
        return m.nn.functional.cross_entropy(logits.view(-1, 7), m.tensor([1, 2, 3, 4, 5]))

    return net, loss


def cells(m: Any) -> Any:
    weight = m.nn.Parameter(m.ones(3, 3))
    other = m.nn.Parameter(m.ones(3))
    net = m.nn.ParameterList([weight, other])

    def loss() -> Any:
        h, kept = m.zeros(2, 3), []
        for _ in range(3):
            h = m.tanh(h @ weight + other)
            kept.append(h)
        whole = m.stack(kept)
        whole[0].copy_(other)
        whole[1].mul_(other)
        a, b = whole.chunk(2, dim=0)
        return m.cat([a, b, a]).max(dim=0)[0].sum() + whole[:, 0].std() + m.where(h > 0, h, other).norm()

    return net, loss


def functions(m: Any) -> Any:
    class Twice(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, number: float, y: Any, z: Any) -> Any:
            ctx.save_for_backward(x)
            return x * number + y + z, x - y

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g + h, None, g, None

    net = m.nn.ParameterList([m.nn.Parameter(m.ones(3)), m.nn.Parameter(m.ones(3))])

    def loss() -> Any:
        a, b = net
        first, second = Twice.apply(a * 2, 2.0, b, m.ones(3))
        return (first * second).sum()

    return net, loss


NETWORKS = [mlp, convolutional, residual, attention, transformer, cells, functions]


@pytest.mark.parametrize("network", NETWORKS)
def test_graph_of_a_network(network: Any) -> None:
    graphs = []
    for module in (torch, flambeau):
        net, loss = network(module)
        names = {id(p): n for n, p in net.named_parameters()}
        for _ in range(1 if module is torch else 4):  # in pieces, then as a whole
            made = loss()
            graphs.append(graph(made.grad_fn, names))
            if module is flambeau:
                made.item()
                graphs.append(graph(made.grad_fn, names))
                made.backward()
    for found in graphs[1:]:
        assert found == graphs[0]


def test_nodes_are_the_same_objects() -> None:
    x = flambeau.ones(3, requires_grad=True)
    y = x * 2
    node = y.grad_fn
    assert node is y.grad_fn
    z = y + y
    (left, _), (right, _) = z.grad_fn.next_functions
    assert left is node and right is node
    leaf = node.next_functions[0][0]
    z.sum().item()  # the end of the trace
    assert y.grad_fn is node and z.grad_fn.next_functions[0][0] is node
    w = z * y  # leads back into what has run
    assert w.grad_fn.next_functions == ((z.grad_fn, 0), (node, 0))
    assert leaf.variable is x and (x + 1).grad_fn.next_functions[0][0] is leaf
    assert {node: 1}[y.grad_fn] == 1 and node != z.grad_fn
    assert (x.grad_fn, leaf.name(), leaf.next_functions) == (None, "torch::autograd::AccumulateGrad", ())


def test_nobody_keeps_nodes() -> None:
    x = flambeau.ones(3, requires_grad=True)
    for ended in (False, True):
        y = (x * 2).exp()
        if ended:
            y.sum().item()
        held = y.grad_fn
        nodes = [weakref.ref(held), weakref.ref(held.next_functions[0][0]), weakref.ref(held.next_functions[0][0].next_functions[0][0])]
        assert all(node() is not None for node in nodes)
        value = weakref.ref(y)
        del y
        assert not ended or value() is None  # a node holds no values
        del held
        assert all(node() is None for node in nodes)


def test_after_a_backward_pass() -> None:
    """The graph is there when what it needs is given up, as in PyTorch."""
    seen = []
    for m in (torch, flambeau):
        x = m.ones(3, requires_grad=True)
        y = (x * x).exp()
        z = y.sum()
        z.backward()
        later = y + 1
        seen.append([graph(t.grad_fn, {id(x): "x"}) for t in (z, y, later)])
    assert seen[0] == seen[1]


def test_hooks_of_inner_nodes() -> None:
    """Also of leaves: once their gradient has been added, as wrappers for sharded parameters use them."""
    seen: list[Any] = []
    for m in (torch, flambeau):
        for looked_at in (False, True):
            x = m.ones(3, requires_grad=True)
            z = ((x * 2).sin() * 3).sum()
            if looked_at:
                z.item()
            calls: list[Any] = []
            times = z.grad_fn.next_functions[0][0]
            sine = times.next_functions[0][0]
            sine.register_prehook(lambda gradients, calls=calls: calls.append([g.tolist() for g in gradients]))
            sine.register_prehook(lambda gradients: (gradients[0] * 2,))
            leaf = sine.next_functions[0][0].next_functions[0][0]
            leaf.register_prehook(lambda gradients, calls=calls: calls.append([g.tolist() for g in gradients]))
            handle = leaf.register_hook(lambda inputs, outputs, calls=calls, x=x: calls.append((inputs, [g.tolist() for g in outputs], x.grad.tolist())))
            z.backward(retain_graph=True)
            handle.remove()
            z.backward()
            seen.append([[pytest.approx(c, rel=1e-6) if isinstance(c, list) and isinstance(c[0], float) else c for c in calls], x.grad.tolist()])
    for found in seen[1:]:
        assert str(numbers(found)) == str(numbers(seen[0]))


def numbers(x: Any) -> Any:
    """Rounded, and lists of sequences."""
    return [numbers(y) for y in x] if isinstance(x, (list, tuple)) else round(x, 4)


@pytest.mark.parametrize("mode", [tiers.PIECES, tiers.MIXED, tiers.WHOLE])
def test_a_history_with_many_ways(mode: int) -> None:
    """2 ** 60 ways through 180 nodes: each node is one object, however it is reached."""
    before, tiers.MODE[0] = tiers.MODE[0], mode
    try:
        x = flambeau.ones(3, requires_grad=True)
        waiting, seen = [diamonds(x)[-1].grad_fn], set()
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting.extend(n for n, _ in node.next_functions if n is not None)
        assert len(seen) == 3 * COUNT + 1
    finally:
        tiers.MODE[0] = before


def test_context_of_a_custom_function() -> None:
    for m in (torch, flambeau):

        class Square(m.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any, note: str) -> Any:
                ctx.save_for_backward(x)
                ctx.note = note
                return x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2 * ctx.saved_tensors[0], None

        x = m.ones(2, requires_grad=True)
        node = Square.apply(x, "kept").grad_fn
        assert node.note == "kept" and node.needs_input_grad == (True, False) and node.saved_tensors[0] is x
        with pytest.raises(AttributeError):
            _ = node.nothing
        assert not hasattr((x * 2).grad_fn, "variable")
