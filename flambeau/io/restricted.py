"""A pickle reader that executes nothing: it knows the opcodes of data, and builds only what an allow-list names.

Every other global, and every opcode that could reach one, is refused with pickle.UnpicklingError. Limits come with the
input: no length is believed that is larger than what is left of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, BinaryIO

Global = Callable[..., Any]
_MARK: Any = object()


def _decoded(raw: bytes, encoding: str | None) -> str:
    if encoding is not None:
        return raw.decode(encoding)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class Reader:
    """Reads one pickle from a binary stream. `find(module, name)` gives an allowed object or raises UnpicklingError;
    `buildable(cls)` says whether a state may be set on instances; `load_persistent(id)` resolves persistent ids."""

    def __init__(
        self, stream: BinaryIO, find: Callable[[str, str], Any], load_persistent: Callable[[Any], Any],
        buildable: Callable[[Any], bool], callable_: Callable[[Any], bool],
        encoding: str | None = None,
    ) -> None:  # fmt: skip
        self.stream = stream
        self.encoding = encoding  # of Python 2's strings; "bytes": they stay what they are
        self.find = find
        self.load_persistent = load_persistent
        self.buildable = buildable
        self.callable = callable_
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object that the pickle describes."""
        try:
            while True:
                code = self._read(1)
                if code == b".":
                    return self._pop()
                handler = _HANDLERS.get(code)
                if handler is None:
                    raise UnpicklingError(f"opcode {code!r} is not one of those that describe data; the file is refused")
                handler(self)
        except UnpicklingError:
            raise
        except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error, UnicodeError, RecursionError) as error:
            raise UnpicklingError(f"the pickle is damaged or hostile: {type(error).__name__}: {error}") from error

    # -- input ----------------------------------------------------------------------------------------------------
    def _read(self, count: int) -> bytes:
        if count > 1 << 20:  # a length that may be a lie: read in pieces, so that memory follows what is really there
            pieces = []
            while count > 0:
                piece = self.stream.read(min(count, 1 << 20))
                if not piece:
                    raise UnpicklingError("the pickle is truncated")
                pieces.append(piece)
                count -= len(piece)
            return b"".join(pieces)
        data = self.stream.read(count)
        if len(data) != count:
            raise UnpicklingError("the pickle is truncated")
        return data

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._read(struct.calcsize(form)))[0])

    def _line(self) -> str:
        data = bytearray()
        while True:
            byte = self._read(1)
            if byte == b"\n":
                return data.decode("utf-8")
            data += byte
            if len(data) > 4096:
                raise UnpicklingError("a name in the pickle is longer than 4096 bytes")

    # -- stack ----------------------------------------------------------------------------------------------------
    def _pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise UnpicklingError("the pickle uses a mark as a value")
        return value

    def _pop_mark(self) -> list[Any]:
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise UnpicklingError("the pickle lacks a mark")
        items = stack[at + 1 :]
        del stack[at:]
        return items

    def _top(self, *kinds: type) -> Any:
        value = self.stack[-1]
        if not isinstance(value, kinds):
            raise UnpicklingError(f"the pickle changes a {type(value).__name__} as if it were a {kinds[0].__name__}")
        return value

    # -- operations -----------------------------------------------------------------------------------------------
    def _global(self) -> None:
        module = self._line()
        self.stack.append(self.find(module, self._line()))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise UnpicklingError("a global's name in the pickle is not text")
        self.stack.append(self.find(module, name))

    def _call(self) -> None:
        args, function = self._pop(), self._pop()
        if not isinstance(args, tuple) or not self.callable(function):
            raise UnpicklingError(f"the pickle calls {getattr(function, '__name__', function)!r}, which is not allowed")
        self.stack.append(function(*args))

    def _new_object(self) -> None:
        args, cls = self._pop(), self._pop()
        if not isinstance(cls, type) or not isinstance(args, tuple) or not self.callable(cls):
            raise UnpicklingError(f"the pickle makes an object of {getattr(cls, '__name__', cls)!r}, which is not allowed")
        self.stack.append(cls.__new__(cls, *args))

    def _build(self) -> None:
        state = self._pop()
        instance = self.stack[-1]
        if not self.buildable(type(instance)):
            raise UnpicklingError(f"the pickle sets the state of a {type(instance).__name__}, which is not allowed")
        restore = getattr(instance, "__setstate__", None)
        if restore is not None:
            restore(state)
        elif isinstance(state, dict):
            instance.__dict__.update(state)
        else:
            raise UnpicklingError(f"the pickle gives a {type(instance).__name__} a state that is no dict")

    def _set_items(self, items: list[Any]) -> None:
        target = self._top(dict)
        if len(items) % 2:
            raise UnpicklingError("the pickle gives a dict a key without a value")
        for i in range(0, len(items), 2):
            target[items[i]] = items[i + 1]

    def _long(self, count: int) -> None:
        if count < 0:
            raise UnpicklingError("a number in the pickle has a negative length")
        self.stack.append(int.from_bytes(self._read(count), "little", signed=True))

    def _text(self, form: str) -> None:
        self.stack.append(self._read(self._number(form)).decode("utf-8", "surrogatepass"))

    def _old_string(self, form: str) -> None:
        raw = self._read(self._number(form))
        self.stack.append(raw if self.encoding == "bytes" else _decoded(raw, self.encoding))

    def _tuple(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def _get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def _put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def _protocol(self) -> None:
        version = self._number("<B")
        if not 2 <= version <= 5:
            raise UnpicklingError(f"pickle protocol {version} is not one of 2 to 5")

    def _append(self) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])


