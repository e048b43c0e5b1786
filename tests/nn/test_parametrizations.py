"""nn.utils: parametrisations and their checkpoints, fusion, memory formats, skip_init; nn.parallel on one device; against PyTorch."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import flambeau
from tests.nn.oracle import close, ours, torch

BOTH = (flambeau, torch)


def load_theirs(module, theirs):
    """Give our module the other's state; its keys must be the same."""
    state = theirs.state_dict()
    assert list(module.state_dict()) == list(state)
    module.load_state_dict(ours(dict(state)))


def pair(make):
    """The same module in both frameworks from one seed: their state_dicts are equal already."""
    made = []
    for m in BOTH:
        m.manual_seed(3)
        made.append(make(m))
    for (key, mine), (their_key, theirs) in zip(made[0].state_dict().items(), made[1].state_dict().items(), strict=True):
        assert key == their_key
        close(mine, theirs, 2e-5)
    return made


def trained(module, x, m, steps=3):
    """Outputs of some training steps."""
    optimizer = m.optim.SGD(module.parameters(), 0.1)
    outputs = []
    for _ in range(steps):
        optimizer.zero_grad()
        y = module(x)
        outputs.append(y)
        (y * y).sum().backward()
        optimizer.step()
    return [*outputs, module.eval()(x)]


@pytest.mark.parametrize("shape", [(5, 5), (3, 6), (6, 3)])
@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("trivialization", [True, False])
def test_orthogonal(shape, orthogonal_map, trivialization):
    mine, theirs = pair(
        lambda m: m.nn.utils.parametrizations.orthogonal(
            m.nn.Linear(*shape), orthogonal_map=orthogonal_map, use_trivialization=trivialization
        )
    )  # fmt: skip
    x = torch.randn(4, shape[0])
    for a, b in zip(trained(mine, ours(x), flambeau), trained(theirs, x, torch), strict=True):
        close(a, b, 2e-4)
    w = mine.weight
    gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
    assert float((gram - flambeau.eye(min(shape))).abs().max()) < 1e-4
    if trivialization or orthogonal_map == "householder":
        target = torch.linalg.qr(torch.randn(max(shape), min(shape)))[0]
        target = target if theirs.weight.shape[0] >= theirs.weight.shape[1] else target.T
        flambeau.manual_seed(1)
        mine.weight = ours(target.contiguous())
        close(mine.weight, target, 1e-5)


def test_orthogonal_errors():
    for m in BOTH:
        orthogonal = m.nn.utils.parametrizations.orthogonal
        with pytest.raises(ValueError, match="orthogonal_map has to be"):
            orthogonal(m.nn.Linear(2, 2), orthogonal_map="x")
        with pytest.raises(ValueError, match="Expected a matrix"):
            orthogonal(m.nn.Linear(2, 2), "bias")
        with pytest.raises(ValueError, match="no parameter or buffer"):
            orthogonal(m.nn.Linear(2, 2), "weights")
        with pytest.raises(NotImplementedError):
            orthogonal(m.nn.Linear(2, 2), use_trivialization=False).weight = m.eye(2)


LAYERS = {
    "linear": (lambda m: m.nn.Linear(4, 3), (2, 4)),
    "conv": (lambda m: m.nn.Conv1d(2, 3, 2), (2, 2, 5)),
    "transposed": (lambda m: m.nn.ConvTranspose1d(2, 3, 2), (2, 2, 5)),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["parametrizations.spectral_norm", "parametrizations.weight_norm", "spectral_norm", "weight_norm"])
def test_norms_train_as_in_pytorch(layer, kind):
    make, shape = LAYERS[layer]

    def build(m):
        place = m.nn.utils
        for part in kind.split("."):
            place = getattr(place, part)
        return place(make(m))

    with pytest.warns(FutureWarning) if kind == "weight_norm" else copy_context():
        mine, theirs = pair(build)
    x = torch.randn(*shape)
    for a, b in zip(trained(mine, ours(x), flambeau), trained(theirs, x, torch), strict=True):
        close(a, b, 1e-4)
    again = build_quietly(build, flambeau)
    load_theirs(again, theirs)
    close(again.eval()(ours(x)), theirs(x), 1e-4)
    if "spectral" in kind and "." not in kind:
        assert mine.state_dict()._metadata[""] == theirs.state_dict()._metadata[""]


def copy_context():
    import contextlib

    return contextlib.nullcontext()


def build_quietly(build, m):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build(m)


