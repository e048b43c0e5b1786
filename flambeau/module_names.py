"""The two names of our modules: flambeau's, and torch's for those that look for PyTorch (as_torch.py)."""

from __future__ import annotations

from typing import Any, Final

HOME: Final = "flambeau"
# Namespaces that PyTorch keeps in one file each.
_ONE_FILE: Final = ("torch.optim.lr_scheduler", "torch.nn.functional")
INSTALLED: Final[list[Any]] = []  # what makes `import torch` give flambeau in this process, if anything does


def is_ours(module: Any) -> bool:
    """Whether a module's name, under whichever of its two names, is flambeau's."""
    return isinstance(module, str) and module.partition(".")[0] in ((HOME, "torch") if INSTALLED else (HOME,))


def is_installed() -> bool:
    """Whether `import torch` gives flambeau in this process."""
    return bool(INSTALLED)


def under_torch(module: str) -> str:
    """The name under torch of a module of ours; `torch.x` stays."""
    return "torch" + module[len(HOME) :] if module.partition(".")[0] == HOME else module


def under_flambeau(module: str) -> str:
    """The name under flambeau of a module of torch's, or of functorch's, which PyTorch brings along; `flambeau.x` stays."""
    first = module.partition(".")[0]
    if first == "functorch":
        return f"{HOME}.{module}"
    return HOME + module[len("torch") :] if first == "torch" else module


def home(module: str) -> str:
    """PyTorch's module for what is defined in this module of ours."""
    name = under_torch(module)
    return next((prefix for prefix in _ONE_FILE if name.startswith(f"{prefix}.")), name)
