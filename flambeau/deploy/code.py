"""One object file of a library: its own code and its kernels, in one module whose functions nobody else sees but those that are called from outside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau.deploy import memory_code
from flambeau.runtime import jit
from flambeau.runtime.target import Target


def object_of(own: str, kernels: Iterable[str], exported: Iterable[str], target: Target) -> bytes:
    """The object code of a library's own text and of its kernels' texts. RuntimeError with the text if LLVM refuses one."""
    from llvmlite import binding

    machine = jit.machine_of(target)
    context = binding.create_context()
    texts = list(kernels)
    whole = _parsed(own, context, machine)
    for text in texts:
        whole.link_in(_parsed(text, context, machine))
    if any("double" in text and "to half" in text for text in texts):  # where the code generator may call it
        whole.link_in(_parsed(jit.TO_HALF_TEXT, context, machine))
    if target.architecture == "wasm32":  # the code generator may call them; its linker leaves out what is not called
        whole.link_in(_parsed(memory_code.WIDE, context, machine))
    public = frozenset(exported)
    for function in whole.functions:
        if not function.is_declaration and function.name not in public:
            function.linkage = "internal"
    jit.optimise(whole, machine)
    content: bytes = machine.emit_object(whole)
    return content


def _parsed(text: str, context: Any, machine: Any) -> Any:
    module = jit.parsed(text, context)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module
