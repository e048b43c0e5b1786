"""The code of a plan, for whichever machine it was compiled: IR text, object code, assembly. Nothing is loaded or run.

plan = compile_graph(graph, target=Target.named("aarch64-linux"))
for key, content in objects(plan).items(): ...
"""

from __future__ import annotations

from flambeau.compiler.kernel import Function, Kernel
from flambeau.compiler.plan import Plan


def texts(plan: Plan) -> dict[str, str]:
    """The IR text of each kernel and of each function that kernels call, by key; `jit.symbol(key)` is what a text defines."""
    used: list[Kernel | Function] = [*plan.kernels, *[word for kernel in plan.kernels for word in kernel.words if isinstance(word, Function)]]
    return {x.key: x.emit(plan.interface.target) for x in {x.key: x for x in used}.values()}


def objects(plan: Plan) -> dict[str, bytes]:
    """The object code of each text. RuntimeError, with the text, if LLVM refuses one, or does not know the target."""
    from flambeau.runtime import jit

    target = plan.interface.target
    return {key: jit.compile_text(text, target=target) for key, text in texts(plan).items()}


def assembly(plan: Plan) -> dict[str, str]:
    """The assembly of each text, for people and tests."""
    from flambeau.runtime import jit

    target = plan.interface.target
    return {key: jit.assembly(text, target) for key, text in texts(plan).items()}
