"""torch.backends: the libraries that PyTorch may be built with. None is here: questions are answered, settings are kept.

Nothing that a script sets here changes a result: all kernels are flambeau's own, deterministic and of full precision.
"""

from __future__ import annotations

from flambeau.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
