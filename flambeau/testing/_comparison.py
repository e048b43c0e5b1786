"""torch.testing._comparison: assert_close taken apart into pairs, which packages extend by pairs of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from flambeau.dtypes import promote_types
from flambeau.tensor import Tensor
from flambeau.testing.close import _NUMBERS, TOLERANCES, _as_tensor, _is_sequence, _Mismatch, _Options, _plain, dense
from flambeau.testing.close import assert_allclose as assert_allclose
from flambeau.testing.close import assert_close as assert_close


class ErrorMeta(Exception):
    """An error that is going to be raised: its class and text, and for which item of the containers."""

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> None:
        super().__init__(msg)
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        """The error; `msg` replaces its text, or is called with it."""
        if isinstance(msg, str):
            return self.type(msg)
        text = self.msg + (f"\n\nThe failure occurred for item {''.join(f'[{part!r}]' for part in self.id)}" if self.id else "")
        return self.type(msg(text) if callable(msg) else text)


class UnsupportedInputs(Exception):
    """A pair is not for these inputs."""


class Pair:
    """Two things that are compared: `compare` raises ErrorMeta where they differ. The constructor raises UnsupportedInputs where it is not for them."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown_parameters: Any) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: Any) -> None:
        if not all(isinstance(x, cls) for x in inputs):
            raise UnsupportedInputs

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=id or self.id)

    def _held(self, function: Callable[..., Any], *args: Any) -> None:
        try:
            function(*args)
        except _Mismatch as found:
            self._fail(found.kind, str(found))

    def compare(self) -> None:
        """Raise ErrorMeta where the two differ."""
        raise NotImplementedError

    def extra_repr(self) -> Sequence[str | tuple[str, Any]]:
        """Names of attributes, or names with values, for the repr."""
        return []

    def __repr__(self) -> str:
        parts = [(part, getattr(self, part)) if isinstance(part, str) else part for part in ("actual", "expected", "id", *self.extra_repr())]
        return f"{type(self).__name__}(\n" + "\n".join(f"    {name}={value!r}," for name, value in parts) + "\n)"


class ObjectPair(Pair):
    """Objects: equal by `==`."""

    def compare(self) -> None:
        """Raise ErrorMeta where they are not equal, or cannot be compared."""
        try:
            equal = self.actual == self.expected
        except Exception as error:
            self._fail(ValueError, f"{self.actual} == {self.expected} failed with:\n{error}.")
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """None, on one side or both."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        if not (actual is None or expected is None):
            self._inputs_not_supported()
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        """Raise ErrorMeta unless both are None."""
        if not (self.actual is None and self.expected is None):
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Booleans, Python's or NumPy's."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **other_parameters: Any) -> None:
        actual, expected = _plain(actual), _plain(expected)
        self._check_inputs_isinstance(actual, expected, cls=bool)
        super().__init__(actual, expected, id=id, **other_parameters)

    def compare(self) -> None:
        """Raise ErrorMeta where they differ."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class _TolerantPair(Pair):
    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
        equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
        **other_parameters: Any,
    ) -> None:  # fmt: skip
        actual, expected = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(actual, expected, id=id, **other_parameters)
        if (rtol is None) != (atol is None):
            get_tolerances(rtol=rtol, atol=atol, id=id)
        self.rtol, self.atol = (rtol, atol) if rtol is not None else self._tolerances()
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool) -> tuple[Any, Any]:
        raise NotImplementedError

    def _tolerances(self) -> tuple[float, float]:
        raise NotImplementedError

    def _options(self) -> _Options:
        return _Options(True, self.rtol, self.atol, self.equal_nan, self.check_dtype, self.check_layout, self.check_stride)


class NumberPair(_TolerantPair):
    """Numbers, Python's or NumPy's."""

    def __init__(self, actual: Any, expected: Any, *, check_dtype: bool = False, **other_parameters: Any) -> None:
        super().__init__(actual, expected, check_dtype=check_dtype, **other_parameters)

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool) -> tuple[Any, Any]:
        actual, expected = _plain(actual), _plain(expected)
        self._check_inputs_isinstance(actual, expected, cls=(int, float, complex))
        return actual, expected

    def _tolerances(self) -> tuple[float, float]:
        return default_tolerances(*[_NUMBERS[type(x)] for x in (self.actual, self.expected)])

    def compare(self) -> None:
        """Raise ErrorMeta where they are not close."""
        self._held(self._options()._numbers, self.actual, self.expected)

    def extra_repr(self) -> Sequence[str]:
        """The tolerances."""
        return ("rtol", "atol", "equal_nan", "check_dtype")


