"""torch.ao.pruning.scheduler: how many weights are zeros at which step."""
