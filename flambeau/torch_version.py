"""torch.torch_version: a version that compares with strings and tuples by its parts."""

from __future__ import annotations

import re
from typing import Any


def _parts(version: Any) -> tuple[int, ...]:
    if isinstance(version, (tuple, list)):
        return tuple(int(p) for p in version)
    return tuple(int(p) for p in re.match(r"\d+(?:\.\d+)*", str(version))[0].split("."))  # type: ignore[index]


def _trim(parts: tuple[int, ...]) -> tuple[int, ...]:
    while parts and parts[-1] == 0:
        parts = parts[:-1]
    return parts


class TorchVersion(str):
    """A version as text, ordered as versions are: TorchVersion("1.10") > "1.9"."""

    def _compare(self, other: Any) -> int:
        mine, theirs = _trim(_parts(self)), _trim(_parts(other))
        return (mine > theirs) - (mine < theirs)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other) < 0

    def __le__(self, other: Any) -> bool:
        return self._compare(other) <= 0

    def __gt__(self, other: Any) -> bool:
        return self._compare(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self._compare(other) >= 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and not re.match(r"\d", other):
            return str(self) == other
        return isinstance(other, (str, tuple, list)) and self._compare(other) == 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))
