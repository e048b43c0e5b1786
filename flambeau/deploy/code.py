"""One object file of a library: its own code and its kernels, in one module whose functions nobody else sees but those that are called from outside."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

from flambeau.deploy import memory_code
from flambeau.runtime import jit
from flambeau.runtime.target import Target


def object_of(own: str, kernels: Iterable[str], exported: Iterable[str], target: Target) -> bytes:
    """The object code of a library's own text and of its kernels' texts. RuntimeError with the text if LLVM refuses one."""
    from llvmlite import binding

    machine = jit.machine_of(target)
    context = binding.create_context()
    texts = [shared(text) for text in kernels]
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


_HELPER: Final = re.compile(r"^define internal ([^@\n]*)@([\w.$-]+)(\(.*?^\}$)", re.MULTILINE | re.DOTALL)
_NAME: Final = re.compile(r"@([\w.$-]+)")


def shared(text: str) -> str:
    """A kernel's text whose helpers are named by what they do, so that those of several kernels become one when their modules are linked.

    A name is made of the helper's text, of those that it calls, and of the lines about its globals and attributes.
    """
    helpers = {m[2]: m for m in _HELPER.finditer(text)}
    around = {m[1]: m[0] for m in re.finditer(r"^@([\w.$-]+) = .*$", text, re.MULTILINE)}
    attributes = "\n".join(re.findall(r"^attributes .*$", text, re.MULTILINE))
    names: dict[str, str] = {}

    def name_of(name: str) -> str:
        if name not in names:
            names[name] = name  # of one that calls itself
            _, _, body = helpers[name].groups()
            used = [around[n] for n in dict.fromkeys(_NAME.findall(body)) if n in around]
            body = _NAME.sub(lambda m: f"@{name_of(m[1])}" if m[1] in helpers else m[0], body)
            content = "\n".join((helpers[name][1], body, *used, attributes))
            names[name] = f"{name}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        return names[name]

    text = _HELPER.sub(lambda m: f"define linkonce_odr {m[1]}@{m[2]}{m[3]}", text)
    return _NAME.sub(lambda m: f"@{name_of(m[1])}" if m[1] in helpers else m[0], text)


def _parsed(text: str, context: Any, machine: Any) -> Any:
    module = jit.parsed(text, context)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module
