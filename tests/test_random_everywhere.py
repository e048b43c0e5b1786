"""All that draws random numbers, driven from tables: PyTorch's numbers, dtypes and shapes after the same seed, and its state afterwards.

`python -m tests.test_random_everywhere` runs every combination of fills, dtypes, layouts and sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

Case = Callable[[Any], Any]
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
COMPLEX = ("complex64", "complex128")
SIZES = ((5,), (16,), (37,), (7, 9), (0,), (1,))
LAYOUTS: dict[str, Callable[[Any, tuple[int, ...], Any], Any]] = {
    "dense": lambda w, s, d: w.zeros(s, dtype=d),
    "turned": lambda w, s, d: w.zeros(s[::-1], dtype=d).permute(*range(len(s))[::-1]),
    "rows apart": lambda w, s, d: w.zeros((s[0] * 2, *s[1:]), dtype=d)[::2],
    "columns apart": lambda w, s, d: w.zeros((*s[:-1], s[-1] * 2), dtype=d)[..., ::2],
    "permuted": lambda w, s, d: w.zeros((3, *s), dtype=d).movedim(0, -1),
    "further on": lambda w, s, d: w.zeros((s[0] + 1, *s[1:]), dtype=d)[1:],
}
FILLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("uniform_", ()), ("uniform_", (-2.0, 3.0)), ("normal_", ()), ("normal_", (1.0, 0.5)), ("exponential_", ()), ("exponential_", (2.5,)),
    ("geometric_", (0.3,)), ("cauchy_", ()), ("cauchy_", (1.0, 2.0)), ("log_normal_", ()), ("log_normal_", (0.1, 0.4)), ("random_", ()),
    ("random_", (10,)), ("random_", (3, 90)), ("bernoulli_", ()), ("bernoulli_", (0.3,)),
)  # fmt: skip


def of(text: str, **names: Any) -> Case:
    """A case written as an expression over `w`, the library."""
    code = compile(text, text, "eval")
    return lambda w: eval(code, {"w": w, "part": lambda name: import_module(f"{w.__name__}.{name}"), **{k: f(w) for k, f in names.items()}})


def fill(name: str, given: tuple[Any, ...], d: str, layout: str, size: tuple[int, ...]) -> Case:
    return lambda w: getattr(LAYOUTS[layout](w, size, getattr(w, d)), name)(*given)


def fills(every: bool) -> Iterator[tuple[str, Case]]:
    for name, given in FILLS:
        for d, layout, size in itertools.product((*FLOATS, *INTEGERS, *COMPLEX), LAYOUTS, SIZES):
            usual = size == (37,) if layout == "dense" else d in ("float32", "int64") and size == (7, 9)
            if every or usual:
                yield f"{name}{given} {d} {layout} {size}", fill(name, given, d, layout, size)
        yield f"{name}{given} of a generator", of(f"w.zeros(20).{name}(*given, generator=w.Generator().manual_seed(9))", given=lambda w, g=given: g)


def expressions(*texts: str, **names: Any) -> Iterator[tuple[str, Case]]:
    for text in texts:
        yield text, of(text, **names)


def factories(every: bool) -> Iterator[tuple[str, Case]]:
    for name, d in itertools.product(("rand", "randn"), (*FLOATS, *COMPLEX)):
        t = f"w.{d}"
        yield from expressions(
            *[f"w.{name}({size}, dtype={t})" for size in ((), (1,), (5,), (17,), (4, 6), (0, 3))],
            f"w.{name}(20, out=w.empty(0, dtype={t}))", f"w.{name}(4, 5, out=w.empty(5, 4, dtype={t}).t())",
            f"w.{name}(3, 5, out=w.empty(5, 4, dtype={t}).t())",
            f"w.{name}(20, dtype={t}, generator=w.Generator().manual_seed(4))",
            *[f"w.{name}_like({x})" for x in (
                f"w.zeros(7, 9, dtype={t}).t()", f"w.zeros(14, 9, dtype={t})[::2]", f"w.zeros(6, 1, dtype={t}).expand(6, 5)", f"w.zeros(7, 9, dtype={t})",
                f"w.zeros(2, 3, 4, 5, dtype={t}), memory_format=w.channels_last", f"w.zeros(2, 3, 4, 5, dtype={t}).to(memory_format=w.channels_last)",
                f"w.zeros(6, 5, dtype={t}).t(), memory_format=w.contiguous_format", f"w.zeros(3, 5, dtype=w.int64), dtype={t}")],
        )  # fmt: skip
    for d in (*FLOATS, *INTEGERS):
        bounds = ("0, 2",) if d == "bool" else ("10", "0, 2", "3, 90")
        yield from expressions(
            *[f"w.randint({b}, (4, 6), dtype=w.{d})" for b in bounds], *[f"w.randint({b}, (12,), out=w.empty(0, dtype=w.{d}))" for b in bounds],
            *[f"w.randint_like(w.zeros(6, 4, dtype=w.{d}).t(), {b})" for b in bounds],
        )  # fmt: skip
    yield from expressions(
        *[f"w.randint({b}, (30,))" for b in ("1 << 40", "-(1 << 50), 1 << 60", "1 << 31", "1 << 32", "(1 << 28) - 1", "1 << 28")],
        *[f"w.randperm({n}, dtype=w.{d})" for n in (0, 1, 2, 100) for d in ("int64", "int32", "float32", "float64")], "w.randperm(30000)",
        "w.randperm(20, out=w.empty(0, dtype=w.int64))", "w.randperm(30, generator=w.Generator().manual_seed(2))",
        "w.randint(high=5, size=(7,))", "w.randint(low=2, high=5, size=(7,))", "w.randn(size=(2, 3))", "w.rand(3, requires_grad=True)",
        "w.zeros(3).new_empty(5).uniform_()", "[w.randn(7), w.randn(3), w.empty(2).normal_(), w.rand(2), w.randn(1)]", "[w.empty(3).log_normal_(), w.randn(2)]",
        "w.rand(5, generator=w.Generator())", "w.tensor(w.Generator().initial_seed())",
    )  # fmt: skip


def chances(every: bool) -> Iterator[tuple[str, Case]]:
    p, q = "w.linspace(0, 1, 40)", "w.linspace(0, 1, 30).reshape(6, 5)"
    rows = "w.arange(1., 13.).reshape(4, 3)"
    yield from expressions(
        f"w.bernoulli({p})", f"w.bernoulli({p}.reshape(5, 8).t())", f"w.bernoulli({p}[::2])", f"w.bernoulli({p}, out=w.empty(0))",
        f"w.bernoulli({p}, out=w.empty(40, dtype=w.float64))", "w.bernoulli(w.zeros(5, 8).t(), 0.3)", f"{p}.bernoulli()", f"{p}.bernoulli(0.2)",
        *[f"w.bernoulli({p}.{d}())" for d in ("double", "half", "bfloat16")],
        *[f"w.zeros(6, 5, dtype=w.{d}).bernoulli_({x})" for d in (*FLOATS, "int64", "bool") for x in (q, f"{q}.double()", "w.tensor(0.3)")],
        *[f"w.zeros(5, 6, dtype=w.{d}).t().bernoulli_({q})" for d in (*FLOATS, "int64", "bool")],
        *[f"w.multinomial(w.tensor([[.1, .5, .4], [1, 2, 3]], dtype=w.{d}), {k}, {r})" for d in FLOATS for k in (1, 2, 3) for r in (False, True)],
        f"w.multinomial({rows}.t(), 3)", f"w.multinomial({rows}.t(), 3, True)", "w.multinomial(w.arange(1., 13.), 3, out=w.empty(0, dtype=w.int64))",
        "w.multinomial(w.arange(1., 13.), 3, generator=w.Generator().manual_seed(2))", "w.multinomial(w.tensor([0., 1, 0, 3, 0]), 2)",
        "w.normal(w.zeros(20), w.ones(20))", "w.normal(w.zeros(20), 2.)", "w.normal(1., w.ones(20))", "w.normal(w.zeros(4, 1), w.ones(5))",
        "w.normal(0., 1., (20,))",
        "w.normal(w.zeros(6, 5).t(), w.ones(5, 6))", "w.normal(w.zeros(20, dtype=w.float64), w.ones(20))", "w.normal(w.zeros(20).bfloat16(), 1.)",
        "w.normal(w.zeros(40)[::2], w.ones(20))", "w.normal(0., 1., (20,), dtype=w.float64)", "w.normal(0., 1., (20,), out=w.empty(20, dtype=w.float64))",
        *[f"w.poisson(w.tensor([.1, 1, 5, 9, 10, 11, 50, 1000.] * 4).{d}())" for d in ("float", "double", "half", "bfloat16")],
        "w.poisson((w.arange(24.) + 1).reshape(4, 6).t())", *[f"w._standard_gamma(w.tensor([.1, 1, 5, 9, 50, 100.] * 4).{d}())" for d in ("float", "double")],
        "w._standard_gamma((w.arange(24.) + 1).reshape(4, 6).t())", "w._sample_dirichlet(w.tensor([[.1, 1, 5], [9, 10, 11]]))",
        "w.binomial(w.tensor([1, 2, 10, 20, 100, 1000., 5, 7]), w.tensor([.1, .3, .5, .7, .9, .4, 0, 1]))",
    )  # fmt: skip


def parameters(every: bool) -> Iterator[tuple[str, Case]]:
    calls = (
        "uniform_(m)", "uniform_(m, -1, 2)", "normal_(m, 1, .3)", "trunc_normal_(m)", "trunc_normal_(m, 0, .02, -.04, .04)", "xavier_uniform_(m)",
        "xavier_normal_(m)", "kaiming_uniform_(m, a=5**.5)", "kaiming_normal_(m, mode='fan_out')", "sparse_(m, .3)", "orthogonal_(m)", "orthogonal_(m.t())",
        *[f"{name}(m, generator=w.Generator().manual_seed(1))" for name in ("uniform_", "normal_", "trunc_normal_", "kaiming_uniform_", "orthogonal_")],
    )  # fmt: skip
    for call, d in itertools.product(calls, ("float32", "float64")):
        yield f"init {call} {d}", of(f"w.nn.init.{call}", m=lambda w, d=d: w.empty(33, 17, dtype=getattr(w, d)))
    modules = (
        "Linear(3, 4)", "Bilinear(3, 4, 5)", "Conv1d(2, 4, 3)", "Conv2d(2, 4, 3)", "Conv3d(2, 4, 2)", "ConvTranspose2d(2, 4, 3)", "LSTM(3, 4, 2)",
        "GRU(3, 4, 2)",
        "RNN(3, 4, 2)", "LSTMCell(3, 4)", "GRUCell(3, 4)", "RNNCell(3, 4)", "Embedding(5, 4, padding_idx=1)", "EmbeddingBag(5, 4)", "MultiheadAttention(8, 2)",
        "MultiheadAttention(8, 2, kdim=4, vdim=5, add_bias_kv=True)", "TransformerDecoderLayer(8, 2)", "Transformer(8, 2, 1, 1, 16)",
        "AdaptiveLogSoftmaxWithLoss(4, 20, [5, 10])",
    )  # fmt: skip
    for module in modules:
        yield module, of(f"[p.detach() for p in w.nn.{module}.parameters()]")
    one = "w.nn.Linear(6, 5)"
    for call in (
        f"spectral_norm({one})", f"parametrizations.spectral_norm({one})", f"parametrizations.orthogonal({one})", f"weight_norm({one})",
        f"prune.random_unstructured({one}, 'weight', .3)", f"prune.random_structured({one}, 'weight', 2, 0)",
    ):  # fmt: skip
        yield call, of(f"(part('nn.utils.prune'), list(w.nn.utils.{call}.state_dict().values()))[1]")
    x = "w.linspace(-2, 2, 63).reshape(9, 7)"
    yield from expressions(
        "[u.abs() for u in w.pca_lowrank((w.arange(60.)**2).reshape(10, 6).sin(), 3)]", "w.svd_lowrank((w.arange(60.)**2).reshape(10, 6).sin(), 3)[1]",
        f"w.nn.functional.gumbel_softmax({x}.t(), dim=0)", f"w.nn.functional.rrelu({x}.t(), training=True)",
        f"w.nn.functional.fractional_max_pool2d({x}[None], 2, output_size=3)", f"w.rrelu_({x}, training=True)",
        *[f"w.{name}{end}({x}[None], .4, True)" for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout") for end in ("", "_")],
        f"w.native_dropout({x}, .4, True)",
        *[f"part('testing').make_tensor((4, 5), dtype=w.{d}, device='cpu')" for d in ("float32", "int64", "bool", "complex64")],
    )  # fmt: skip


FAMILIES = {
    "Bernoulli": ".3*o", "Beta": "2*o, 3*o", "Binomial": "10, .3*o", "Categorical": "p", "Cauchy": "o, 2*o", "Chi2": "3*o", "ContinuousBernoulli": ".3*o",
    "Dirichlet": "p", "Exponential": "2*o", "FisherSnedecor": "3*o, 4*o", "Gamma": "2*o, 3*o", "GeneralizedPareto": "o, o, .1*o", "Geometric": ".3*o",
    "Gumbel": "o, 2*o", "HalfCauchy": "o", "HalfNormal": "o", "InverseGamma": "2*o, 3*o", "Kumaraswamy": "2*o, 3*o", "LKJCholesky": "2, 1.5", "Laplace": "o, o",
    "LogNormal": "o, o", "LogisticNormal": "o, o", "LowRankMultivariateNormal": "0*o, w.ones(4, 1), o",
    "MixtureSameFamily": "w.distributions.Categorical(p), w.distributions.Normal(p, o)", "Multinomial": "6, p", "MultivariateNormal": "0*o, w.eye(4) + .2",
    "NegativeBinomial": "5, .3*o", "Normal": "o, 2*o", "OneHotCategorical": "p", "OneHotCategoricalStraightThrough": "p", "Pareto": "o, 2*o", "Poisson": "4*o",
    "RelaxedBernoulli": "w.tensor(.5), .3*o", "RelaxedOneHotCategorical": "w.tensor(.5), p", "StudentT": "3*o", "Uniform": "0*o, 3*o", "VonMises": "o, 2*o",
    "Weibull": "o, 2*o",
}  # fmt: skip
OWN_SAMPLERS = {"Wishart"}  # docs/differences.md


def families(every: bool) -> Iterator[tuple[str, Case]]:
    for name, given in FAMILIES.items():
        text = f"both(part('distributions').{name}({given}))"
        yield text, of(text, o=lambda w: w.ones(4), p=lambda w: w.arange(1.0, 5.0), both=lambda w: _samples)


def _samples(d: Any) -> list[Any]:
    return [d.sample((7,)), *([d.rsample((3, 8))] if d.has_rsample else [])]


def loading(every: bool) -> Iterator[tuple[str, Case]]:
    sampler = "w.tensor(list(w.utils.data.{}))"
    g = "generator=w.Generator().manual_seed(3)"
    yield from expressions(
        *[sampler.format(s) for s in (
            "RandomSampler(range(20))", "RandomSampler(range(20), True, 50)", "RandomSampler(range(20), False, 50)", f"RandomSampler(range(20), {g})",
            "SubsetRandomSampler(range(3, 20))", "WeightedRandomSampler([.1, .2, 3., 4.], 20)", "WeightedRandomSampler([.1, .2, 3., 4.], 3, False)")],
        "[w.tensor(s.indices) for s in w.utils.data.random_split(range(20), [5, 15])]",
        f"[w.tensor(s.indices) for s in w.utils.data.random_split(range(20), [.3, .7], {g})]",
        *[f"[b for _ in range(2) for b in w.utils.data.DataLoader(w.arange(23), 4{o})]" for o in ("", ", shuffle=True", f", shuffle=True, {g}")],
        "w.tensor(list(part('utils.data.distributed').DistributedSampler(range(20), 2, 1)))",
    )  # fmt: skip


GROUPS = {f.__name__: f for f in (fills, factories, chances, parameters, families, loading)}


def answer(w: Any, case: Case) -> tuple[Any, Any]:
    """(dtypes, shapes and numbers, or the error) and the state afterwards."""
    w.manual_seed(11)
    try:
        for _ in range(2):
            results = case(w)
    except Exception as error:
        return error, None
    results = results if isinstance(results, (list, tuple)) else [results]
    found = [(str(r.dtype).split(".")[-1], tuple(r.shape), r.detach().to(w.complex128).numpy()) for r in results]
    return found, w.get_rng_state().numpy().copy()


def difference(case: Case, strict: bool) -> str:
    """What is other than PyTorch's; nothing for what PyTorch refuses, unless `strict`."""
    expected, state = answer(torch, case)
    if isinstance(expected, Exception):
        return f"PyTorch refuses it: {expected}" if strict else ""
    found, ours = answer(flambeau, case)
    if isinstance(found, Exception):
        return f"{type(found).__name__}: {found}"
    for (d, shape, x), (wanted, size, y) in zip(found, expected, strict=True):
        if (d, shape) != (wanted, size):
            return f"{d}{shape}, not {wanted}{size}"
        if not np.allclose(x, y, rtol=1e-2 if d in ("float16", "bfloat16") else 1e-5, atol=1e-6, equal_nan=True):
            return "other numbers"
    cached_normal = range(5024, 5032)  # a double, equal but for its last places
    return "" if set(np.flatnonzero(state != ours)) <= set(cached_normal) else "another state"


