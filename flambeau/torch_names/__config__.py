"""torch.__config__: what this build is made of, as text."""

from __future__ import annotations

import os


def show() -> str:
    """The parts below flambeau with their versions, a line each."""
    import llvmlite
    import numpy
    from llvmlite import binding

    import flambeau
    from flambeau.as_torch import PYTORCH

    own = flambeau.__version__.rpartition("flambeau")[2]
    return "\n".join([
        f"flambeau {own}, with the API of PyTorch {PYTORCH}, built with:", f"  - llvmlite {llvmlite.__version__}",
        f"  - LLVM {'.'.join(map(str, binding.llvm_version_info))}", f"  - NumPy {numpy.__version__}", f"  - processor {binding.get_host_cpu_name()}",
        "  - Build settings: USE_CUDA=0, USE_MKL=0, USE_MKLDNN=0, USE_OPENMP=0", "",
    ])  # fmt: skip


def parallel_info() -> str:
    """Numbers of threads, and the environment variables that set them."""
    from flambeau.runtime import threads

    shown = [f"\t{name} : {os.environ.get(name, '[not set]')}" for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS")]
    return "\n".join([
        "ATen/Parallel:", f"\tat::get_num_threads() : {threads.get_num_threads()}", "Environment variables:", *shown,
        "ATen parallel backend: flambeau's threads", "",
    ])  # fmt: skip
