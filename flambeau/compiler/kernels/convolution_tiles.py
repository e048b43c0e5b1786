"""Convolutions by the processor's matrix unit (AMX): forward and input gradient of bfloat16 and of float32.

    result[o][p] = sum over steps of weights[step][o][32 channels] * planes[32 channels][p + shift(step)]

A tile register of pixels is loaded at any pixel of the planes: 16 pairs of channels, 16 neighbouring pixels. So each
tap of each pixel comes from the same planes, and nothing is packed for a tap. What neighbours are is the planes' matter:
the pixels of a row, then the zeros that rows share, then the next row, the next image; results in between are dropped.

    for each unit: (images, group, block of output rows or columns, range of output channels)
        pack the block's source (convolution_tile_pack.py)
        for each panel of 32 output channels
            for each 32 places of the planes: the products, into [channel][place] sums; all of K at once
            store the places that are pixels
        the epilogue, on the unit's channels and pixels

A float32 is a power of two times the sum of two float16, or the sum of three bfloat16; float_halves.py and bfloat_parts.py say which
products of them are made, and when they are right. Where neither are, the results of a unit's pixels and a panel's weights are
computed by convolution_few.py, from the image itself. The work on a unit is convolution_tile_units.py.

The order of additions into a pixel depends on sizes only, and which way is taken on the unit's values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_few import exact_function
from flambeau.compiler.kernels.convolution_judgement import NOTES, look_function
from flambeau.compiler.kernels.convolution_patches import Geometry, read_kind
from flambeau.compiler.kernels.convolution_planes import axes, balanced, shared_zeros
from flambeau.compiler.kernels.convolution_problem import Problem, numel, temporary
from flambeau.compiler.kernels.convolution_tile_pack import (
    COUNTS,
    DEEP,
    HEADER,
    ROWS,
    SHAPE,
    SLACK,
    TILE_BYTES,
    WIDTH,
    copy_function,
    form_of_bits,
    parts_of,
)  # fmt: skip
from flambeau.compiler.kernels.convolution_tile_products import dot_products_function, halves_function, products_function
from flambeau.compiler.kernels.convolution_tile_units import PLACES, otherwise_function, store_sums, units_body
from flambeau.compiler.kernels.convolution_tile_weights import pack_tile_weights, panel_function, panel_words
from flambeau.compiler.kernels.description import Epilogue, add_reader, describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.compiler.kernels.matmul_halves import form_of as form_of_product
from flambeau.compiler.kernels.matmul_tiles import configuration
from flambeau.dtypes import BY_NAME
from flambeau.runtime.target import Target
from flambeau.symbols import maximum, minimum

MOST_TERMS = 1 << 15  # of a sum whose overflow `are_safe` excludes
# Steps of float32 whose products one accumulator sums: six additions for each. A sixth of all, within these bounds: errors
# are then 0.6 to 0.9 of PyTorch's, for normal and for positive numbers (18 steps of 18: 1.5 for positive ones). To store
# tiles costs as much as one or two steps (measured; the addition costs nothing).
_BLOCK_STEPS = (9, 24)
_KEPT_BYTES = 1 << 20  # panels that stay in a second-level cache of 2 MiB; next to them:
_PLANES_BYTES = 1 << 19  # of one unit, twice as much where panels do not stay
_BLOCK_PIXELS = 1024  # of one unit: 128 KiB of sums
_BLOCK_COLUMNS = 448  # longer rows are cut
_VISIT_STEPS = 6  # of halves: their weights stay in the first-level cache for all places of a unit
_UNITS = 32  # blocks get smaller until there are as many
_UNITS_PER_THREAD = 4  # ... and channels are split until there are as many; each split packs the planes again


def form_of(target: Target, element: Element, terms: int) -> str:
    """How the elements of sums of so many terms are split: a key of convolution_tile_pack.COUNTS."""
    if element.name == "float32":
        return form_of_product(target, terms).name
    return "plain" if element.name in target.matrix_dtypes else "dots"


def tiles_apply(p: Problem, gradient: bool, phases: list[Geometry]) -> bool:
    """True where the matrix unit is there and faster (measured), and the output has rows of neighbours."""
    units = p.target.matrix_dtypes | (p.target.dots if p.dtype.name == "bfloat16" else frozenset())
    if p.dtype.name not in ("float32", "bfloat16") or "bfloat16" not in units or len(phases) > 1:
        return False
    g = phases[0]
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    out = p.x if gradient else p.y
    unit = out.shape[3] == 1 or out.strides[3] == 1
    if not unit or g.taps == 0 or channels * g.taps > MOST_TERMS or rows <= WIDTH // 2 or 4 * channels < 3 * round_up(channels, DEEP):
        return False
    if p.dtype.name == "bfloat16":
        return g.taps > 1 or out.shape[3] >= WIDTH // 2
    # A 1x1 kernel reads its pixels where they lie, without the matrix unit; what it skips with a stride is not read here.
    return _blocking(p, gradient, g).filled >= 0.7 and (g.taps >= 4 or (g.step_x > 1 and out.shape[3] >= WIDTH // 2))


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocks of units, in output pixels, and the planes they need, in places."""

    columns: int
    rows: int
    images: int
    pitch: int  # from row to row of planes
    image_rows: int  # from image to image
    blocks_x: int
    blocks_y: int

    @property
    def used(self) -> int:
        """Places from the first pixel of a unit to its last."""
        return ((self.images - 1) * self.image_rows + self.rows - 1) * self.pitch + self.columns

    @property
    def filled(self) -> float:
        """The part of what is computed that are pixels."""
        return self.images * self.rows * self.columns / round_up(self.used, WIDTH)


