"""From IR text to native code: the process table, the disk cache and its accidents, what LLVM may and may not do."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from flambeau.compiler.emit.builder import Builder
from flambeau.runtime import jit, object_cache, resources, target, twice
from flambeau.statistics import counters
from tests import processes
from tests.runtime import kernels
from tests.threads import Thread, join

CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    twice.settle()  # what other tests have left to compile would be counted here
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _text(key: str, number: int) -> str:
    return kernels.text(key, lambda b: None, f"ret i64 {number}")


def _call(address: int) -> int:
    return int(CALL(address)(None, 0, 0, 0))


def _counts() -> tuple[int, int, int]:
    return counters.kernels_compiled, counters.kernels_from_disk, counters.kernels_in_process


def test_a_function_is_compiled_once_then_found(cache: Path) -> None:
    c, d, p = _counts()
    emitted = []

    def emit() -> str:
        emitted.append(1)
        return _text("found", 5)

    address = jit.function("found", emit)
    assert _call(address) == 5 and _counts() == (c + 1, d, p)
    assert jit.function("found", emit) == address and _counts() == (c + 1, d, p + 1)
    jit.unload(["found"])
    assert _call(jit.function("found", emit)) == 5 and _counts() == (c + 1, d + 1, p + 1)
    assert len(emitted) == 1
    assert len(object_cache.entries()) == 1
    assert object_cache.statistics() == {
        "directory": str(cache), "entries": 1, "plans": 0, "bytes": object_cache.entries()[0].stat().st_size,
    }  # fmt: skip
    (cache / "mine.txt").write_text("not ours")
    assert object_cache.clear() == 1 and object_cache.entries() == []
    assert [path.name for path in cache.iterdir()] == ["mine.txt"]


def test_many_functions_at_once(cache: Path) -> None:
    items = [(f"many {i % 20}", (lambda i=i: _text(f"many {i % 20}", i % 20))) for i in range(30)]
    for round_ in range(2):
        c, d, p = _counts()
        assert [_call(a) for a in jit.functions(items)] == [i % 20 for i in range(30)]
        assert _counts() == ((c + 20, d, p + 10) if round_ == 0 else (c, d + 20, p + 10))
        jit.unload([key for key, _ in items[:10]])
        assert [_call(a) for a in jit.functions(items[10:20])] == list(range(10, 20))  # linked with those
        jit.unload([key for key, _ in items])


@pytest.mark.parametrize("damage", ["lost", "empty", "torn", "bit", "foreign", "no object", "other symbol"])
def test_a_damaged_entry_is_a_miss(cache: Path, damage: str) -> None:
    keys = [f"damage {damage} {i}" for i in range(3)]
    items = [(key, (lambda key=key, i=i: _text(key, i))) for i, key in enumerate(keys)]
    jit.functions(items)
    jit.unload(keys)
    path = Path(object_cache._path(keys[1]))
    content = path.read_bytes()
    if damage == "lost":
        path.unlink()
    elif damage in ("no object", "other symbol"):  # whole for the cache, useless for the linker
        object_cache.store(keys[1], b"nonsense" if damage == "no object" else jit.compile_text(_text("another", 9)))
    else:
        path.write_bytes({"empty": b"", "torn": content[: len(content) // 2], "foreign": b"x" * 1000}.get(
            damage, content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]))  # fmt: skip
    c, d, _ = _counts()
    assert [_call(a) for a in jit.functions(items)] == [0, 1, 2]
    assert counters.kernels_compiled == c + 1
    jit.unload(keys)
    c, d, _ = _counts()
    assert [_call(a) for a in jit.functions(items)] == [0, 1, 2]
    assert _counts()[:2] == (c, d + 3)  # it was mended on disk, too


def test_a_directory_that_cannot_be_written_only_disables_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert _call(jit.function("unwritable", lambda: _text("unwritable", 3))) == 3
    assert object_cache.entries() == [] and object_cache.statistics()["entries"] == 0 and object_cache.clear() == 0


def test_old_folders_are_deleted_when_a_new_one_is_made(cache: Path) -> None:
    object_cache.store("key", b"content")
    here = object_cache.folder()
    old = here.with_name(here.name[:-12] + "0123456789ab")
    young = here.with_name(here.name[:-12] + "ba9876543210")
    foreign = cache / "not-our-folder"
    for path in (old, young, foreign):
        path.mkdir()
        (path / "1.o").write_bytes(b"")
    for path in (old, foreign):
        os.utime(path, (1e9, 1e9))
    object_cache._delete(here)
    object_cache.store("key", b"content")
    assert not old.exists() and young.exists() and (foreign / "1.o").exists()
    assert object_cache.load("key") == b"content"


def test_several_processes_write_at_once(cache: Path) -> None:
    code = (
        "import sys\n"
        "from tests.runtime.test_jit import _text, _call, jit\n"
        "items = [(f'race {i}', (lambda i=i: _text(f'race {i}', i))) for i in range(25)]\n"
        "for round_ in range(3):\n"
        "    assert [_call(a) for a in jit.functions(items)] == list(range(25))\n"
        "    jit.unload([key for key, _ in items])\n"
    )
    group = [processes.popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process, (_, errors) in zip(group, processes.outputs(group, 120), strict=True):
        assert process.returncode == 0, errors
    assert len(object_cache.entries()) == 25
    assert not list(cache.rglob("*.new"))
    assert all(object_cache.load(f"race {i}") for i in range(25))


def test_several_threads_ask_for_the_same_functions(cache: Path) -> None:
    items = [(f"threads {i}", (lambda i=i: _text(f"threads {i}", i))) for i in range(10)]
    results: list[list[int]] = []
    c = counters.kernels_compiled
    group = [Thread(target=lambda: results.append(jit.functions(items))) for _ in range(4)]
    for thread in group:
        thread.start()
    join(*group)
    assert len(results) == 4 and all(r == results[0] for r in results)
    assert counters.kernels_compiled == c + 10


def test_the_cache_is_used_without_emitting_in_a_second_process(cache: Path) -> None:
    code = (
        "from tests.runtime.test_jit import _text, _call, jit, counters\n"
        "address = jit.function('second', lambda: _text('second', 8))\n"
        "print(_call(address), counters.kernels_compiled, counters.kernels_from_disk)\n"
    )
    outputs = [processes.python("-c", code, timeout=300).stdout.split()
               for _ in range(2)]  # fmt: skip
    assert outputs == [["8", "1", "0"], ["8", "0", "1"]]


def test_text_that_llvm_refuses_is_shown(cache: Path) -> None:
    with pytest.raises(RuntimeError, match="LLVM refuses") as caught:
        jit.function("refused", lambda: "define i64 @f() { ret i64 %nowhere }")
    assert "%nowhere" in str(caught.value)
    wrong = "define i64 @f(i1 %c) {\nentry:\n  %x = add i64 %y, 1\n  %y = add i64 %x, 1\n  ret i64 %x\n}"
    with pytest.raises(RuntimeError, match="does not dominate"):
        jit.function("refused too", lambda: wrong)
    with pytest.raises(RuntimeError):  # the symbol of the key is not there
        jit.function("absent", lambda: _text("present", 1))
    assert object_cache.load("refused") is None


def test_functions_of_the_c_library_are_there(cache: Path) -> None:
    key = "test libm"

    def write(b: Builder) -> None:
        target_ = kernels.word(b, 0, "ptr")
        x = b.load("double", target_, 8)
        b.store("double", b.call("double", "lgamma", [("double", x)]), target_, 8)
        at = b.call("ptr", "malloc", [("i64", "64")])
        b.call("ptr", "memset", [("ptr", at), ("i32", "7"), ("i64", "64")])
        b.call("void", "free", [("ptr", at)])

    value = np.array([5.0])
    words = np.array([kernels.address(value)])
    assert CALL(kernels.compiled(key, write))(kernels.address(words), 0, 1, 0) == 0
    assert abs(value[0] - np.log(24.0)) < 1e-12


def _multiply_add(b: Builder, width: int) -> None:
    type_ = f"<{width} x float>"
    base = kernels.word(b, 0, "ptr")
    x, y, z = (b.load(type_, b.gep(type_, base, i), 4) for i in range(3))
    b.store(type_, b.op(f"fadd {type_} {b.op(f'fmul {type_} {x}, {y}')}, {z}"), base, 4)


def test_multiplication_and_addition_are_not_contracted() -> None:
    width = target.vector_bits() // 32
    key = "test contraction"
    assembly = jit.assembly(kernels.text(key, lambda b: _multiply_add(b, width)))
    assert "fmadd" not in assembly and "fmla" not in assembly
    rng = np.random.default_rng(0)
    data = rng.standard_normal((3, width)).astype(np.float32)
    expected = data[0] * data[1] + data[2]
    words = np.array([kernels.address(data)])
    address = kernels.compiled(key, lambda b: _multiply_add(b, width))
    assert CALL(address)(kernels.address(words), 0, 1, 0) == 0
    np.testing.assert_array_equal(data[0], expected)


def test_vectors_are_as_wide_as_the_machine_says() -> None:
    bits = target.vector_bits()
    assembly = jit.assembly(kernels.text("test width", lambda b: _multiply_add(b, bits // 32)))
    if jit.target_description()["architecture"] == "x86_64":
        register = {512: "%zmm", 256: "%ymm", 128: "%xmm"}[bits]
        assert f"{register}0" in assembly
    assert assembly.count("mulps") + assembly.count("fmul") == 1  # one instruction: the vector was not split


def test_the_machine_is_described() -> None:
    assert target.vector_bits() in (128, 256, 512)
    assert 1 <= resources.usable_processors() <= 4096
    assert 4 << 10 <= target.cache_bytes(1) <= target.cache_bytes(2)
    assert object_cache._FOLDER.fullmatch(object_cache.folder().name)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "250000 100000", "memory.max": "1000"}, (2.5, 1000)),
        ({"cpu.max": "max 100000", "memory.max": "max"}, (float("inf"), None)),
        ({"box/cpu.max": "50000 100000", "cpu.max": "400000 100000", "box/memory.max": "77"}, (0.5, 77)),
        ({"cpu/old/cpu.cfs_quota_us": "300000", "cpu/old/cpu.cfs_period_us": "100000"}, (3.0, None)),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, (float("inf"), None)),
        ({"memory/deep/memory.limit_in_bytes": "4096"}, (float("inf"), 4096)),
    ],
)
def test_control_groups_limit_processors_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: tuple[float, int | None]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content + "\n")
    groups = tmp_path / "groups"
    groups.write_text("7:memory:/deep\n3:cpu,cpuacct:/old\n0::/box\n")
    monkeypatch.setattr(resources, "_CGROUPS", tmp_path)
    monkeypatch.setattr(resources, "_OWN_GROUPS", groups)
    for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert resources._quota() == expected[0]
    assert 1 <= resources.usable_processors() <= max(1, expected[0])
    memory = resources.physical_memory.__wrapped__()
    assert memory == expected[1] if expected[1] else memory > 1 << 20
    monkeypatch.setenv("FLAMBEAU_NUM_THREADS", "3")
    assert resources.usable_processors() == 3


HOLES = """
import ctypes
import flambeau
library = ctypes.CDLL(None)
library.mmap.restype = ctypes.c_void_p
library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
for _ in range(200):  # address space that is taken, with room for one page in the middle
    taken = library.mmap(None, 1 << 32, 0, 0x4022, -1, 0)  # PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    library.munmap(taken + (1 << 31), 4096)