def test_older_checkpoints_are_read():
    x = torch.randn(2, 4)
    for m in BOTH:
        m.manual_seed(0)
        old = build_quietly(lambda m: m.nn.utils.weight_norm(m.nn.Linear(4, 3)), m)
        new = m.nn.utils.parametrizations.weight_norm(m.nn.Linear(4, 3))
        new.load_state_dict(old.state_dict())
        given = x if m is torch else ours(x)
        assert float((new(given) - old(given)).detach().abs().max()) < 1e-6
        file = io.BytesIO()
        if m is torch:
            torch.save(old.state_dict(), file)
            file.seek(0)
            mine = flambeau.nn.utils.parametrizations.weight_norm(flambeau.nn.Linear(4, 3))
            mine.load_state_dict(flambeau.load(file))
            close(mine(ours(x)), new(x), 1e-6)
    # spectral_norm before its version 1: the weight was saved, v was not
    results = []
    for m in BOTH:
        m.manual_seed(0)
        layer = m.nn.utils.spectral_norm(m.nn.Linear(4, 3))
        layer(x if m is torch else ours(x))
        state = layer.state_dict()
        state["weight"] = layer.weight.detach()
        del state["weight_v"]
        del state._metadata[""]["spectral_norm"]
        fresh = m.nn.utils.spectral_norm(m.nn.Linear(4, 3))
        fresh.load_state_dict(state)
        results.append(fresh.eval()(x if m is torch else ours(x)))
        del state["weight_u"]
        with pytest.raises(RuntimeError, match="weight_u"):
            fresh.load_state_dict(state)
    close(*results, 1e-4)
    for m in BOTH:
        layer = m.nn.utils.spectral_norm(m.nn.Linear(4, 3))
        m.nn.utils.remove_spectral_norm(layer)
        assert list(layer.state_dict()) == ["bias", "weight"] and not layer._forward_pre_hooks
        m.nn.utils.spectral_norm(layer)


def symmetric(m):
    class Symmetric(m.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, x):
            return x.triu()

    return Symmetric()


def test_parametrize():
    for m in BOTH:
        P = m.nn.utils.parametrize
        layer = m.nn.Linear(3, 3)
        parameter = layer.weight
        optimizer = m.optim.SGD(layer.parameters(), 0.1)
        assert P.register_parametrization(layer, "weight", symmetric(m)) is layer
        assert layer.parametrizations.weight.original is parameter  # what the optimizer holds stays the parameter
        layer(m.ones(1, 3)).sum().backward()
        optimizer.step()
        assert (layer.weight == layer.weight.T).all() and P.type_before_parametrizations(layer) is m.nn.Linear
        assert type(layer).__name__ == "ParametrizedLinear" and P.is_parametrized(layer, "weight") and not P.is_parametrized(layer, "bias")
        twin = copy.deepcopy(layer)
        assert (twin.weight == layer.weight).all() and twin.parametrizations.weight.original is not parameter
        with pytest.raises(RuntimeError, match="only supported through state_dict"):
            pickle.dumps(layer)
        other = m.nn.Linear(3, 3)
        P.transfer_parametrizations_and_params(layer, other)
        assert (other.weight == layer.weight).all() and other.parametrizations.weight.original is parameter
        with P.cached():
            assert layer.weight is layer.weight
        value = layer.weight.detach()
        P.remove_parametrizations(layer, "weight")
        assert layer.weight is parameter and (layer.weight == value).all() and type(layer) is m.nn.Linear
        assert not hasattr(layer, "parametrizations")

        class Wider(m.nn.Module):
            def forward(self, x, m=m):
                return m.cat([x, x])

        with pytest.raises(ValueError, match="may not change the shape"):
            P.register_parametrization(m.nn.Linear(2, 2), "weight", Wider())
        assert P.register_parametrization(m.nn.Linear(2, 2), "weight", Wider(), unsafe=True).weight.shape == (4, 2)
        with pytest.raises(ValueError, match="does not have a parameter"):
            P.register_parametrization(m.nn.Linear(2, 2), "nothing", Wider())

        class Pair(m.nn.Module):
            def forward(self, a, b):
                return a * b

            def right_inverse(self, x, m=m):
                return x, m.ones_like(x)

        two = P.register_parametrization(m.nn.Linear(2, 2), "weight", Pair())
        assert [n for n, _ in two.named_parameters()] == ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
        with pytest.raises(ValueError, match="leave_parametrized"):
            P.remove_parametrizations(two, "weight", leave_parametrized=False)
        P.remove_parametrizations(two, "weight")
        assert isinstance(two.weight, m.nn.Parameter)


