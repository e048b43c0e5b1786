"""Wrong calls of every public callable: the type and the words of the errors, beside PyTorch's."""
