"""Functions of PyTorch that are written in its own API: compositions of public functions, custom gradients among them, above ops/ and autograd/."""
