"""Gradients over traces. differentiate (one region) -> segment (what outlives its trace) -> engine (backward, grad);
function (custom gradients), checkpoint, modes, gradcheck. PyTorch's `torch.autograd` namespace."""
