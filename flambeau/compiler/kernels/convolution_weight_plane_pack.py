"""Convolutions by the matrix unit: the packing of pixels for the weight's gradient (see convolution_weight_planes.py).

    planes[channel][part][image][row][column] of 16 bits: the three bfloat16 parts of float32, or two float16 halves

What is no pixel is zero, and so are the channels up to a multiple of 16. Of the gradient, 16 channels at a time are then turned into the unit's second operand:

    steps[32 places][part][two tiles of 16 channels][16 pairs of places][16 channels] of two of these
"""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import split_in_order
from flambeau.compiler.kernels.convolution_judgement import scale_of
from flambeau.compiler.kernels.convolution_patches import UNIT, bit_mask
from flambeau.compiler.kernels.convolution_problem import load_record
from flambeau.compiler.kernels.convolution_tile_pack import CARRIED, COUNTS, EXTENT, NOTHING_CARRIED, lanes_inside
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.float_halves import halves_in_order
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES

SLACK: Final = 64  # places behind a plane that are set to zero: tiles reach up to 47 beyond the last row
SHAPE: Final = (
    "stride_channel", "stride_y", "source_height", "source_width", "top", "left", "pitch", "reach_y", "channel_bytes", "part_bytes",
)  # fmt: skip
_WIDTH: Final = 16
_CHUNK: Final = 2 * _WIDTH  # places that are written at a time
_FLOATS, _INTS, _SHORTS = f"<{_WIDTH} x float>", f"<{_WIDTH} x i32>", f"<{_CHUNK} x i16>"
_AHEAD: Final = 2  # channels from the one that is copied to the one whose pixels are fetched


def copy_function(form: str) -> Function:
    """`copy(shape, source, channels, y, rows, planes, extent)`: an image's block of `rows` rows, and those that taps reach beyond.
    `form`: "parts", or "halves", for which `extent` has the scale (convolution_judgement.py)."""
    key = f"convolution:weight_planes:copy:{form}"
    return native(key, partial(_copy, form))


def _copy(form: str, name: str, b: Builder) -> str:
    """Rows are written in ascending order with whole vectors: what one writes beyond its end, the next overwrites."""
    w = load_record(b, "%shape", SHAPE)
    start_of, put = CARRIED.get(form, NOTHING_CARRIED)
    scale = scale_of(b, "%extent") if form == "halves" else ""
    rows = b.add("%rows", w["reach_y"])
    padded = b.op(f"and i64 {b.add('%channels', _WIDTH - 1)}, {-_WIDTH}")
    fetched = b.mul(w["stride_channel"], _AHEAD)
    start = b.sub(0, w["left"])
    low, high = lanes_inside(b, UNIT, start, "1", w["source_width"])
    low = b.min(low, w["pitch"])
    high = b.max(low, b.min(high, w["pitch"]))

    def store(at: str, values: tuple[str, ...]) -> None:
        for part, value in enumerate(values):
            b.store(f"<{_CHUNK} x half>" if form == "halves" else _SHORTS, value, b.gep("i8", at, b.mul(w["part_bytes"], part)), 2)

    def zeros(plane: str, low: str | int, high: str) -> None:
        """Zeros from place `low` on, to `high` and up to 31 more."""
        with b.for_(low, high, _CHUNK) as q:
            store(b.gep("i16", plane, q), ("zeroinitializer",) * COUNTS[form])

    with b.for_(0, padded) as j:
        exists = b.op(f"icmp slt i64 {j}, %channels")
        plane = b.gep("i8", "%planes", b.mul(j, w["channel_bytes"]))
        image = b.gep("float", "%source", b.add(b.mul(j, w["stride_channel"]), b.add(start, low)))
        with b.for_(0, rows) as r:
            y = b.sub(b.add("%y", r), w["top"])
            inside = b.op(f"and i1 {exists}, {b.op(f'icmp ult i64 {y}, ' + w['source_height'])}")
            end = b.op(f"select i1 {inside}, i64 {high}, i64 {low}")
            source = b.gep("float", image, b.mul(y, w["stride_y"]))
            target = b.gep("i16", plane, b.mul(r, w["pitch"]))
            count = b.sub(end, low)
            to = b.gep("i16", target, low)

            def chunk(q: str, extremes: list[str], masked: bool) -> list[str]:
                values = []
                for half in range(2):
                    at = b.add(q, half * _WIDTH)
                    here = b.gep("float", source, at)
                    if masked:
                        values.append(b.masked_load("float", _WIDTH, here, bit_mask(b, _WIDTH, 0, b.sub(count, at)), 4))
                    else:
                        values.append(b.load(_FLOATS, here, 4))
                        b.prefetch(b.gep("float", here, fetched))
                    if form == "parts":
                        extremes = EXTENT.include(b, values[-1], *extremes)
                if form == "halves":
                    store(b.gep("i16", to, q), halves_in_order(b, _WIDTH, values[0], values[1], scale))
                else:
                    store(b.gep("i16", to, q), split_in_order(b, _WIDTH, *values))
                return extremes

            zeros(target, 0, low)
            whole = b.op(f"and i64 {count}, {-_CHUNK}")
            seen = [(EXTENT.type, value) for value in start_of(b, "%extent")]
            found = b.loop(0, whole, _CHUNK, lambda q, *now: chunk(q, list(now), False), seen)
            seen = [(EXTENT.type, value) for value in found]
            put(b, "%extent", b.loop(whole, count, _CHUNK, lambda q, *now: chunk(q, list(now), True), seen))
            zeros(target, end, w["pitch"])
        # What tiles read beyond the last row.
        after = b.mul(rows, w["pitch"])
        zeros(plane, after, b.add(after, SLACK))
    return b.function(
        f"define void @{name}(ptr noalias %shape, ptr noalias %source, i64 %channels, i64 %y, i64 %rows, ptr noalias %planes, ptr noalias %extent) noinline #0"
    )


def turn_function(form: str) -> Function:
    """`turn(planes, channel_bytes, part_bytes, steps, out)`: the tiles of 16 channels."""
    key = f"convolution:weight_planes:turn:{form}"
    return native(key, partial(_turn, form))


def _turn(form: str, name: str, b: Builder) -> str:
    with b.for_(0, "%steps") as s:
        for part in range(COUNTS[form]):
            here = b.gep("i8", "%planes", b.add(b.mul("%part_bytes", part), b.mul(s, 64)))
            rows = [b.load(_INTS, b.gep("i8", here, b.mul("%channel_bytes", i)), 64) for i in range(_WIDTH)]
            to = b.gep("i8", "%out", b.add(b.mul(s, COUNTS[form] * PART_BYTES), PART_BYTES * part))
            for i, value in enumerate(transpose_vectors(b, "i32", rows)):
                b.store(_INTS, value, b.gep("i8", to, 64 * i), 64)
    return b.function(f"define void @{name}(ptr noalias %planes, i64 %channel_bytes, i64 %part_bytes, i64 %steps, ptr noalias %out) noinline #0")
