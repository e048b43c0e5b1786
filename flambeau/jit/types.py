"""The types of TorchScript as objects: `torch.TensorType.get()`, `torch.ListType(torch.IntType.get())`, what they print as and which fits which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

_SIMPLE: dict[type, Any] = {}


class Type:
    """A type. Equal ones have the same parts; `isSubtypeOf`: whether a value of it fits where the other is wanted.

    Example:
        >>> torch.IntType.get().isSubtypeOf(torch.NumberType.get())
        True
    """

    _prints: ClassVar[str] = ""
    _schema: ClassVar[str] = ""  # with {} for the parts; "": as in annotations

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__}: No constructor defined!")

    @classmethod
    def get(cls) -> Self:
        """The one object of a type without parts."""
        if not cls._prints:
            raise AttributeError(f"type object '{cls.__name__}' has no attribute 'get'")
        found = _SIMPLE.get(cls)
        if found is None:
            found = _SIMPLE[cls] = object.__new__(cls)
        return found  # type: ignore[no-any-return]

    def kind(self) -> str:
        """The name of the class."""
        return type(self).__name__

    @property
    def annotation_str(self) -> str:
        """As it is written in an annotation."""
        return self._prints

    def str(self) -> str:
        """As it is written in schemas of operators."""
        return self._schema.format(", ".join([part.str() for part in self.containedTypes()])) if self._schema else self.annotation_str

    def containedTypes(self) -> list[Type]:
        """Its parts."""
        return []

    def is_interface_type(self) -> bool:
        """Whether it is an interface: none is."""
        return False

    def isSubtypeOf(self, other: Type) -> bool:
        """Whether each value of it is one of `other`."""
        if isinstance(other, AnyType) or self == other:
            return True
        if isinstance(other, (OptionalType, UnionType)):
            return any(self.isSubtypeOf(part) for part in other._members())
        return isinstance(other, NumberType) and isinstance(self, (IntType, FloatType, ComplexType))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and type(self) is type(other) and self.containedTypes() == other.containedTypes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:  # type: ignore[valid-type]
        return self.annotation_str

    __str__ = __repr__  # type: ignore[assignment]


def _simple(name: str, prints: str) -> type[Type]:
    example = f"Example:\n    >>> torch.{name}.get()\n    {prints}"
    return type(name, (Type,), {"_prints": prints, "__module__": __name__, "__doc__": f"The type `{prints}`.\n\n{example}"})


class AnyType(Type):
    """Any value.

    Example:
        >>> torch.AnyType.get()
        Any
    """

    _prints = "Any"


class NumberType(Type):
    """An int, a float or a complex number.

    Example:
        >>> torch.NumberType.get()
        number
    """

    _prints, _schema = "number", "Scalar"


class IntType(Type):
    """The type `int`.

    Example:
        >>> torch.IntType.get()
        int
    """

    _prints = "int"


class FloatType(Type):
    """The type `float`.

    Example:
        >>> torch.FloatType.get()
        float
    """

    _prints = "float"


class ComplexType(Type):
    """The type `complex`.

    Example:
        >>> torch.ComplexType.get()
        complex
    """

    _prints = "complex"


class TensorType(Type):
    """A tensor.

    Example:
        >>> torch.TensorType.get()
        Tensor
    """

    _prints = "Tensor"

    @classmethod
    def getInferred(cls) -> TensorType:
        """The type of what has no annotation: a tensor."""
        return cls.get()


BoolType = _simple("BoolType", "bool")
StringType = _simple("StringType", "str")
NoneType = _simple("NoneType", "NoneType")
DeviceObjType = _simple("DeviceObjType", "Device")
StreamObjType = _simple("StreamObjType", "Stream")


class _OfOne(Type):
    """A type with one part."""

    _named: ClassVar[str] = ""

    def __init__(self, element: Type) -> None:
        self._element = element

    def getElementType(self) -> Type:
        """The part."""
        return self._element

    def containedTypes(self) -> list[Type]:
        return [self._element]

    @property
    def annotation_str(self) -> str:
        return f"{self._named}[{self._element}]"


class ListType(_OfOne):
    """A list of values of one type."""

    _named, _schema = "List", "{}[]"

    @classmethod
    def ofInts(cls) -> ListType:
        """A list of ints."""
        return cls(IntType.get())

    @classmethod
    def ofFloats(cls) -> ListType:
        """A list of floats."""
        return cls(FloatType.get())

    @classmethod
    def ofComplexDoubles(cls) -> ListType:
        """A list of complex numbers."""
        return cls(ComplexType.get())

    @classmethod
    def ofBools(cls) -> ListType:
        """A list of bools."""
        return cls(BoolType.get())

    @classmethod
    def ofStrings(cls) -> ListType:
        """A list of strings."""
        return cls(StringType.get())

    @classmethod
    def ofTensors(cls) -> ListType:
        """A list of tensors."""
        return cls(TensorType.get())


class OptionalType(_OfOne):
    """A value, or None."""

    _named, _schema = "Optional", "{}?"

    @classmethod
    def ofTensor(cls) -> OptionalType:
        """A tensor, or None."""
        return cls(TensorType.get())

    def _members(self) -> list[Type]:
        return [self._element, NoneType.get()]

    def isSubtypeOf(self, other: Type) -> bool:
        return self == other or isinstance(other, AnyType) or (
            isinstance(other, (OptionalType, UnionType)) and all(part.isSubtypeOf(other) for part in self._members())
        )  # fmt: skip


class FutureType(_OfOne):
    """A value that comes later."""

    _named, _schema = "Future", "Future[{}]"


class RRefType(_OfOne):
    """A value that another process may hold."""

    _named, _schema = "RRef", "RRef[{}]"


class TupleType(Type):
    """A tuple of values of these types."""

    _schema = "({})"

    def __init__(self, elements: Sequence[Type]) -> None:
        self._elements = list(elements)

    def elements(self) -> list[Type]:
        """The parts."""
        return list(self._elements)

    def containedTypes(self) -> list[Type]:
        return list(self._elements)

    @property
    def annotation_str(self) -> str:
        return f"Tuple[{', '.join(map(repr, self._elements)) or '()'}]"

    def isSubtypeOf(self, other: Type) -> bool:
        if isinstance(other, TupleType) and len(self._elements) == len(other._elements):
            return all(a.isSubtypeOf(b) for a, b in zip(self._elements, other._elements, strict=True))
        return super().isSubtypeOf(other)


class DictType(Type):
    """A dict from keys of one type to values of another."""

    _schema = "Dict({})"

    def __init__(self, key: Type, value: Type) -> None:
        self._key, self._value = key, value

    def getKeyType(self) -> Type:
        """The keys' type."""
        return self._key

    def getValueType(self) -> Type:
        """The values' type."""
        return self._value

    def containedTypes(self) -> list[Type]:
        return [self._key, self._value]

    @property
    def annotation_str(self) -> str:
        return f"Dict[{self._key}, {self._value}]"


class UnionType(Type):
    """A value of one of these types."""

    _schema = "Union({})"

    def __init__(self, types: Sequence[Type]) -> None:
        self._types = list(types)

    def containedTypes(self) -> list[Type]:
        return list(self._types)

    def _members(self) -> list[Type]:
        return self._types

    @property
    def annotation_str(self) -> str:
        return f"Union[{', '.join(map(repr, self._types))}]"

    def isSubtypeOf(self, other: Type) -> bool:
        return super().isSubtypeOf(other) or all(part.isSubtypeOf(other) for part in self._types)


__all__ = [
    "AnyType", "BoolType", "ComplexType", "DeviceObjType", "DictType", "FloatType", "FutureType", "IntType", "ListType", "NoneType", "NumberType",
    "OptionalType", "RRefType", "StreamObjType", "StringType", "TensorType", "TupleType", "Type", "UnionType",
]  # fmt: skip
