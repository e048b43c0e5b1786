"""Functions under @jit: kernels that are launched over a grid, and functions that kernels call."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from flambeau.compiler.tile import interpret
from flambeau.compiler.tile.build import Build
from flambeau.compiler.tile.ir import Op, Pointer, Program, TileError, Type
from flambeau.compiler.tile.kernel import Kernel
from flambeau.dtypes import BY_NAME, bool_, float32, int32, int64, uint64
from flambeau.runtime.target import DEVICES, Target
from flambeau.tensor import Tensor
from flambeau.tile.errors import CompilationError
from flambeau.tile.generator import Generator
from flambeau.tile.values import build, constexpr, set_build, tensor, unwrap

# Arguments of a launch that say how a GPU shall run it: accepted, and change nothing here.
IGNORED = frozenset(
    ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "enable_warp_specialization", "warmup", "debug", "launch_cooperative_grid",
     "launch_pdl", "instrumentation_mode", "matrix_instr_nonkdim", "waves_per_eu", "kpack", "ir_override", "sanitize_overflow", "generate_native_code",
     "default_dot_input_precision", "loop_unroll_factor")
)  # fmt: skip


def interpreted() -> bool:
    """Whether launches are run by the NumPy interpreter."""
    return os.environ.get("FLAMBEAU_TILE_INTERPRET", "") not in ("", "0") or os.environ.get("TRITON_INTERPRET", "") == "1"


class JITFunction:
    """A function of the tile language. `f[grid](...)` launches it; a call in another one is expanded in place."""

    def __init__(self, fn: Callable[..., Any], do_not_specialize: Any = (), noinline: bool = False, **_: Any) -> None:
        self.fn = fn
        self.__name__, self.__doc__, self.__module__ = fn.__name__, fn.__doc__, fn.__module__
        self.__qualname__, self.__wrapped__ = fn.__qualname__, fn
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        self.file = inspect.getsourcefile(fn) or "<unknown>"
        try:
            lines, first = inspect.getsourcelines(fn)
        except OSError:
            raise ValueError(f"@jit: the source of {fn.__name__} is not to be found; kernels are read from a file") from None
        self.src = textwrap.dedent("".join(lines))
        tree = ast.parse(self.src).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"@jit: {fn.__name__} is not a function written by `def`")
        self.tree, self.first_line = tree, max(first, 1)
        skipped = unwrap(do_not_specialize)
        self.plain = {n if isinstance(n, str) else self.arg_names[n] for n in skipped}
        self.constants = {n for n, p in self.signature.parameters.items() if "constexpr" in _annotation(p)}
        self._kernels: dict[Any, Launched] = {}

    def __repr__(self) -> str:
        return f"JITFunction({self.__module__}:{self.__name__})"

    # -- the source -------------------------------------------------------------------------------------------------
    def source_line(self, line: int) -> str:
        return linecache.getline(self.file, line)

    def global_value(self, name: str, missing: Any) -> Any:
        """What a name outside of the function stands for."""
        code, closure = self.fn.__code__, self.fn.__closure__ or ()
        for free, cell in zip(code.co_freevars, closure, strict=True):
            if free == name:
                return cell.cell_contents
        return self.fn.__globals__.get(name, missing)

    # -- within another function --------------------------------------------------------------------------------------
    def expand(self, *args: Any, **kwargs: Any) -> Any:
        """The function's body, here; what it returns."""
        kwargs = {k: v for k, v in kwargs.items() if k not in IGNORED or k in self.arg_names}
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return Generator(self, {n: unwrap(v) for n, v in bound.arguments.items()}).run()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            build()
        except RuntimeError:
            raise RuntimeError(f"{self.__name__} is a kernel: launch it over a grid, {self.__name__}[grid](...)") from None
        return self.expand(*args, **kwargs)

    # -- launches -----------------------------------------------------------------------------------------------------
    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compile for these arguments without a launch."""
        return self._launched(self._bound(args, kwargs))

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        kwargs = {k: v for k, v in kwargs.items() if k not in IGNORED or k in self.arg_names}
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.__name__}: {error}") from None
        bound.apply_defaults()
        return {n: unwrap(v) for n, v in bound.arguments.items()}

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch over a grid: up to three sizes, or a function of the arguments that gives them."""
        arguments = self._bound(args, kwargs)
        sizes = grid(arguments) if callable(grid) else grid
        sizes = tuple(int(unwrap(n)) for n in (sizes if isinstance(sizes, (tuple, list)) else (sizes,)))
        if not 1 <= len(sizes) <= 3 or any(n < 0 for n in sizes):
            raise ValueError(f"{self.__name__}: a grid has one to three sizes that are not negative, got {sizes}")
        x, y, z = (*sizes, 1, 1)[:3]
        launched = self._launched(arguments)
        launched.run(arguments, (x, y, z))
        return launched

    def _launched(self, arguments: dict[str, Any]) -> Launched:
        key = tuple(self._key(n, v) for n, v in arguments.items())
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = Launched(self, arguments)
        return found

    def _key(self, name: str, v: Any) -> Any:
        """What a kernel depends on of an argument."""
        if name in self.constants:
            return ("=", type(v), v if getattr(type(v), "__hash__", None) else repr(v))
        if type(v) is int:
            return 1 if v == 1 and name not in self.plain else _integer(v).name
        if isinstance(v, Tensor):
            return v.dtype
        if isinstance(v, (tuple, list)):
            return tuple(self._key("", x) for x in v)
        if hasattr(v, "_tile_key"):
            return v._tile_key()
        return type(v) if isinstance(v, (bool, float)) else ("=", v)


