"""torch.export: programs as exported graphs: not there yet. torch.fx.symbolic_trace gives a graph, torch.jit.save a file."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent

_refuse = _absent.refusal(
    NotImplementedError, "torch.export is not there yet", "torch.fx.symbolic_trace gives a program's graph, torch.jit.save writes a program to a file"
)
_TABLE = """
export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(), prefer_deferred_runtime_asserts_over_guards=False) !
draft_export(mod, args, kwargs=None, *, dynamic_shapes=None, preserve_module_call_signature=(), strict=False) !
save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2) !
load(f, *, extra_files=None, expected_opset_version=None) !
unflatten(module, flat_args_adapter=None) !
register_dataclass(cls, *, serialized_type_name=None) ok
dims(*names, min=None, max=None) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "exporter")
_CLASSES = _absent.classes(globals(), "Dim ExportedProgram ShapesCollection UnflattenedModule".split(), _refuse, "exporter")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'torch.export' has no attribute {name!r}: torch.export is not there yet")
