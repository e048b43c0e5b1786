"""What inference_mode switches, nested with the other modes, as decorators and after errors: as in PyTorch."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import given, settings

import flambeau as ft

_MODES = {
    "inference": lambda m: m.inference_mode(), "no inference": lambda m: m.inference_mode(False), "no_grad": lambda m: m.no_grad(),
    "enable_grad": lambda m: m.enable_grad(), "set False": lambda m: m.autograd.grad_mode.set_grad_enabled(False),
}  # fmt: skip


def _state(m: Any) -> Any:
    x = m.ones(2)
    return m.is_grad_enabled(), m.is_inference_mode_enabled(), (x * m.nn.Parameter(m.ones(2))).requires_grad if not m.is_inference_mode_enabled() else None


def _nested(m: Any, names: list[str], how: str, found: list[Any]) -> None:
    found.append(_state(m))
    if not names:
        if how == "error":
            raise KeyError
        return
    mode = _MODES[names[0]](m)
    if how == "decorator":
        mode(lambda: _nested(m, names[1:], how, found))()
    else:
        with mode:
            _nested(m, names[1:], how, found)
    found.append(_state(m))


@given(st.lists(st.sampled_from(sorted(_MODES)), max_size=4), st.sampled_from(["with", "decorator", "error"]))
@settings(max_examples=150, deadline=None)
def test_nested(names: list[str], how: str) -> None:
    def program(m: Any) -> Any:
        found: list[Any] = []
        try:
            _nested(m, names, how, found)
        except KeyError:
            found.append("error")
        return [*found, _state(m)]

    assert program(ft) == program(torch)


def test_view_replay_is_what_was_set() -> None:
    def program(m: Any) -> Any:
        force, now = m.autograd.grad_mode._force_original_view_tracking, m.autograd.is_view_replay_enabled
        found = [now()]
        with force(True):
            found.append(now())
            with force(False):
                found.append(now())
            found.append(now())
        found.append(now())
        return [*found, force(True)(now)(), now()]

    assert program(ft) == program(torch)
