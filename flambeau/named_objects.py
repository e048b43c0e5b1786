"""Objects that only have a name, one of a name: layouts, memory formats, quantization schemes."""

from __future__ import annotations


class NamedObject:
    """An object of torch that only has a name. There is one for each name, so `is` and `==` mean the same."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # pickled and copied as a global of the module of its class
