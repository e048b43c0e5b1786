"""Convolutions by ordinary multiply-adds, straight from the image: for what the matrix unit's parts cannot hold.

The lanes of a vector are pixels of an output row; a few output channels use each vector read. Nothing is packed. Sums
over 128 rows of K are added up, as in convolution_direct.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.convolution_patches import bit_mask, masked_read
from flambeau.compiler.kernels.convolution_problem import load_record
from flambeau.compiler.kernels.convolution_tile_pack import SHAPE, WIDTH, lanes_inside
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.matmul_element import Element
from flambeau.compiler.tile.contract import Operands, contract

_CHANNELS = 8  # output channels that use a vector


def exact_function(element: Element, kind: str) -> Function:
    """`exact(shape, kernel, source, out, y, x, rows, columns, channels)`: a block of one image's pixels."""
    key = f"convolution:tiles:exact:{element.name}:{kind}"
    return native(key, lambda name, b: _exact(b, element, kind, name))


def _exact(b: Builder, element: Element, kind: str, name: str) -> str:
    w = load_record(b, "%shape", SHAPE)
    memory, size, type_ = element.memory, element.itemsize, f"<{WIDTH} x {element.compute}>"
    distance = b.mul(w["deal_x"], w["stride_x"])
    zeros = [(type_, element.zero(WIDTH))] * _CHANNELS
    with b.for_(0, "%channels", _CHANNELS) as o:
        last = b.sub("%channels", 1)
        kernels = [b.gep(memory, "%kernel", b.mul(b.min(b.add(o, i), last), w["kernel_row"])) for i in range(_CHANNELS)]
        with b.for_(0, "%rows") as y:
            y_first = b.add(b.mul(b.add("%y", y), w["deal_y"]), w["base_y"])
            with b.for_(0, "%columns", WIDTH) as x:
                x_first = b.add(b.mul(b.add("%x", x), w["deal_x"]), w["base_x"])
                left = b.sub("%columns", x)

                def block(c0: str, *totals: str) -> list[str]:
                    c1 = b.min(b.add(c0, w["block_channels"]), w["channels"])

                    def tap_row(ty: str, *sums: str) -> list[str]:
                        at_y = b.add(y_first, b.mul(ty, w["tap_y"]))
                        inside = b.op(f"icmp ult i64 {at_y}, {w['source_height']}")
                        wide = b.op(f"select i1 {inside}, i64 {left}, i64 0")

                        def tap(tx: str, *sums: str) -> list[str]:
                            at_x = b.add(x_first, b.mul(tx, w["tap_x"]))
                            low, high = lanes_inside(b, kind, at_x, w["deal_x"], w["source_width"])
                            read = masked_read(b, memory, WIDTH, size, kind, low, b.min(high, wide), distance)
                            line = b.add(b.mul(at_y, w["stride_y"]), b.mul(at_x, w["stride_x"]))
                            from_source = b.gep(memory, "%source", line)
                            place = b.add(b.mul(ty, w["kernel_y"]), b.mul(tx, w["kernel_x"]))

                            def channel(c: str) -> Iterator[Operands[str, str]]:
                                value = read(b.gep(memory, from_source, b.mul(c, w["stride_channel"])))
                                value = element.widen(b, WIDTH, value)
                                at = b.add(b.mul(c, w["kernel_channel"]), place)
                                weights = (element.widen(b, 1, b.load(memory, b.gep(memory, kernel, at), size)) for kernel in kernels)
                                yield [value], (b.splat(element.compute, WIDTH, weight) for weight in weights)

                            return contract(b, c1, [(type_, s) for s in sums], c0, add=partial(element.multiply_add, b, WIDTH), read=channel)

                        return b.loop(0, w["taps_x"], 1, tap, [(type_, s) for s in sums])

                    sums = b.loop(0, w["taps_y"], 1, tap_row, zeros)
                    return [element.add(b, WIDTH, total, s) for total, s in zip(totals, sums, strict=True)]

                totals = b.loop(0, w["channels"], w["block_channels"], block, zeros)
                mask = bit_mask(b, WIDTH, 0, left)
                to = b.gep(memory, "%out", b.add(b.mul(y, w["out_y"]), x))
                for i, total in enumerate(totals):
                    here = b.gep(memory, to, b.mul(b.add(o, i), w["out_row"]))
                    exists = b.op(f"icmp slt i64 {b.add(o, i)}, %channels")
                    lanes = b.op(f"select i1 {exists}, <{WIDTH} x i1> {mask}, <{WIDTH} x i1> zeroinitializer")
                    b.masked_store(memory, WIDTH, element.narrow(b, WIDTH, total), here, lanes, size)
    return b.function(
        f"define void @{name}(ptr noalias %shape, ptr noalias %kernel, ptr noalias %source, ptr noalias %out, i64 %y, "
        "i64 %x, i64 %rows, i64 %columns, i64 %channels) noinline #0"
    )
