"""Libraries of exported models: the bits of the program in Python at every size, from C, Rust and Python, on x86-64 and AArch64."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.deploy import BuildError, build, variants
from flambeau.deploy.interface import symbols_of
from flambeau.deploy.record import record
from flambeau.export import save
from flambeau.runtime.target import Target
from tests import processes
from tests.deploy import models
from tests.threads import Thread, join

COMPILER = shutil.which("cc") or shutil.which("gcc")
RUST = shutil.which("rustc")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
ZIG = importlib.util.find_spec("ziglang") is not None
pytestmark = pytest.mark.skipif(not (COMPILER or ZIG) or platform.system() != "Linux", reason="a linker is wanted: cc, or ziglang")


def loaded(folder: Path, name: str) -> Any:
    """The Python module of a library."""
    spec = importlib.util.spec_from_file_location(f"{name}_{folder.name}", folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def program() -> Any:
    return models.digits()


@pytest.fixture(scope="module")
def folder(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("digits")
    save(program, made / "digits.pt2")
    lines: list[str] = []
    build(made / "digits.pt2", "host", made, report=lines.append)
    assert any("batch" in line or "x_dim0" in line for line in lines)
    return made


def images(batch: int) -> Any:
    return np.random.default_rng(batch).normal(size=(batch, 1, 8, 8)).astype("float32")


def in_python(program: Any, *arrays: Any) -> Any:
    with torch.no_grad():
        return program.module()(*[torch.from_numpy(a) for a in arrays]).numpy()


def same_bits(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("batch", [1, 2, 7, 10, 32, 64, 128, 255])
def test_the_digits_have_the_bits_of_python(folder: Path, program: Any, batch: int) -> None:
    model = loaded(folder, "digits").load()
    x = images(batch)
    assert same_bits(model(x), in_python(program, x))


def test_fourier_transforms_carry_their_tables(tmp_path: Path) -> None:
    program = models.spectrum()
    build(program, "host", tmp_path, name="spectrum")
    model = loaded(tmp_path, "spectrum").load()
    for batch in (1, 9, 40):
        x = np.random.default_rng(batch).normal(size=(batch, 202)).astype("float32")
        assert same_bits(model(x), in_python(program, x))


def test_sizes_may_change_from_run_to_run(folder: Path, program: Any) -> None:
    model = loaded(folder, "digits").load()
    for batch in (3, 200, 1, 200, 3, 64, 2):
        assert same_bits(model(images(batch)), in_python(program, images(batch)))


def test_wrong_calls_say_which_size(folder: Path) -> None:
    model = loaded(folder, "digits").load()
    for batch in (257, 100_000):
        with pytest.raises(ValueError, match=rf"sizes\[0\], dim 0 of input x, must be from 1 to 256: it is {batch}"):
            model(np.zeros((batch, 1, 8, 8), "float32"))
    with pytest.raises(ValueError, match=r"must be from 1 to 256: it is 0"):
        model(np.zeros((0, 1, 8, 8), "float32"))
    with pytest.raises(ValueError, match=r"x must have shape \(2, 1, 8, 8\); it has \(2, 1, 8, 9\)"):
        model(np.zeros((2, 1, 8, 9), "float32"))
    with pytest.raises(ValueError, match="x must be float32 with 4 dims; it is float64 with 4"):
        model(np.zeros((2, 1, 8, 8)))
    with pytest.raises(TypeError, match="takes 1 arrays"):
        model()
    x = images(2)
    assert model(x).shape == (2, 10)  # it goes on being of use


def test_other_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    content = bytearray((folder / "digits.weights").read_bytes())
    module = loaded(folder, "digits")
    for name, changed in (("short", content[:-64]), ("other", content[:30] + bytes([content[30] ^ 1]) + content[31:]), ("none", b"hello" * 20)):
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(RuntimeError, match="these are not the weights of this library"):
            module.load(weights=tmp_path / name)


def test_threads_have_instances_of_their_own(folder: Path, program: Any) -> None:
    module = loaded(folder, "digits")
    expected = {batch: in_python(program, images(batch)) for batch in (1, 5, 40)}
    wrong: list[int] = []

    def work(batch: int) -> None:
        model = module.load()
        wrong.extend([batch for _ in range(30) if not same_bits(model(images(batch)), expected[batch])])

    threads = [Thread(target=work, args=(batch,)) for batch in (1, 5, 40, 1)]
    for t in threads:
        t.start()
    join(*threads)
    assert not wrong


def test_it_takes_nothing_but_memory_and_shows_nothing_but_its_functions(folder: Path) -> None:
    tool = shutil.which("nm")
    if tool is None:
        pytest.skip("nm is wanted")
    lines = processes.run([tool, "-D", str(folder / "libdigits.so")], capture_output=True, text=True, check=True).stdout.splitlines()
    taken = {line.split()[-1].split("@")[0] for line in lines if " U " in line}
    shown = {line.split()[-1] for line in lines if " T " in line}
    assert taken <= {"malloc", "free", *(["syscall"] if Target.named("host").matrix_dtypes else [])}  # which asks for the matrix unit
    assert shown == {f"digits_{f}" for f in ("create", "destroy", "reserve", "run", "error", "status_text", "input_shape", "output_shape")}
    size = (folder / "libdigits.so").stat().st_size  # with a matrix unit convolutions have one more form
    assert size < (300_000 if Target.named("host").matrix_dtypes else 200_000)


@pytest.mark.parametrize("target", ["host", "x86-64-v3", "znver4", "sapphirerapids", "aarch64-linux", "wasm32"])
def test_few_plans_hold_for_all_batches(target: str, program: Any) -> None:
    """On each machine: a choice of blocks that asked for the very batch wanted a plan for each, so that no library could be built."""
    machine = Target.named(target)
    of_sizes = variants.cover(symbols_of(program), partial(variants.make, program, target=machine), variants.agree, lambda line: None)
    assert len(of_sizes) <= 10


def run_example(command: list[str], given: Any, like: Any) -> Any:
    done = processes.run(command, input=given.tobytes(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return np.frombuffer(done.stdout, like.dtype).reshape(like.shape)


@pytest.mark.skipif(COMPILER is None, reason="a C compiler is wanted")
def test_the_example_in_c(folder: Path, program: Any, tmp_path: Path) -> None:
    x = images(7)
    expected = in_python(program, x)
    for number, how in enumerate((["-L.", "-ldigits", f"-Wl,-rpath,{folder}"], ["libdigits.a"])):
        example = tmp_path / f"example{number}"
        processes.run([str(COMPILER), "-Wall", "-Wextra", "-Werror", "-std=c99", "example.c", "-o", str(example), *how], cwd=folder, check=True)
        assert same_bits(run_example([str(example), str(folder / "digits.weights"), "7"], x, expected), expected)
        for words, text in (([str(folder / "digits.weights"), "0"], "must be from 1 to 256: it is 0"), ([str(folder / "digits.h"), "7"], "not the weights")):
            done = processes.run([str(example), *words], input=x.tobytes(), capture_output=True)
            assert done.returncode == 1 and text in done.stderr.decode()


@pytest.mark.skipif(RUST is None, reason="rustc is wanted")
def test_the_example_in_rust(folder: Path, program: Any, tmp_path: Path) -> None:
    if processes.run([str(RUST), "--version"], capture_output=True).returncode:
        pytest.skip("rustc has no toolchain")
    x = images(7)
    expected = in_python(program, x)
    example = tmp_path / "example"
    command = [str(RUST), "-D", "warnings", "example.rs", "-L", ".", "-l", "digits", "-C", f"link-arg=-Wl,-rpath,{folder}", "-o", str(example)]
    processes.run(command, cwd=folder, check=True)
    assert same_bits(run_example([str(example), str(folder / "digits.weights"), "7"], x, expected), expected)


COUNTING = r"""
#include <stdio.h>
#include <stdlib.h>
#include "digits.h"
static int taken, given;
void *__real_malloc(size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n) { taken++; return n > (1 << 28) || getenv("REFUSE") ? NULL : __real_malloc(n); }
void __wrap_free(void *p) { given++; __real_free(p); }
static char weights[DIGITS_WEIGHTS_BYTES];
static float x[64 * 64], y[64 * 10];
int main(int count, char **words) {
  digits *a, *b;
  FILE *file = fopen(words[1], "rb");
  if (count != 2 || fread(weights, 1, sizeof weights, file) != sizeof weights) return 10;
  fclose(file);
  taken = given = 0;
  if (digits_create(weights, sizeof weights, &a) != DIGITS_OK) { printf("%d\n", a == NULL); return 0; }
  const void *in[] = {x};
  void *out[] = {y};
  int64_t sizes[] = {64};
  if (digits_reserve(a, sizes)) return 11;
  int before = taken;
  for (int64_t n = 64; n > 0; n /= 2) {
    sizes[DIGITS_X_DIM0] = n;
    for (int i = 0; i < 3; i++)
      if (digits_run(a, sizes, in, out)) return 12;
  }
  printf("%d %d\n", before, taken);
  if (digits_run(NULL, sizes, in, out) != DIGITS_NULL_ARGUMENT || digits_create(NULL, 0, &b) != DIGITS_NULL_ARGUMENT || b) return 13;
  in[0] = NULL;
  if (digits_run(a, sizes, in, out) != DIGITS_NULL_ARGUMENT) return 14;
  printf("%s\n", digits_error(a));
  in[0] = x;
  if (digits_run(a, sizes, in, out) || digits_error(a)[0]) return 15;
  int64_t shape[4] = {0};
  sizes[0] = 9;
  if (digits_input_shape(0, sizes, shape) != 4 || shape[0] != 9 || shape[3] != 8 || digits_output_shape(1, sizes, shape) != -1) return 16;
  if (digits_output_shape(0, sizes, NULL) != 2) return 17;
  digits_destroy(a);
  digits_destroy(NULL);
  printf("%d %d\n", taken, given);
  return 0;
}
"""


@pytest.mark.skipif(COMPILER is None, reason="a C compiler is wanted")
def test_it_allocates_once_and_gives_all_back(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "count.c").write_text(COUNTING)
    wrapped = ["-Wl,--wrap=malloc,--wrap=free", "-o", str(tmp_path / "count")]
    processes.run([str(COMPILER), str(tmp_path / "count.c"), f"-I{folder}", str(folder / "libdigits.a"), *wrapped], check=True)
    done = processes.run([str(tmp_path / "count"), str(folder / "digits.weights")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines() == ["2 2", "digits_run: inputs[0] is null", "2 2"], (done.returncode, done.stdout)
    refused = processes.run([str(tmp_path / "count"), str(folder / "digits.weights")], env={"REFUSE": "1"}, capture_output=True, text=True)
    assert refused.returncode == 0 and refused.stdout == "1\n"


def on_aarch64(folder: Path, source: str, library: str, *flags: str) -> None:
    """Make `example` of a C file and a library, for the emulator."""
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static", "-O1", source, library, *flags, "-o", "example"]
    processes.run(zig, cwd=folder, check=True)


@pytest.mark.skipif(not (ZIG and EMULATOR), reason="ziglang and qemu-aarch64 are wanted")
@pytest.mark.parametrize("name", ["gpt", "coded8", "coded4", "spectrum"])
def test_other_models_on_aarch64(name: str, tmp_path: Path) -> None:
    """Attention and indices, weights of 8 and 4 bits, Fourier transforms: as near as the other machine's order of adding allows."""
    program = {"gpt": models.gpt, "coded8": lambda: models.coded(8), "coded4": lambda: models.coded(4), "spectrum": models.spectrum}[name]()
    build(program, "aarch64-linux", tmp_path, name=name)
    on_aarch64(tmp_path, "example.c", f"lib{name}.a")
    for n in (1, 7, 32):
        random = np.random.default_rng(n)
        x = random.integers(0, 30, (1, n)) if name == "gpt" else random.normal(size=(n, 202 if name == "spectrum" else 100)).astype("float32")
        expected = in_python(program, x)
        found = run_example([str(EMULATOR), str(tmp_path / "example"), str(tmp_path / f"{name}.weights"), str(n)], x, expected)
        assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.skipif(not (ZIG and EMULATOR), reason="ziglang and qemu-aarch64 are wanted")
