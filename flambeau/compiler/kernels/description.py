"""What a kernel is described by: its argument words by name, and what writes the body of its function.

`describe` makes a `Kernel` of named words: their order in memory is that of the dict, and is written nowhere else. The body finds each loaded under its
name, addresses as ptr and numbers as i64. Behind them lie `tables`, arrays of words whose lengths the key tells, by address; then the epilogue's words;
then `rest`. `describe_code` is the same for bodies that are written with `Code`.

`native` describes a function that kernels call, and whose address is one of their words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module
from flambeau.compiler.emit.code import Code
from flambeau.compiler.kernel import Address, ErrorRecord, Function, Kernel, Scratch, Table, Word
from flambeau.runtime.target import Target

Writer = Callable[[Builder], str]  # of a function's text
Body = Callable[[Builder, dict[str, str]], object]  # of what a kernel does with its words
Layout = tuple[tuple[str, str | int], ...]  # names of words with their LLVM types, and of tables with their lengths

_ADDRESSES = (Address, Scratch, ErrorRecord, Function, Table)


class Epilogue(Protocol):
    """Pointwise nodes applied to finished rectangles of a result (compiler/lower)."""

    key: str
    words: list[Word]

    def emit(self, name: str, first_word: int, target: Target) -> str:
        """Text of `void @name(ptr %args, i64 %batch, i64 %row0, i64 %row1, i64 %col0, i64 %col1)`."""
        ...

    def declarations(self, target: Target) -> list[str]:
        """What the text needs declared."""
        ...


def layout_of(words: Mapping[str, Word], tables: Mapping[str, Sequence[Word]] | None = None) -> Layout:
    """How words lie in memory, for a text that reads them."""
    named = [(name, "ptr" if isinstance(word, _ADDRESSES) else "i64") for name, word in words.items()]
    return (*named, *[(name, len(table)) for name, table in (tables or {}).items()])


def load_words(b: Builder, layout: Layout) -> dict[str, str]:
    """Load all words; of tables the addresses."""
    found, at = {}, 0
    for name, type_ in layout:
        place = b.gep("i64", "%args", at)
        found[name] = place if isinstance(type_, int) else b.load(type_, place, 8)
        at += type_ if isinstance(type_, int) else 1
    return found


def add_reader(words: dict[str, Word], name: str, make: Callable[[Layout], Function], tables: Mapping[str, Sequence[Word]] | None = None) -> None:
    """Add a function that reads the kernel's words itself."""
    words[name] = ErrorRecord()  # an address, too
    words[name] = make(layout_of(words, tables))


def count_words(layout: Layout) -> int:
    """How many there are: where the epilogue's begin."""
    return sum(type_ if isinstance(type_, int) else 1 for _, type_ in layout)


def describe(
    name: str, key: str, write: Body, words: Mapping[str, Word], tables: Mapping[str, Sequence[Word]] | None = None, rest: Sequence[Word] = (),
    helpers: Iterable[Writer] = (), constants: Iterable[str] = (), epilogue: Epilogue | None = None, **of: Any,
) -> Kernel:  # fmt: skip
    """The kernel whose body is `write(b, words)`. `helpers` write functions that it calls, `constants` are text; `of`: what else a Kernel has."""
    if epilogue is not None:
        key = f"{key}:{epilogue.key}"
    layout = layout_of(words, tables)
    behind = [word for table in (tables or {}).values() for word in table]
    every = [*words.values(), *behind, *(() if epilogue is None else epilogue.words), *rest]
    return Kernel(name, key, partial(_text, key, write, layout, tuple(helpers), tuple(constants), epilogue), every, **of)


def _text(
    key: str, write: Body, layout: Layout, helpers: Iterable[Writer], constants: Iterable[str], epilogue: Epilogue | None, target: Target
) -> str:  # fmt: skip
    def kernel(name: str, b: Builder) -> str:
        write(b, load_words(b, layout))
        return b.function(KERNEL_HEADER.format(name=name), "ret i64 0")

    return module_of([*helpers, partial(kernel, _symbol(key))], target, constants, epilogue, count_words(layout))


def describe_code(name: str, key: str, write: Callable[[Code], object], words: Mapping[str, Word], **of: Any) -> Kernel:
    """The kernel whose body `write` writes with a `Code` of these words."""
    return Kernel(name, key, partial(_code_text, key, write, tuple(words)), list(words.values()), **of)


def _code_text(key: str, write: Callable[[Code], object], names: Sequence[str], target: Target) -> str:
    c = Code(names, target)
    write(c)
    return c.kernel(_symbol(key))


def native(key: str, write: Callable[[str, Builder], str], *helpers: Writer) -> Function:
    """The native function whose text `write(name, builder)` gives; `helpers` write what it calls."""
    return Function(key, partial(_native, key, write, helpers))


def _native(key: str, write: Callable[[str, Builder], str], helpers: tuple[Writer, ...], target: Target) -> str:
    return module_of([*helpers, partial(write, _symbol(key))], target)


def module_of(
    writers: Iterable[Writer], target: Target, constants: Iterable[str] = (), epilogue: Epilogue | None = None, first_word: int = 0
) -> str:  # fmt: skip
    """A module of constants (text), of the epilogue, whose words are those from `first_word` on, and of the functions that `writers` write with a fresh
    builder each."""
    functions, declared = list(constants), set[str]()
    if epilogue is not None:
        functions.append(epilogue.emit("epilogue", first_word, target))
        declared.update(epilogue.declarations(target))
    for write in writers:
        b = Builder(target)
        functions.append(write(b))
        declared.update(b.declarations)
    return module(functions, declared, target)


def _symbol(key: str) -> str:
    from flambeau.runtime.jit import symbol

    return symbol(key)
