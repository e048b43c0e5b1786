"""Runs Kernel objects on NumPy arrays, without the planner: every kernel test that wants to see one node alone uses it."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, ErrorRecord, Kernel, Scratch

try:
    from flambeau.runtime import jit
except ImportError:  # the runtime is not there yet: a throw-away JIT
    jit = types.ModuleType("flambeau.runtime.jit")
    jit.symbol = lambda key: "k" + "".join(c if c.isalnum() else "_" for c in key)  # type: ignore[attr-defined]
    _engines: dict[str, Any] = {}

    def _function(key: str, emit: Any) -> int:
        import llvmlite.binding as llvm

        if key not in _engines:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            m = llvm.parse_assembly(emit())
            m.verify()
            machine = llvm.Target.from_default_triple().create_target_machine(
                cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
            )
            builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
            builder.getModulePassManager().run(m, builder)
            engine = llvm.create_mcjit_compiler(m, machine)
            engine.finalize_object()
            _engines[key] = (engine, engine.get_function_address(jit.symbol(key)))
        return int(_engines[key][1])

    jit.function = _function  # type: ignore[attr-defined]
    sys.modules["flambeau.runtime.jit"] = jit

SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def aligned(nbytes: int, fill: int = 0xFF) -> np.ndarray:
    """Bytes at a multiple of 64, filled with a pattern (of NaN) that no test should ever see again."""
    raw = np.full(nbytes + 64, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class Program:
    """Kernels bound to buffers. `buffers` maps root value ids to arrays; the others that the kernels name are made."""

    def __init__(self, graph: Graph, kernels: Sequence[Kernel], buffers: dict[int, np.ndarray], threads: int = 1) -> None:
        self.buffers = dict(buffers)
        self.threads = threads
        self.keep: list[Any] = []
        self.calls: list[tuple[Any, int, Kernel]] = []
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        error = aligned(24, 0)
        for kernel in kernels:
            for root in (*kernel.reads, *kernel.writes):
                if root not in self.buffers:
                    value = graph.values[root]
                    self.buffers[root] = aligned(max(64, value.numel * value.dtype.itemsize))
            words = np.zeros(len(kernel.words) + 1, np.int64)
            for at, word in enumerate(kernel.words):
                if isinstance(word, Address):
                    words[at] = self.buffers[word.value].ctypes.data + word.offset
                elif isinstance(word, Scratch):
                    assert word.per_worker % 64 == 0
                    scratch = aligned(word.per_worker * threads + word.shared + 64)
                    self.keep.append(scratch)
                    words[at] = scratch.ctypes.data
                elif isinstance(word, ErrorRecord):
                    words[at] = error.ctypes.data
                else:
                    words[at] = word
            self.keep += [words, error]
            self.calls.append((SIGNATURE(jit.function(kernel.key, kernel.emit)), words.ctypes.data, kernel))

    def run(self) -> None:
        for function, words, kernel in self.calls:
            for root in kernel.zero_first:
                self.buffers[root][:] = 0
            if self.pool is None or kernel.units < 2:
                assert function(words, 0, kernel.units, 0) == 0
                continue
            cut = [kernel.units * t // self.threads for t in range(self.threads + 1)]
            jobs = [self.pool.submit(function, words, cut[t], cut[t + 1], t) for t in range(1, self.threads)]
            assert function(words, cut[0], cut[1], 0) == 0
            assert all(job.result() == 0 for job in jobs)
