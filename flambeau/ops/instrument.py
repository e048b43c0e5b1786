"""Public functions that ask `__torch_function__`, while somebody wants to be asked.

A function keeps its identity: its code is exchanged for a stub that calls `dispatch` with the function and a copy of what it was.
While no subclass, duck type or mode is there, no function has a stub, and a call costs what it costs.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

from flambeau.module_names import is_ours, under_flambeau
from flambeau.ops import dispatch
from flambeau.ops.guard import handing, settle
from flambeau.trace.while_set import begun, while_locked

# The modules whose functions can be overridden. Of `torch.nn` the functions are in nn.functional and nn.init.
NAMESPACES = (
    "flambeau", "flambeau.nn.functional", "flambeau.nn.init", "flambeau.linalg", "flambeau.fft", "flambeau.special", "flambeau.autograd",
    "flambeau.functional",
)  # fmt: skip

# Layers below the functions: what they show is nobody's to override.
_INNER = ("flambeau.compiler", "flambeau.runtime", "flambeau.trace", "flambeau.ops.registry", "flambeau.ops.wrapper")

# Functions that make tensors of nothing: modes are asked, and proxies among sizes, but no class of a tensor.
CREATION = frozenset(
    """arange empty empty_permuted empty_strided eye full linspace logspace ones rand randn randint randperm range scalar_tensor tensor as_tensor
    zeros bartlett_window blackman_window hamming_window hann_window kaiser_window tril_indices triu_indices asarray normal""".split()
)

# PyTorch's get_ignored_functions: they ask or set what is no tensor's.
IGNORED = frozenset(
    """typename is_tensor is_storage set_default_tensor_type set_default_device get_default_device set_rng_state get_rng_state manual_seed
    initial_seed seed save load set_printoptions fork get_default_dtype set_default_dtype get_num_interop_threads get_num_threads
    init_num_threads import_ir_module import_ir_module_from_buffer is_anomaly_enabled is_grad_enabled merge_type_from_type_comment parse_ir
    parse_schema parse_type_comment set_anomaly_enabled set_flush_denormal set_num_interop_threads set_num_threads wait from_numpy
    default_generator has_cuda has_cudnn has_lapack device dtype finfo has_mkl has_mps has_mkldnn has_openmp iinfo memory_format qscheme
    set_grad_enabled no_grad enable_grad inference_mode is_inference_mode_enabled layout align_tensors can_cast broadcast_shapes
    chunk_ empty_quantized from_file fill_ promote_types nextafter_ from_dlpack frombuffer compile export stats trace_ vmap
    cond autocast is_warn_always_enabled set_warn_always vitals_enabled set_vital result_type_ get_device_module unify_type_list
    use_deterministic_algorithms are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled
    set_deterministic_debug_mode get_deterministic_debug_mode set_float32_matmul_precision get_float32_matmul_precision
    is_autocast_available is_autocast_enabled set_autocast_enabled get_autocast_dtype set_autocast_dtype Variable variable
    sparse_compressed_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor calculate_gain gradcheck gradgradcheck detect_anomaly
    set_detect_anomaly set_multithreading_enabled has_torch_function has_torch_function_unary has_torch_function_variadic
    handle_torch_function assert_int_or_pair boolean_dispatch is_autocast_cpu_enabled set_autocast_cpu_enabled get_autocast_cpu_dtype
    set_autocast_cpu_dtype get_autocast_gpu_dtype set_autocast_gpu_dtype is_autocast_cache_enabled set_autocast_cache_enabled
    autocast_increment_nesting autocast_decrement_nesting clear_autocast_cache import_module get_file_path""".split()
)


Choice = Callable[[Callable[..., Any], FrameType], Callable[..., Any]]


class Entry:
    """One function with a stub: what it was, as a function of its own, and who wants the stub.

    `asks`: modes and arguments are asked. `choose`: gives what is called in the place of `original` by a caller (ops/placing.py), or None.
    """

    __slots__ = ("asks", "choose", "original", "public", "seat", "stub")

    def __init__(self, public: FunctionType) -> None:
        self.public = public
        self.asks = False
        self.choose: Choice | None = None
        settle(public)
        self.original = FunctionType(public.__code__, public.__globals__, public.__name__, public.__defaults__, public.__closure__)
        self.original.__kwdefaults__ = public.__kwdefaults__
        self.original.__dict__.update(public.__dict__)  # its signature is in there
        self.seat: tuple[dict[str, Any], str] | None = None  # where a wrapper stands whose source is compiled at its first call
        if public.__globals__.get("target_") is public:
            self.seat = public.__globals__, "target_"
        elif public.__globals__.get("twins_", {}).get(public.__code__.co_name) is public:
            self.seat = public.__globals__["twins_"], public.__code__.co_name
        self.stub = handing(self, public.__code__)

    def give(self) -> None:
        """Exchange the function's code for the stub, if it is not there."""
        if self.public.__code__ is not self.stub:
            if self.seat is not None:
                self.seat[0][self.seat[1]] = self.original
            self.public.__code__ = self.stub

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        plain: Callable[..., Any] = self.original
        if self.choose is not None:
            plain = self.choose(plain, sys._getframe(2))
        if not self.asks:
            return plain(*args, **kwargs)
        if not _all[0]:  # no mode: what follows is most calls, which nobody wants to answer
            known = dispatch.PLAIN
            for a in args if not kwargs else (*args, *kwargs.values()):
                cls = a.__class__
                if cls not in known and not ((cls is tuple or cls is list) and all(b.__class__ in known for b in a)):
                    break
            else:
                return plain(*args, **kwargs)
        return dispatch.dispatch(getattr(self.public, "twin_of", self.public), plain, args, kwargs)

    def restore(self) -> None:
        """The function as it was."""
        if self.seat is not None:
            self.seat[0][self.seat[1]] = self.public
            self.public.__defaults__, self.public.__kwdefaults__ = self.original.__defaults__, self.original.__kwdefaults__
        self.public.__code__ = self.original.__code__


