"""Programs written for PyTorch, run unmodified by both frameworks."""
