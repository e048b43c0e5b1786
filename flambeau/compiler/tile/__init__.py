"""The tile layer: a typed IR of blocks, its checker, its interpreter (the specification) and its lowering to vectors."""
