"""torch._functorch: the older homes of torch.func's functions, and modules as functions of a tuple of parameters."""
