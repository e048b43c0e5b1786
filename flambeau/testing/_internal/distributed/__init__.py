"""torch.testing._internal.distributed: what tests of programs for several processes use."""
