"""Operators of packages, written anew."""