def _annotation(p: inspect.Parameter) -> str:
    a = p.annotation
    return "constexpr" if a is constexpr else a if isinstance(a, str) else ""


def _integer(v: int) -> Any:
    if -(2**31) <= v < 2**31:
        return int32
    if -(2**63) <= v < 2**63:
        return int64
    if v < 2**64:
        return uint64
    raise OverflowError(f"the argument {v} does not fit in 64 bits")


class Launched:
    """A kernel for arguments of certain dtypes and certain constants."""

    def __init__(self, function: JITFunction, arguments: dict[str, Any]) -> None:
        self.function = function
        params: list[tuple[str, Type]] = []
        for name, v in arguments.items():
            self._declare(name, v, params, name in function.constants)

        def scope(left: list[tensor]) -> dict[str, Any]:
            return {n: self._parameter(n, v, left, n in function.constants) for n, v in arguments.items()}

        program, generator = expanded(function, params, scope)
        try:
            self.kernel = Kernel(program, Target.host())
        except TileError as error:
            raise generator.fail(error) from None

    def _declare(self, name: str, v: Any, params: list[tuple[str, Type]], constant: bool) -> None:
        if constant or v is None or isinstance(v, (str, JITFunction)):
            return
        if isinstance(v, Tensor):
            params.append((name, Type(Pointer(v.dtype))))
        elif isinstance(v, bool):
            params.append((name, Type(bool_)))
        elif isinstance(v, int):
            if v != 1 or name in self.function.plain:
                params.append((name, Type(_integer(v))))
        elif isinstance(v, float):
            params.append((name, Type(float32)))
        elif isinstance(v, (tuple, list)):
            for i, x in enumerate(v):
                self._declare(f"{name}.{i}", x, params, False)
        elif hasattr(v, "_tile_arguments"):
            self._declare(name, v._tile_arguments(), params, False)
        elif hasattr(v, "data_ptr") and hasattr(v, "dtype"):
            params.append((name, Type(Pointer(_foreign_dtype(v)))))

    def _parameter(self, name: str, v: Any, left: list[tensor], constant: bool) -> Any:
        if constant or v is None or isinstance(v, (str, JITFunction)):
            return v
        if isinstance(v, int) and not isinstance(v, bool) and v == 1 and name not in self.function.plain:
            return 1
        if isinstance(v, (tuple, list)):
            parts = [self._parameter(f"{name}.{i}", x, left, False) for i, x in enumerate(v)]
            return type(v)(*parts) if hasattr(v, "_fields") else tuple(parts)
        if hasattr(v, "_tile_arguments"):
            return v._tile_in_kernel(self._parameter(name, v._tile_arguments(), left, False))
        if isinstance(v, (Tensor, bool, int, float)) or hasattr(v, "data_ptr"):
            return left.pop(0)
        return v

    # -- a launch -----------------------------------------------------------------------------------------------------
    def run(self, arguments: dict[str, Any], grid: tuple[int, int, int]) -> None:
        """Run what is pending and the tensors ask for, then the grid; the tensors that it writes to count a write."""
        from flambeau.trace.evaluate import leave_as_it_is, observe

        given: list[Any] = []
        for name, v in arguments.items():
            self._collect(name, v, given, name in self.function.constants)
        words: list[int | float | bool] = []
        storages = []
        writes = self.kernel.writes
        for i, v in enumerate(given):
            if not hasattr(v, "data_ptr"):
                words.append(v)
                continue
            if isinstance(v, Tensor):
                if (writes is None or i in writes) and v.requires_grad and v.is_leaf and _recording():
                    raise RuntimeError(
                        f"{self.function.__name__}: writes to a leaf tensor that requires grad; wrap the launch in torch.no_grad() or in an autograd.Function"
                    )
                storages.append((i, observe(v)))
        for i, storage in storages:
            if writes is None or i in writes:
                leave_as_it_is(storage, "tile kernel")
                storage.version += 1
                storage.extent = None
        at = iter([v.data_ptr() for v in given if hasattr(v, "data_ptr")])
        words = [next(at) if hasattr(v, "data_ptr") else v for v in given]
        if interpreted() or self.kernel.prints:
            self._interpret(words, grid, [(s.buffer.address, s.buffer.nbytes) for _, s in storages if s.buffer is not None])
            return
        failed: Op | None = self.kernel.run(words, grid)
        if failed is not None:
            raise _at(AssertionError(failed.attrs["message"]), failed)

    def _interpret(self, words: list[Any], grid: tuple[int, int, int], extents: list[tuple[int, int]]) -> None:
        try:
            interpret.run(self.kernel.program, words, grid, interpret.Memory(extents))
        except TileError as error:
            where = error.where
            if where is None:
                raise
            raise IndexError(f"{where}: {error}\n    {linecache.getline(where.file, where.line).strip()}") from None
        except AssertionError as error:
            raise _at(error, error) from None

    def _collect(self, name: str, v: Any, given: list[Any], constant: bool) -> None:
        if constant or v is None or isinstance(v, (str, JITFunction)):
            return
        if isinstance(v, int) and not isinstance(v, bool) and v == 1 and name not in self.function.plain:
            return
        if isinstance(v, (tuple, list)):
            for i, x in enumerate(v):
                self._collect(f"{name}.{i}", x, given, False)
        elif hasattr(v, "_tile_arguments"):
            self._collect(name, v._tile_arguments(), given, False)
        elif isinstance(v, (Tensor, bool, int, float)) or hasattr(v, "data_ptr"):
            given.append(v)

    # -- what programs ask of a compiled kernel, to choose a grid for a GPU ----------------------------------------------
    n_regs, n_spills = 32, 0

    def _init_handles(self) -> None:
        """Nothing: the code is there when it is first run."""

    @property
    def metadata(self) -> SimpleNamespace:
        """`shared`: the bytes of scratch memory of one thread."""
        return SimpleNamespace(shared=max(self.kernel.lowered.scratch, 64), name=self.function.__name__, num_warps=1, num_stages=1)  # type: ignore[attr-defined]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.function[grid]

    @property
    def asm(self) -> dict[str, str]:
        """Texts of the kernel: `ttir` (the tile IR) and `llir`."""
        from flambeau.compiler.tile.ir import text

        return {"ttir": text(self.kernel.program), "llir": self.kernel.text}

    def assembly(self, target: str) -> str:
        """The kernel's assembly for a machine by name (a processor or, as PTX, a GPU), whichever this one is."""
        from flambeau.compiler.tile import device, lower
        from flambeau.runtime import jit

        is_device = target in DEVICES
        machine = Target.device(target) if is_device else Target.named(target)
        try:
            text = (device if is_device else lower).lower(self.kernel.program, machine, self.function.__name__).text
        except TileError as error:
            raise Generator(self.function, {}).fail(error) from None
        return jit.assembly(text, machine)


