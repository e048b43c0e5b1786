"""Constant numbers that kernels read: made when a plan is assembled, shared by all plans that name them, freed with the last of these."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakValueDictionary

from flambeau.compiler.kernel import Table

_ALIGNMENT: Final = 64


class Memory:
    """The bytes of a table, and their address."""

    __slots__ = ("__weakref__", "address", "bytes")

    def __init__(self, flat: Any) -> None:
        import numpy as np

        self.bytes = np.empty(flat.size + _ALIGNMENT, np.uint8)
        start = -self.bytes.ctypes.data % _ALIGNMENT
        self.bytes[start : start + flat.size] = flat
        self.bytes.flags.writeable = False
        self.address: int = self.bytes.ctypes.data + start


_made: Final[WeakValueDictionary[Table, Memory]] = WeakValueDictionary()


def memory(table: Table) -> Memory:
    """The memory of a table. It lives as long as somebody has it."""
    found = _made.get(table)
    if found is None:
        found = _made.setdefault(table, Memory(_flat(table)))
    return found


def content(table: Table) -> bytes:
    """The bytes of a table, for code that carries it."""
    return bytes(_flat(table))


def _flat(table: Table) -> Any:
    import numpy as np

    from flambeau.compiler.kernels.fourier_tables import TABLES

    return np.ascontiguousarray(TABLES[table.name](*table.arguments)).view(np.uint8).reshape(-1)
