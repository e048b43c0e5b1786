"""Matrix products that are written in the tile language."""

# mypy: ignore-errors
# The bodies are of the tile language: what a name is, the compiler's front end knows.

from __future__ import annotations

import flambeau.tile as tl


@tl.jit
def small(a, b, c, m, n, k, a_row, a_column, b_row, c_row, batch, HEIGHT: tl.constexpr, VECTORS: tl.constexpr, LANES: tl.constexpr):
    """c[i] (m x n) = a[i] (m x k) @ b[i] (k x n), a program for each batch item i. `batch`: (size, step of a, of b, of c) of each batch dim.

    HEIGHT rows of c stay in registers while they run through k, each in VECTORS vectors, of which the last is masked. Where HEIGHT does not divide m, the
    last rows start earlier and some are computed twice."""
    item = tl.program_id(0).to(tl.int64)
    for d in tl.static_range(len(batch) - 1, -1, -1):
        size, a_step, b_step, c_step = batch[d]
        index = item % size if d else item
        item = item // size
        a, b, c = a + index * a_step, b + index * b_step, c + index * c_step
    lanes = tl.arange(0, LANES)
    masks = [None] * (VECTORS - 1) + [lanes < n - (VECTORS - 1) * LANES]
    columns = [v * LANES + lanes for v in tl.static_range(VECTORS)]
    for start in range(0, m, HEIGHT):
        first = tl.minimum(start, m - HEIGHT)
        from_, to = a + first * a_row, c + first * c_row
        sums = [[tl.zeros((LANES,), c.dtype.element_ty) for _ in tl.static_range(VECTORS)] for _ in tl.static_range(HEIGHT)]
        for j in range(k):
            left = [tl.load(from_ + j * a_column + i * a_row) for i in tl.static_range(HEIGHT)]
            right = [tl.load(b + j * b_row + column, mask) for column, mask in zip(columns, masks, strict=True)]
            sums = [[tl.fma(one, other, total) for other, total in zip(right, row, strict=True)] for one, row in zip(left, sums, strict=True)]
        for i in tl.static_range(HEIGHT):
            for v in tl.static_range(VECTORS):
                tl.store(to + i * c_row + columns[v], sums[i][v], masks[v])
