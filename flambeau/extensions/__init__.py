"""Packages' C++ extensions for PyTorch, written anew: `torch.ops.load_library` of one that is here registers its operators; others are refused.

A file here has the operators of one package and is imported when that package asks for them.
"""

from __future__ import annotations

import importlib
from pathlib import PurePath

# (folder, file without endings) -> our module; None: there is nothing in the file that flambeau would need.
_KNOWN: dict[tuple[str, str], str | None] = {
    ("torchvision", "_C"): "flambeau.extensions.torchvision_operators",
    ("lib", "_torchaudio"): "flambeau.extensions.torchaudio",
    ("lib", "libtorchaudio"): None,  # the other half of the same
}


def load(path: str) -> None:
    """Register the operators of this shared library. OSError, which packages catch, unless they are here."""
    file = PurePath(path)
    place = (file.parent.name, file.name.partition(".")[0])
    if place not in _KNOWN:
        raise OSError(f"Could not load this library: {path}: it holds operators written in C++ for PyTorch, and flambeau has none of its own in their place")
    module = _KNOWN[place]
    if module is not None:
        importlib.import_module(module)
