"""The code that a library is made of besides kernels: sizes as IR compute what Python does, blocks that live together never meet, memory moves as in C."""

from __future__ import annotations

import ctypes
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import symbols
from flambeau.deploy import library_code, memory_code
from flambeau.deploy.size_code import SizeCode
from flambeau.runtime import jit
from flambeau.symbols import Code, Recording

SETTINGS = settings(max_examples=40, deadline=None)
_OPERATIONS = ("+", "-", "*", "//", "%", "max", "min", "at_most")


def function(key: str, text: str, result: Any = ctypes.c_int64) -> Any:
    """A function of IR text, called with pointers and integers."""
    return ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p)(jit.function(key, lambda: text))


@st.composite
def programs(draw: Any) -> Any:
    """The operations of an expression over two sizes: (operation, left, right), numbers of earlier values or constants."""
    count = draw(st.integers(1, 8))
    constant = st.integers(-40, 40)
    made = []
    for i in range(count):
        right = constant | st.integers(0, i + 1).map(lambda n: f"v{n}")
        made.append((draw(st.sampled_from(_OPERATIONS)), draw(st.integers(0, i + 1)), draw(right)))
    return made


def made(sizes: tuple[int, int], program: Any) -> Any:
    """The values of a program's operations, over symbols; divisions by zero give their left side."""
    rec = Recording(sizes)
    values: list[Any] = [rec.size(0), rec.size(1)]
    for op, left, right in program:
        a, b = values[left], values[int(right[1:])] if isinstance(right, str) else right
        if op in ("//", "%") and int.__int__(b) == 0:
            values.append(a)
        else:
            values.append({"max": symbols.maximum, "min": symbols.minimum, "at_most": symbols.at_most}.get(op, symbols.OPERATORS[op])(a, b))
    least, last = int.__int__(values[0]), values[-1]
    guard = "<", values[0].expr, symbols._told(last), least < int.__int__(last)
    return values, guard


@SETTINGS
@given(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), st.tuples(st.integers(1, 5000), st.integers(1, 5000)), programs())
def test_sizes_are_what_python_computes(sizes: tuple[int, int], other: tuple[int, int], program: Any) -> None:
    values, guard = made(sizes, program)
    if any(abs(int.__int__(v)) > 2**60 for v in values):
        return
    code = SizeCode(["%s0", "%s1"])
    code.lines += [f"  %a{i} = getelementptr i64, ptr %s, i64 {i}\n  %s{i} = load i64, ptr %a{i}" for i in range(2)]
    result, holds = code.integer(values[-1]), code.holds(guard)
    end = code.op(f"zext i1 {holds} to i64")
    lines = "\n".join([*code.lines, f"  store i64 {result}, ptr %out", f"  ret i64 {end}"])
    key = f"test of sizes {lines}"
    text = f"define i64 @{jit.symbol(key)}(ptr %s, ptr %out) {{\n{lines}\n}}\ndeclare i64 @llvm.smax.i64(i64, i64)\ndeclare i64 @llvm.smin.i64(i64, i64)\n"
    compiled = function(key, text)
    python = Code()
    expected = python.function(python.structure(values[-1]))
    for at in (sizes, other):
        out = ctypes.c_int64()
        answer = compiled((ctypes.c_int64 * 2)(*at), ctypes.byref(out))
        try:
            wanted = expected(at)
        except ZeroDivisionError:  # a library computes anything there: no plan that holds asks
            continue
        if abs(wanted) < 2**60:
            assert out.value == wanted
            op, a, b, true = guard
            left, right = (symbols._evaluated(x, at, {}) for x in (a, b))
            assert bool(answer) == (symbols.OPERATORS[op](left, right) is true)


LAY_OUT = "test of lay_out"


