"""Native code: from IR text to an address, by OrcJIT. Process table first, then the disk cache, then LLVM.

LLVM is loaded when the first function is wanted. Nothing here allows fast-math, and LLVM by default contracts no
separate multiplication and addition: only explicit fma operations fuse, so that fused kernels give the bits of the
unfused ones.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from flambeau.runtime import claims, compile_farm, object_cache, twice
from flambeau.runtime.target import Target, code_level
from flambeau.statistics import counters

Emit = Callable[[], str]

_lock = twice.lock  # one for both: each calls the other
_addresses: dict[str, int] = {}
_libraries: dict[str, list[Any]] = {}  # key -> the trackers that keep its code (and that of others) in memory
_linked = 0
_LOOK_EVERY: Final = 256  # links, between two looks at the process's mappings
_MAPPINGS_KEPT: Final = 4096  # for all else, and for the links until the next look: a library takes about three
_crowded = False


def symbol(key: str) -> str:
    """The name under which the module of a key defines its function."""
    return "k_" + hashlib.sha256(key.encode()).hexdigest()[:20]


def function(key: str, emit: Emit) -> int:
    """The address of the function of `key`; `emit()` gives its module's IR text if it has to be compiled."""
    known = _addresses.get(key)
    if known is not None:
        counters.kernels_in_process += 1
        return known
    return functions([(key, emit)])[0]


def functions(items: Sequence[tuple[str, Emit]], small: bool = False, light: frozenset[str] = frozenset()) -> list[int]:
    """The addresses of several functions, given as (key, emit); those that are new are linked in one go. `small`: no other process is worth
    its start for them. `light`: keys whose code may be plain at first (runtime/twice.py); the caller lets `twice.place` see where it puts
    these addresses.

    RuntimeError, with the text, if LLVM refuses what `emit` wrote.
    """
    found = [_addresses.get(key, 0) for key, _ in items]
    if all(found) and not (twice.waits() and any(twice.is_waiting(key) and key not in light for key, _ in items)):
        counters.kernels_in_process += len(items)
        return found
    with _lock:
        missing: dict[str, bytes] = {}
        new: dict[str, Emit] = {}
        for key, emit in items:
            if key in _addresses or key in missing or key in new:
                counters.kernels_in_process += 1
                if twice.is_waiting(key) and key not in light:  # it has much to do this time
                    twice.replace({key: _compile(key, emit)}, link)
                continue
            content = twice.taken(key) or object_cache.load(key)
            if content is None:
                new[key] = emit
            else:
                counters.kernels_from_disk += 1
                missing[key] = content
        plain = {key: emit() for key, emit in new.items() if key in light} if light and twice.usable() else {}
        for key, text in plain.items():
            del new[key]
            missing[key] = compile_text(text, plain=True)
            counters.kernels_compiled += 1
            counters.kernels_plain += 1
        missing |= _made(new, small)
        try:
            _addresses.update(link(missing))
        except RuntimeError:  # find out which, and compile it again
            for key, content in missing.items():
                try:
                    _addresses.update(link({key: content}))
                except RuntimeError:
                    plain.pop(key, None)
                    _addresses.update(link({key: _compile(key, dict(items)[key])}))
        for key, text in plain.items():
            twice.submit(key, text, _addresses[key])
        return [_addresses[key] for key, _ in items]


def unload(keys: Iterable[str]) -> None:
    """Forget functions; code leaves memory when all functions that were linked with it are forgotten.

    The caller knows that nothing runs them or holds their addresses. Asked for again, they come from the disk cache.
    """
    with _lock:
        for key in keys:
            _addresses.pop(key, None)
            _libraries.pop(key, None)


def compile_text(text: str, plain: bool = False, target: Target | None = None) -> bytes:
    """IR text -> object code, optimised for this machine or for `target`. RuntimeError with the text if LLVM refuses it.

    `plain`: in a quarter of the time, hardly optimised, with the same bits as results.
    """
    machine = machine_of(target) if target is not None else _plain_machine() if plain else _machine()
    content: bytes = machine.emit_object(_optimised(text, machine, plain))
    return content


def assembly(text: str, target: Target | None = None) -> str:
    """IR text -> assembly, as `compile_text` would have it: for people and tests."""
    machine = _machine() if target is None else machine_of(target)
    result: str = machine.emit_assembly(_optimised(text, machine))
    return result


def _made(new: dict[str, Emit], small: bool) -> dict[str, bytes]:
    """Code that is not in the cache: what other processes compile already is taken from them, all else is compiled here and by helpers."""
    contents: dict[str, bytes] = {}
    workers = 0 if small else compile_farm.workers_for(len(new))
    if workers:
        own = [key for key in new if claims.claim(key)]
        try:
            contents |= zip(own, compile_farm.compile_all([new[key]() for key in own], compile_text, min(workers, len(own) - 1)), strict=True)
            for key in own:
                object_cache.store(key, contents[key])
                counters.kernels_compiled += 1
        finally:
            for key in own:
                claims.release(key)
    else:
        for key, emit in new.items():
            if claims.claim(key):
                contents[key] = _had_or_compiled(key, emit)
    patient = True
    for key in [key for key in new if key not in contents]:
        patient = claims.wait(key, claims.PATIENCE if patient else 0.0)
        contents[key] = _had_or_compiled(key, new[key])
    return contents


def _had_or_compiled(key: str, emit: Emit) -> bytes:
    """The code of a key that this process has claimed, which it does no longer then: another may have stored it just before."""
    try:
        content = object_cache.load(key)
        if content is None:
            return _compile(key, emit)
        counters.kernels_from_disk += 1
        return content
    finally:
        claims.release(key)


