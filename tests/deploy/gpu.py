"""Runs plans for WebGPU by the package wgpu, on whatever adapter there is (a software one does): what the ES module does, in Python."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from flambeau.deploy.interface import symbols_of
from flambeau.deploy.variants import Sizes
from flambeau.deploy.webgpu import plans
from flambeau.deploy.webgpu.module import most_words, shader_text
from flambeau.deploy.webgpu.planning import Block, Variant
from flambeau.deploy.webgpu.shader import Place
from flambeau.export.program import ExportedProgram
from flambeau.symbols import Sym, at_sizes


@cache
def device() -> Any:
    """A device, or None with nothing to run shaders on."""
    if importlib.util.find_spec("wgpu") is None:
        return None
    import wgpu

    try:
        adapter = wgpu.gpu.request_adapter_sync()
        if adapter is None or adapter.info["backend_type"] == "OpenGL":  # no browser computes by it: Mesa's loses NaNs and has scans wrong
            return None
        return adapter.request_device_sync()
    except (RuntimeError, OSError):
        return None


def lay_out(blocks: Sequence[Block], number: Any) -> tuple[dict[int, int], int]:
    """Each block in a place of its own."""
    places, total = {}, 64
    for block in blocks:
        places[block.root] = total
        total += -(-max(number(block.words), 1) // 64) * 64
    return places, total


class Model:
    """A program on the device."""

    def __init__(self, program: ExportedProgram) -> None:
        import wgpu

        self.wgpu, self.device = wgpu, device()
        self.symbols = symbols_of(program)
        self.variants, block = plans(program, self.symbols, lambda text: None)
        self.words = most_words(self.variants)
        self.pipelines: dict[str, Any] = {}
        storage, stage = wgpu.BufferUsage.STORAGE, wgpu.ShaderStage.COMPUTE
        kinds = ["uniform", "read-only-storage", "storage", "storage"]
        entries = [{"binding": i, "visibility": stage, "buffer": {"type": k, "has_dynamic_offset": i == 0}} for i, k in enumerate(kinds)]
        self.layout = self.device.create_bind_group_layout(entries=entries)
        self.pipeline_layout = self.device.create_pipeline_layout(bind_group_layouts=[self.layout])
        self.weights = self.device.create_buffer_with_data(data=block.content, usage=storage)

    def pipeline(self, text: str) -> Any:
        if text not in self.pipelines:
            module = self.device.create_shader_module(code=shader_text(text, self.words))
            self.pipelines[text] = self.device.create_compute_pipeline(layout=self.pipeline_layout, compute={"module": module, "entry_point": "main"})
        return self.pipelines[text]

    def sizes(self, inputs: Sequence[Any]) -> Sizes:
        """The dynamic sizes of inputs."""
        found = [0] * len(self.symbols)
        for x, meta in zip(inputs, self.variants[0].recorded.input_metas, strict=True):
            for n, size in zip(x.shape, meta.shape, strict=True):
                if isinstance(size, Sym) and size.expr.op == "size":
                    found[size.expr.a] = n
        return tuple(found)

    def __call__(self, *inputs: Any) -> list[Any]:
        """The results of inputs as arrays. IndexError if a shader refuses an index."""
        sizes = self.sizes(inputs)
        variant = next(v for v in self.variants if v.covers(sizes))
        number = at_sizes(sizes)
        places, total = lay_out(variant.blocks, number)
        usage = self.wgpu.BufferUsage
        arena = np.full(total, 0x7FC00000, np.uint32)  # what nobody has written is NaN
        for at, x in zip(variant.recorded.inputs, inputs, strict=True):
            words = x.astype(np.float32 if x.dtype == np.float32 else np.int32).reshape(-1).view(np.uint32)
            arena[places[variant.graph.inputs[at]] :][: words.size] = words
        buffer = self.device.create_buffer_with_data(data=arena, usage=usage.STORAGE | usage.COPY_SRC)
        errors = self.device.create_buffer_with_data(data=np.zeros(4, np.int32), usage=usage.STORAGE | usage.COPY_SRC)
        stride = -(-4 * self.words // 256) * 256
        table = np.zeros((max(1, len(variant.kernels)), stride // 4), np.int32)
        for i, kernel in enumerate(variant.kernels):
            table[i, : len(kernel.words)] = [places[w.root] if isinstance(w, Place) else number(w) for w in kernel.words]
        words = self.device.create_buffer_with_data(data=table, usage=usage.UNIFORM)
        entries: list[dict[str, Any]] = [{"binding": 0, "resource": {"buffer": words, "offset": 0, "size": 4 * self.words}}]
        entries += [{"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}} for i, b in ((1, self.weights), (2, buffer), (3, errors))]
        group = self.device.create_bind_group(layout=self.layout, entries=entries)
        encoder = self.device.create_command_encoder()
        steps = encoder.begin_compute_pass()
        for i, kernel in enumerate(variant.kernels):
            steps.set_pipeline(self.pipeline(kernel.text))
            steps.set_bind_group(0, group, [i * stride])
            groups = number(kernel.groups)
            rows = -(-groups // 65535)
            if groups:
                steps.dispatch_workgroups(-(-groups // rows), rows)
        steps.end()
        self.device.queue.submit([encoder.finish()])
        wrong, index, bound, _ = np.frombuffer(self.device.queue.read_buffer(errors), np.int32)
        if wrong:
            raise IndexError(f"index {index} is out of bounds for dimension with size {bound}")
        found = np.frombuffer(self.device.queue.read_buffer(buffer), np.uint32)
        return [self._array(variant, root, found, places[root], number) for root in variant.graph.outputs]

    def _array(self, variant: Variant, root: int, words: Any, place: int, number: Any) -> Any:
        v = variant.graph.values[root]
        shape = tuple(number(v.shape))
        held = words[place:][: int(np.prod(shape))]
        kind = np.float32 if v.dtype.name == "float32" else np.int32
        return held.view(kind).reshape(shape).astype(v.dtype.name if v.dtype.name != "bool" else bool)
