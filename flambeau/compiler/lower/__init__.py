"""Lowering of groups of pointwise, reduction and movement nodes to loop nests (`spec.py` says what a legal nest is)."""
