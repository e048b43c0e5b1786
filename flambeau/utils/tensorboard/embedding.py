"""Files of TensorBoard's projector: points, their labels, their images as one picture, and a list of all in projector_config.pbtxt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from flambeau.utils.tensorboard.arrays import as_array


def write(folder: Path, points: Any, metadata: Any, images: Any, step: int, tag: str, header: Any) -> None:
    """Add points (one a row) to the projector under `tag` at `step`. AssertionError where labels or images are not as many."""
    if points.ndim != 2:
        raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
    name = f"{step:05d}/{tag.replace('/', '%2f')}"
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    lines = [f'tensor_name: "{tag}:{step:05d}"', f'tensor_path: "{name}/tensors.tsv"']
    if metadata is not None:
        if len(metadata) != len(points):
            raise AssertionError("#labels should equal with #data points")
        rows = ["\t".join(map(str, row)) for row in [header, *metadata]] if header else [str(row) for row in metadata]
        (place / "metadata.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        lines.append(f'metadata_path: "{name}/metadata.tsv"')
    if images is not None:
        pictures = as_array(images)
        if len(pictures) != len(points):
            raise AssertionError("#images should equal with #data points")
        _save(pictures, place / "sprite.png")
        height, width = pictures.shape[2:]
        lines.append(f'sprite {{\n    image_path: "{name}/sprite.png"\n    single_image_dim: {width}\n    single_image_dim: {height}\n  }}')
    (place / "tensors.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in points.tolist()), encoding="utf-8")
    entry = "embeddings {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
    listed = folder / "projector_config.pbtxt"
    before = listed.read_text(encoding="utf-8") if listed.exists() else ""
    if json.dumps(f"{tag}:{step:05d}") not in before:
        listed.write_text(before + entry, encoding="utf-8")


def _save(pictures: Any, file: Path) -> None:
    """Images (N, C, H, W) as one picture of n times n, n squared at least N."""
    from PIL import Image

    side = int(np.ceil(np.sqrt(len(pictures))))
    count, channels, height, width = pictures.shape
    filled = np.concatenate([pictures, np.zeros((side * side - count, channels, height, width), pictures.dtype)])
    grid = filled.reshape(side, side, channels, height, width).transpose(0, 3, 1, 4, 2).reshape(side * height, side * width, channels)
    scale = 1 if pictures.dtype == np.uint8 else 255
    pixels = (grid.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels if channels != 1 else pixels[:, :, 0]).save(file)
