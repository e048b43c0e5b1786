"""Depthwise convolutions of small images, or with a stride: planes in lanes.

A vector holds one pixel of as many neighbouring channels. So every load is whole and aligned, any stride, dilation or phase is a matter of addresses, a
weight's gradient needs no sum over lanes, and a small image leaves no lane empty. The price is turning a block of planes on the way in and out
(in registers, unless channels lie next to each other in memory), which pays where images are small (convolution_depthwise.py has the rest).

    source [row][column][lane], with zeros around     weights [tap][lane]     result [row][column][lane]

    result[y][x] = sum over taps (tx, ty) of weights[ty][tx] * source[y step_y + ty tap_y + base_y][x step_x + tx tap_x + base_x]
    weights[ty][tx] = sum over y, x of gradient[y][x] * source[...]

A unit is a block of channels of one image; of the weight's gradient, of all images. Results add their taps in the order of convolution_depthwise.py. Weights
add up by rows, images and eight images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Final

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import Geometry, bit_mask, phases, store_lanes
from flambeau.compiler.kernels.convolution_planes import tap_rows
from flambeau.compiler.kernels.convolution_problem import Operand, Problem, call_epilogue, load_record, numel
from flambeau.compiler.kernels.description import Epilogue, describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.symbols import Sym, maximum

_COLUMNS: Final = {32: (14, 12, 8, 7), 16: (10, 8, 7)}  # results side by side in registers, by their number
_TAPS: Final = {32: 12, 16: 6}  # sums of a weight's gradient
_IMAGES: Final = 8  # whose sums are added to each other, before they are to those of others
_MORE_COLUMNS: Final = 14
# Widths up to which turning planes is faster than vectors that cross lines (convolution_depthwise.py), for up to so many taps, and for more: measured on
# Zen 4. With few taps it is faster as long as a row is no longer than a vector.
_FEW_TAPS: Final = 9
_SOME_TAPS: Final = 25
_SMALL: Final = 20
_LARGER: Final = 28
_PHASE: Final = (
    "taps_y", "taps_x", "deal_y", "base_y", "tap_y", "source_height", "height", "width", "step_x", "base_x", "tap_x", "w_first", "w_skip_y", "w_skip_x",
    "out_at", "out_y", "out_x",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """An image, or the weights, as a kernel reads or writes it: `height` rows of `width` places, in scratch `pitch` apart."""

    name: str
    kind: str  # "x": pixels lie next to each other, "c": channels do, "any"
    flat: bool  # rows follow each other in memory

    def key(self) -> str:
        return f"{self.kind}{'flat' * self.flat}"


@dataclass(frozen=True, slots=True)
class Facts:
    element: Element
    width: int
    vector_bits: int
    source: Side
    out: Side
    weights: Side
    columns: int
    phases: int
    upwards: bool  # tap rows from the last to the first: those of an input gradient
    kernel: tuple[int, ...] = ()  # of a weight's gradient
    taps: int = 0  # sums of a weight's gradient at once

    def key(self) -> str:
        sides = ":".join(side.key() for side in (self.source, self.out, self.weights))
        kernel = f"{self.kernel[0]}x{self.kernel[1]}:{self.taps}" if self.taps else f"{self.columns}:{self.phases}:{self.upwards}"
        return f"convolution:depthwise_lanes:{self.element.name}:{self.width}:{self.vector_bits}:{sides}:{kernel}"


def lanes_apply(p: Problem, op: str) -> bool:
    """Whether planes go to lanes: there are nearly as many as lanes, they fit in the cache, and that is faster (narrower vectors
    were not measured). How weights add up depends on it."""
    channels, height, width = p.x.shape[1:]
    kernel, of_weights = p.w.shape[2:], op == "convolution_weight_gradient"
    if p.group_outputs != 1:
        return False
    lanes = p.target.vector_bits // (8 * element_of(p.dtype).compute_bytes)
    if p.target.vector_bits < 256 or 4 * channels < 3 * round_up(channels, lanes):
        return False
    columns = 0 if of_weights else _MORE_COLUMNS
    source = (height + kernel[0] * p.dilation[0]) * (width + kernel[1] * p.dilation[1] + columns)
    if (source + p.y.shape[2] * (p.y.shape[3] + columns)) * p.target.vector_bits // 8 > p.target.caches[1] // 2:
        return False
    taps = kernel[0] * kernel[1]
    limit = lanes if taps <= _FEW_TAPS else _SMALL if taps <= _SOME_TAPS else _LARGER
    return of_weights or p.stride != (1, 1) or bool(width <= limit)


def _side(name: str, o: Operand) -> tuple[Side, dict[str, Word]]:
    """An operand, and its words. A dim of one element may have any stride."""
    _, channels, height, width = o.shape
    batch, channel, row, column = o.strides
    column = 1 if width == 1 else column
    row = width * column if height == 1 else row
    kind = "c" if channel == 1 and channels > 1 and column != 1 else "x" if column == 1 else "any"
    words: dict[str, Word] = {
        name: o.word, f"{name}_batch": batch, f"{name}_channel": channel, f"{name}_row": row, f"{name}_column": column, f"{name}_height": height,
        f"{name}_width": width,
    }  # fmt: skip
    return Side(name, kind, kind == "x" and row == width), words


def _around(geometries: list[Geometry], heights: list[int], columns: int) -> tuple[int, int, int, int]:
    """(rows above, columns to the left, rows, columns) of what the results of all geometries read."""
    first, last = [0, 0], [geometries[0].source_height - 1, geometries[0].source_width - 1]
    for g, height in zip(geometries, heights, strict=True):
        if g.taps:
            for d, (base, step, tap, taps, count) in enumerate(
                ((g.base_y, g.step_y, g.tap_y, g.taps_y, height), (g.base_x, g.step_x, g.tap_x, g.taps_x, round_up(g.width, columns)))
            ):
                reach = (taps - 1) * tap
                first[d] = min(first[d], base + min(reach, 0))
                last[d] = max(last[d], base + (count - 1) * step + max(reach, 0))
    return -first[0], -first[1], last[0] - first[0] + 1, last[1] - first[1] + 1


def make_depthwise_lanes(p: Problem, op: str, node_index: int, epilogue: Epilogue | None) -> list[Kernel]:
    """Kernels of any of the three convolution nodes."""
    element, host = element_of(p.dtype), p.target
    width = host.vector_bits // (8 * element.compute_bytes)
    gradient, of_weights = op == "convolution_input_gradient", op == "convolution_weight_gradient"
    geometries = phases(p, gradient)
    source_of, out_of = (p.y, p.x) if gradient else (p.x, p.y)
    heights = [g.pixels // maximum(1, g.width) for g in geometries]
    widest = reduce(maximum, [g.width for g in geometries])
    choice = _COLUMNS[32 if host.registers >= 32 else 16]
    columns = 1 if of_weights else choice[-2] if widest.__class__ is Sym else min(choice, key=lambda n: (round_up(widest, n), -n))
    above, left, rows, pitch = _around(geometries, heights, columns)
    (source, words), (out, out_words), (weights, w_words) = (
        _side("source", source_of),
        _side("out", out_of),
        _side("w", replace(p.w, shape=(1, p.w.shape[0], *p.w.shape[2:]), strides=(0, p.w.strides[0], *p.w.strides[2:]))),
    )
    _, channels, out_height, out_width = out_of.shape
    most = p.stride[1] if gradient else 1
    out_pitch = out_width + (columns + 1) * most + width
    kernel = p.w.shape[2:]
    if of_weights:
        kernel = tuple([int(n) for n in kernel])  # the text has a sum for each
    taps = kernel[0] * kernel[1]
    vector_bytes = width * element.compute_bytes

    def space(height: int, pitch: int, of: Operand) -> int:
        """Places of an image, and of as many pixels behind its last one as a vector has lanes: turning writes or reads so far."""
        return (height + ceil_div(width, of.shape[3]) + 1) * pitch + 2 * width

    regions = {
        "source_at": space(rows, pitch, source_of), "out_at": space(out_height, out_pitch, out_of), "w_at": taps + 2 * width, "image_at": taps,
        "some_at": taps, "total_at": 0,
    }  # fmt: skip
    at = 0
    for name, places in regions.items():
        words[name] = at
        at += places * vector_bytes
    scratch = round_up(at + (taps + 2 * width) * vector_bytes, 64)
    blocks = ceil_div(channels, width)
    facts = Facts(
        element, width, host.vector_bits, source, out, weights, columns, len(geometries), gradient, kernel if of_weights else (),
        _TAPS[32 if host.registers >= 32 else 16] if of_weights else 0,
    )  # fmt: skip
    words |= out_words | w_words | {
        "scratch": Scratch(scratch), "scratch_bytes": scratch, "channels": channels, "batch": p.batch, "source_first": above * pitch + left,
        "source_pitch": pitch, "out_pitch": out_pitch, "w_pitch": kernel[1], "pixels": out_height * out_width,
    }  # fmt: skip
    traffic = (numel(p.x) + numel(p.w) + numel(p.y)) * p.dtype.itemsize
    units = blocks if of_weights else blocks * p.batch
    table: list[Word] = []
    for number, (g, height) in enumerate(zip(geometries, heights, strict=True)):
        ry, rx = divmod(number, p.stride[1]) if gradient else (0, 0)
        steps = p.stride if gradient else (1, 1)
        table += [
            g.taps_y, g.taps_x, g.step_y, g.base_y, g.tap_y, g.source_height, height, g.width, g.step_x, g.base_x, g.tap_x,
            g.first_y * kernel[1] + g.first_x, g.skip_y * kernel[1], g.skip_x, ry * out_pitch + rx, steps[0] * out_pitch, steps[1],
        ]  # fmt: skip
    body = _weights_body if of_weights else partial(_body, has_epilogue=epilogue is not None)
    return [
        describe(
            f"convolution_depthwise_lanes{'_weight' * of_weights}_{element.name}", facts.key(), partial(body, facts), words, {"table": table},
            epilogue=None if of_weights else epilogue, reads=tuple(dict.fromkeys((p.y.root, p.x.root) if of_weights else (source_of.root, p.w.root))),
            writes=(p.w.root if of_weights else out_of.root,), units=units, bytes=traffic, operations=p.operations, nodes=(node_index,),
            min_units_per_thread=maximum(1, (64 << 10) * units // maximum(1, traffic)),
        )
    ]  # fmt: skip


class _Unit:
    """A block of channels in the making: its words, and the ways between memory and scratch."""

    def __init__(self, facts: Facts, b: Builder, w: dict[str, str]) -> None:
        self.facts, self.b, self.w = facts, b, w
        self.element, self.width, self.type = facts.element, facts.width, vector(facts.element.compute, facts.width)
        self.align = self.width * self.element.compute_bytes
        self.scratch = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
        b.call("void", "llvm.memset.p0.i64", [("ptr", self.scratch), ("i8", "0"), ("i64", w["scratch_bytes"]), ("i1", "false")])

    def area(self, name: str) -> str:
        return self.b.gep("i8", self.scratch, self.w[f"{name}_at"])

    def load(self, area: str, place: str | int) -> str:
        return self.b.load(self.type, self.b.gep(self.type, area, place), self.align)

    def store(self, value: str, area: str, place: str | int) -> None:
        self.b.store(self.type, value, self.b.gep(self.type, area, place), self.align)

    def _planes(self, side: Side, base: str, channel: str) -> list[str]:
        """The addresses of the block's planes; those beyond the last channel are the last one's."""
        b, w = self.b, self.w
        last = b.sub(w["channels"], 1)
        step = w[f"{side.name}_channel"]
        return [b.gep(self.element.memory, base, b.mul(b.min(b.add(channel, lane), last), step)) for lane in range(self.width)]

    def _runs(self, side: Side, planes: list[str], area: str, first: str) -> Iterator[tuple[list[str], str, list[str]]]:
        """For each block of as many pixels as a vector has lanes: where they lie in each plane, how many there are, where they lie in scratch."""
        b, w, name = self.b, self.w, side.name
        height, width = w[f"{name}_height"], w[f"{name}_width"]
        gap = b.sub(w[f"{name}_pitch"], width)
        runs, length = ("1", b.mul(height, width)) if side.flat else (height, width)
        with b.for_(0, runs) as run:
            offset = b.mul(run, w[f"{name}_row"])
            start = b.add(first, b.mul(run, w[f"{name}_pitch"]))
            with b.fold(0, length, self.width, [("i64", start), ("i64", "0")]) as (q, carried):
                at = b.add(offset, q)
                places = []
                place, x = carried
                for _ in range(self.width):
                    places.append(place)
                    x = b.add(x, 1)
                    ends = b.op(f"icmp eq i64 {x}, {width}")
                    place = b.add(b.add(place, 1), b.op(f"select i1 {ends}, i64 {gap}, i64 0"))
                    x = b.op(f"select i1 {ends}, i64 0, i64 {x}")
                yield [b.gep(self.element.memory, plane, at) for plane in planes], b.sub(length, q), places
                carried[:] = [place, x]

    def bring(self, side: Side, base: str, channel: str, area: str, first: str) -> None:
        """Planes into scratch."""
        b, element, width = self.b, self.element, self.width
        if side.kind == "x":
            for addresses, left, places in self._runs(side, self._planes(side, base, channel), area, first):
                mask = bit_mask(b, width, 0, left)
                rows = [element.widen(b, width, b.masked_load(element.memory, width, at, mask, element.memory_bytes)) for at in addresses]
                for value, place in zip(transpose_vectors(b, element.compute, rows), places, strict=True):
                    self.store(value, area, place)
            return
        step = self.w[f"{side.name}_channel"]
        mask = bit_mask(b, width, 0, b.sub(self.w["channels"], channel))
        offsets = "" if side.kind == "c" else b.strided_lanes(width, step)
        for at, place in self._pixels(side, base, channel, first):
            if side.kind == "c":
                value = b.masked_load(element.memory, width, at, mask, element.memory_bytes)
            else:
                value = b.masked_gather(element.memory, width, at, offsets, mask, element.memory_bytes)
            self.store(element.widen(b, width, value), area, place)

    def give(self, side: Side, base: str, channel: str, area: str, first: str) -> None:
        """Planes out of scratch."""
        b, element, width = self.b, self.element, self.width
        if side.kind == "x":
            for addresses, left, places in self._runs(side, self._planes(side, base, channel), area, first):
                mask = bit_mask(b, width, 0, left)
                rows = transpose_vectors(b, element.compute, [self.load(area, place) for place in places])
                for value, at in reversed(list(zip(rows, addresses, strict=True))):  # of lanes that share the last plane, that of the last channel stays
                    b.masked_store(element.memory, width, element.narrow(b, width, value), at, mask, element.memory_bytes)
            return
        left = b.sub(self.w["channels"], channel)
        for at, place in self._pixels(side, base, channel, first):
            value = element.narrow(b, width, self.load(area, place))
            store_lanes(b, element.memory, element.memory_bytes, width, side.kind == "c", value, at, "0", left, self.w[f"{side.name}_channel"])

    def _pixels(self, side: Side, base: str, channel: str, first: str) -> Iterator[tuple[str, str]]:
        """The first channel's address of each pixel, and its place in scratch."""
        b, w, name, memory = self.b, self.w, side.name, self.element.memory
        start = b.gep(memory, base, b.mul(channel, w[f"{name}_channel"]))
        with b.for_(0, w[f"{name}_height"]) as y, b.for_(0, w[f"{name}_width"]) as x:
            at = b.gep(memory, start, b.add(b.mul(y, w[f"{name}_row"]), b.mul(x, w[f"{name}_column"])))
            yield at, b.add(first, b.add(b.mul(y, w[f"{name}_pitch"]), x))

    def image(self, side: Side, n: str) -> str:
        return self.b.gep(self.element.memory, self.w[side.name], self.b.mul(n, self.w[f"{side.name}_batch"]))


