"""The matrix unit's tile registers: how sums start in them, and the choice among the micro-kernels of up to 2 x 2 tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from flambeau.compiler.emit.builder import Builder


def tile_register(number: int) -> tuple[str, str]:
    """The operand of an instruction that names a register."""
    return "i8", str(number)


def clear_tiles(b: Builder, registers: Iterable[int]) -> None:
    """Sums of zero."""
    for number in registers:
        b.call("void", "llvm.x86.tilezero", [tile_register(number)])


def start_tiles(b: Builder, registers: Sequence[int], sums: Callable[[int], list[tuple[str, str]]]) -> None:
    """Where `%add` is set, what lies in memory, else zero. `sums(register)`: the operands of its load: register, address, bytes from row to row."""
    with b.if_("%add"):
        for number in registers:
            b.call("void", "llvm.x86.tileloadd64", sums(number))
    with b.if_(b.op("xor i1 %add, true")):
        clear_tiles(b, registers)


def store_tiles(b: Builder, registers: Iterable[int], sums: Callable[[int], list[tuple[str, str]]]) -> None:
    """The sums go to memory; `sums` as of `start_tiles`."""
    for number in registers:
        b.call("void", "llvm.x86.tilestored64", sums(number))


def call_one_of_tiles(b: Builder, which: str, stem: str, arguments: Sequence[tuple[str, str]]) -> None:
    """Call `stem`_RxC of R x C tiles; `which`: 2 * (R - 1) + C - 1."""
    done, labels = b.new_label("done"), [b.new_label("tiles") for _ in range(4)]
    b.emit(f"switch i64 {which}, label %{labels[3]} [{' '.join(f'i64 {i}, label %{labels[i]}' for i in range(3))}]")
    for i, label in enumerate(labels):
        b.label(label)
        b.call("void", f"{stem}_{i // 2 + 1}x{i % 2 + 1}", arguments, declare=False)
        b.branch(done)
    b.label(done)
