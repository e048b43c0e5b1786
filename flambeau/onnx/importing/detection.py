"""Detection: boxes that do not overlap, pooling of regions."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator


@operator("NonMaxSuppression", raw=True)
def non_max_suppression(n: Call, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> Any:
    """[batch, class, box] of the best boxes that overlap with no better one by more than a share."""
    b, s = values.to_array(boxes), values.to_array(scores)
    limit = int(values.number(most)) if most is not None else 0
    share = float(values.number(overlap)) if overlap is not None else 0.0
    floor = float(values.number(least)) if least is not None else None
    if n.get("center_point_box", 0):
        half = b[..., 2:] / 2
        low, high = b[..., :2] - half, b[..., :2] + half
    else:
        low, high = np.minimum(b[..., :2], b[..., 2:]), np.maximum(b[..., :2], b[..., 2:])
    area = (high - low).prod(-1)
    found = []
    for batch in range(s.shape[0]):
        for label in range(s.shape[1]):
            value = s[batch, label]
            order = np.argsort(-value, kind="stable")
            if floor is not None:
                order = order[value[order] > floor]
            kept: list[int] = []
            while order.size and len(kept) < limit:
                best = int(order[0])
                kept.append(best)
                rest = order[1:]
                inner = np.clip(np.minimum(high[batch, rest], high[batch, best]) - np.maximum(low[batch, rest], low[batch, best]), 0, None).prod(-1)
                union = area[batch, rest] + area[batch, best] - inner
                order = rest[inner <= share * union]
            found += [[batch, label, k] for k in kept]
    return values.own(np.array(found, np.int64).reshape(-1, 3))


@operator("RoiAlign")
def roi_align(n: Call, x: Any, rois: Any, batches: Any) -> Any:
    """Regions as images of one size, by bilinear samples that are averaged or compared."""
    rows, columns, ratio = n.get("output_height", 1), n.get("output_width", 1), n.get("sampling_ratio", 0)
    mode, half = n.get("mode", "avg"), n.get("coordinate_transformation_mode", "half_pixel" if n.version >= 16 else "output_half_pixel") == "half_pixel"
    regions = values.to_array(rois) * n.get("spatial_scale", 1.0) - (0.5 if half else 0.0)
    height, width = x.shape[2:]
    made = []
    for region, batch in zip(regions, values.ints(batches), strict=True):
        left, top, right, bottom = region.tolist()
        w, h = right - left, bottom - top
        if not half:
            w, h = max(w, 1.0), max(h, 1.0)
        bin_h, bin_w = h / rows, w / columns
        many_h = ratio if ratio > 0 else int(np.ceil(h / rows))
        many_w = ratio if ratio > 0 else int(np.ceil(w / columns))
        ys = top + (np.arange(rows)[:, None] + (np.arange(many_h) + 0.5) / many_h) * bin_h  # [rows, samples]
        xs = left + (np.arange(columns)[:, None] + (np.arange(many_w) + 0.5) / many_w) * bin_w
        values_of = _bilinear(x[batch], ys.reshape(-1), xs.reshape(-1), height, width, mode == "max")
        parts = values_of.reshape(values_of.shape[0], rows, many_h, columns, many_w)
        made.append(parts.mean((2, 4)) if mode == "avg" else parts.amax((2, 4)))
    return flambeau.stack(made) if made else flambeau.zeros(0, x.shape[1], rows, columns, dtype=x.dtype)


def _bilinear(image: Any, ys: Any, xs: Any, height: int, width: int, largest: bool) -> Any:
    """An image at rows and columns that lie between its pixels; 0 outside. With `largest`, the largest of the four weighed pixels."""

    def near(at: Any, count: int) -> Any:
        inside = (at >= -1.0) & (at <= count)
        at = np.clip(at, 0, None)
        first = np.minimum(np.floor(at).astype(np.int64), count - 1)
        last = np.minimum(first + 1, count - 1)
        share = np.where(first >= count - 1, 0.0, at - first)
        return first, last, share.astype(np.float32), inside.astype(np.float32)

    top, bottom, down, in_rows = near(ys, height)
    left, right, across, in_columns = near(xs, width)
    parts = []
    for rows, row_share in ((top, 1 - down), (bottom, down)):
        for columns, column_share in ((left, 1 - across), (right, across)):
            taken = image.index_select(1, values.own(rows)).index_select(2, values.own(columns))
            parts.append(taken * values.own((row_share * in_rows)[:, None] * (column_share * in_columns)[None]).to(image.dtype))
    if largest:
        return flambeau.maximum(flambeau.maximum(parts[0], parts[1]), flambeau.maximum(parts[2], parts[3]))
    return parts[0] + parts[1] + parts[2] + parts[3]


@operator("MaxRoiPool")
def max_roi_pool(n: Call, x: Any, rois: Any) -> Any:
    """The largest element of each bin of regions."""
    rows, columns = n.get("pooled_shape")
    height, width = x.shape[2:]
    made = []
    for batch, *corners in values.to_array(rois).tolist():
        left, top, right, bottom = [round(c * n.get("spatial_scale", 1.0)) for c in corners]
        h, w = max(bottom - top + 1, 1), max(right - left + 1, 1)
        grid = []
        for i in range(rows):
            for j in range(columns):
                y0, y1 = [min(max(v, 0), height) for v in (top + i * h // rows, top + -(-(i + 1) * h // rows))]
                x0, x1 = [min(max(v, 0), width) for v in (left + j * w // columns, left + -(-(j + 1) * w // columns))]
                part = x[int(batch), :, y0:y1, x0:x1]
                grid.append(part.amax((1, 2)) if y1 > y0 and x1 > x0 else flambeau.zeros(x.shape[1], dtype=x.dtype))
        made.append(flambeau.stack(grid, 1).reshape(x.shape[1], rows, columns))
    return flambeau.stack(made)
