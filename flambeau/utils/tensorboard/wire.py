"""Protocol buffers' bytes, for messages that are described by a line of text: what event files are made of.

    define("Point: 1 x int32, 2* tags string")    # number, * for several, name, type (? behind it: one of a choice, written even where it is 0)
    Point(x=3, tags=["a"]).SerializeToString()

Encoding: developers.google.com/protocol-buffers/docs/encoding. Numbers of which there are several are packed; what is zero or empty is left out.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

_PACKED: Final = {"double": "d", "float": "f"}
_TYPES: Final[dict[str, type[Message]]] = {}


class Field(NamedTuple):
    """A field of a message."""

    number: int
    many: bool
    name: str
    kind: str
    choice: bool


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as 64 bits."""
    number &= (1 << 64) - 1
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


class Message:
    """The base of messages: fields by name, each what its type holds, or a list."""

    FIELDS: tuple[Field, ...] = ()

    def __init__(self, **content: Any) -> None:
        known = {f.name for f in self.FIELDS}
        for name, value in content.items():
            if name not in known:
                raise ValueError(f'Protocol message {type(self).__name__} has no "{name}" field.')
            setattr(self, name, value)

    def SerializeToString(self) -> bytes:
        """The message as bytes."""
        return b"".join([_field(f, self.__dict__[f.name]) for f in self.FIELDS if f.name in self.__dict__])


def _single(f: Field, value: Any) -> tuple[int, bytes]:
    """(wire type, bytes) of one value."""
    if f.kind in _PACKED:
        return (1 if f.kind == "double" else 5), struct.pack("<" + _PACKED[f.kind], value)
    if f.kind in ("int", "bool"):
        return 0, varint(int(value))
    if f.kind == "string" or f.kind == "bytes":
        data = value.encode() if isinstance(value, str) else bytes(value)
    else:
        data = value.SerializeToString()
    return 2, varint(len(data)) + data


def _field(f: Field, value: Any) -> bytes:
    if not f.many:
        if value is None or (not f.choice and f.kind not in _TYPES and not value):
            return b""
        wire, data = _single(f, value)
        return varint(f.number << 3 | wire) + data
    values = list(value)
    if not values:
        return b""
    if f.kind in _PACKED or f.kind in ("int", "bool"):
        data = struct.pack(f"<{len(values)}{_PACKED[f.kind]}", *values) if f.kind in _PACKED else b"".join([varint(int(v)) for v in values])
        return varint(f.number << 3 | 2) + varint(len(data)) + data
    return b"".join([varint(f.number << 3 | 2) + _single(f, v)[1] for v in values])


def define(text: str) -> None:
    """Messages by lines "Name: fields"; a name with a dot is a class inside of another."""
    for line in text.strip().splitlines():
        name, _, fields = line.partition(": ")
        made = []
        for part in fields.split(", "):
            number, field, kind = part.split()
            made.append(Field(int(number.rstrip("*")), number.endswith("*"), field, kind.rstrip("?"), kind.endswith("?")))
        cls = type(name.rpartition(".")[2], (Message,), {"FIELDS": tuple(sorted(made)), "__doc__": f"The message {name}.", "__module__": __name__})
        _TYPES[name] = cls
        owner, _, inner = name.rpartition(".")
        if owner:
            setattr(_TYPES[owner], inner, cls)


def message(name: str) -> Any:
    """A class of messages."""
    return _TYPES[name]
