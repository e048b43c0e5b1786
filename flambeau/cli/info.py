"""`flambeau info`: versions, the processor as the compiler sees it, threads, memory, the cache."""

from __future__ import annotations

import platform


def info() -> int:
    """Print one fact a line."""
    import llvmlite
    import numpy
    from llvmlite import binding

    import flambeau
    from flambeau.compiler import graph
    from flambeau.ops.registry import OPERATIONS
    from flambeau.runtime import object_cache, resources, target, threads
    from flambeau.trace import liveness

    facts = {
        "flambeau": flambeau.__version__,
        "Python": platform.python_version(),
        "interpreter": liveness.describe(),
        "NumPy": numpy.__version__,
        "llvmlite": f"{llvmlite.__version__} (LLVM {'.'.join(map(str, binding.llvm_version_info))})",
        "processor": f"{binding.get_host_cpu_name()}, {target.vector_bits()}-bit vectors",
        "caches": ", ".join(f"L{level} {target.cache_bytes(level) >> 10} KiB" for level in (1, 2, 3)),
        "threads": threads.get_num_threads(),
        "memory": f"{resources.physical_memory() >> 20} MiB",
        "primitives": len(graph.PRIMITIVES),
        "operations": len(OPERATIONS),
        "object cache": object_cache.directory(),
    }
    for name, value in facts.items():
        print(f"{name:<13} {value}")
    return 0
