"""From an exported program to a folder for WebGPU: the ES module with the shaders, its types, the weights and a package.json."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flambeau.deploy import web_module, weights
from flambeau.deploy.errors import BuildError
from flambeau.deploy.interface import Interface, Symbol
from flambeau.deploy.record import Recorded
from flambeau.deploy.variants import cover
from flambeau.deploy.webgpu import module
from flambeau.deploy.webgpu.planning import Variant, agree, make
from flambeau.export.program import ExportedProgram


class Held:
    """The program's tensors as one block, made when it is first known which of them the plans read."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.block: weights.Weights | None = None

    def offsets(self, recorded: Recorded) -> dict[str, int]:
        """Where each tensor begins. BuildError for integers that shaders cannot hold."""
        if self.block is None:
            tensors = [(n, self.program.tensor(n)) for _, n in recorded.held]
            for name, t in tensors:
                if t.dtype.name == "int64" and t.numel() and not bool(((t < 1 << 31) & (t >= -(1 << 31))).all()):
                    raise BuildError(f"{name} has numbers that need more than the 32 bits that integers have in shaders")
            self.block = weights.pack(tensors)
        return self.block.offsets


def plans(program: ExportedProgram, symbols: tuple[Symbol, ...], report: Callable[[str], None]) -> tuple[list[Variant], weights.Weights]:
    """Plans of shaders that together hold for the sizes of a program, and its weights."""
    held = Held(program)
    variants = cover(symbols, partial(make, program, held.offsets), agree, report)
    assert held.block is not None
    return variants, held.block


def build(x: Interface, variants: list[Variant], block: weights.Weights) -> dict[str, bytes]:
    """The files of the folder."""
    files = {f"{x.name}.weights": block.content}
    texts = {f"{x.name}.mjs": module.module(x, variants), f"{x.name}.d.mts": module.types(x)}
    texts["package.json"] = web_module.package(x, [*texts, *files], "for WebGPU")
    return files | {name: text.encode() for name, text in texts.items()}
