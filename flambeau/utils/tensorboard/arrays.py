"""Values as NumPy arrays, and images in any order of dims as height, width and channels."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor, an array, a number or a sequence of them as an array; bfloat16 as float32. NotImplementedError for anything else."""
    from flambeau.tensor import Tensor

    if isinstance(value, Tensor):
        array = value.detach().cpu()
        return (array.float() if str(array.dtype) == "torch.bfloat16" else array).resolve_conj().resolve_neg().numpy()
    if isinstance(value, np.ndarray):
        return value
    if np.isscalar(value) and not isinstance(value, str):
        return np.array([value])
    if isinstance(value, (list, tuple)):
        return np.array([as_array(v) if isinstance(v, Tensor) else v for v in value])
    raise NotImplementedError(f"Got {type(value)}, but numpy array or torch tensor are expected.")


def as_grid(array: np.ndarray[Any, Any], formats: str) -> np.ndarray[Any, Any]:
    """Images with dims in the order of `formats` (of N, C, H, W) as one of height, width and three channels: several as a grid, grey as colours."""
    if len(set(formats)) != len(formats):
        raise AssertionError(f"You can not use the same dimension shordhand twice.         input_format: {formats}")
    if len(formats) != array.ndim:
        raise AssertionError(f"size of input tensor and input format are different.         tensor shape: {array.shape}, input_format: {formats}")
    order = formats.upper()
    if "C" not in order:
        array, order = array[..., None], order + "C"
    if "N" in order:
        images = array.transpose([order.index(d) for d in "NHWC"])
        columns = int(np.ceil(np.sqrt(len(images))))
        rows = -(-len(images) // columns)
        images = np.concatenate([images, np.zeros((rows * columns - len(images), *images.shape[1:]), images.dtype)])
        n, height, width, channels = images.shape
        pixels = images.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, channels)
    else:
        pixels = array.transpose([order.index(d) for d in "HWC"])
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def as_images(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Films of shape (N, T, C, H, W) as one of shape (T, H, W, C): N filled up to a power of two, in rows."""
    count = 1 << (len(array) - 1).bit_length()
    array = np.concatenate([array, np.zeros((count - len(array), *array.shape[1:]), array.dtype)])
    rows = 1 << ((count.bit_length() - 1) // 2)
    columns = count // rows
    _, frames, channels, height, width = array.shape
    grid = array.reshape(rows, columns, frames, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    return grid.reshape(frames, rows * height, columns * width, channels)
