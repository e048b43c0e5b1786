"""torch._ops: operators by namespace: torch.ops.aten.add is torch.add, torch.ops.mine.f what torch.library has registered."""

from __future__ import annotations

from typing import Any


class OpOverloadPacket:
    """An operator: call it, or one of its overloads (`.default`, `.Tensor`), which are all the same function here."""

    def __init__(self, name: str, function: Any) -> None:
        self.__name__ = name.split("::")[-1]
        self._qualified_op_name = name
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"


OpOverload = OpOverloadPacket


class _Namespace:
    """The operators of one namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import flambeau
        from flambeau import library

        found = library._registered.get(f"{self.name}::{name}")
        if found is None and self.name in ("aten", "prims"):
            homes = (flambeau, flambeau.nn.functional, flambeau.special, flambeau.Tensor)
            plain = name.removeprefix("special_").removeprefix("linalg_").removeprefix("fft_")
            spaces = {"linalg": flambeau.linalg, "fft": flambeau.fft}
            found = getattr(spaces.get(name.split("_")[0]), plain, None) if name.split("_")[0] in spaces else None
            found = found or next((getattr(h, n) for n in (name, plain) for h in homes if hasattr(h, n)), None)
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}': no such operator in flambeau")
        made = OpOverloadPacket(f"{self.name}::{name}", found)
        setattr(self, name, made)
        return made


class _Ops:
    """torch.ops."""

    def __init__(self) -> None:
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Namespace(name)
        setattr(self, name, made)
        return made

    def load_library(self, path: str) -> None:
        """RuntimeError: there is no C++ interface."""
        raise RuntimeError(f"torch.ops.load_library({path!r}): flambeau cannot load operators written in C++ for PyTorch")


ops = _Ops()
