"""torch.ao.pruning._experimental: the part of PyTorch's package that has the structured pruners."""