def test_memory_and_errors_on_aarch64(program: Any, tmp_path: Path) -> None:
    build(program, "aarch64-linux", tmp_path, name="digits")
    (tmp_path / "count.c").write_text(COUNTING)
    on_aarch64(tmp_path, "count.c", "libdigits.a", "-Wl,--wrap=malloc,--wrap=free")
    done = processes.run([str(EMULATOR), str(tmp_path / "example"), str(tmp_path / "digits.weights")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines() == ["2 2", "digits_run: inputs[0] is null", "2 2"], (done.returncode, done.stdout, done.stderr)


@pytest.mark.skipif(not (ZIG and EMULATOR), reason="ziglang and qemu-aarch64 are wanted")
def test_the_digits_on_aarch64(program: Any, tmp_path: Path) -> None:
    build(program, "aarch64-linux", tmp_path, name="digits")
    on_aarch64(tmp_path, "example.c", "libdigits.a")
    for batch in (1, 7, 64):
        x = images(batch)
        expected = in_python(program, x)
        found = run_example([str(EMULATOR), str(tmp_path / "example"), str(tmp_path / "digits.weights"), str(batch)], x, expected)
        assert np.abs(found - expected).max() < 1e-5


@pytest.mark.skipif(not ZIG, reason="ziglang is wanted")
@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64-android", "apple-m1"])
def test_other_machines_get_their_files(target: str, tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 4).eval()
    program = torch.export.export(model, (torch.randn(2, 3),))
    files = {p.name: p.read_bytes() for p in build(program, target, tmp_path, name="linear")}
    if target == "apple-m1":
        assert files["liblinear.dylib"][:4] == b"\xcf\xfa\xed\xfe"  # Mach-O, 64 bits
    else:
        machine = {"x86-64-v3": 62, "aarch64-android": 183}[target]
        assert files["liblinear.so"][:4] == b"\x7fELF" and int.from_bytes(files["liblinear.so"][18:20], "little") == machine


def test_a_small_gpt_of_any_length(tmp_path: Path) -> None:
    program = models.gpt()
    build(program, "host", tmp_path, name="gpt", weights_inside=True)
    assert not (tmp_path / "gpt.weights").exists()
    model = loaded(tmp_path, "gpt").load()
    for length in (1, 2, 3, 5, 16, 17, 33, 40):
        tokens = np.random.default_rng(length).integers(0, 30, (1, length))
        assert same_bits(model(tokens), in_python(program, tokens)), length
    tokens[0, 3] = 30
    with pytest.raises(IndexError, match="index 30 is out of bounds for dimension with size 30"):
        model(tokens)
    with pytest.raises(ValueError, match=r"sizes\[0\], dim 1 of input tokens, must be from 1 to 40: it is 41"):
        model(np.zeros((1, 41), "int64"))


def test_no_operator_asks_for_the_value_of_a_size() -> None:
    """Of a GPT with two dynamic sizes: what a body asks for would be a plan for each value."""
    found = record(models.gpt(batches=True), (7, 31)).recording.guards.values()
    assert [g for g in found if g[0] == "==" and g[3]] == []


class Several(torch.nn.Module):
    def forward(self, x: Any, pair: Any) -> Any:
        a, flags = pair
        y = torch.relu_(x + a)
        y.mul_(2.0)
        return {"sum": y.sum(0), "where": torch.where(flags, y, x), "count": flags.sum(), "same": a, "turned": y.T}


def test_several_inputs_and_results_of_several_dtypes(tmp_path: Path) -> None:
    rows, columns = torch.export.Dim("rows", min=1, max=50), torch.export.Dim("columns", min=1, max=50)
    example = (torch.randn(4, 6), (torch.randn(4, 6), torch.rand(4, 6) > 0.5))
    shapes = {"x": {0: rows, 1: columns}, "pair": ({0: rows, 1: columns}, {0: rows, 1: columns})}
    program = torch.export.export(Several(), example, dynamic_shapes=shapes)
    build(program, "host", tmp_path, name="several")
    model = loaded(tmp_path, "several").load()
    for r, c in ((1, 1), (1, 7), (13, 1), (4, 6), (50, 50), (33, 2)):
        x, a, flags = (np.random.default_rng(r + c + i).normal(size=(r, c)).astype("float32") for i in range(3))
        found = model(x, a, flags > 0)
        with torch.no_grad():
            expected = program.module()(torch.from_numpy(x), (torch.from_numpy(a), torch.from_numpy(flags > 0)))
        for y, e in zip(found, expected.values(), strict=True):
            assert same_bits(y, e.contiguous().numpy()), (r, c)


def refused(model: Any, example: Any, tmp_path: Path, **options: Any) -> str:
    program = torch.export.export(model, example, **options.pop("export", {}))
    with pytest.raises(BuildError) as found:
        build(program, "host", tmp_path, name=options.pop("name", "m"), **options)
    assert not list(tmp_path.iterdir())
    return str(found.value)


class Function(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def _written_below_a_view(x: Any) -> Any:
    y = x * 1
    view = y.view(9)
    y.mul_(2)
    return view + 1


def test_what_cannot_be_built_says_why(tmp_path: Path) -> None:
    x = (torch.randn(3, 3),)
    assert "writes to num_batches_tracked" in refused(torch.nn.BatchNorm1d(3).train(), x, tmp_path)
    assert "export the model in eval mode" in refused(torch.nn.Dropout(0.5).train(), x, tmp_path)
    assert "calls inv, which NumPy computes" in refused(Function(torch.linalg.inv), x, tmp_path)
    assert "mul shares its memory with view" in refused(Function(_written_below_a_view), x, tmp_path)
    assert "select is an input or a view of another tensor" in refused(Function(lambda x: x[0].add_(1)), x, tmp_path)
    assert "cannot be called 'int'" in refused(Function(lambda x: x + 1), x, tmp_path, name="int")
    assert "cannot be called 'My-Net'" in refused(Function(lambda x: x + 1), x, tmp_path, name="My-Net")
    assert "complex" in refused(Function(lambda x: torch.complex(x, x)), x, tmp_path)
    with pytest.raises(ValueError, match="there is no target 'pdp-11'"):
        build(torch.export.export(Function(lambda x: x + 1), x), "pdp-11", tmp_path)
