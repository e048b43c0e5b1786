"""torch.ao.pruning.sparsifier: which single weights become zeros."""
