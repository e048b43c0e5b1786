"""What a process has learned of a program's paths, taken away for a test: other tests have run there before."""

from __future__ import annotations

import pytest

from flambeau.trace import tiers
from flambeau.trace.evaluate import flush
from flambeau.trace.recorder import local


def forget_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of which paths come back (trace/tiers.py)."""
    monkeypatch.setattr(tiers, "_exact", tiers.Places(tiers.SAME, any_sizes=False))
    monkeypatch.setattr(tiers, "_any_sizes", tiers.Places(tiers.OTHERS, any_sizes=True))
    monkeypatch.setattr(tiers, "_met", {})
    monkeypatch.setattr(tiers, "_loops", {})
    monkeypatch.setattr(tiers, "_begun", set())


def forget_edges() -> None:
    """No call is known, as a whole or in pieces."""
    tr = local.main
    flush(tr, "test")
    tr.roots.clear()
    tr.mode_changed = True
    tr.reset()
