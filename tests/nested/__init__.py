"""Tests of nested tensors."""
