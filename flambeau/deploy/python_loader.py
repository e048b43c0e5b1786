"""The Python module of a library: ctypes and NumPy, without flambeau."""

from __future__ import annotations

from flambeau.deploy.interface import TYPES, Argument, Interface


def module(x: Interface, library: str) -> str:
    """The text of NAME.py."""

    def rows(arguments: tuple[Argument, ...]) -> str:
        return "[" + ", ".join([f"({a.name!r}, {TYPES[a.dtype.name][2]!r}, {list(a.sizes)!r})" for a in arguments]) + "]"

    return f'''"""{x.name}: a model as a library, made by `flambeau build` for {x.target}. Needs NumPy.

    import {x.name}
    model = {x.name}.load()
    result = model({", ".join([a.name for a in x.inputs])})
"""

import ctypes
import mmap
import threading
from pathlib import Path

import numpy as np

_HERE = Path(__file__).parent
_SIZES = {len(x.symbols)}
_INPUTS = {rows(x.inputs)}  # name, dtype, and the number of the dynamic size that a dim is
_OUTPUTS = {rows(x.outputs)}
_MOST_DIMS = {max([len(a.shape) for a in (*x.inputs, *x.outputs)])}
_INSIDE = {x.inside}  # whether the weights are part of the library


def _library(path):
    library = ctypes.CDLL(str(path))
    pointer, numbers = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)
    for name, result, arguments in (
        ("create", ctypes.c_int32, (pointer, ctypes.c_int64, ctypes.POINTER(pointer))), ("destroy", None, (pointer,)),
        ("reserve", ctypes.c_int32, (pointer, numbers)), ("run", ctypes.c_int32, (pointer, numbers, ctypes.POINTER(pointer), ctypes.POINTER(pointer))),
        ("error", ctypes.c_char_p, (pointer,)), ("status_text", ctypes.c_char_p, (ctypes.c_int32,)),
        ("input_shape", ctypes.c_int32, (ctypes.c_int32, numbers, numbers)), ("output_shape", ctypes.c_int32, (ctypes.c_int32, numbers, numbers)),
    ):
        function = getattr(library, "{x.name}_" + name)
        function.restype, function.argtypes = result, arguments
    return library


class Model:
    """An instance of the model. Calls from several threads wait for each other; make one for each thread to run at once."""

    def __init__(self, library=None, weights=None):
        self._library = _library(_HERE / {library!r} if library is None else library)
        self._weights, size = None, 0
        if weights is not None or not _INSIDE:
            with open(_HERE / "{x.name}.weights" if weights is None else weights, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._weights = np.frombuffer(self._map, np.uint8)
            size = self._weights.size
        instance = ctypes.c_void_p()
        self._instance = None
        self._lock = threading.Lock()
        status = self._library.{x.name}_create(None if self._weights is None else self._weights.ctypes.data, size, ctypes.byref(instance))
        if status:
            raise RuntimeError("{x.name}: " + self._library.{x.name}_status_text(status).decode())
        self._instance = instance

    def __del__(self):
        if getattr(self, "_instance", None):
            self._library.{x.name}_destroy(self._instance)

    def _shape(self, of, number, sizes):
        shape = (ctypes.c_int64 * (_MOST_DIMS + 1))()
        return tuple(shape[: of(number, sizes, shape)])

    def __call__(self, *inputs):
        """The result of NumPy arrays (a tuple of several). ValueError for arrays of another dtype or shape, IndexError for an index out of range."""
        if len(inputs) != len(_INPUTS):
            raise TypeError(f"{x.name}: it takes {{len(_INPUTS)}} arrays ({{', '.join([n for n, _, _ in _INPUTS])}}), got {{len(inputs)}}")
        sizes, arrays = (ctypes.c_int64 * max(_SIZES, 1))(), []
        for (name, dtype, dims), given in zip(_INPUTS, inputs):
            array = np.asarray(given)
            if array.dtype != dtype or array.ndim != len(dims):
                raise ValueError(f"{x.name}: {{name}} must be {{dtype}} with {{len(dims)}} dims; it is {{array.dtype}} with {{array.ndim}}")
            for size, number in zip(array.shape, dims):
                if number is not None:
                    sizes[number] = sizes[number] or size
            arrays.append(np.ascontiguousarray(array))
        with self._lock:
            status = self._library.{x.name}_reserve(self._instance, sizes)
            if status:
                raise (MemoryError if status == 3 else ValueError)(self._library.{x.name}_error(self._instance).decode())
            for i, array in enumerate(arrays):
                shape = self._shape(self._library.{x.name}_input_shape, i, sizes)
                if array.shape != shape:
                    raise ValueError(f"{x.name}: {{_INPUTS[i][0]}} must have shape {{shape}}; it has {{array.shape}}")
            made = [np.empty(self._shape(self._library.{x.name}_output_shape, i, sizes), d) for i, (_, d, _) in enumerate(_OUTPUTS)]
            pointers = [(ctypes.c_void_p * max(len(x), 1))(*[a.ctypes.data for a in x]) for x in (arrays, made)]
            status = self._library.{x.name}_run(self._instance, sizes, *pointers)
            if status:
                raise (IndexError if status == 2 else RuntimeError)(self._library.{x.name}_error(self._instance).decode())
        return made[0] if len(made) == 1 else tuple(made)


def load(library=None, weights=None):
    """The model, from the library and the weights beside this file, or at these paths."""
    return Model(library, weights)
'''