# Stubs are given and taken by one thread at a time. What is interrupted is finished by the next block: an `everything` that never came to its end is
# counted only as long as its object lives, and `_all` is True only when every function has its stub.
_changing = threading.RLock()
_entries: dict[FunctionType, Entry] = {}
_blocks: weakref.WeakKeyDictionary[everything, int] = weakref.WeakKeyDictionary()  # how often each has been entered
_all = [False]
_functions = [False]  # stubs in the functions that are no operations, for good


def choose(function: FunctionType, choice: Choice | None) -> None:
    """Let `choice` give what is called in the place of a function, from now on; None: the function itself."""
    while_locked(_changing, _set_choice, function, choice)


def _set_choice(function: FunctionType, choice: Choice | None) -> None:
    found = _entry(function)
    found.choose = choice
    _drop(found)


def _entry(function: FunctionType) -> Entry:
    """The stub of a function, which it is given if it has none."""
    found = _entries.get(function)
    if found is None:
        found = _entries[function] = Entry(function)
    found.give()  # what was interrupted here, or in `_drop`, is in the table, and may have no stub
    return found


def _drop(found: Entry) -> None:
    """Take a stub away that nobody wants."""
    if not found.asks and found.choose is None and _entries.get(found.public) is found:
        found.restore()
        del _entries[found.public]


def overridable(operations: bool = True, creation: bool = False) -> Iterator[tuple[str, str, FunctionType]]:
    """(namespace, name, function) of the public functions that can be overridden; with `creation`, of those that only modes see, too."""
    import importlib

    seen: set[int] = set()
    for namespace in NAMESPACES:
        if namespace not in sys.modules:
            try:
                importlib.import_module(namespace)
            except ModuleNotFoundError:
                continue
        module = sys.modules[namespace]
        for name in vars(module).get("_LAZY_NAMES", ()):  # the module keeps what was looked up: names must not depend on that
            getattr(module, name)
        borrowed = vars(module).get("_FROM_FUNCTIONAL", ())  # their own namespace comes later
        for name, value in list(vars(module).items()):
            if name.startswith("_") or name in borrowed:
                continue
            if name in IGNORED or (name in CREATION and not creation) or type(value) is not FunctionType or id(value) in seen:
                continue
            if not is_ours(value.__module__):
                continue
            if under_flambeau(value.__module__).startswith(_INNER) \
                    and not hasattr(value, "operation") and not name.endswith("_"):  # fmt: skip
                continue
            if not operations and hasattr(value, "operation"):
                continue
            seen.add(id(value))
            yield namespace, name, value


def _tensor_methods() -> Iterator[FunctionType]:
    for name, value in list(vars(dispatch.Tensor).items()):
        if type(value) is FunctionType and name not in dispatch._UNASKED and not (name.startswith("_") and not name.startswith("__")):
            yield value


def functions() -> None:
    """Stubs, from now on, in the functions that are no operations: operations' wrappers find out by themselves."""
    while_locked(_changing, _ask_functions)


def _ask_functions() -> None:
    if not _functions[0]:
        for _, _, function in overridable(operations=False):
            _entry(function).asks = True
        _functions[0] = True


def _ask_all() -> None:
    for _, _, function in overridable(creation=True):
        _entry(function).asks = True
    for function in _tensor_methods():
        _entry(function).asks = True
    _all[0] = True


def _ask_fewer() -> None:
    _all[0] = False
    kept = {function for _, _, function in overridable(operations=False)} if _functions[0] else set()
    for found in list(_entries.values()):
        if found.public not in kept:
            found.asks = False
            _drop(found)


class everything:
    """A block in which every public function and every method of Tensor has a stub. An object may be entered several times."""

    def __enter__(self) -> None:
        while_locked(_changing, self._enter)

    def __exit__(self, *_: Any) -> None:
        while_locked(_changing, self._exit)

    def _enter(self) -> None:
        _blocks[self] = _blocks.get(self, 0) + 1
        if not _all[0]:
            begun(_ask_all, self._exit)

    def _exit(self) -> None:
        left = _blocks.get(self, 1) - 1
        if left:
            _blocks[self] = left
        else:
            _blocks.pop(self, None)
        if not _blocks:
            _ask_fewer()


def original(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a function does by itself, whoever wants to be asked."""
    found = _entries.get(function)  # type: ignore[call-overload]
    return function if found is None else found.original
