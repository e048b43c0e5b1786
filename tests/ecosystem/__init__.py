"""Packages written for PyTorch, unmodified, with flambeau as torch."""