x = flambeau.linspace(-3.0, 3.0, 40)
for k in range(10):
    assert abs(float((x * (k + 1)).tanh().sum() + x.exp().erf()[k] - x.exp().erf()[k])) < 1e-4
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the flags of mmap are Linux's")
def test_code_and_constants_stay_near_in_a_fragmented_address_space(cache: Path) -> None:
    # LLVM's older linker maps sections one by one, and aborts where they come to lie more than 2 GiB apart.
    done = processes.python("-c", HOLES)
    assert done.returncode == 0, done.stderr


def test_no_more_code_than_the_system_has_mappings_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would end the process: a RuntimeError comes before, and what is loaded goes on."""
    items = [(f"crowd {i}", partial(_text, f"crowd {i}", i + 1)) for i in range(3)]
    assert _call(jit.function(*items[0])) == 1
    monkeypatch.setattr(jit, "_LOOK_EVERY", 1)
    monkeypatch.setattr(jit, "_mappings", lambda: 65_000)
    monkeypatch.setattr(jit, "_most_mappings", lambda: 65_530)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"65000 mappings of memory.*65530 \(vm.max_map_count"):
            jit.function(*items[1])
    assert _call(jit.function(*items[0])) == 1
    monkeypatch.setattr(jit, "_mappings", lambda: 1000)  # some have gone
    assert _call(jit.function(*items[1])) == 2
    monkeypatch.undo()
    assert 0 < jit._mappings() <= jit._most_mappings()