def differences(group: str, every: bool = False) -> dict[str, str]:
    return {name: text for name, case in GROUPS[group](every) if (text := difference(case, group != "fills"))}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", GROUPS)
def test_same_numbers_and_state(group: str) -> None:
    assert differences(group) == {}


def test_nothing_that_draws_is_missing() -> None:
    """Each of PyTorch's operators that takes a generator, or drops out, and each family of distributions is in a table."""
    names = " ".join([name for group in GROUPS.values() for name, _ in group(False)])
    drawing = {
        s.name.removeprefix("aten::") for s in torch._C._jit_get_all_schemas()
        if s.name.startswith("aten::") and (any("Generator" in str(a.type) for a in s.arguments) or s.name.endswith(("dropout", "dropout_")))
    }  # fmt: skip
    public = {n for n in drawing if (hasattr(torch, n) or hasattr(torch.Tensor, n)) and not n.startswith("_")}
    assert len(public) > 30
    assert {n for n in public if n not in names} <= {"seed", "manual_seed", "initial_seed"}
    classes = [c for c in vars(torch.distributions).values() if isinstance(c, type) and issubclass(c, torch.distributions.Distribution)]
    samplers = {c.__name__ for c in classes if any("sample" in vars(b) or "rsample" in vars(b) for b in c.__mro__[:-2])}
    assert samplers - {"Independent", "TransformedDistribution", "ExponentialFamily"} <= FAMILIES.keys() | OWN_SAMPLERS


if __name__ == "__main__":
    for group in GROUPS:
        for name, text in differences(group, True).items():
            print(f"{group}: {name}: {text}")