@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d", "Linear"])
@pytest.mark.parametrize("affine", [True, False])
def test_fusion(kind, affine):
    results = []
    x = torch.randn(3, 2, 4, 4) if kind != "Linear" else torch.randn(5, 2)
    for m in BOTH:
        m.manual_seed(1)
        linear = kind == "Linear"
        layer = (m.nn.Linear(2, 3, bias=affine) if linear else getattr(m.nn, kind)(2, 3, 2, bias=affine)).eval()
        bn = (m.nn.BatchNorm1d(3) if linear else m.nn.BatchNorm2d(3, affine=affine)).eval()
        with m.no_grad():
            bn.running_mean.copy_(m.tensor([0.5, -1.0, 2.0]))
            bn.running_var.copy_(m.tensor([0.5, 1.0, 2.0]))
        U = m.nn.utils
        fused = U.fuse_linear_bn_eval(layer, bn) if linear else U.fuse_conv_bn_eval(layer, bn, transpose=kind != "Conv2d")
        given = x if m is torch else ours(x)
        results.append(fused(given))
        assert float((fused(given) - bn(layer(given))).detach().abs().max()) < 1e-5 and fused is not layer
        with pytest.raises(AssertionError, match="eval"):
            (U.fuse_linear_bn_eval if linear else U.fuse_conv_bn_eval)(layer.train(), bn)
    close(*results)


def test_memory_format_and_skip_init():
    for m in BOTH:
        net = m.nn.Sequential(m.nn.Conv2d(3, 4, 3), m.nn.Linear(2, 2))
        before = net[0].weight.tolist()
        assert m.nn.utils.convert_conv2d_weight_memory_format(net, m.channels_last) is net
        assert net[0].weight.is_contiguous(memory_format=m.channels_last) and net[0].weight.tolist() == before
        m.manual_seed(0)
        layer = m.nn.utils.skip_init(m.nn.Linear, 3, 4)
        assert layer.weight.shape == (4, 3) and layer.weight.requires_grad
        drawn = m.rand(2).tolist()
        m.manual_seed(0)
        assert m.rand(2).tolist() == drawn  # no number was drawn
        with pytest.raises(RuntimeError, match="must support a 'device' arg"):
            m.nn.utils.skip_init(m.nn.ReLU)
    assert flambeau.nn.utils.init.skip_init and flambeau.nn.utils.memory_format and flambeau.nn.utils.stateless


def test_parallel_on_one_device():
    P = flambeau.nn.parallel
    x = flambeau.arange(6.0).reshape(6, 1)
    parts = P.scatter({"x": x, "n": 3}, ["cpu", "cpu"])
    assert [p["x"].flatten().tolist() for p in parts] == [[0, 1, 2], [3, 4, 5]] and parts[1]["n"] == 3
    assert P.gather(parts, "cpu")["x"].tolist() == x.tolist() if isinstance(parts[0]["n"], flambeau.Tensor) else True
    assert [t.flatten().tolist() for t in P.scatter(x, ["cpu"] * 3)] == [[0, 1], [2, 3], [4, 5]]
    assert P.gather([(x[:2], x[0, 0]), (x[2:], x[1, 0])], "cpu")[1].tolist() == [0.0, 1.0]
    layer = flambeau.nn.Linear(1, 1)
    replicas = P.replicate(layer, ["cpu", "cpu"])
    got = P.gather(P.parallel_apply(replicas, P.scatter(x, ["cpu", "cpu"])), "cpu")
    assert got.tolist() == layer(x).tolist()
    with pytest.raises(RuntimeError, match="accelerator device 0"):
        P.scatter(x, [0, 1])
    assert flambeau.nn.DataParallel(layer)(x).tolist() == layer(x).tolist()


def test_factory_kwargs():
    for m in BOTH:
        assert m.nn.factory_kwargs({"dtype": m.float64, "factory_kwargs": {"device": "cpu"}}) == {"dtype": m.float64, "device": "cpu"}
        assert m.nn.factory_kwargs(None) == {}
        with pytest.raises(TypeError, match="unexpected kwargs"):
            m.nn.factory_kwargs({"x": 1})
        with pytest.raises(TypeError, match="specified twice"):
            m.nn.factory_kwargs({"dtype": 1, "factory_kwargs": {"dtype": 2}})
