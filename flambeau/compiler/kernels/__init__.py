"""Kernels that are no plain loop nest: one module a kind, each with `make(...) -> Kernel`."""