def _even(batch: int, most: int) -> int:
    """Images of a unit: at most so many, alike in all units, which are even in number (two threads). No question is asked of a symbol."""
    units = maximum(2, round_up(ceil_div(batch, most), 2))
    return maximum(1, ceil_div(batch, units))


def _blocking(p: Problem, gradient: bool, g: Geometry) -> Blocking:
    parts = parts_of(element_of(p.dtype))
    out, channels = (p.x, p.group_outputs) if gradient else (p.y, p.group_inputs)
    height, width = out.shape[2:]
    axis_y, axis_x = axes(g)
    deal = g.step_y * g.step_x
    rows_of_product = p.group_inputs if gradient else p.group_outputs
    weights = 2 * parts * round_up(rows_of_product, ROWS) * round_up(channels, DEEP) * g.taps
    planes = _PLANES_BYTES if weights <= _KEPT_BYTES else 2 * _PLANES_BYTES
    places = max(1, planes // (2 * parts * round_up(channels, DEEP) * deal))  # of a sub-plane
    columns = width
    if width > _BLOCK_COLUMNS // 2:
        fitting = maximum(2 * PLACES, minimum(_BLOCK_COLUMNS, places // (1 + axis_y.reach) - axis_x.reach))
        columns = minimum(width, round_up(balanced(width, fitting), PLACES))
    blocks_x = ceil_div(width, columns)
    pitch = columns + axis_x.reach - shared_zeros(axis_x, deal, columns, g.source_width, blocks_x)
    rows = 1
    if blocks_x == 1:
        fitting = minimum(places // pitch - axis_y.reach, _BLOCK_PIXELS // width)
        wanted = maximum(ceil_div(4 * PLACES, width), height * p.batch * p.groups // _UNITS)
        rows = balanced(height, maximum(1, minimum(height, fitting, wanted)))
    blocks_y = ceil_div(height, rows)
    image_rows = rows + axis_y.reach - shared_zeros(axis_y, deal, rows, g.source_height, blocks_y)
    images = 1
    if blocks_y * blocks_x == 1:
        images = _even(p.batch, maximum(1, minimum(places // (image_rows * pitch), _BLOCK_PIXELS // (rows * columns))))
    return Blocking(columns, rows, images, pitch, image_rows, blocks_x, blocks_y)


def make_tile_convolution(
    graph: Graph, p: Problem, gradient: bool, g: Geometry, node_index: int, epilogue: Epilogue | None
) -> list[Kernel]:  # fmt: skip
    """Kernels of `convolution`, or with `gradient` of `convolution_input_gradient`, of one phase."""
    host = p.target
    element = element_of(p.dtype)
    kind = read_kind(g.step_x, g.stride_x)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    height, width = out.shape[2:]
    pairs = round_up(channels, DEEP) // 2
    axis_y, axis_x = axes(g)
    deal = g.step_y * g.step_x

    block = _blocking(p, gradient, g)
    images, pitch = block.images, block.pitch
    blocks = ceil_div(p.batch, images) * p.groups * block.blocks_y * block.blocks_x
    panels = ceil_div(rows, ROWS)
    split_panels = ceil_div(panels, maximum(1, minimum(panels, _UNITS_PER_THREAD * host.workers // blocks)))
    splits = ceil_div(panels, split_panels)

    image_places = block.image_rows * pitch
    sub_pixels = ((images - 1) * block.image_rows + block.rows + axis_y.reach) * pitch + SLACK
    lines = ceil_div(deal * sub_pixels, 16)
    part_bytes = 64 * (lines + 1 - lines % 2)  # an odd number of cache lines: a tile's rows lie in different sets
    count = COUNTS[form_of_bits(element)]  # also of halves, which leave room for parts
    pair_bytes = count * part_bytes
    shifts = [((y % g.step_y) * g.step_x + x % g.step_x) * sub_pixels + y // g.step_y * pitch + x // g.step_x for y in axis_y.places for x in axis_x.places]
    steps = pairs * 2 // DEEP * g.taps
    form = form_of(p.target, element, channels * g.taps)
    least, longest = _BLOCK_STEPS
    parts_block_steps = balanced(steps, max(least, min(longest, ceil_div(steps, 6))))
    block_steps = {"plain": steps, "dots": steps, "parts": parts_block_steps, "halves": balanced(steps, _VISIT_STEPS)}[form]
    panel_bytes = steps * COUNTS[form] * 2 * TILE_BYTES
    most = round_up(block.used, PLACES)
    sums_bytes = 4 * most + 64
    # The last tile of the last pairs reads past its plane.
    planes_bytes = round_up(pairs * pair_bytes + 4 * (most + max(shifts)) + 64, 64)
    table_at = planes_bytes + (1 if block_steps == steps and form != "halves" else 2) * ROWS * sums_bytes
    notes_at = table_at + round_up(8 * steps, 64)
    scratch = notes_at + NOTES
    # Shares of a step of the next panel, where the panels of a unit do not stay in the cache.
    stays = panels * panel_bytes <= _KEPT_BYTES
    fetched_lines = 0 if stays else ceil_div(32 * COUNTS[form], ceil_div(block.used, PLACES))
    packed = temporary(graph, p.groups * panels * (HEADER + panel_bytes), BY_NAME["uint8"])

    out_stride, in_stride, kernel_y, kernel_x = p.w.strides
    row, channel = (in_stride, out_stride) if gradient else (out_stride, in_stride)
    halves = form == "halves"
    products = halves_function() if halves else dot_products_function() if form == "dots" else products_function(count)
    packing = "plain" if form == "dots" else form
    of_panel, copied = panel_words(p, gradient, "parts") if halves else ([], 0)
    copied_at, panel_at = scratch, scratch + round_up(copied, 64) + HEADER
    if halves:
        scratch = panel_at + steps * count * 2 * TILE_BYTES
    words: dict[str, Word] = {
        "source": source.word, "weights": Address(packed), "kernel": p.w.word, "out": out.word, "scratch": Scratch(scratch),
        "copy": copy_function(element, kind, packing), "products": products, "exact": exact_function(element, kind), "batch": p.batch,
        "images": images, "groups": p.groups, "blocks_y": block.blocks_y, "blocks_x": block.blocks_x, "splits": splits,
        "split_rows": split_panels * ROWS, "rows": rows, "panels": panels, "panel_bytes": panel_bytes, "panels_at": p.groups * panels * HEADER,
        "steps": steps, "block_steps": block_steps, "source_batch": source.strides[0], "source_group": channels * source.strides[1],
        "kernel_group": p.group_outputs * out_stride, "out_batch": out.strides[0], "out_group": rows * out.strides[1], "scratch_bytes": scratch,
        "sums_at": planes_bytes, "sums_bytes": sums_bytes, "table_at": table_at, "block_rows": block.rows, "block_columns": block.columns,
        "image_places": image_places, "out_height": height, "out_width": width, "taps": g.taps, "fetched_lines": fetched_lines, "notes_at": notes_at,
        "shifts_at": 0,
    }  # fmt: skip
    shape = {
        "channels": channels, "pairs": pairs, "pair_bytes": pair_bytes, "part_bytes": part_bytes, "top": axis_y.before,
        "left": axis_x.before, "deal_y": g.step_y, "deal_x": g.step_x, "sub_pixels": sub_pixels, "image_pixels": image_places,
        "reach_y": axis_y.reach, "pitch": pitch, "source_height": g.source_height, "source_width": g.source_width,
        "stride_channel": g.stride_channel, "stride_y": g.stride_y, "stride_x": g.stride_x, "taps_y": g.taps_y,
        "taps_x": g.taps_x, "base_y": g.base_y, "base_x": g.base_x, "tap_y": g.tap_y, "tap_x": g.tap_x, "kernel_row": row,
        "kernel_channel": channel, "kernel_y": kernel_y, "kernel_x": kernel_x, "out_row": out.strides[1], "out_y": g.out_y,
        "block_channels": balanced(channels, max(1, 128 // g.taps)),
    }  # fmt: skip
    tables = {"shape": [shape[name] for name in SHAPE]}
    if halves:  # what the panels of parts are packed by
        words |= {
            "look": look_function() if g.stride_x == 1 else copy_function(element, kind, "look"), "copy_parts": copy_function(element, kind, "parts"),
            "products_parts": products_function(count), "pack_panel": panel_function(element, "parts"), "weights_at": 0,
            "parts_block_steps": parts_block_steps, "panel_at": panel_at, "copied_at": copied_at,
        }  # fmt: skip
        add_reader(words, "otherwise", partial(otherwise_function, element), tables)
    words["shifts_at"] = after = len(words) + len(SHAPE) + (0 if epilogue is None else len(epilogue.words))
    if halves:
        words["weights_at"] = after + len(shifts)
    units = blocks * splits
    name = "convolution_input_gradient" if gradient else "convolution"
    return [
        pack_tile_weights(p, gradient, element, packed, panel_bytes, node_index, packing),
        describe(
            f"{name}_{element.name}", f"convolution:tiles:{element.name}:{form}", partial(units_body, element, form, epilogue is not None), words, tables,
            [*shifts, *of_panel], [partial(store_sums, element, form)], [configuration()] * (form != "dots"), epilogue, reads=(source.root, packed, p.w.root),
            writes=(out.root,), units=units,
            bytes=(numel(p.x) + numel(p.w) + numel(p.y)) * p.dtype.itemsize, operations=p.operations,
            nodes=(node_index,),
            min_units_per_thread=maximum(1, 4_000_000 * units // maximum(1, p.operations)),  # about 15 microseconds
        ),
    ]  # fmt: skip
