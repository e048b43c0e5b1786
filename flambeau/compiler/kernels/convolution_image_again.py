"""Convolutions of small images by the matrix unit: the kernel that packs the weights again, for the notes of the images (see convolution_images.py)."""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_image_pack import (
    Partner,
    Steps,
    halves_do,
    operand_verdict,
)  # fmt: skip
from flambeau.compiler.kernels.convolution_problem import Problem, numel
from flambeau.compiler.kernels.convolution_tile_pack import HEADER
from flambeau.compiler.kernels.convolution_tile_weights import panel_function, panel_words
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.symbols import maximum


def weights_again(p: Problem, gradient: bool, steps: Steps, weights: Partner, panel_bytes: int) -> Kernel:
    """The kernel that packs the weights as bfloat16 parts where halves do not do."""
    of_panel, scratch = panel_words(p, gradient, "parts")
    units = p.groups * weights.count
    words: dict[str, Word] = {
        "steps": Address(steps.value), **weights.words(), "scratch": Scratch(scratch), "pack": panel_function(element_of(p.dtype), "parts"),
        "notes_at": steps.notes_at, "notes": steps.notes, "elements": steps.elements, "panel_bytes": panel_bytes, "panels_at": units * HEADER,
        "scratch_bytes": scratch,
    }  # fmt: skip
    return describe(
        "convolution_weights_again_float32", "convolution:images:weights", _again, words, {"panel": of_panel}, reads=(steps.value, weights.value, p.w.root),
        writes=(weights.value,), units=units, bytes=0, nodes=(steps.node,), min_units_per_thread=maximum(1, 16384 * units // maximum(1, numel(p.w))),
    )  # fmt: skip


def _again(b: Builder, w: dict[str, str]) -> None:
    with b.for_("%begin", "%end") as u:
        group = b.op(f"udiv i64 {u}, {w['partner_count']}")
        own = operand_verdict(b, w["steps"], w["notes_at"], w["notes"], w["elements"], group)
        fit, _ = halves_do(b, own, "weights", w, group)
        with b.if_(b.op(f"xor i1 {fit}, true")):
            b.call_address(w["pack"], [
                ("ptr", w["panel"]), ("i64", u), ("ptr", b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))),
                ("ptr", b.gep("i8", w["partner"], b.add(w["panels_at"], b.mul(u, w["panel_bytes"])))),
                ("ptr", b.gep("i8", w["partner"], b.mul(u, HEADER))),
            ])  # fmt: skip
