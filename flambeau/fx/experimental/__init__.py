"""torch.fx.experimental: parts of PyTorch's tracing of programs, as far as packages ask them questions."""
