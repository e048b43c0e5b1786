"""Matrix products: many small ones, whose columns fit some vectors.

The kernel is written in the tile language (flambeau/tile/kernels/products.py): one multiply-add a term in the order of k, as in the micro-kernel
(matmul_micro.py). There are no blocks and nothing is packed: what such products cost in the blocked kernel are its loops (measured, one thread, Granite
Rapids, ns an item: 4 x 4 x 4 41, 8 x 8 x 8 58, 16 x 16 x 16 117, of which multiply-adds 3, 12, 47).
"""

from __future__ import annotations

from flambeau.compiler.kernels.matmul_blocking import longest_k_block
from flambeau.compiler.kernels.matmul_element import Element, Facts
from flambeau.runtime.target import Target
from flambeau.symbols import roughly_over

LEAST_ITEMS = 16  # batch items: fewer are spread over threads by the blocked product
MOST_ROWS = 64
MOST_VECTORS = 4
ITEM_OPERATIONS = 2048  # what an item costs besides its operations, in operations: about 10 ns
_MOST_HEIGHT = {1: 8, 2: 8, 3: 8, 4: 6}  # rows at once, by vectors: accumulators, a row of b and a broadcast in 32 registers
_MOST_HEIGHT_OF_16 = {1: 8, 2: 4, 3: 3, 4: 2}  # in 16 registers


def is_small(element: Element, facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> bool:
    """Whether products of these sizes are done here. K is one block of the blocked product: the bits are the same."""
    return (
        element.parts == 1 and not element.converts and facts.b_unit == "lane" and facts.c_unit == "column" and roughly_over(batches, LEAST_ITEMS - 1)
        and 0 < k <= longest_k_block(element, host) and not roughly_over(m, MOST_ROWS) and n <= MOST_VECTORS * facts.tile.width
        and batches < 1 << 31
    )  # fmt: skip


def height_of(m: int, vectors: int, registers: int) -> int:
    """Rows at once: of the heights that the registers hold, the one with the fewest rows in all; of these the largest."""
    most = (_MOST_HEIGHT if registers >= 32 else _MOST_HEIGHT_OF_16)[vectors]
    return min(range(1, min(m, most) + 1), key=lambda height: (-(-m // height) * (height + 1), -height))
