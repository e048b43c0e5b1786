"""torch.distributed.tensor._ops: what programs take of PyTorch's helpers of rules; the rules are in tensor/rules/."""