def expanded(function: JITFunction, params: list[tuple[str, Type]], scope: Callable[[list[tensor]], dict[str, Any]]) -> tuple[Program, Generator]:
    """The program of a kernel with these parameters, and who made it; `scope` gives the function's arguments, of which the parameters are taken from the
    front of a list."""
    b = Build(function.__name__, params)
    before = set_build(b)
    try:
        generator = Generator(function, scope([tensor(p) for p in b.program.params]))
        result = generator.run()
    finally:
        set_build(before)
    if result is not None:
        raise CompilationError(function.file, function.first_line, "", f"{function.__name__}: a kernel that is launched returns nothing")
    return b.program, generator


def _recording() -> bool:
    from flambeau.grad_modes import is_grad_enabled

    return bool(is_grad_enabled())


def _foreign_dtype(v: Any) -> Any:
    name = str(v.dtype).rpartition(".")[2]
    if name not in BY_NAME:
        raise TypeError(f"a kernel's argument has dtype {v.dtype}, which no tensor here has")
    return BY_NAME[name]


def _at(error: AssertionError, op: Any) -> AssertionError:
    where = getattr(op, "where", None)
    return AssertionError(f"{where}: device assertion failed: {error}" if where is not None else str(error))


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A decorator: the function as a kernel of the tile language. It is read from its source when it is first launched."""
    if fn is None:
        return lambda f: JITFunction(f, **options)
    return JITFunction(fn, **options)
