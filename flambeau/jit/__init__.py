"""torch.jit: functions and modules of PyTorch's own language, TorchScript. Here they run as the Python that they are.

script (decorators and wrappers), tracing, saving (a program as a graph in a file). `code` is the Python source, `graph` the torch.fx
graph. Nothing is checked against TorchScript's rules: what PyTorch refuses to compile runs here.
"""

from typing import Any, Final

from flambeau.futures import Future
from flambeau.jit import annotations as annotations
from flambeau.jit.saving import load, save
from flambeau.jit.script import (
    Attribute,
    CompilationUnit,
    Error,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    ScriptWarning,
    _overload,
    _overload_method,
    annotate,
    enable_onednn_fusion,
    export,
    export_opnames,
    fork,
    freeze,
    ignore,
    interface,
    is_scripting,
    isinstance,
    onednn_fusion_enabled,
    optimize_for_inference,
    optimized_execution,
    script,
    script_if_tracing,
    script_method,
    set_fusion_strategy,
    strict_fusion,
    unused,
    wait,
)
from flambeau.jit.tracing import TopLevelTracedModule, TracerWarning, TracingCheckError, is_tracing, trace, trace_module

TracedModule = ONNXTracedModule = TopLevelTracedModule
RecursiveScriptClass = RecursiveScriptModule
_fork, _wait = fork, wait
_script_if_tracing = script_if_tracing

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Future", "ScriptFunction", "ScriptModule", "annotate", "enable_onednn_fusion", "export",
    "export_opnames", "fork", "freeze", "ignore", "interface", "isinstance", "load", "onednn_fusion_enabled", "optimize_for_inference", "save",
    "script", "script_if_tracing", "set_fusion_strategy", "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("_script", "frontend"):
        import importlib

        return importlib.import_module("flambeau.jit.script")
    from flambeau.names import otherwise

    return otherwise("torch.jit", name, globals())