def _compile(key: str, emit: Emit) -> bytes:
    content = compile_text(emit())
    counters.kernels_compiled += 1
    object_cache.store(key, content)
    return content


def _optimised(text: str, machine: Any, plain: bool = False) -> Any:
    """The module of a text, verified and optimised."""
    from llvmlite import binding

    module = parsed(text, binding.create_context())
    optimise(module, machine, plain)
    return module


def parsed(text: str, context: Any) -> Any:
    """The module of a text, verified. RuntimeError with the text if LLVM refuses it."""
    from llvmlite import binding

    try:
        module = binding.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        raise RuntimeError(f"flambeau generated IR that LLVM refuses: {error}\n{text}") from None
    return module


def optimise(module: Any, machine: Any, plain: bool = False) -> None:
    """Run LLVM's passes over a module.

    The generators choose vectors, unrolling and what stays in registers, so a few of LLVM's passes do what its standard pipeline does:
    over 108 kernels of networks 0.3 s instead of 1.8, before 1.8 s of the code generator, for code of the same size and, over all cases
    of the benchmark, of the same speed (docs/performance.md).
    """
    from llvmlite import binding

    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
    passes = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    if not plain:
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_new_gvn_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
    passes.run(module, builder)


# What the code generator calls where a double is rounded to float16 (it may make that of two roundings, for a sign), and C libraries seldom have. Rounded to
# an odd float first: then to round once more is to round once.
_TO_HALF = "__truncdfhf2"
TO_HALF_TEXT = """
define half @__truncdfhf2(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %bits = bitcast float %near to i32
  %last = and i32 %bits, 1
  %even = icmp eq i32 %last, 0
  %inexact = fcmp one double %back, %x
  %moves = and i1 %even, %inexact
  %size = call double @llvm.fabs.f64(double %x)
  %found = call double @llvm.fabs.f64(double %back)
  %beyond = fcmp ogt double %found, %size
  %step = select i1 %beyond, i32 -1, i32 1
  %moved = add i32 %bits, %step
  %odd = select i1 %moves, i32 %moved, i32 %bits
  %float = bitcast i32 %odd to float
  %result = fptrunc float %float to half
  ret half %result
}
declare double @llvm.fabs.f64(double)
"""


def _to_half() -> bytes:
    """The object code of our own `__truncdfhf2`."""
    content = object_cache.load(_TO_HALF)
    return _compile(_TO_HALF, lambda: TO_HALF_TEXT) if content is None else content


def link(objects: dict[str, bytes]) -> dict[str, int]:
    """Load the object code of some keys as one library: the addresses of their functions. RuntimeError if that fails."""
    global _linked
    if not objects:
        return {}
    from llvmlite import binding

    _refuse_crowds()
    engine = _engine()
    builder = binding.JITLibraryBuilder()
    for key, content in objects.items():
        builder.add_object_img(content)
        builder.export_symbol(symbol(key))
    builder.add_current_process()  # for the C library's functions
    if any(_TO_HALF.encode() in content for content in objects.values()):
        builder.add_object_img(_to_half())
    _linked += 1  # a name cannot be used twice, even if the link fails
    tracker = builder.link(engine, f"flambeau{_linked}")
    for key in objects:
        _libraries.setdefault(key, []).append(tracker)
    return {key: tracker[symbol(key)] for key in objects}


def _refuse_crowds() -> None:
    """RuntimeError where the system soon gives the process no more mappings of memory: LLVM would end the process then."""
    global _crowded
    if not _crowded and (_linked + 1) % _LOOK_EVERY:
        return
    mappings, limit = _mappings(), _most_mappings()
    _crowded = mappings > limit - _MAPPINGS_KEPT
    if _crowded:
        raise RuntimeError(
            f"no more compiled kernels can be loaded: this process has {mappings} mappings of memory, and the system allows {limit} "
            f"(vm.max_map_count; {_linked} libraries of kernels have about three each). What is loaded goes on. A program whose calls always have "
            "new forms does its work in several processes, or the limit is raised (sysctl -w vm.max_map_count=262144)."
        )


def _mappings() -> int:
    """How many mappings of memory the process has; 0 where nobody tells."""
    with suppress(OSError):
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    return 0


@cache
def _most_mappings() -> int:
    """How many the system allows."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    return 1 << 31


@cache
def _engine() -> Any:
    """The JIT of this process.

    JITLink puts all sections of a library into one mapping. LLVM's older linker maps each section where there is room:
    more than 2 GiB from code to constants in a fragmented address space, and it aborts the process. JITLink also takes
    half the time (a library of one small kernel: 222 instead of 476 us).
    """
    from llvmlite import binding

    return binding.create_lljit_compiler(_new_machine(), use_jit_link=True)  # which takes the machine over


@cache
def _machine() -> Any:
    """The target machine that compiles. LLVM's calls are serialised by llvmlite."""
    return _new_machine()


@cache
def _plain_machine() -> Any:
    return _new_machine(0)


def _new_machine(level: int | None = None) -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=code_level() if level is None else level, reloc="pic",
        codemodel="default", jit=True,
    )  # fmt: skip


@cache
def machine_of(target: Target) -> Any:
    """LLVM's target machine for a target. RuntimeError if this LLVM does not know it."""
    if target.is_host:
        return _machine()
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    found = binding.Target.from_triple(target.triple)
    return found.create_target_machine(cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default")


def target_description() -> dict[str, str]:
    """What code is compiled for: LLVM's triple, processor name and features, and the machine's architecture."""
    machine = _machine()
    from llvmlite import binding

    return {
        "triple": str(machine.triple), "processor": str(binding.get_host_cpu_name()),
        "features": str(binding.get_host_cpu_features().flatten()), "architecture": platform.machine(),
    }  # fmt: skip
