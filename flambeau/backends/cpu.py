"""torch.backends.cpu: what the processor can do."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """The width of the vectors in use, in PyTorch's words: "AVX512", "AVX2" or "DEFAULT"."""
    from flambeau.runtime import target

    return {512: "AVX512", 256: "AVX2"}.get(target.vector_bits(), "DEFAULT")
