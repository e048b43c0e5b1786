"""Convolutions of small images by the matrix unit: the kernel that packs the weights again, for the notes of the images (see convolution_images.py)."""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_image_pack import (
    Partner,
    Steps,
    halves_do,
    operand_verdict,
)  # fmt: skip
from flambeau.compiler.kernels.convolution_problem import Problem, load_words, numel
from flambeau.compiler.kernels.convolution_tile_pack import HEADER
from flambeau.compiler.kernels.convolution_tile_weights import panel_function, panel_words
from flambeau.compiler.kernels.description import module_of
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.runtime.target import Target
from flambeau.symbols import maximum

_AGAIN: Final = ("steps", "partner", "scratch", "pack", "partner_at", "partner_count", "partner_elements", "notes_at", "notes", "elements", "panel_bytes",
                 "panels_at", "scratch_bytes")  # fmt: skip


def weights_again(p: Problem, gradient: bool, steps: Steps, weights: Partner, panel_bytes: int) -> Kernel:
    """The kernel that packs the weights as bfloat16 parts where halves do not do."""
    of_panel, scratch = panel_words(p, gradient, "parts")
    units = p.groups * weights.count
    address, *counts = weights.words()
    words: list[Word] = [
        Address(steps.value), address, Scratch(scratch), panel_function(element_of(p.dtype), "parts"), *counts, steps.notes_at, steps.notes,
        steps.elements, panel_bytes, units * HEADER, scratch, *of_panel,
    ]  # fmt: skip
    key = "convolution:images:weights"
    return Kernel(
        name="convolution_weights_again_float32", key=key, emit=partial(_emit_again, key), words=words, reads=(steps.value, weights.value, p.w.root),
        writes=(weights.value,), units=units, bytes=0, nodes=(steps.node,), min_units_per_thread=maximum(1, 16384 * units // maximum(1, numel(p.w))),
    )  # fmt: skip


def _emit_again(key: str, target: Target) -> str:
    from flambeau.runtime.jit import symbol

    return module_of([partial(_again, symbol(key))], target)


def _again(name: str, b: Builder) -> str:
    w = load_words(b, "%args", 4, _AGAIN)

    def unit(u: str) -> None:
        group = b.op(f"udiv i64 {u}, {w['partner_count']}")
        own = operand_verdict(b, w["steps"], w["notes_at"], w["notes"], w["elements"], group)
        fit, _ = halves_do(b, own, "weights", w, group)

        def pack() -> None:
            b.call_address(w["pack"], [
                ("ptr", b.gep("i64", "%args", len(_AGAIN))), ("i64", u), ("ptr", b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))),
                ("ptr", b.gep("i8", w["partner"], b.add(w["panels_at"], b.mul(u, w["panel_bytes"])))),
                ("ptr", b.gep("i8", w["partner"], b.mul(u, HEADER))),
            ])  # fmt: skip

        b.when(b.op(f"xor i1 {fit}, true"), pack)

    b.loop("%begin", "%end", 1, unit)
    return b.function(KERNEL_HEADER.format(name=name), "ret i64 0")
