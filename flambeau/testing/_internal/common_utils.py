"""torch.testing._internal.common_utils: the test case whose assertEqual compares tensors, and what is used beside it."""

from __future__ import annotations

import random
import unittest
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import flambeau as torch
from flambeau.testing.close import assert_close
from flambeau.testing.creation import make_tensor

__all__ = ["SEED", "TEST_NUMPY", "TestCase", "make_tensor", "run_tests", "set_rng_seed"]

SEED = 1234
TEST_NUMPY = True


def set_rng_seed(seed: int | None = None) -> None:
    """Seed torch's and Python's generators, and NumPy's where it is imported."""
    import sys

    chosen = SEED if seed is None else seed
    torch.manual_seed(chosen)
    random.seed(chosen)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(chosen)


def run_tests(argv: Sequence[str] | None = None) -> None:
    """Run the tests of the main module."""
    unittest.main(argv=None if argv is None else list(argv))


class TestCase(unittest.TestCase):
    """A unittest case that begins each test with the same seed; `assertEqual` takes tensors, and whatever contains them."""

    __test__ = False  # pytest collects subclasses only

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__test__" not in vars(cls):
            cls.__test__ = True

    def setUp(self) -> None:
        """Seed the generators."""
        set_rng_seed(SEED)

    def assertEqual(
        self, x: Any, y: Any, msg: str | Callable[[str], str] | None = None, *, atol: float | None = None, rtol: float | None = None,
        equal_nan: bool = True, exact_dtype: bool = True, exact_device: bool = False, exact_layout: bool = False, exact_stride: bool = False,
        exact_is_coalesced: bool = False,
    ) -> None:  # fmt: skip
        """AssertionError unless both are equal: tensors, arrays and numbers within PyTorch's tolerances, containers entry by entry, all else by ==."""

        def check(a: Any, b: Any) -> None:
            tensors = isinstance(a, torch.Tensor), isinstance(b, torch.Tensor)
            if any(tensors) and not all(tensors):
                like = a if tensors[0] else b
                a, b = (torch.as_tensor(t, dtype=None if isinstance(t, torch.Tensor) or hasattr(t, "dtype") else like.dtype) for t in (a, b))
                a, b = torch.broadcast_tensors(a, b) if 1 in (a.numel(), b.numel()) else (a, b)
            if isinstance(a, Mapping) and isinstance(b, Mapping):
                super(TestCase, self).assertEqual(set(a), set(b), msg)
                for key in a:
                    check(a[key], b[key])
            elif isinstance(a, str | bytes | Set | type) or isinstance(b, str | bytes | Set | type):
                super(TestCase, self).assertEqual(a, b, msg)
            elif isinstance(a, Sequence) and isinstance(b, Sequence):
                super(TestCase, self).assertEqual(len(a), len(b), msg)
                for s, t in zip(a, b, strict=True):
                    check(s, t)
            elif isinstance(a, torch.Tensor) or hasattr(a, "__array__") or (isinstance(a, int | float | complex) and isinstance(b, int | float | complex)):
                close(a, b)
            else:
                super(TestCase, self).assertEqual(a, b, msg)

        def close(a: Any, b: Any) -> None:
            numbers = not isinstance(a, torch.Tensor)
            assert_close(
                a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=exact_dtype and not numbers, check_device=exact_device,
                check_layout=exact_layout, check_stride=exact_stride, msg=msg,
            )  # fmt: skip

        if (rtol is None) != (atol is None):
            rtol, atol = rtol or 0.0, atol or 0.0
        check(x, y)

    def assertGreaterAlmostEqual(self, first: float, second: float, places: int | None = None, msg: str | None = None, delta: float | None = None) -> None:
        """AssertionError unless the first is greater than, or almost equal to, the second: by `delta`, or when rounded to `places` (7)."""
        if first < second:
            self.assertAlmostEqual(first, second, places, msg, delta)  # type: ignore[call-overload]

    def assertNotEqual(self, x: Any, y: Any, msg: str | None = None, **kwargs: Any) -> None:  # type: ignore[override]
        """AssertionError if assertEqual would pass."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, **kwargs)
