"""What a tile program is compiled for: an explicit argument of the lowering."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A machine: the width of its vectors and the names of its features. `processor` names it in keys."""

    processor: str
    vector_bits: int
    features: frozenset[str] = frozenset()

    @property
    def lanes(self) -> int:
        """Elements of 32 bits in a vector."""
        return self.vector_bits // 32

    @property
    def registers(self) -> int:
        """Vector registers that a program can name."""
        return 32 if self.vector_bits == 512 else 16

    @classmethod
    def host(cls) -> Target:
        """This machine."""
        from flambeau.runtime import target

        return cls(target.fingerprint(), target.vector_bits(), target.flags())
