"""Random numbers of PyTorch's CPU generator, bit for bit: the generator's state, and fills of raw memory.

Each fill writes `numel` consecutive elements of a dtype from `address` on (8-byte aligned or better for its own item
size) and moves the state as PyTorch does. PyTorch visits the elements of a target in the order of their addresses; a
target with gaps is filled here densely and copied by the caller, in that order, with `contiguous=False` where it is an
argument. The native code is compiler/kernels/random.py and those beside it. Methods may be called from several threads: each takes the
state's lock.

How PyTorch composes the rest from these (the callers' part):
* `normal(mean tensor, std tensor)`: `normal(0, 1)`, times std, plus mean; complex `randn`: real pairs with std
  sqrt(1/2);
* `multinomial` without replacement, or of one sample: q = `exponential(1)` of the shape of p; the top k (argmax) of p /
  q;
* `random_()` of a dtype: `integers(*full_range(dtype))`; `randint(low, high)`: `integers` with `wide=None`.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from flambeau.dtypes import bool_, dtype
from flambeau.upward import upward

DEFAULT_SEED: Final = 67280421310721  # PyTorch's (c10::detail::... default_rng_seed_val)
_WORDS: Final = 624
# get_state(): seed u64, left i32, seeded i32, next u64, 624 words as u64, normal x, y, rho as double, whether normal y
# is valid i32 (padded), then the cached float normal (never used on the CPU today) and whether it is valid (padded).
# PyTorch writes 0 to x and rho and does not read them; here x's place holds how much was drawn from the counter-based stream.
_STATE: Final = struct.Struct("<QiiQ624QQddiIfB3x")
STATE_BYTES: Final = 5056
# Ranges from here on take 64-bit draws (PyTorch 2.13: fewer bits would favour small numbers by 2^-4 and more).
_WIDE_RANGE: Final = 1 << 28


class _Native(ctypes.Structure):
    """Layout: compiler/kernels/random.py."""

    _fields_ = [
        ("words", ctypes.c_uint32 * _WORDS), ("left", ctypes.c_int32), ("next", ctypes.c_int32),
        ("cached", ctypes.c_double), ("has_cached", ctypes.c_int64),
    ]  # fmt: skip


_functions: dict[str, Callable[..., int]] = {}
# The same as builtins, of (count, state, target, draw, words): a tenth of the time of a call by ctypes, but under the GIL.
_builtins: dict[str, Callable[..., int]] = {}
_SHORT: Final = 1 << 14  # elements: ten microseconds and more, in which another thread may run
_BUILTIN: Final = """
define i64 @$NAME(ptr %call) #0 {
entry:
  %fill = load ptr, ptr %call
  %io = getelementptr i64, ptr %call, i64 2
  %count = load i64, ptr %io
  %args = getelementptr i64, ptr %io, i64 1
  %status = call i64 %fill(ptr %args, i64 0, i64 %count, i64 0)
  ret i64 %status
}
attributes #0 = { nounwind }
"""
_draw = 0  # address of the function that all fills draw words with
# Argument words after the addresses of the state, the target and `draw`: d a double, q an integer.
_PACK: Final = {layout: struct.Struct("=qqq" + layout).pack_into for layout in ("", "q", "qq", "qqqq", "dd", "qdd")}
_ARGUMENT_BYTES: Final = 56


@upward
def fill_emitter(name: str) -> Callable[..., str]:
    """What writes the text of a function that draws (compiler/kernels/random_fills.py)."""
    raise NotImplementedError


def _compile(key: str, emitter: str, facts: dict[str, Any], layout: str) -> Callable[..., int]:
    """The native function of a key, from `emitter`(key, **facts) of compiler/kernels/random_fills.py or random_rejection.py."""
    from flambeau.runtime import jit, native_calls, twice

    global _draw
    draw_key = "random:draw"
    emit = fill_emitter(emitter)
    found = jit.functions((
        (draw_key, partial(fill_emitter("emit_draw"), draw_key)), (key, partial(emit, key, **facts)), native_calls.module("fill", _BUILTIN, {}),
    ), light=frozenset((draw_key, key)))  # fmt: skip
    _draw, address, run = map(twice.best, found)
    for made in (draw_key, key):
        twice.when_replaced(made, partial(_forget, key))
    if native_calls.available():
        _builtins[key] = native_calls.entry(run, address, "qqqq" + layout)
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    _functions[key] = signature(address)
    return _functions[key]


def _forget(key: str) -> None:
    """There is better code: have its address taken anew."""
    _functions.pop(key, None)
    _builtins.pop(key, None)


def _signed(number: int) -> int:
    """The 64-bit integer with the same low bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


