"""Convolutions by the matrix unit: against the NumPy reference, PyTorch's accuracy, and numbers that have no parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels import convolution
from flambeau.compiler.kernels.convolution_patches import phases
from flambeau.compiler.kernels.convolution_problem import problem
from flambeau.compiler.kernels.convolution_tiles import _even, make_tile_convolution
from flambeau.compiler.kernels.description import Epilogue
from flambeau.runtime import tiles
from flambeau.symbols import Recording, at_sizes
from tests.kernels.images import Case
from tests.kernels.test_convolution import OPS, Increment, case, check, make

pytestmark = pytest.mark.skipif("bfloat16" not in tiles.dtypes(), reason="no matrix unit")

Array = np.ndarray[Any, Any]


def by_tiles(graph: Graph, epilogue: Epilogue | None = None) -> list[Kernel]:
    """By the matrix unit, whether it is faster or not."""
    p = problem(graph, 0)
    gradient = graph.nodes[0].op == OPS[1]
    (phase,) = phases(p, gradient)
    return make_tile_convolution(graph, p, gradient, phase, 0, epilogue)


def test_choice() -> None:
    for d in (dtypes.float32, dtypes.bfloat16):
        for op in OPS[:2]:
            keys = [k.key for k in make(case(op, (8, 64, 28, 28), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1, d).graph)]
            assert any(key.startswith(f"convolution:tiles:{d.name}:") for key in keys)
    for d in (dtypes.float64, dtypes.float16, dtypes.int32):
        keys = [k.key for k in make(case(OPS[0], (8, 64, 28, 28), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1, d).graph)]
        assert not any("tiles" in key for key in keys)


@st.composite
def random_problems(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(st.sampled_from(OPS[:2]))
    groups = draw(st.sampled_from((1, 1, 2)))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) if op == OPS[0] else (1, 1)
    deep, broad = draw(st.sampled_from((24, 27, 32, 49, 64, 95))), draw(st.integers(9, 80))
    inputs, outputs = (deep, broad) if op == OPS[0] else (broad, deep)
    least = [max(1, dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i]) for i in range(2)]
    return {
        "op": op, "x": (draw(st.integers(1, 7)), groups * inputs, *(draw(st.integers(low, low + 35)) for low in least)),
        "w": (groups * outputs, inputs, *kernel), "stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
        "d": draw(st.sampled_from((dtypes.float32, dtypes.float32, dtypes.bfloat16))), "plain": draw(st.booleans()),
        "seed": draw(st.integers(0, 1 << 20)),
    }  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(random_problems(), st.integers(1, 9))
def test_random_problems(given_: dict[str, Any], splits: int) -> None:
    c = case(**given_)
    w = given_["w"]
    terms = (w[1] if given_["op"] == OPS[0] else w[0]) * w[2] * w[3]
    check(c, given_["d"], terms, splits, by_tiles)


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize(
    ("x", "w", "stride", "padding"),
    [
        ((2, 64, 3, 700), (64, 64, 3, 3), 1, 1),  # pieces of rows
        ((2, 64, 60, 90), (64, 64, 1, 1), 1, 0),  # all pixels one row
        ((40, 64, 4, 4), (96, 64, 3, 3), 1, 1),  # many images in a unit
        ((3, 64, 1, 50), (64, 64, 1, 5), 1, 0),
        ((2, 32, 70, 30), (64, 32, 7, 7), 1, 3),  # blocks of rows, three pixels of padding
        ((2, 64, 6, 6), (64, 64, 2, 2), 1, 5),  # more padding than the kernel reaches
        ((1, 1024, 7, 7), (96, 1024, 3, 3), 1, 1),  # many steps
        ((1, 64, 3, 3), (64, 64, 3, 3), 1, 0),  # one pixel
    ],
)
def test_shapes(op: str, x: Any, w: Any, stride: int, padding: int) -> None:
    c = case(op, x, w, (stride, stride), (padding, padding), (1, 1), 1)
    check(c, dtypes.float32, 20_000, by=by_tiles)


@pytest.mark.parametrize("op", OPS[:2])
def test_epilogue_visits_each_element_once(op: str) -> None:
    for x, w in (((9, 64, 5, 7), (40, 64, 3, 3)), ((2, 32, 60, 90), (32, 32, 1, 1)), ((3, 64, 40, 13), (100, 64, 3, 3))):
        c = case(op, x, w, (1, 1), (1, 1), (1, 1), 1)
        epilogue = Increment(c.outs[0], c.graph.values[c.outs[0]].shape)
        (plain,) = c.run(by_tiles)
        (found,) = c.run(partial(by_tiles, epilogue=epilogue), 4)
        np.testing.assert_array_equal(found, plain + np.float32(1))


def shaped(c: Case) -> list[Array]:
    """The operands' storages as arrays, to be changed."""
    return [s.reshape(c.graph.values[i].shape) for s, i in zip(c.storages, c.graph.nodes[0].inputs, strict=True)]


def direct(c: Case, monkeypatch: pytest.MonkeyPatch) -> Array:
    """The result without the matrix unit."""
    with monkeypatch.context() as patch:
        patch.setattr(convolution, "tiles_apply", lambda *_: False)
        (result,) = c.run(make)
    return result


