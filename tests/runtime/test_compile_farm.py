"""Compiling in several processes gives the code of one process, and survives workers that fail."""

from __future__ import annotations

import ctypes
import sys

import pytest

from flambeau.runtime import compile_farm, jit

TEXTS = [f"define i64 @f{i}() {{ ret i64 {i} }}" for i in range(12)]


def test_workers_are_used_for_many_modules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_COMPILE_PROCESSES", "3")
    assert compile_farm.workers_for(compile_farm.FEWEST_MODULES - 1) == 0
    assert compile_farm.workers_for(compile_farm.FEWEST_MODULES) == 1
    assert compile_farm.workers_for(1000) == 2
    monkeypatch.setenv("FLAMBEAU_COMPILE_PROCESSES", "1")
    assert compile_farm.workers_for(1000) == 0


def test_two_processes_make_what_one_makes() -> None:
    alone = [jit.compile_text(text) for text in TEXTS]
    assert compile_farm.compile_all(TEXTS, jit.compile_text, 1) == alone


def test_a_worker_alone_makes_everything_while_this_process_waits() -> None:
    made: list[bytes | None] = [None] * len(TEXTS)
    from collections import deque

    compile_farm._feed(TEXTS, deque(range(len(TEXTS))), made)
    assert made == [jit.compile_text(text) for text in TEXTS]


def test_a_text_that_llvm_refuses_raises_here_with_the_text() -> None:
    with pytest.raises(RuntimeError, match=r"LLVM refuses(.|\n)*nonsense"):
        compile_farm.compile_all([*TEXTS, "nonsense"], jit.compile_text, 1)
    with pytest.raises(RuntimeError, match="nonsense"):
        compile_farm.compile_all(["nonsense", *TEXTS], jit.compile_text, 1)


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_workers_that_cannot_start_or_die_are_replaced_by_this_process(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [jit.compile_text(text) for text in TEXTS]
    monkeypatch.setattr(sys, "executable", program)
    assert compile_farm.compile_all(TEXTS, jit.compile_text, 2) == alone


def test_functions_compiled_together_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_COMPILE_PROCESSES", "2")
    keys = [f"compile farm test {i}" for i in range(compile_farm.FEWEST_MODULES)]
    items = [(key, lambda i=i, key=key: f"define i64 @{jit.symbol(key)}() {{ ret i64 {i} }}") for i, key in enumerate(keys)]
    addresses = jit.functions(items)
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(address)() for address in addresses] == list(range(len(keys)))