def _body(facts: Facts, b: Builder, w: dict[str, str], has_epilogue: bool) -> None:
    """Forward and input gradient."""
    unit = _Unit(facts, b, w)
    source, out, weights = (unit.area(name) for name in ("source", "out", "w"))
    with b.for_("%begin", "%end") as u:
        n, channel = b.op(f"urem i64 {u}, {w['batch']}"), b.mul(b.op(f"udiv i64 {u}, {w['batch']}"), facts.width)
        with b.if_(b.op(f"or i1 {b.op(f'icmp eq i64 {u}, %begin')}, {b.op(f'icmp eq i64 {n}, 0')}")):
            unit.bring(facts.weights, w["w"], channel, weights, "0")
        unit.bring(facts.source, unit.image(facts.source, n), channel, source, w["source_first"])
        with b.for_(0, facts.phases) as f:
            _results(unit, load_record(b, b.gep("i64", w["table"], b.mul(f, len(_PHASE))), _PHASE), source, out, weights)
        unit.give(facts.out, unit.image(facts.out, n), channel, out, "0")
        if has_epilogue:
            call_epilogue(b, n, "1", (channel, b.min(b.add(channel, facts.width), w["channels"])), ("0", w["pixels"]))


def _results(unit: _Unit, q: dict[str, str], source: str, out: str, weights: str) -> None:
    """The results of a phase, some columns of a row at once. Tap rows that meet the rows of zeros are left out."""
    b, w, facts, element = unit.b, unit.w, unit.facts, unit.element
    zeros = [(unit.type, element.zero(unit.width))] * facts.columns
    with b.for_(0, q["height"]) as y:
        low, high = tap_rows(b, q, y)
        row = b.mul(b.add(b.mul(y, q["deal_y"]), q["base_y"]), w["source_pitch"])
        row = b.add(b.add(w["source_first"], row), q["base_x"])
        with b.for_(0, q["width"], facts.columns) as x:
            start = b.gep(unit.type, source, b.add(row, b.mul(x, q["step_x"])))
            with b.fold(0, q["taps_x"], 1, zeros) as (tx, sums):
                column = b.gep(unit.type, start, b.mul(tx, q["tap_x"]))
                first = b.add(q["w_first"], b.mul(tx, q["w_skip_x"]))
                with b.fold(low, high, 1, [(unit.type, value) for value in sums]) as (i, inner):
                    ty = b.sub(b.sub(b.add(low, high), 1), i) if facts.upwards else i
                    factor = unit.load(weights, b.add(first, b.mul(ty, q["w_skip_y"])))
                    at = b.gep(unit.type, column, b.mul(b.mul(ty, q["tap_y"]), w["source_pitch"]))
                    values = [unit.load(at, b.mul(q["step_x"], r)) for r in range(facts.columns)]
                    inner[:] = [element.multiply_add(b, unit.width, factor, value, old) for value, old in zip(values, inner, strict=True)]
                sums[:] = inner
            to = b.add(q["out_at"], b.add(b.mul(y, q["out_y"]), b.mul(x, q["out_x"])))
            for r, value in enumerate(sums):
                unit.store(value, out, b.add(to, b.mul(q["out_x"], r)))