def lay_out(lives: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    helpers = library_code._HELPERS
    for field, value in {"LENGTH": 72, "TEXT": 80, "LAST": 400}.items():
        helpers = helpers.replace(f"${field}$", str(value))
    text = (
        helpers
        + f"""
define i64 @{jit.symbol(LAY_OUT)}(ptr %table, ptr %memory) {{
  %count = load i64, ptr %memory
  %bytes = getelementptr i64, ptr %memory, i64 1
  %offsets = getelementptr i64, ptr %bytes, i64 %count
  %next = getelementptr i64, ptr %offsets, i64 %count
  %top = call i64 @lay_out(ptr %table, i64 %count, ptr %bytes, ptr %next, ptr %offsets)
  ret i64 %top
}}"""
    )
    count = len(lives)
    rows = [x for i in sorted(range(count), key=lambda i: lives[i][0]) for x in (i, lives[i][0], lives[i][1])]
    memory = (ctypes.c_int64 * (2 + 3 * count))(count, *[b for _, _, b in lives])
    top = function(LAY_OUT, text)((ctypes.c_int64 * len(rows))(*rows), memory)
    return list(memory)[1 + count : 1 + 2 * count], top


@SETTINGS
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 1000)).map(lambda x: (x[0], x[0] + x[1], x[2])), min_size=1, max_size=30))
def test_blocks_that_live_together_do_not_meet(lives: list[tuple[int, int, int]]) -> None:
    offsets, top = lay_out(lives)
    for i, (first, last, size) in enumerate(lives):
        assert offsets[i] % 64 == 0 and offsets[i] + size <= top
        for j in range(i):
            other_first, other_last, other_size = lives[j]
            if size and other_size and first <= other_last and other_first <= last:
                assert offsets[i] + size <= offsets[j] or offsets[j] + other_size <= offsets[i]
    assert top <= sum(-(-size // 64) * 64 for _, _, size in lives)


def lowest(lives: list[tuple[int, int, int]]) -> list[int]:
    """By definition: each block, by birth, at the lowest place that meets none of those before it that still live."""
    offsets = [0] * len(lives)
    placed: list[int] = []
    for i in sorted(range(len(lives)), key=lambda i: lives[i][0]):
        taken = [(offsets[j], offsets[j] + -(-lives[j][2] // 64) * 64) for j in placed if lives[j][1] >= lives[i][0]]
        need = -(-lives[i][2] // 64) * 64
        offsets[i] = min(at for at in [0, *[end for _, end in taken]] if all(at + need <= a or at >= b for a, b in taken))
        placed.append(i)
    return offsets


@SETTINGS
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 1000)).map(lambda x: (x[0], x[0] + x[1], x[2])), min_size=1, max_size=80))
def test_blocks_lie_as_low_as_they_can(lives: list[tuple[int, int, int]]) -> None:
    assert lay_out(lives)[0] == lowest(lives)


def test_fifty_thousand_blocks_are_laid_out() -> None:
    """A network's long chain. In work that grows with the square this would take minutes."""
    lives = [(i, i + (200 if i % 100 == 0 else 2), 64 * (1 + i % 7)) for i in range(50_000)]
    offsets, top = lay_out(lives)
    assert offsets[:300] == lowest(lives[:300]) and top < 64 * 100


MOVES = "test of memory"


@SETTINGS
@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.sampled_from(("memcpy", "memmove", "memset")))
def test_memory_moves_as_in_c(to: int, start: int, count: int, name: str) -> None:
    if name == "memcpy" and abs(to - start) < count:
        return
    key = f"{MOVES} {name}"
    call = f"call ptr @{name}(ptr %to, {'i32 7' if name == 'memset' else 'ptr %from'}, i64 %count)"
    text = (
        memory_code.text(wasm=False)
        + f"""
define i64 @{jit.symbol(key)}(ptr %memory, ptr %words) {{
  %a = load i64, ptr %words
  %q = getelementptr i64, ptr %words, i64 1
  %b = load i64, ptr %q
  %r = getelementptr i64, ptr %words, i64 2
  %count = load i64, ptr %r
  %to = getelementptr i8, ptr %memory, i64 %a
  %from = getelementptr i8, ptr %memory, i64 %b
  %end = {call}
  %where = ptrtoint ptr %end to i64
  ret i64 %where
}}"""
    )
    content = bytes(range(1, 201)) + bytes(20)
    memory = ctypes.create_string_buffer(content, len(content))
    function(key, text)(memory, (ctypes.c_int64 * 3)(to, start, count))
    expected = bytearray(content)
    expected[to : to + count] = bytes([7]) * count if name == "memset" else content[start : start + count]
    assert memory.raw == bytes(expected)


@SETTINGS
@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1), st.integers(0, 127), st.sampled_from(("__multi3", "__ashlti3", "__lshrti3")))
def test_wide_integers(a: int, b: int, shift: int, name: str) -> None:
    key = f"test of wide {name}"
    second = ("i128", "%b") if name == "__multi3" else ("i32", "%n")
    text = (
        memory_code.WIDE.replace("__", "own__")
        + f"""
define i64 @{jit.symbol(key)}(ptr %out, ptr %in) {{
  %a = load i128, ptr %in, align 8
  %q = getelementptr i8, ptr %in, i64 16
  %b = load i128, ptr %q, align 8
  %n = trunc i128 %b to i32
  %r = call i128 @own{name}(i128 %a, {second[0]} {second[1]})
  store i128 %r, ptr %out, align 8
  ret i64 0
}}"""
    )
    right = b if name == "__multi3" else shift
    given = ctypes.create_string_buffer(a.to_bytes(16, "little") + right.to_bytes(16, "little"), 32)
    out = ctypes.create_string_buffer(16)
    function(key, text)(out, given)
    expected = a * b if name == "__multi3" else a << shift if name == "__ashlti3" else a >> shift
    assert int.from_bytes(out.raw, "little") == expected % 2**128