def magnitudes(c: Case) -> Array:
    """The sums of the products' magnitudes, in float64."""
    a, b = (np.abs(s.astype(np.float64)) for s in shaped(c))
    (px, py), kernel = (1, 1), b.shape[2:]
    if c.graph.nodes[0].op == OPS[1]:
        b = b.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    a = np.pad(a, ((0, 0), (0, 0), (py, py), (px, px)))
    windows = np.lib.stride_tricks.sliding_window_view(a, kernel, axis=(2, 3))  # type: ignore[call-overload]
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, b, optimize=True))


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e37, 1e-20, 1e-30, 1e-38, 1e-42, -3e38], ids=str)
@pytest.mark.parametrize("where", ("image", "weights", "both"))
def test_single_elements_without_parts(op: str, value: float, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    c = case(op, (7, 64, 6, 9), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    images, weights = shaped(c)
    if where != "weights":
        images[3, 5, 2, 4] = value
    if where != "image":
        weights[40, 37, 1, 1] = value
    (found,) = c.run(by_tiles)
    (again,) = c.run(by_tiles, 3)
    assert found.tobytes() == again.tobytes()
    expected = direct(c, monkeypatch)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    with np.errstate(invalid="ignore"):
        allowed = 2.0**-20 * magnitudes(c)[finite]
    assert np.all(np.abs(found[finite].astype(np.float64) - expected[finite]) <= allowed)
    if where == "image" and not np.isfinite(value):
        assert np.isfinite(np.delete(found, 3, axis=0)).all()


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize(
    ("of_images", "of_weights"),
    [(0, 0), (-60, 0), (0, -60), (-45, -45), (-60, -60), (-100, 10), (-120, 120), (60, -40), (60, 55), (100, -120), (-140, 30)],
)
def test_magnitudes(op: str, of_images: int, of_weights: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal numbers times powers of two: as accurate as without the matrix unit, down to denormal results."""
    c = case(op, (3, 64, 6, 9), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    images, weights = shaped(c)
    images *= np.float32(2.0**of_images)
    weights *= np.float32(2.0**of_weights)
    (found,) = c.run(by_tiles)
    allowed = 2.0**-21 * magnitudes(c) + 2.0**-149
    assert np.all(np.abs(found.astype(np.float64) - direct(c, monkeypatch)) <= allowed)


@pytest.mark.parametrize("op", OPS[:2])
def test_many_magnitudes(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result is as accurate as its own products are large, not those of its neighbours."""
    c = case(op, (3, 64, 6, 40), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    images, _ = shaped(c)
    images *= np.exp2(-np.arange(40) * 2.5).astype(np.float32)  # down to 2^-97
    (found,) = c.run(by_tiles)
    assert np.all(np.abs(found.astype(np.float64) - direct(c, monkeypatch)) <= 2.0**-21 * magnitudes(c))


def test_integers_and_identity_are_exact() -> None:
    c = case(OPS[0], (2, 64, 8, 8), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    images, weights = shaped(c)
    rng = np.random.default_rng(1)
    images[:] = rng.integers(-(1 << 23), 1 << 23, images.shape)
    weights[:] = 0
    weights[:, :, 1, 1] = np.eye(64)
    (found,) = c.run(by_tiles)
    np.testing.assert_array_equal(found, images)
    images[:] = rng.integers(-100, 100, images.shape)
    weights[:] = rng.integers(-100, 100, weights.shape)
    (found,) = c.run(by_tiles)
    (expected,) = c.expected()
    np.testing.assert_array_equal(found, expected)


DATA: dict[str, Callable[[np.random.Generator, Array], Any]] = {
    "normal": lambda rng, a: a,
    "positive": lambda rng, a: rng.random(a.shape, np.float32),
    "cancelling": lambda rng, a: a + np.float32(100),
    "spread": lambda rng, a: np.asarray(a * np.exp(rng.standard_normal(a.shape)), np.float32),
}


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize(
    ("x", "w", "padding"),
    [
        ((4, 64, 28, 28), (64, 64, 3, 3), 1), ((2, 256, 14, 14), (256, 256, 3, 3), 1), ((4, 512, 4, 4), (512, 512, 3, 3), 1),
        ((2, 128, 14, 14), (128, 128, 3, 3), 1), ((2, 64, 14, 14), (96, 64, 5, 5), 2),
    ],
)  # fmt: skip
def test_no_less_accurate_than_pytorch(op: str, kind: str, x: Any, w: Any, padding: int) -> None:
    torch = pytest.importorskip("torch")
    c = case(op, x, w, (1, 1), (padding, padding), (1, 1), 1)
    rng = np.random.default_rng(5)
    for array in shaped(c):
        array[:] = DATA[kind](rng, array)
    (found,) = c.run(by_tiles)
    function = torch.nn.functional.conv2d if op == OPS[0] else torch.nn.functional.conv_transpose2d
    a, b = (torch.from_numpy(array) for array in shaped(c))
    exact = function(a.double(), b.double(), None, 1, padding).numpy()
    theirs = np.sqrt(np.mean((function(a, b, None, 1, padding).numpy() - exact) ** 2))
    ours = np.sqrt(np.mean((found - exact) ** 2))
    assert ours <= 1.05 * theirs


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 100))
def test_images_of_units_are_alike_and_ask_nothing_of_a_batch(batch: int, other: int, most: int) -> None:
    images = _even(batch, most)
    units = max(1, -(-batch // images))
    assert 1 <= images <= most or batch == 0
    assert images == 1 or -(-batch // units) == images  # as few as that many units can have
    assert units >= min(batch, 2)  # a second thread has some, too
    rec = Recording((other,))
    of_symbol = _even(rec.size(0), most)
    assert not rec.guards
    assert at_sizes((batch,))((of_symbol,)) == (images,)