def _weights_body(facts: Facts, b: Builder, w: dict[str, str]) -> None:
    """Weight gradient: sums of rows, of images, of some images, of all."""
    unit = _Unit(facts, b, w)
    element, width = facts.element, facts.width
    source, gradient, image, some, total = (unit.area(name) for name in ("source", "out", "image", "some", "total"))
    taps_y, taps_x = facts.kernel
    size = str(taps_y * taps_x * unit.align)
    q = load_record(b, w["table"], _PHASE)
    across = min(taps_x, facts.taps)
    down = facts.taps // across
    groups = [
        [(ty, tx) for ty in range(y, min(y + down, taps_y)) for tx in range(x, min(x + across, taps_x))]
        for y in range(0, taps_y, down) for x in range(0, taps_x, across)
    ]  # fmt: skip

    def clear(area: str) -> None:
        b.call("void", "llvm.memset.p0.i64", [("ptr", area), ("i8", "0"), ("i64", size), ("i1", "false")])

    def add(number: int | str, value: str, area: str) -> None:
        unit.store(element.add(b, width, unit.load(area, number), value), area, number)

    def move(area: str, to: str) -> None:
        """Add sums to others, and begin again."""
        with b.for_(0, taps_y * taps_x) as t:
            add(t, unit.load(area, t), to)
        clear(area)

    with b.for_("%begin", "%end") as u:
        channel = b.mul(u, width)
        for area in (image, some, total):
            clear(area)
        with b.for_(0, w["batch"]) as n:
            unit.bring(facts.source, unit.image(facts.source, n), channel, source, w["source_first"])
            unit.bring(facts.out, unit.image(facts.out, n), channel, gradient, "0")
            with b.for_(0, w["out_height"]) as y:
                row = b.mul(b.add(b.mul(y, q["deal_y"]), q["base_y"]), w["source_pitch"])
                start = b.gep(unit.type, source, b.add(b.add(w["source_first"], row), q["base_x"]))
                line = b.gep(unit.type, gradient, b.mul(y, w["out_pitch"]))
                for taps in groups:
                    places = [b.gep(unit.type, start, b.add(b.mul(b.mul(q["tap_y"], w["source_pitch"]), ty), b.mul(q["tap_x"], tx))) for ty, tx in taps]
                    with b.fold(0, w["out_width"], 1, [(unit.type, element.zero(width))] * len(taps)) as (x, sums):
                        value, shift = unit.load(line, x), b.mul(x, q["step_x"])
                        sums[:] = [element.multiply_add(b, width, value, unit.load(at, shift), old) for at, old in zip(places, sums, strict=True)]
                    for (ty, tx), value in zip(taps, sums, strict=True):
                        add(ty * taps_x + tx, value, image)
            move(image, some)
            last = b.op(f"icmp eq i64 {n}, {b.sub(w['batch'], 1)}")
            full = b.op(f"icmp eq i64 {b.op(f'and i64 {n}, {_IMAGES - 1}')}, {_IMAGES - 1}")
            with b.if_(b.op(f"or i1 {last}, {full}")):
                move(some, total)
        unit.give(facts.weights, w["w"], channel, total, "0")
