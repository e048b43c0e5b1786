"""Convolutions of float32 by float16 halves and by bfloat16 parts: errors beside PyTorch's, and which blocks take which of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels import convolution_images, convolution_tiles, convolution_weight, convolution_weight_planes, convolution_weight_tiles
from flambeau.compiler.kernels.convolution_problem import problem
from flambeau.compiler.kernels.convolution_weight import make_weight_gradient
from flambeau.compiler.kernels.matmul_halves import HALVES
from flambeau.compiler.kernels.matmul_parts import PARTS
from flambeau.runtime import tiles
from tests.kernels.images import Case
from tests.kernels.test_convolution import OPS, case
from tests.kernels.test_convolution_tiles import by_tiles, shaped

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif("float16" not in tiles.dtypes(), reason="this machine's matrix unit has no float16")

Array = np.ndarray[Any, Any]
FAMILIES = {  # how, node, images, kernel
    "tiles": (OPS[0], (3, 64, 12, 20), (64, 64, 3, 3)), "tiles, input gradient": (OPS[1], (3, 64, 12, 20), (64, 64, 3, 3)),
    "images": (OPS[0], (32, 64, 6, 6), (64, 64, 3, 3)), "images, input gradient": (OPS[1], (32, 64, 6, 6), (64, 64, 3, 3)),
    "weight tiles": (OPS[2], (32, 64, 6, 6), (64, 64, 3, 3)), "weight planes": (OPS[2], (3, 64, 20, 30), (64, 64, 3, 3)),
}  # fmt: skip


def by_images(graph: Graph) -> list[Kernel]:
    return convolution_images.make_image_convolution(graph, problem(graph, 0), graph.nodes[0].op == OPS[1], 0, None)


def by_weight(graph: Graph) -> list[Kernel]:
    return make_weight_gradient(graph, problem(graph, 0), 0, None)


class Family:
    """One way to compute a node, by halves where they do or by parts alone."""

    def __init__(self, name: str, patch: pytest.MonkeyPatch) -> None:
        self.op, x, w = FAMILIES[name]
        self.case = case(self.op, x, w, (1, 1), (1, 1), (1, 1), 1)
        self.make: Callable[[Graph], list[Kernel]] = {"t": by_tiles, "i": by_images, "w": by_weight}[name[0]]
        self.patch = patch
        patch.setattr(convolution_weight, "weight_tiles_apply", lambda p: name == "weight tiles")
        patch.setattr(convolution_weight, "weight_planes_apply", lambda p: name == "weight planes")
        patch.setattr(convolution_weight_tiles, "_BLOCK_PIXELS", {"parts": 4, "halves": 4})  # the same order of additions

    def run(self, form: Any = HALVES, splits: int = 1) -> Array:
        for module, which in (
            (convolution_tiles, "form_of_product"), (convolution_images, "form_of"), (convolution_weight_tiles, "form_of"),
            (convolution_weight_planes, "form_of"),
        ):  # fmt: skip
            self.patch.setattr(module, which, lambda terms: form)
        (found,) = self.case.run(self.make, splits)
        return found

    @property
    def operands(self) -> list[Array]:
        return shaped(self.case)

    def by(self, module_dtype: Any, operands: list[Array]) -> Array:
        """By PyTorch."""
        a, b = (torch.from_numpy(o).to(module_dtype) for o in operands)
        if self.op == OPS[0]:
            found = torch.nn.functional.conv2d(a, b, None, 1, 1)
        elif self.op == OPS[1]:
            found = torch.nn.functional.conv_transpose2d(a, b, None, 1, 1)
        else:
            found = torch.nn.grad.conv2d_weight(b, (a.shape[1], b.shape[1], 3, 3), a, 1, 1)
        return np.asarray(found.numpy())

    @property
    def exact(self) -> Array:
        return self.by(torch.float64, self.operands)

    @property
    def magnitudes(self) -> Array:
        return self.by(torch.float64, [np.abs(o) for o in self.operands])

    def takes_halves(self) -> bool:
        """Whether the bits are others than those of parts; which are the same when the units are handed out in another way."""
        found = self.run()
        assert found.tobytes() == self.run(splits=3).tobytes()
        return found.tobytes() != self.run(PARTS).tobytes()


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Family:
    return Family(request.param, monkeypatch)


DATA: dict[str, Callable[[np.random.Generator, Array], Any]] = {
    "normal": lambda rng, a: rng.standard_normal(a.shape), "positive": lambda rng, a: rng.random(a.shape),
    "half of it zero": lambda rng, a: rng.standard_normal(a.shape) * (rng.random(a.shape) < 0.5),
    "spread": lambda rng, a: rng.standard_normal(a.shape) * np.exp(rng.standard_normal(a.shape)),
}  # fmt: skip


@pytest.mark.parametrize("form", [HALVES, PARTS], ids=lambda form: form.name)
@pytest.mark.parametrize("kind", DATA)
def test_errors_are_no_larger_than_those_of_pytorch(family: Family, kind: str, form: Any) -> None:
    rng = np.random.default_rng(3)
    for array in family.operands:
        array[:] = DATA[kind](rng, array)
    theirs = family.by(torch.float32, family.operands)
    ours, exact = family.run(form), family.exact
    limit = 1.1 if form is PARTS and kind == "half of it zero" else 1.05  # a quarter of the terms is left
    assert np.sqrt(np.mean((ours - exact) ** 2)) <= limit * np.sqrt(np.mean((theirs - exact) ** 2))
    if form is HALVES:
        assert family.takes_halves()


def test_whole_numbers_are_exact(family: Family) -> None:
    """Small ones by halves; larger ones, and masks times any numbers, by parts."""
    rng = np.random.default_rng(1)
    a, b = family.operands
    for array in (a, b):
        array[:] = rng.integers(-30, 30, array.shape)
    np.testing.assert_array_equal(family.run(), family.exact)
    b[:] = rng.standard_normal(b.shape)
    a[:] = 0
    a.reshape(len(a), -1)[np.arange(len(a)), rng.integers(0, a[0].size, len(a))] = 1.0
    found = family.run()
    assert not family.takes_halves()
    if family.op != OPS[2] or len(a) == 3:  # sums of one product each; or of two or three
        assert np.abs(found - family.exact).max() <= 2.0**-23 * family.magnitudes.max()


def test_one_hot_times_any_numbers(family: Family) -> None:
    rng = np.random.default_rng(2)
    a, b = family.operands
    a[:] = rng.integers(-(1 << 23), 1 << 23, a.shape)
    b[:] = 0
    if family.op == OPS[2]:
        b[0, :, 3, 3] = 1  # the only pixel that is not zero
    else:
        b[:, :, 1, 1] = np.eye(64)
    np.testing.assert_array_equal(family.run(), family.exact)
    assert not family.takes_halves()


@pytest.mark.parametrize("operand", [0, 1])
def test_few_small_elements_do_not_matter(family: Family, operand: int) -> None:
    """Down to 2^-40 of the greatest, of images; each panel of weights holds too few elements."""
    array = family.operands[operand]
    flat = array.reshape(-1)
    flat[::40_000] = 2.0**-35
    found = family.run()
    assert np.abs(found - family.exact).max() <= 2.0**-22 * family.magnitudes.max()
    flat[::5] *= np.float32(2.0**-33)
    assert not family.takes_halves()
    assert (np.abs(family.run() - family.exact) <= 2.0**-20 * family.magnitudes).all()


@pytest.mark.parametrize("operand", [0, 1])
def test_mostly_zero(family: Family, operand: int) -> None:
    rng = np.random.default_rng(4)
    array = family.operands[operand]
    array *= rng.random(array.shape) < 0.05
    assert not family.takes_halves()


def test_few_small_elements_go_with_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiles", "images", "weight tiles", "weight planes"):
        family = Family(name, monkeypatch)
        image = family.operands[0 if family.op != OPS[2] else 1]
        image.reshape(-1)[1000] = 2.0**-33
        assert family.takes_halves()
        image.reshape(-1)[1000] = 2.0**-43
        assert not family.takes_halves() or name in ("tiles", "weight planes")  # these choose for some images each


def test_infinities_leave_other_images_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiles", "images"):
        family = Family(name, monkeypatch)
        expected = family.exact
        family.operands[0][1, 5, 2, 3] = np.inf
        found = family.run()
        others = [0, 2]
        assert np.abs(found[others] - expected[others]).max() <= 2.0**-20 * np.abs(expected).max()
        assert not np.isfinite(found[1, :, 2, 3]).any()


def test_nothing_of_a_run_before_stays() -> None:
    """Pixels that halves do not do for, then such that they do for: as the second alone."""
    with pytest.MonkeyPatch.context() as patch:
        family = Family("tiles", patch)
        alone = family.run()
        other: Case = family.case
        keep = [s.copy() for s in other.storages]
        other.storages[0][::3] *= np.float32(2.0**-40)
        family.run()
        for storage, before in zip(other.storages, keep, strict=True):
            storage[:] = before
        assert family.run().tobytes() == alone.tobytes()
