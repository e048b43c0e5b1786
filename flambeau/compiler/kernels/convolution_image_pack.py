"""Convolutions by the matrix unit with images side by side: packing into steps of one pixel each.

Where the pairs that the matrix unit multiplies (or the rows of its tiles) are images and not pixels, a tap is another step and
nothing else: no zeros around images, any stride, and no place is computed that is no pixel. A step is, for one pixel, 32 lanes
by 32 of what is summed over (`depth`), as in matmul_parts_pack.py: for each part (hi, mid, lo) two tiles of 16 lanes; or for each half
(hi, lo), as in matmul_halves_pack.py.

    left: a tile's row = lane, 16 pairs of depth        right: a tile's row = pair of depth, 16 lanes

A pair is (d, d + 16), or (2 d, 2 d + 1) where the other operand has it so (`neighbours`, right only). Steps lie in the order
[group][panel of 32 lanes][block of 32 of depth][pixel], pixels filled up to a multiple of 16. What is beyond the last lane and the
last of depth is zero. Then come notes on every [group][panel][block][chunk of pixels], i32 each: its extent (bfloat_parts.Extent),
and for halves how many elements are not zero, which bits are ever set, and how many lie far below the greatest of the group.

Halves have one scale for a group, so all is looked at first. They are packed where they do for this operand and its partner, in all of
the group; else parts are. That depends on values and sizes only.

Pixels lie next to each other in the source, all rows of an image in one piece (`packs_apply`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Word
from flambeau.compiler.kernels.bfloat_parts import Extent, split_pairs
from flambeau.compiler.kernels.convolution_judgement import (
    LOOK,
    NOTES,
    clear_notes,
    far_limit,
    look_function,
    read_notes,
    reduce_notes,
    set_threshold,
    verdict,
    without_few,
)  # fmt: skip
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_problem import Operand, temporary
from flambeau.compiler.kernels.convolution_tile_pack import HEADER
from flambeau.compiler.kernels.description import Body, Writer, describe
from flambeau.compiler.kernels.float_halves import halves_pairs, power, together
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_halves_pack import HALF_BYTES
from flambeau.compiler.kernels.matmul_halves_pack import STEP_BYTES as HALVES_STEP_BYTES
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES, STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.dtypes import uint8
from flambeau.symbols import maximum

NOTE_BYTES: Final = 32
_WIDTH: Final = 16
_CHUNK: Final = 128  # pixels of a unit
_AHEAD: Final = 1024  # elements from what is looked at to what is fetched
_TYPE: Final = f"<{_WIDTH} x float>"
_PACK: Final = {
    form: Parameters(f"source* lane_stride depth_stride lanes depth pixels steps* {last}") for form, last in (("parts", "extent*"), ("halves", "scale:float"))
}


@dataclass(frozen=True, slots=True)
class Steps:
    """An operand in steps. `value`: the graph's, of bytes; `steps`: of a block of depth; `notes_at`: a byte offset; `form`: "parts", or
    "halves" where these do (else parts take their place); `notes`: of a group."""

    value: int
    panels: int
    blocks: int
    steps: int
    chunks: int
    notes_at: int
    form: str
    elements: int  # of a group
    groups: int
    words: dict[str, Word]
    root: int
    node: int

    @property
    def notes(self) -> int:
        return self.panels * self.blocks * self.chunks

    @property
    def partner(self) -> Partner:
        return Partner("steps", self.value, self.notes_at, self.notes, self.elements)


@dataclass(frozen=True, slots=True)
class Partner:
    """What an operand is multiplied with: other "steps", or "weights" (convolution_tile_weights.py), whose panels have headers."""

    kind: str
    value: int
    at: int
    count: int  # of notes or headers of a group
    elements: int

    def words(self) -> dict[str, Word]:
        return {"partner": Address(self.value), "partner_at": self.at, "partner_count": self.count, "partner_elements": self.elements}


def is_flat(o: Operand) -> bool:
    """Whether the pixels of an image's channel lie next to each other."""
    height, width = o.shape[2:]
    return (width == 1 or o.strides[3] == 1) and (height == 1 or o.strides[2] == (width if width > 1 else 1))


