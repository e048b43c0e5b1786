"""What stays different, and why: whole examples, or the statements that contain a text."""

from __future__ import annotations

import re

DISPATCHER = "there is no dispatcher below the functions (docs/differences.md)"
QUANTIZED = "quantized tensors are not there"
NESTED = "nested tensors are not there"
BLOCKS = "sparse layouts of blocks, and compressed ones with dense dims, are not there (docs/differences.md)"
DEVICE = "other devices are not there"
UNINITIALISED = "shows uninitialised memory"
BUILT_IN = "shows the repr of a built-in function"
TABLE = "shows times, and kernels instead of operators (docs/differences.md)"
ROUNDING = "asks whether a rounding error is below a limit that it is near"
COMPOSITION = "a composition: the name is that of its last call"

# (pattern of the whole name, part of the statement or "" for the whole example, reason)
KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"torch\.hub\..*", "", "downloads"),
    (r"torch\.(quantize_per_\w+|quantized_\w+|dequantize)", "", QUANTIZED),
    (r"torch\.nested\..*", "", NESTED),
    (r"torch\.Tensor\.to_sparse_bs[rc]|torch\.sparse_bs[rc]_tensor", "", BLOCKS),
    (r"torch\.Tensor\.to_sparse(_cs[rc])?", "dense_dim", BLOCKS),
    (r"torch\.Tensor\.to_sparse", "blocksize", BLOCKS),
    (r"torch\.Generator\.seed", "", "draws from the system's randomness"),
    (r"torch\.(Tensor\.new_)?empty(_strided|_like)?|torch\.nn\.utils\.skip_init", "", UNINITIALISED),
    (r"torch\.accelerator\.synchronize", "", DEVICE),
    (r"torch\.set_default_device", "cuda", DEVICE),
    (r"torch\.set_default_device", "get_default_device", DEVICE),
    (r"torch\.utils\.(rename_privateuse1_backend|generate_methods_for_privateuse1_backend)", "", DEVICE),
    (r"torch\.autograd\.graph\.Node\.register_(pre)?hook", "handle", "nodes are handles: hooks are registered on tensors"),
    (r"torch\.autograd\.graph\.(saved_tensors_hooks|region_activation_memory_budget)", "", "what is saved is decided when a trace ends (docs/differences.md)"),
    (r"torch\.(autograd\.profiler\.profile|profiler\.record_function)", "table", TABLE),
    (r"torch\.compiler\.substitute_in_graph", "indexOf", "nothing is refused: functions run as Python"),
    (r"torch\.func\.functionalize", "", DISPATCHER),
    (r"torch\.hash_tensor", "", "its dtype, uint64, is not there"),
    (r"torch\.inference_mode", "_version", "tensors made under inference_mode are ordinary (docs/differences.md)"),
    (r"torch\.library\.(get_kernel|register_fake|register_torch_dispatch|triton_op|wrap_triton)", "", DISPATCHER),
    (r"torch\.library\.register_autocast", "", "shows the repr of a local function"),
    (r"torch\.(cholesky_inverse|linalg\.(solve|lu_solve|solve_triangular))", "dist", ROUNDING),
    (r"torch\.linalg\.(solve|lu_solve|solve_triangular)", "allclose", ROUNDING),
    (r"torch\.nn\.EmbeddingBag", "embedding_sum", COMPOSITION),
    (r"torch\.sparse\.mm", "y", COMPOSITION),
    (r"torch\.nn\.grad\..*", "F.grad", COMPOSITION),
    (r"torch\.nn\.grad\..*", "filter", "differentiates by Python's own `filter`: AttributeError for TypeError"),
    (r"torch\.nn\.parallel\.DistributedDataParallel", "", "torch.distributed.rpc and .optim are not there: it is one process (docs/differences.md)"),
    (r"torch\.overrides\.get_testing_overrides", "signature", "our functions have signatures of their own"),
    (r"torch\.serialization\.safe_globals", "assert", "PyTorch's list is not empty at the end of its own example"),
    (r"torch\.set_flush_denormal", "True)", "denormal numbers are never flushed"),
    (r"torch\.set_flush_denormal", "False)", "denormal numbers are never flushed"),
    (r"torch\.sort", "x.sort()", "sort is always stable (docs/differences.md)"),
    (r"torch\.sparse\.as_sparse_gradcheck", "gradcheck", "functions are checked by the values of their sparse results"),
    (r"torch\.testing\.assert_close", "actual.numpy()", "arrays and tensors are comparable"),
    (r"torch\.utils\.ThroughputBenchmark", "", "a part of PyTorch's C++ library"),
    (r"torch\.vmap", "torch.dot", BUILT_IN),
)


def reason(name: str, source: str) -> str | None:
    """Why a statement of an example may differ (source "": why the example is left out); None if it must not."""
    for pattern, part, why in KNOWN:
        if re.fullmatch(pattern, name) and (not part or (source and part in source)):
            return why
    return None
