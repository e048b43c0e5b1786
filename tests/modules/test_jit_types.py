"""TorchScript's types against PyTorch's: what they print as, their parts, which is equal to and fits which."""

from __future__ import annotations

import itertools

import pytest

import flambeau
from tests.nn.oracle import torch

SIMPLE = "AnyType NumberType IntType FloatType ComplexType TensorType BoolType StringType NoneType DeviceObjType StreamObjType".split()


def types(module):
    """Simple types, and one and two levels of those made of others."""
    simple = [getattr(module, name).get() for name in SIMPLE]
    made = [
        module.ListType.ofInts(), module.ListType.ofTensors(), module.ListType.ofStrings(), module.OptionalType.ofTensor(),
        module.FutureType(simple[5]), module.TupleType([simple[5], simple[2]]), module.TupleType([simple[0], simple[1]]),
        module.DictType(simple[7], simple[3]), module.UnionType([simple[2], simple[7]]), module.OptionalType(simple[2]),
    ]  # fmt: skip
    return simple + made + [module.ListType(made[0]), module.OptionalType(made[5]), module.DictType(simple[2], made[1])]


def test_types_print_as_pytorchs() -> None:
    for a, b in zip(types(flambeau), types(torch), strict=True):
        assert (repr(a), str(a), a.str(), a.kind(), a.annotation_str) == (repr(b), str(b), b.str(), b.kind(), b.annotation_str)
        assert [repr(part) for part in a.containedTypes()] == [repr(part) for part in b.containedTypes()]
        with pytest.raises(TypeError):
            hash(a)


def test_each_pair_is_as_pytorchs() -> None:
    ours, theirs = types(flambeau), types(torch)
    for i, k in itertools.product(range(len(ours)), repeat=2):
        assert (ours[i] == ours[k]) == (theirs[i] == theirs[k]), (ours[i], ours[k])
        assert ours[i].isSubtypeOf(ours[k]) == theirs[i].isSubtypeOf(theirs[k]), (ours[i], ours[k])


def test_wrong_uses() -> None:
    with pytest.raises(TypeError):
        flambeau.IntType()
    with pytest.raises(AttributeError):
        flambeau.ListType.get()
