"""TorchScript archives of PyTorch: read (archive), compiled to closures (code, expressions), run (operators, values), as modules, written again."""