class MersenneState:
    """The state of one mt19937 generator, and the fills that draw from it; and the position in the counter-based stream of the same seed."""

    initial_seed: int
    counter: int  # elements drawn from the counter-based stream since the seed was given

    def __init__(self, seed: int = DEFAULT_SEED) -> None:
        self._start(_Native())
        self.seed(seed)

    def _start(self, native: _Native) -> None:
        self._native = native
        self._address = ctypes.addressof(native)
        self._arguments = ctypes.create_string_buffer(_ARGUMENT_BYTES)
        self._arguments_address = ctypes.addressof(self._arguments)
        self.lock = threading.RLock()

    # -- state ------------------------------------------------------------------------------------------------------
    def seed(self, seed: int) -> None:
        """Start again from `seed` (64 bits are kept, the low 32 start the words, as in PyTorch). Drops the cached
        normal. The first number drawn makes the other words of the first (compiler/kernels/random.py), as many generators are seeded for few numbers."""
        with self.lock:
            self.initial_seed = seed & ((1 << 64) - 1)
            native = self._native
            native.words[0] = self.initial_seed & 0xFFFFFFFF
            native.left, native.next = 0, 0
            native.cached, native.has_cached = 0.0, 0
            self.counter = 0

    def _expand(self) -> None:
        """Make the words of a generator that was seeded and not drawn from, as the first draw does."""
        native = self._native
        if native.left == 0:
            word = native.words[0]
            words = [word]
            for j in range(1, _WORDS):
                word = (1812433253 * (word ^ (word >> 30)) + j) & 0xFFFFFFFF
                words.append(word)
            native.words[:] = words
            native.left = 1

    def count(self, elements: int) -> int:
        """The position of the next `elements` of the counter-based stream, which are taken."""
        with self.lock:
            position = self.counter
            self.counter = position + elements
        return position

    def get_state(self) -> bytes:
        """The 5056 bytes of `torch.Generator().get_state()`."""
        with self.lock:
            self._expand()
            n = self._native
            return _STATE.pack(
                self.initial_seed, n.left, 1, n.next, *n.words, self.counter, n.cached if n.has_cached else 0.0, 0.0,
                n.has_cached, 0, 0.0, 0,
            )  # fmt: skip

    def set_state(self, state: bytes) -> None:
        """Continue from what `get_state` (this one or PyTorch's) gave. RuntimeError if it is not such a state."""
        if len(state) != STATE_BYTES:
            raise RuntimeError(
                f"RNG state is wrong size: expected {STATE_BYTES} bytes of a CPU generator's state, got {len(state)}; pass what get_state() returned"
            )
        fields = _STATE.unpack(state)
        counter, normal_y, _, valid = fields[4 + _WORDS : 8 + _WORDS]
        seed, left, _, following = fields[:4]
        if not (1 <= left <= _WORDS and 0 <= following <= _WORDS and left + following in (1, _WORDS + 1)):
            raise RuntimeError(f"Invalid mt19937 state: left {left} and next {following} do not belong together")
        with self.lock:
            self.initial_seed = seed
            native = self._native
            native.words[:] = fields[4 : 4 + _WORDS]
            native.left, native.next = left, following
            native.cached, native.has_cached = normal_y, int(bool(valid))
            self.counter = counter

    def clone(self) -> MersenneState:
        """Another generator in the same state."""
        other = MersenneState.__new__(MersenneState)
        with self.lock:
            other.initial_seed, other.counter = self.initial_seed, self.counter
            other._start(_Native.from_buffer_copy(self._native))
        return other

    def _run(self, key: str, emitter: str, facts: dict[str, Any], address: int, numel: int, layout: str, *words: float) -> int:
        if numel == 0:
            return 0
        function = _functions.get(key) or _compile(key, emitter, facts, layout)
        short = _builtins.get(key) if numel <= _SHORT else None
        with self.lock:
            if short is not None:
                return short(numel, self._address, address, _draw, *words)
            _PACK[layout](self._arguments, 0, self._address, address, _draw, *words)
            return function(self._arguments_address, 0, numel, 0)

    # -- fills ------------------------------------------------------------------------------------------------------
    def uniform(self, address: int, numel: int, d: dtype, low: float = 0.0, high: float = 1.0) -> None:
        """`uniform_(low, high)`: floating elements in [low, high). Also rand (0, 1)."""
        self._run(f"random:uniform:{d.name}", "emit_uniform", {"d": d}, address, numel, "dd", low, high)

    def normal(self, address: int, numel: int, d: dtype, mean: float = 0.0, std: float = 1.0, contiguous: bool = True) -> None:
        """`normal_(mean, std)` of a floating dtype. Fewer than 16 elements, and targets that are not `contiguous`, are
        drawn one by one, which gives other numbers."""
        if numel >= 16 and contiguous:
            self._run(f"random:normal:{d.name}", "emit_normal", {"d": d}, address, numel, "dd", mean, std)
        else:
            self._serial("normal_serial", address, numel, d, mean, std, False)

    def _serial(self, name: str, address: int, numel: int, d: dtype, mean: float, std: float, logarithmic: bool) -> None:
        facts = {"d": d, "logarithmic": logarithmic}
        self._run(f"random:{name}:{d.name}", "emit_normal_serial", facts, address, numel, "dd", mean, std)

    def log_normal(self, address: int, numel: int, d: dtype, mean: float = 1.0, std: float = 2.0) -> None:
        """`log_normal_(mean, std)` of a floating dtype."""
        self._serial("log_normal", address, numel, d, mean, std, True)

    def _transformed(self, kind: str, address: int, numel: int, d: dtype, a: float, b: float = 0.0) -> None:
        key = f"random:{kind}:{d.name}"
        self._run(key, "emit_transformed", {"d": d, "kind": kind}, address, numel, "dd", a, b)

    def exponential(self, address: int, numel: int, d: dtype, rate: float = 1.0) -> None:
        """`exponential_(lambd=rate)` of a floating dtype."""
        self._transformed("exponential", address, numel, d, rate)

    def geometric(self, address: int, numel: int, d: dtype, p: float) -> None:
        """`geometric_(p)`, 0 < p < 1, of any real dtype."""
        self._transformed("geometric", address, numel, d, p)

    def cauchy(self, address: int, numel: int, d: dtype, median: float = 0.0, sigma: float = 1.0) -> None:
        """`cauchy_(median, sigma)` of a floating dtype."""
        self._transformed("cauchy", address, numel, d, median, sigma)

    def bernoulli(self, address: int, numel: int, d: dtype, p: float) -> None:
        """`bernoulli_(p)` with one probability, of any real dtype: ones and zeros."""
        self._transformed("bernoulli", address, numel, d, p)

    def keep(self, address: int, numel: int, p: float) -> None:
        """`bernoulli(p)` of bool elements: dropout's masks, many of them short."""
        short = _builtins.get("random:bernoulli:bool")
        if short is None or numel > _SHORT:
            self.bernoulli(address, numel, bool_, p)
            return
        with self.lock:
            short(numel, self._address, address, _draw, p, 0.0)

    def bernoulli_each(self, address: int, numel: int, d: dtype, p_address: int, p_dtype: dtype) -> None:
        """`bernoulli_(p)`, `bernoulli(p)` with a probability for each element: `numel` dense elements of a floating
        dtype."""
        key = f"random:bernoulli_each:{d.name}:{p_dtype.name}"
        self._run(key, "emit_bernoulli_each", {"d": d, "probability": p_dtype}, address, numel, "q", p_address)

    def integers(self, address: int, numel: int, d: dtype, low: int, high: int, wide: bool | None = None) -> None:
        """`randint(low, high)`, `random_(low, high)`: integers in [low, high) as any real dtype. `wide`: whether to use
        64-bit draws (None: what PyTorch's `random_from_to` does for the range). A range of 2^64 is allowed."""
        range_ = high - low
        if not 0 < range_ <= 1 << 64:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        wide = range_ >= _WIDE_RANGE if wide is None else wide
        key = f"random:integers{64 if wide else 32}:{d.name}"
        words = _signed(range_), _signed(low)
        self._run(key, "emit_integers", {"d": d, "wide": wide}, address, numel, "qq", *words)

    def random(self, address: int, numel: int, d: dtype) -> None:
        """`random_()`: the whole non-negative range of an integer dtype; of a floating one the integers that it
        holds."""
        high, wide = full_range(d)
        self.integers(address, numel, d, 0, high, wide)

    def permutation(self, address: int, numel: int) -> None:
        """`randperm(numel)` as int64."""
        wide = numel >= ((1 << 32) - 1) // 20
        key = f"random:permutation{64 if wide else 32}"
        self._run(key, "emit_permutation", {"wide": wide}, address, numel, "")

    def multinomial(self, address: int, rows: int, samples: int, p_address: int, categories: int, d: dtype) -> None:
        """`multinomial(p, samples, replacement=True)`: int64 (rows, samples) from dense p (rows, categories) of dtype
        `d`."""
        sums = (ctypes.c_double * categories)()
        key = f"random:multinomial:{d.name}"
        words = p_address, categories, samples, ctypes.addressof(sums)
        status = self._run(key, "emit_multinomial", {"d": d}, address, rows, "qqqq", *words)
        if status == 1:
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if status == 2:
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")

    def _rejected(self, kind: str, address: int, numel: int, d: dtype, *parameters: int) -> int:
        layout = "q" * len(parameters)
        return self._run(f"random:{kind}:{d.name}", f"emit_{kind}", {"d": d}, address, numel, layout, *parameters)

    def gamma(self, address: int, numel: int, d: dtype, shape_address: int) -> None:
        """`_standard_gamma(shape)`: `numel` dense shapes of the floating dtype `d`."""
        self._rejected("gamma", address, numel, d, shape_address)

    def poisson(self, address: int, numel: int, d: dtype, rate_address: int) -> None:
        """`poisson(rate)`: `numel` dense rates of the floating dtype `d`."""
        if self._rejected("poisson", address, numel, d, rate_address):
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")

    def binomial(self, address: int, numel: int, d: dtype, count_address: int, probability_address: int) -> None:
        """`binomial(count, prob)`: `numel` dense counts and probabilities of the floating dtype `d`."""
        self._rejected("binomial", address, numel, d, count_address, probability_address)

    def rrelu(self, address: int, numel: int, d: dtype, input_address: int, input_dtype: dtype, low: float, high: float) -> None:
        """Slopes of rrelu: `numel` elements of the floating dtype `d`, 1 where the dense input is greater than 0 or NaN, else of [low, high)."""
        facts = {"d": d, "source": input_dtype}
        self._run(f"random:rrelu:{d.name}:{input_dtype.name}", "emit_rrelu", facts, address, numel, "qdd", input_address, low, high)


def full_range(d: dtype) -> tuple[int, bool]:
    """(number of values, whether drawn from 64 bits) of `random_()` for a real dtype."""
    digits: dict[str, Any] = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
    if d.is_floating_point:
        return (1 << digits[d.name]) + 1, d.itemsize == 8
    if d.category == 0:
        return 2, False
    bits = 8 * d.itemsize - (1 if d.is_signed else 0)
    return 1 << bits, d.itemsize == 8