class TensorLikePair(_TolerantPair):
    """Tensors, and what can be made one."""

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool) -> tuple[Any, Any]:
        if not isinstance(actual, type(expected)) and not isinstance(expected, type(actual)):
            self._inputs_not_supported()
        made = _as_tensor(actual, allow_subclasses), _as_tensor(expected, allow_subclasses)
        if made[0] is None or made[1] is None:
            self._inputs_not_supported()
        return made

    def _tolerances(self) -> tuple[float, float]:
        return default_tolerances(self.actual, self.expected)

    def compare(self) -> None:
        """Raise ErrorMeta where they differ: first in what they are, then in their elements."""
        self._compare_attributes(self.actual, self.expected)
        self._compare_values(*self._equalize_attributes(self.actual, self.expected))

    def _compare_attributes(self, actual: Tensor, expected: Tensor) -> None:
        self._held(self._options().attributes, actual, expected)
        if self.check_device and actual.device != expected.device:
            self._fail(AssertionError, f"The values for attribute 'device' do not match: {actual.device} != {expected.device}.")

    def _equalize_attributes(self, actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        common = promote_types(actual.dtype, expected.dtype)
        return dense(actual).to(common), dense(expected).to(common)

    def _compare_values(self, actual: Tensor, expected: Tensor) -> None:
        self._held(self._options().values, actual.detach(), expected.detach(), "Scalars" if actual.ndim == 0 else "Tensor-likes")

    def extra_repr(self) -> Sequence[str]:
        """The tolerances, and what is compared beside elements."""
        return ("rtol", "atol", "equal_nan", "check_device", "check_dtype", "check_layout", "check_stride")


def default_tolerances(*inputs: Any, dtype_precisions: Mapping[Any, tuple[float, float]] | None = None) -> tuple[float, float]:
    """(rtol, atol) for tensors or dtypes: the larger ones. A dtype without any is compared exactly."""
    table = TOLERANCES if dtype_precisions is None else dtype_precisions
    found = [table.get(x.dtype if isinstance(x, Tensor) else x, (0.0, 0.0)) for x in inputs]
    return max(r for r, _ in found), max(a for _, a in found)


def get_tolerances(*inputs: Any, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()) -> tuple[float, float]:
    """The given tolerances, or those of the dtypes. ErrorMeta for one without the other."""
    if rtol is None and atol is None:
        return default_tolerances(*inputs)
    if rtol is None or atol is None:
        raise ErrorMeta(ValueError, f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {'rtol' if rtol is None else 'atol'}.", id=id)
    return rtol, atol


def originate_pairs(
    actual: Any, expected: Any, *, pair_types: Sequence[type[Pair]], sequence_types: Any = (Sequence,), mapping_types: Any = (Mapping,),
    id: tuple[Any, ...] = (), **options: Any,
) -> list[Pair]:  # fmt: skip
    """The pairs of two things, containers taken apart: each of the first type that takes it. ErrorMeta where none does, or containers differ."""

    def inside(keys: Any) -> Iterator[Pair]:
        for key in keys:
            yield from originate_pairs(
                actual[key], expected[key], pair_types=pair_types, sequence_types=sequence_types, mapping_types=mapping_types, id=(*id, key), **options
            )

    if isinstance(actual, sequence_types) and isinstance(expected, sequence_types) and _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            raise ErrorMeta(AssertionError, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", id=id)
        return list(inside(range(len(actual))))
    if isinstance(actual, mapping_types) and isinstance(expected, mapping_types):
        try:
            if set(actual) != set(expected):
                _Options(True, None, None, False, True, True, False)._mappings(actual, expected)
        except _Mismatch as found:
            raise ErrorMeta(AssertionError, str(found), id=id) from None
        return list(inside(sorted(actual, key=str)))
    for kind in pair_types:
        try:
            return [kind(actual, expected, id=id, **options)]
        except UnsupportedInputs:
            continue
    raise ErrorMeta(TypeError, f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.", id=id)


def not_close_error_metas(
    actual: Any, expected: Any, *, pair_types: Sequence[type[Pair]] = (ObjectPair,), sequence_types: Any = (Sequence,), mapping_types: Any = (Mapping,),
    **options: Any,
) -> list[ErrorMeta]:  # fmt: skip
    """What is wrong with two things: an error for each pair that differs."""
    try:
        pairs = originate_pairs(actual, expected, pair_types=pair_types, sequence_types=sequence_types, mapping_types=mapping_types, **options)
    except ErrorMeta as error:
        raise error.to_error() from None
    found = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as error:
            found.append(error)
    return found