def packed_bytes(lanes: int, depth: int, pixels: int) -> int:
    """What the steps of an operand of one group take, without extents."""
    return ceil_div(lanes, LANES) * ceil_div(depth, LANES) * round_up(pixels, _WIDTH) * STEP_BYTES


def lay_out_steps(
    graph: Graph, source: Operand, groups: int, lanes: tuple[int, int], depth: tuple[int, int], group_stride: int, form: str, node: int
) -> Steps:  # fmt: skip
    """The steps of an operand. `lanes`, `depth`: (count in a group, stride)."""
    pixels = source.shape[2] * source.shape[3]
    panels, blocks = ceil_div(lanes[0], LANES), ceil_div(depth[0], LANES)
    chunk = round_up(ceil_div(pixels, ceil_div(pixels, _CHUNK)), _WIDTH)
    chunks = ceil_div(pixels, chunk)
    notes_at = groups * packed_bytes(lanes[0], depth[0], pixels)
    value = temporary(graph, notes_at + groups * panels * blocks * chunks * NOTE_BYTES, uint8)
    lanes_inside = lanes[1] <= depth[1]  # which of them lie nearer to each other, and whether as closely as pixels
    runs = chunks == 1 and (lanes if lanes_inside else depth)[1] == pixels
    elements = lanes[0] * depth[0] * pixels
    words: dict[str, Word] = {
        "source": source.word, "packed": Address(value), "lanes": lanes[0], "depth": depth[0], "panels": panels, "blocks": blocks, "chunks": chunks,
        "chunk": chunk, "pixels": pixels, "lane_stride": lanes[1], "depth_stride": depth[1], "group_stride": group_stride,
        "panel_steps": round_up(pixels, _WIDTH), "notes_at": notes_at, "elements": elements, "lanes_inside": int(lanes_inside), "runs": int(runs),
        "ahead": _AHEAD if runs else max(1, _AHEAD // chunk) * min(lanes[1], depth[1]),
    }  # fmt: skip
    return Steps(value, panels, blocks, round_up(pixels, _WIDTH), chunks, notes_at, form, elements, groups, words, source.root, node)


def look_kernels(steps: Steps) -> list[Kernel]:
    """The kernels that look at an operand before it is packed in halves: what there is, and, rarely, what is far from the greatest."""
    return [] if steps.form == "parts" else [
        _kernel_of(steps, name, f"convolution:steps:{name}", partial(_look, name == "count"), {"look": look_function()}, ()) for name in ("look", "count")
    ]  # fmt: skip


def pack_kernel(steps: Steps, left: bool, neighbours: bool, partner: Partner) -> Kernel:
    """The kernel that packs an operand."""
    key = f"convolution:steps:{'left' if left else 'right'}{':neighbours' * neighbours}:{steps.form}"
    chunk = partial(_chunk, left, neighbours)
    if steps.form == "parts":
        return _kernel_of(steps, "steps", key, partial(_pack, ""), {}, (), [partial(chunk, "parts")])
    helpers = [partial(chunk, form) for form in ("parts", "halves")]
    return _kernel_of(steps, "steps", f"{key}:{partner.kind}", partial(_pack, partner.kind), partner.words(), (partner.value,), helpers)


def _kernel_of(
    steps: Steps, name: str, key: str, write: Body, words: dict[str, Word], reads: tuple[int, ...], helpers: Sequence[Writer] = ()
) -> Kernel:  # fmt: skip
    units = steps.groups * steps.notes
    elements = steps.groups * steps.elements
    looks = name != "steps"
    own = (steps.value,) if steps.form == "halves" and name != "look" else ()
    return describe(
        f"convolution_{name}_float32", key, write, steps.words | words, helpers=helpers,
        reads=tuple(dict.fromkeys((steps.root, *own, *reads))), writes=(steps.value,),
        units=units, bytes=4 * elements * (name != "count") + (0 if looks else steps.notes_at), nodes=(steps.node,),
        min_units_per_thread=maximum(1, (1 << 16 + looks) * units // maximum(1, elements)),
    )  # fmt: skip


def operand_verdict(b: Builder, packed: str, at: str, count: str, elements: str, group: str) -> tuple[str, str]:
    """(exponent of scale, kind), i32 each, of a group of an operand by its notes (float_halves.py)."""
    low, high, nonzero, bits, below = whole_note(b, packed, at, b.mul(group, count), count)
    beyond, limit = far_limit(b, low, high)
    least = b.op(f"select i1 {beyond}, i32 {without_few(b, low, limit, nonzero, below)}, i32 {low}")
    return verdict(b, low, least, high, nonzero, bits, b.op(f"trunc i64 {elements} to i32"))


def halves_do(b: Builder, own: tuple[str, str], kind: str, w: dict[str, str], group: str) -> tuple[str, str]:
    """(i1, float): whether an operand's group, whose (exponent, kind) is given, and all of the partner's can be multiplied by halves,
    and, of steps, what takes their scales off. `w`: the words of a Partner."""
    if kind == "steps":
        return together(b, own, operand_verdict(b, w["partner"], w["partner_at"], w["partner_count"], w["partner_elements"], group))
    first = b.mul(group, w["partner_count"])

    def panel(i: str, fits: str) -> list[str]:
        header = b.gep("i8", w["partner"], b.add(w["partner_at"], b.mul(b.add(first, i), HEADER)))
        fit, _ = together(b, own, (b.load("i32", b.gep("i32", header, 2), 4), b.load("i32", b.gep("i32", header, 3), 4)))
        return [b.op(f"and i1 {fits}, {fit}")]

    return b.loop(0, w["partner_count"], 1, panel, [("i1", "true")])[0], "1.0"


def whole_note(b: Builder, packed: str, at: str, first: str, count: str) -> list[str]:
    """Five i32: low, high, how many are not zero, bits ever set, how many lie far below the greatest, of `count` notes."""
    start = b.gep("i8", packed, b.add(at, b.mul(first, NOTE_BYTES)))
    with b.fold(0, count, 1, [("i32", "1000"), *[("i32", "0")] * 4]) as (i, seen):
        note = b.gep("i8", start, b.mul(i, NOTE_BYTES))
        here = [b.load("i32", b.gep("i32", note, part), 4) for part in range(5)]
        ends = [b.call("i32", f"llvm.{which}.i32", [("i32", seen[i]), ("i32", here[i])]) for i, which in enumerate(("smin", "smax"))]
        seen[:] = [*ends, *(b.op(f"{which} i32 {seen[i]}, {here[i]}") for i, which in ((2, "add"), (3, "or"), (4, "add")))]
    return seen


class _Unit:
    """What a unit of a kernel is: a chunk of pixels of 32 lanes and 32 of depth."""

    def __init__(self, b: Builder, w: dict[str, str], u: str) -> None:
        self.at, chunk = b.op(f"udiv i64 {u}, {w['chunks']}"), b.op(f"urem i64 {u}, {w['chunks']}")
        self.first = b.mul(chunk, w["chunk"])
        block = b.mul(b.op(f"urem i64 {self.at}, {w['blocks']}"), LANES)
        panel = b.op(f"udiv i64 {self.at}, {w['blocks']}")
        lane = b.mul(b.op(f"urem i64 {panel}, {w['panels']}"), LANES)
        self.group = b.op(f"udiv i64 {panel}, {w['panels']}")
        offset = b.add(b.mul(self.group, w["group_stride"]), b.add(b.mul(lane, w["lane_stride"]), b.mul(block, w["depth_stride"])))
        self.source = b.gep("float", w["source"], b.add(offset, self.first))
        self.lanes, self.depth = b.min(LANES, b.sub(w["lanes"], lane)), b.min(LANES, b.sub(w["depth"], block))
        self.pixels = b.min(w["chunk"], b.sub(w["pixels"], self.first))
        self.note = b.gep("i8", w["packed"], b.add(w["notes_at"], b.mul(u, NOTE_BYTES)))
        self.notes = b.mul(b.mul(w["panels"], w["blocks"]), w["chunks"])  # of a group


def _look(counts: bool, b: Builder, w: dict[str, str]) -> None:
    b.allocas.append(f"  %notes = alloca [{NOTES} x i8], align 64")
    runs = b.op(f"icmp ne i64 {w['runs']}, 0")
    inside = b.op(f"icmp ne i64 {w['lanes_inside']}, 0")
    with b.for_("%begin", "%end") as u:
        v = _Unit(b, w, u)

        def visit() -> list[str]:
            outer, outer_stride, inner, inner_stride = (
                b.op(f"select i1 {inside}, i64 {first}, i64 {second}")
                for first, second in (
                    (v.depth, v.lanes),
                    (w["depth_stride"], w["lane_stride"]),
                    (v.lanes, v.depth),
                    (w["lane_stride"], w["depth_stride"]),
                )
            )
            length = b.op(f"select i1 {runs}, i64 {b.mul(inner, v.pixels)}, i64 {v.pixels}")
            b.invoke(w["look"], LOOK, v.source, outer, outer_stride, b.op(f"select i1 {runs}, i64 1, i64 {inner}"), inner_stride, length, w["ahead"], "%notes")
            return reduce_notes(b, read_notes(b, "%notes"))

        clear_notes(b, "%notes")
        if not counts:
            for at, value in enumerate([*visit(), "0"]):
                b.store("i32", value, b.gep("i32", v.note, at), 4)
        else:
            low, high, _, _, _ = whole_note(b, w["packed"], w["notes_at"], b.mul(v.group, v.notes), v.notes)
            beyond, limit = far_limit(b, low, high)
            own = [b.load("i32", b.gep("i32", v.note, at), 4) for at in range(3)]
            with b.if_(b.op(f"and i1 {beyond}, {b.op(f'icmp slt i32 {own[0]}, {limit}')}")):
                set_threshold(b, "%notes", b.op(f"shl i32 {limit}, 24"))
                b.store("i32", b.op(f"sub i32 {own[2]}, {visit()[2]}"), b.gep("i32", v.note, 4), 4)


def _pack(partner: str, b: Builder, w: dict[str, str]) -> None:
    with b.for_("%begin", "%end") as u:
        v = _Unit(b, w, u)
        step = b.add(b.mul(v.at, w["panel_steps"]), v.first)

        def pack(form: str, last: str) -> None:
            to = b.gep("i8", w["packed"], b.mul(step, STEP_BYTES if form == "parts" else HALVES_STEP_BYTES))
            b.invoke(f"pack_{form}", _PACK[form], v.source, w["lane_stride"], w["depth_stride"], v.lanes, v.depth, v.pixels, to, last)

        if not partner:
            pack("parts", v.note)
        else:
            own = operand_verdict(b, w["packed"], w["notes_at"], v.notes, w["elements"], v.group)
            fit, _ = halves_do(b, own, partner, w, v.group)
            with b.if_(fit):
                pack("halves", power(b, own[0]))
            with b.if_(b.op(f"xor i1 {fit}, true")):
                pack("parts", v.note)


def _chunk(left: bool, neighbours: bool, form: str, b: Builder) -> str:
    """Text of `pack_parts(source, lane_stride, depth_stride, lanes, depth, pixels, steps, extent)`; of `pack_halves(..., scale)`."""
    extent = Extent(_WIDTH)
    first_seen = extent.start() if form == "parts" else []
    types = [type_ for type_, _ in first_seen]
    step_bytes, part_bytes = (STEP_BYTES, PART_BYTES) if form == "parts" else (HALVES_STEP_BYTES, HALF_BYTES)
    scale = b.splat("float", _WIDTH, "%scale") if form == "halves" else ""
    names = ("%least", "%most")
    whole = b.op(f"icmp eq i64 {b.add('%lanes', '%depth')}, {2 * LANES}")
    # A tile's rows are `rows`, read one after the other; the vectors that are transposed lie `across`.
    across_count, across, along = ("%depth", "%depth_stride", "%lane_stride") if left else ("%lanes", "%lane_stride", "%depth_stride")
    rows_count = "%lanes" if left else "%depth"
    b.allocas += [f"  {name} = alloca {type_}, align 64" for name, type_ in zip(names, types, strict=False)]
    with b.fold(0, "%pixels", _WIDTH, first_seen) as (p, seen):
        some = b.sub("%pixels", p)
        full = b.op(f"and i1 {whole}, {b.op(f'icmp sge i64 {some}, {_WIDTH}')}")
        source, target = b.gep("float", "%source", p), b.gep("i8", "%steps", b.mul(p, step_bytes))
        for name, type_, value in zip(names, types, seen, strict=False):
            b.store(type_, value, name, 64)

        def rows(masked: bool) -> None:
            mask = bit_mask(b, _WIDTH, 0, some) if masked else ""

            def block(row: str, first: str | int) -> list[str]:
                """16 vectors from `first` across on, of one row."""
                line = b.gep("float", b.gep("float", source, b.mul(row, along)), b.mul(first, across))
                there = b.op(f"icmp slt i64 {row}, {rows_count}") if masked else ""
                loaded = []
                for i in range(_WIDTH):
                    at = b.gep("float", line, b.mul(across, i))
                    if masked:
                        exists = b.op(f"and i1 {there}, {b.op(f'icmp slt i64 {b.add(first, i)}, {across_count}')}")
                        lanes = b.op(f"select i1 {exists}, <{_WIDTH} x i1> {mask}, <{_WIDTH} x i1> zeroinitializer")
                        loaded.append(b.masked_load("float", _WIDTH, at, lanes, 4))
                    else:
                        loaded.append(b.load(_TYPE, at, 4))
                        ahead = b.gep("float", at, _WIDTH)  # for the next pixels: 25 % of the time, where rows are far apart
                        b.prefetch(ahead)
                return loaded

            def put(pair: tuple[list[str], list[str]], to: str, *seen: str) -> list[str]:
                now = list(seen)
                for vectors in pair if now else ():
                    for value in vectors:
                        now = extent.include(b, value, now[0], now[1])
                turned = [transpose_vectors(b, "float", vectors) for vectors in pair]
                for i, (low, high) in enumerate(zip(*turned, strict=True)):
                    type_ = f"<{2 * _WIDTH} x half>" if form == "halves" else f"<{_WIDTH} x i32>"
                    pieces: Sequence[str] = halves_pairs(b, _WIDTH, low, high, scale) if form == "halves" else split_pairs(b, _WIDTH, low, high)
                    for part, value in enumerate(pieces):
                        b.store(type_, value, b.gep("i8", to, i * step_bytes + part * part_bytes), 64)
                return now

            start = [(type_, b.load(type_, name, 64)) for name, type_ in zip(names, types, strict=False)]
            if left:
                after = b.loop(0, LANES, 1, lambda lane, *now: put(
                    (block(lane, 0), block(lane, _WIDTH)), b.gep("i8", target, b.mul(lane, 64)), *now
                ), start)  # fmt: skip
            else:
                with b.fold(0, 2 * _WIDTH, 1, start) as (j, after):
                    d, half = b.op(f"and i64 {j}, {_WIDTH - 1}"), b.op(f"and i64 {j}, {_WIDTH}")
                    first, second = (b.mul(d, 2), b.add(b.mul(d, 2), 1)) if neighbours else (d, b.add(d, _WIDTH))
                    after[:] = put((block(first, half), block(second, half)), b.gep("i8", target, b.mul(j, 64)), *after)
            for name, type_, value in zip(names, types, after, strict=False):
                b.store(type_, value, name, 64)

        with b.if_(full):
            rows(False)
        with b.if_(b.op(f"xor i1 {full}, true")):
            rows(True)
        seen[:] = [b.load(type_, name, 64) for name, type_ in zip(names, types, strict=False)]
    for at, value in enumerate(extent.reduce(b, seen[0], seen[1]) if seen else ()):
        b.store("i32", value, b.gep("i32", "%extent", at), 4)
    return b.define(f"pack_{form}", _PACK[form])
