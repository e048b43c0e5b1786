"""LLVM IR text: the builder, scalar operations, vector mathematics."""
