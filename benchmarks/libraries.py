"""Native libraries of `flambeau build` against the recorded engine: `python benchmarks/libraries.py [--rounds 40]`.

The digits' network (flambeau demo's) and a small GPT are exported, built for this machine, and run in turns, one thread each: the library, the plan
that flambeau's engine makes of the same graph at these sizes, and the whole call of the program in Python. Printed are the least times of a run, the
ratio of the library's to the plan's (below 1 the library is faster), the sizes of the files, and how long a start takes: loading, mapping the weights,
an instance and its first run.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import flambeau as torch
from flambeau.compiler.pipeline import compile_graph
from flambeau.deploy import build
from flambeau.deploy.record import record
from flambeau.io.storage_bytes import storage_of
from flambeau.trace.class_plans import graph_at
from flambeau.trace.evaluate import synchronize
from tests.deploy import models


def loaded(folder: Path, name: str) -> Any:
    """The Python module of a library."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds(run: Any, count: int) -> float:
    """Of one of so many runs."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def compare(name: str, program: Any, arrays: list[Any], rounds: int) -> None:
    """Build, then time each of the inputs."""
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        files = {p.name: p.stat().st_size for p in build(program, "host", folder, name=name)}
        print(f"{name}: lib{name}.so {files[f'lib{name}.so']:,} bytes, weights {files[f'{name}.weights']:,} bytes")
        module = loaded(folder, name)
        starts = []
        for _ in range(10):
            begin = time.perf_counter()
            module.load()(arrays[0])
            starts.append(time.perf_counter() - begin)
        print(f"  start, with a first run of {arrays[0].shape}: first {1e3 * starts[0]:.2f} ms, least {1e3 * min(starts):.2f} ms")
        model, recorded = module.load(), program.module(check_guards=False)
        for x in arrays:
            given, want = torch.from_numpy(x).clone(), model(x)
            out = np.empty_like(want)
            at = [(ctypes.c_void_p * 1)(a.ctypes.data) for a in (x, out)]
            size = (ctypes.c_int64 * 1)(x.shape[0] if name == "digits" else x.shape[1])
            call, instance = getattr(model._library, f"{name}_run"), model._instance

            def native(call: Any = call, instance: Any = instance, size: Any = size, at: Any = at) -> None:
                call(instance, size, *at)

            def whole(given: Any = given) -> Any:
                with torch.no_grad():
                    y = recorded(given)
                synchronize()
                return y

            plan, buffers = planned(program, x)
            for _ in range(20):
                native(), plan(buffers, ()), whole()
            assert out.tobytes() == want.tobytes()
            count = max(1, int(2e-3 / seconds(native, 3)))
            times = [(seconds(native, count), seconds(lambda plan=plan, buffers=buffers: plan(buffers, ()), count), seconds(whole, 1)) for _ in range(rounds)]
            a, b, c = (1e6 * min(t) for t in zip(*times, strict=True))
            print(f"  {x.shape!s:>16}: library {a:9.1f} us, plan {b:9.1f} us, ratio {a / b:.3f}; the call in Python {c:9.1f} us")


def planned(program: Any, x: Any) -> tuple[Any, list[Any]]:
    """The `run` of the engine's plan at these sizes, and its inputs."""
    sizes = (x.shape[0] if x.ndim == 4 else x.shape[1],)
    recorded = record(program, sizes)
    graph = graph_at(recorded.graph, sizes)
    tensors = dict(recorded.held)
    given = [torch.from_numpy(x).clone() if i not in tensors else program.tensor(tensors[i]).detach() for i in range(len(graph.inputs))]
    return compile_graph(graph).run, [storage_of(t).buffer for t in given]


def main() -> None:
    """Both models."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    compare("digits", models.digits(), [generator.normal(size=(n, 1, 8, 8)).astype("float32") for n in (1, 2, 7, 64, 255)], rounds)
    compare("gpt", models.gpt(), [generator.integers(0, 30, (1, n)) for n in (1, 7, 16, 40)], rounds)


if __name__ == "__main__":
    main()