def _push(make: Callable[[], Any]) -> Callable[[Reader], None]:
    return lambda r: r.stack.append(make())


_HANDLERS: dict[bytes, Callable[[Reader], Any]] = {
    b"\x80": Reader._protocol,
    b"\x95": lambda r: r._read(8),  # FRAME: only a hint
    b"N": _push(lambda: None),
    b"\x88": _push(lambda: True),
    b"\x89": _push(lambda: False),
    b"K": lambda r: r.stack.append(r._number("<B")),
    b"M": lambda r: r.stack.append(r._number("<H")),
    b"J": lambda r: r.stack.append(r._number("<i")),
    b"\x8a": lambda r: r._long(r._number("<B")),
    b"\x8b": lambda r: r._long(r._number("<i")),
    b"G": lambda r: r.stack.append(struct.unpack(">d", r._read(8))[0]),
    b"X": lambda r: r._text("<I"),
    b"\x8c": lambda r: r._text("<B"),
    b"\x8d": lambda r: r._text("<Q"),
    b"U": lambda r: r._old_string("<B"),
    b"T": lambda r: r._old_string("<I"),
    b"B": lambda r: r.stack.append(r._read(r._number("<I"))),
    b"C": lambda r: r.stack.append(r._read(r._number("<B"))),
    b"\x8e": lambda r: r.stack.append(r._read(r._number("<Q"))),
    b"(": lambda r: r.stack.append(_MARK),
    b")": _push(tuple),
    b"t": lambda r: r.stack.append(tuple(r._pop_mark())),
    b"\x85": lambda r: r._tuple(1),
    b"\x86": lambda r: r._tuple(2),
    b"\x87": lambda r: r._tuple(3),
    b"]": _push(list),
    b"a": Reader._append,
    b"e": lambda r: (items := r._pop_mark(), r._top(list).extend(items)),
    b"l": lambda r: r.stack.append(r._pop_mark()),
    b"}": _push(dict),
    b"s": Reader._set_item,
    b"u": lambda r: r._set_items(r._pop_mark()),
    b"\x8f": _push(set),
    b"\x90": lambda r: (items := r._pop_mark(), r._top(set).update(items)),
    b"\x91": lambda r: r.stack.append(frozenset(r._pop_mark())),
    b"0": Reader._pop,
    b"1": Reader._pop_mark,
    b"h": lambda r: r._get(r._number("<B")),
    b"j": lambda r: r._get(r._number("<I")),
    b"q": lambda r: r._put(r._number("<B")),
    b"r": lambda r: r._put(r._number("<I")),
    b"\x94": lambda r: r._put(len(r.memo)),
    b"c": Reader._global,
    b"\x93": Reader._stack_global,
    b"R": lambda r: r._call(),
    b"\x81": Reader._new_object,
    b"b": Reader._build,
    b"Q": lambda r: r.stack.append(r.load_persistent(r._pop())),
}
