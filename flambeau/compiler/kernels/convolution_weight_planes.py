"""Convolutions by the matrix unit: the weight's gradient of float32, from planes of pixels.

    dw[c, tap][o] = sum over steps of planes[c][32 places + shift(tap)] * steps[32 places][o]

Pixels that lie next to each other are what the unit sums over. A tile of x is 16 channels by 32 places of their planes
(bfloat16 parts, convolution_weight_plane_kernel.py), loaded at any place, so that a tap is another place of the same planes.
The gradient of the output lies on the same places, transposed; it is zero where a place is no pixel.

    for each unit: (partial sum, group, range of input channels)
        for each block of pixels in the partial sum: some rows of an image, or some images
            pack x's planes and g's steps
            for each panel of 32 input channels, panel of 32 output channels, tap     the products of the block's places,
                                                                                      added to the sums
        the sums go to the partial sum
    then the partial sums are added in their order                                    (the kernel of convolution_weight.py)

Where the extent of a block's operands says that their parts may not do (bfloat_parts.py), the unit is computed by multiply-adds
from the images themselves. Partial sums and blocks depend on sizes only, hence so do the order of additions and that choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.bfloat_parts import PARTS
from flambeau.compiler.kernels.convolution_image_pack import is_flat
from flambeau.compiler.kernels.convolution_judgement import NOTES, look_function
from flambeau.compiler.kernels.convolution_patches import Geometry, phases
from flambeau.compiler.kernels.convolution_planes import axes, balanced, shared_zeros
from flambeau.compiler.kernels.convolution_problem import Problem, numel
from flambeau.compiler.kernels.convolution_weight_exact import exact_words
from flambeau.compiler.kernels.convolution_weight_plane_kernel import PLACES, SLACK, WIDTH, body, copy_function, micro, turn_function
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_halves import form_of
from flambeau.compiler.kernels.matmul_parts_pack import STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES, configuration
from flambeau.symbols import maximum, minimum

# Places of a block, whose products an accumulator sums: a sixth of all within these bounds. (Errors are then 0.06 to 0.9 of
# PyTorch's but for 1x1 kernels, which PyTorch computes as products: to 1.5. With 704 instead of 1088 it is 8 % slower.)
_LEAST_PLACES: Final = 160
_BLOCK_PLACES: Final = 1088
_VISIT_STEPS: Final = 4  # of halves: what all taps have of so many places stays in the first-level cache
_SUMS_BYTES: Final = 640 << 10  # of a unit's range of input channels; next to them in a second-level cache of 2 MiB:
_OPERAND_BYTES: Final = 1 << 20
_LEAST_STEPS: Final = 16  # of a block: sums come and go
_LEAST_WORK: Final = 9  # products by 32 channels for each pixel
_PARTIALS: Final = 16
_MOST_PARTIAL_BYTES: Final = 5 << 20


@dataclass(frozen=True, slots=True)
class _Plan:
    """Blocks of pixels and the places that they take."""

    rows: int
    images: int
    pitch: int
    image_rows: int  # from image to image, in rows of places
    x_part: int  # bytes of a channel's part
    g_part: int
    steps: int  # the most of a block


def _geometry(p: Problem) -> Geometry:
    return replace(phases(p, False)[0], stride_y=p.x.shape[3])  # rows lie next to each other


def _plan(p: Problem) -> _Plan:
    g = _geometry(p)
    axis_y, axis_x = axes(g)
    height, width = p.y.shape[2:]
    pitch = width + axis_x.reach - shared_zeros(axis_x, 1, width, g.source_width, 1)
    most = maximum(_LEAST_PLACES, minimum(_BLOCK_PLACES, p.batch * height * pitch // 6))
    rows = balanced(height, maximum(1, minimum(height, most // pitch)))
    image_rows = rows + axis_y.reach - shared_zeros(axis_y, 1, rows, g.source_height, ceil_div(height, rows))
    images = maximum(1, minimum(p.batch, most // (image_rows * pitch))) if rows == height else 1
    used = ((images - 1) * image_rows + rows) * pitch

    def part_bytes(places: int) -> int:
        lines = ceil_div(2 * places, 64)
        return 64 * (lines + 1 - lines % 2)  # an odd number of cache lines: a tile's rows lie in different sets

    x_part, g_part = part_bytes(used + axis_y.reach * pitch + SLACK), part_bytes(used + SLACK)
    return _Plan(rows, images, pitch, image_rows, x_part, g_part, ceil_div(used, PLACES))


def _split_panels(p: Problem, plan: _Plan) -> int:
    """Panels of input channels of a unit: as many as stay in the cache."""
    panels = ceil_div(p.group_inputs, LANES)
    each = ceil_div(p.group_outputs, LANES) * p.w.shape[2] * p.w.shape[3] * SUMS_BYTES
    operands = maximum(1, _OPERAND_BYTES // (LANES * PARTS * plan.x_part))
    return balanced(panels, maximum(1, minimum(panels, _SUMS_BYTES // each, operands)))


def weight_planes_apply(p: Problem) -> bool:
    """True where the matrix unit is there, places and channels are filled well, a pixel is used often enough, and blocks are long.

    (Measured, 3x3, times of the multiply-adds' speed: 64 channels of 32 x 32 to 56 x 56 1.2 to 1.6, 128 of 28 x 28 1.35, 32 of
    28 x 28 1.15; 256 of 14 x 14 in batches of 8, whose steps leave the cache, 1.0; blocks of 10 steps 0.9; with a stride of 2,
    for which a plane is used by a quarter of the products, 0.9 to 1.05. 1x1 of 64 channels 1.0, and less exact than PyTorch's.)"""
    if p.dtype.name != "float32" or p.stride != (1, 1) or "bfloat16" not in p.target.matrix_dtypes or not (is_flat(p.x) and is_flat(p.y)):
        return False
    if min(p.batch, p.y.shape[2], p.y.shape[3]) == 0 or p.y.shape[3] > _BLOCK_PLACES:
        return False
    filled = [count / round_up(count, WIDTH) for count in (p.group_inputs, p.group_outputs)]
    taps = p.w.shape[2] * p.w.shape[3]
    # What an image's size does not change comes first: a question about it makes a plan for some sizes only.
    if taps <= 1 or taps * min(p.group_inputs, p.group_outputs) < _LEAST_WORK * LANES or min(filled) < 0.74:
        return False
    plan = _plan(p)
    pixels = plan.images * plan.rows * p.y.shape[3]
    near = ceil_div(p.group_outputs, LANES) * plan.steps * STEP_BYTES <= _OPERAND_BYTES
    return near and plan.steps >= _LEAST_STEPS and pixels >= 0.7 * plan.steps * PLACES


def plane_weight_gradient(graph: Graph, p: Problem, node: int, make_partials: Callable[[int], int]) -> tuple[list[Kernel], int]:
    """The kernel of the partial sums, and how many there are. `make_partials(count)`: the value that holds them."""
    g = _geometry(p)
    axis_y, axis_x = axes(g)
    plan = _plan(p)
    channels, outputs = p.group_inputs, p.group_outputs
    taps = g.taps
    panels, o_panels = ceil_div(channels, LANES), ceil_div(outputs, LANES)
    split_panels = _split_panels(p, plan)
    splits = ceil_div(panels, split_panels)
    blocks = ceil_div(p.batch, plan.images) * ceil_div(p.y.shape[2], plan.rows)
    bytes_each = 4 * p.groups * taps * channels * round_up(outputs, WIDTH)
    partials = maximum(1, minimum(blocks, _PARTIALS, _MOST_PARTIAL_BYTES // bytes_each, 32 // (p.groups * splits)))
    temporary_id = make_partials(partials)

    x_channel, g_channel = PARTS * plan.x_part, PARTS * plan.g_part
    panel_bytes = plan.steps * STEP_BYTES
    g_at = round_up(split_panels * LANES * x_channel, 64)
    steps_at = g_at + WIDTH * g_channel
    acc_at = steps_at + o_panels * panel_bytes
    sums_at = acc_at + split_panels * o_panels * taps * SUMS_BYTES
    extents_at = sums_at + 2 * SUMS_BYTES
    scratch = extents_at + 2 * NOTES
    form = form_of(p.target, p.batch * p.y.shape[2] * p.y.shape[3]).name
    forms = dict.fromkeys(("parts", form))
    shifts = [2 * (y * plan.pitch + x) for y in axis_y.places for x in axis_x.places]
    out_height, out_width = p.y.shape[2:]
    of_x: list[Word] = [
        p.x.strides[1], g.stride_y, g.source_height, g.source_width, axis_y.before, axis_x.before, plan.pitch, axis_y.reach, x_channel, plan.x_part,
    ]  # fmt: skip
    of_g: list[Word] = [p.y.strides[1], out_width, out_height, out_width, 0, 0, plan.pitch, 0, g_channel, plan.g_part]
    own: dict[str, Word] = {
        "scratch": Scratch(scratch), **{f"copy_{name}": copy_function(name) for name in forms}, **{f"turn_{name}": turn_function(name) for name in forms},
        **{f"tiles_{name}": micro(name) for name in forms}, **({"look": look_function()} if form == "halves" else {}),
        "x_group": channels * p.x.strides[1], "g_group": outputs * p.y.strides[1], "splits": splits, "split_panels": split_panels, "o_panels": o_panels,
        "image_places": plan.image_rows * plan.pitch, "pitch": plan.pitch, "image_rows": plan.image_rows, "x_channel_bytes": x_channel,
        "x_part_bytes": plan.x_part, "g_channel_bytes": g_channel, "g_part_bytes": plan.g_part, "x_at": 0, "g_at": g_at, "steps_at": steps_at,
        "sums_at": acc_at, "extents_at": extents_at, "scratch_bytes": scratch, "panel_bytes": panel_bytes, "visit_steps": _VISIT_STEPS,
    }  # fmt: skip
    places: dict[str, Sequence[Word]] = {"of_x": of_x, "of_g": of_g, "shifts": shifts}
    words, tables = exact_words(p, temporary_id, partials, plan.images, plan.rows, out_width, own, places)
    units = partials * p.groups * splits
    products = describe(
        "convolution_weight_gradient_float32", f"convolution:weight_planes:float32:{form}", partial(body, form), words, tables,
        constants=[configuration()], reads=tuple(dict.fromkeys((p.x.root, p.y.root))), writes=(temporary_id,), units=units,
        bytes=(numel(p.x) + numel(p.y)) * 4 + partials * bytes_each, operations=p.operations,
        nodes=(node,), min_units_per_thread=maximum(1, 4_000_000 * units // maximum(1, p.operations)),
    )  # fmt: skip
    return [products], partials
