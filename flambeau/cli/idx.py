"""Reads the IDX files of MNIST and Fashion-MNIST, plain or gzipped (format: http://yann.lecun.com/exdb/mnist/)."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import Any

_FILES = {
    ("train", "images"): "train-images-idx3-ubyte",
    ("train", "labels"): "train-labels-idx1-ubyte",
    ("test", "images"): "t10k-images-idx3-ubyte",
    ("test", "labels"): "t10k-labels-idx1-ubyte",
}


def find(folder: Path, part: str, kind: str) -> Path:
    """The file of one part ("train", "test") and kind ("images", "labels"), also in a subfolder; FileNotFoundError if missing."""
    name = _FILES[part, kind]
    wanted = {variant + suffix for variant in (name, name.replace("-idx", ".idx")) for suffix in ("", ".gz")}
    found = sorted(p for p in folder.rglob("*") if p.name in wanted and p.is_file())
    if not found:
        raise FileNotFoundError(f"no {name} (or {name}.gz) under {folder}: it must hold the four IDX files of MNIST or Fashion-MNIST")
    return found[0]


def read(path: Path) -> Any:
    """The array of an IDX file of bytes, as a uint8 tensor. ValueError if the file is not one, or is cut short."""
    import flambeau as torch

    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an IDX file of bytes: it starts with {data[:4]!r}")
    ndim = data[3]
    shape = struct.unpack(f">{ndim}I", data[4 : 4 + 4 * ndim])
    content = data[4 + 4 * ndim :]
    if len(content) < math.prod(shape):
        raise ValueError(f"{path} is cut short: shape {shape} needs {math.prod(shape)} bytes, there are {len(content)}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, count=math.prod(shape)).reshape(shape).clone()
