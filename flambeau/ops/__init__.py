"""What each operation means. `primitives/`: the compiler's vocabulary with shape rules and gradients; the other files:
PyTorch's functions as compositions of them, by family, one record each (see registry.py)."""
