"""torch.export: programs as graphs of aten's operators, and the files (`.pt2`) that PyTorch and flambeau exchange.

schemas (which operator a call is), shapes and rules (what results are like), tracing (a program becomes a graph), dims (sizes that may change), exporting
(the whole), program (what comes of it), archive, writing and reading (the file).
"""

from __future__ import annotations

from flambeau.export import graph_signature as graph_signature
from flambeau.export.archive import load, save
from flambeau.export.dims import Dim, ShapesCollection, dims
from flambeau.export.exporting import draft_export, export
from flambeau.export.graph_signature import ExportGraphSignature
from flambeau.export.program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from flambeau.utils._pytree import register_dataclass

__all__ = [
    "Dim", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "dims", "draft_export", "export",
    "graph_signature", "load", "register_dataclass", "save",
]  # fmt: skip

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.export", globals())
