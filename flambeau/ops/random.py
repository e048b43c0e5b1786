"""Random tensors: PyTorch's CPU stream for the same seed. Draws happen at the call, into fresh memory, in program order."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flambeau import devices, dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.dtypes import C_NAMES, dtype
from flambeau.foreign import refuse
from flambeau.layouts import strided
from flambeau.ops.at_hand import at_hand, within
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.given_out import given_back, must_fit
from flambeau.ops.shape import sizes_of
from flambeau.ops.signatures import a_dtype, type_name, whole
from flambeau.ops.tied import tied_to
from flambeau.queries import finfo
from flambeau.runtime.buffers import allocate
from flambeau.runtime.random import MersenneState, full_range
from flambeau.trace.existing import blank_tensor, from_buffer
from flambeau.trace.mutation import into
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import Fragment, Trace, local
from flambeau.trace.strides import format_strides
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
_ROOT_OF_TWO: Final = math.sqrt(2.0)


@upward
def reduce_generator(generator: Generator) -> Any:
    """What pickle keeps of a generator (io/pickling.py)."""
    raise NotImplementedError


class Generator:
    """A stream of random numbers with its own state (mt19937, as PyTorch's CPU generator)."""

    def __init__(self, device: Any = "cpu") -> None:
        devices.check(device)
        self.state = MersenneState()

    @property
    def device(self) -> devices.Device:
        """The CPU."""
        return devices.CPU

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream that belongs to `seed`; returns the generator."""
        seed = int(seed)
        if not -0x8000_0000_0000_0000 <= seed <= 0xFFFF_FFFF_FFFF_FFFF:
            raise RuntimeError(f"Overflow when unpacking long long: seed {seed} must fit into 64 bits")
        self.state.seed(seed % (1 << 64))
        return self

    def initial_seed(self) -> int:
        """The seed of the current stream."""
        return self.state.initial_seed

    def seed(self) -> int:
        """Seed from the operating system's randomness; returns the seed."""
        import secrets

        self.manual_seed(secrets.randbits(53))
        return self.initial_seed()

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor in PyTorch's layout."""
        from flambeau.ops.from_memory import frombuffer

        return frombuffer(bytearray(self.state.get_state()), dtype=dtypes.uint8).clone()  # type: ignore[attr-defined, no-any-return]

    def set_state(self, new_state: Tensor) -> Generator:
        """Restore a state that `get_state` gave (here or in PyTorch); returns the generator."""
        if new_state.dtype is not dtypes.uint8:
            raise TypeError(f"expected a torch.ByteTensor, but got {new_state.dtype}")
        self.state.set_state(new_state.numpy().tobytes())
        return self

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"

    def __reduce__(self) -> Any:
        return reduce_generator(self)

    def clone_state(self) -> Generator:
        """A new generator in the same state."""
        made = Generator()
        made.state = self.state.clone()
        return made


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore the state of the default generator."""
    default_generator.set_state(new_state)


def draws(function: F) -> F:
    """Decorator of a function that draws at its call: where a transform (vmap, jvp) is active, that decides what is drawn."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if type(local.trace) is not Trace and not isinstance(local.trace, Fragment):
            return local.trace.random(call, args, kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def _filled(shape: tuple[int, ...], d: dtype, fill: Any, device: Any = None) -> Tensor:
    """A new tensor whose memory `fill(address, numel)` writes; on `meta` nothing is drawn."""

    if min(shape, default=0) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    if 0 in shape:
        from flambeau.ops.creation import check_counts

        check_counts(shape)
    if device is not None and devices.is_meta(device):
        return blank_tensor(shape, d)  # type: ignore[no-any-return]
    numel = math.prod(shape)
    buffer = allocate(numel * d.itemsize)
    if numel:
        fill(buffer.address, numel)
    return from_buffer(buffer, shape, d)


def _state(generator: Any) -> MersenneState:
    refuse((generator,), "the argument `generator`")
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return (default_generator if generator is None else generator).state


def _floating(d: dtype | None, name: str) -> dtype:
    d = dtypes.get_default_dtype() if d is None else a_dtype(name, d)
    if d.category < 2 or d.itemsize == 1:
        raise NotImplementedError(f"\"{name}\" not implemented for '{C_NAMES.get(d.name, d.name)}': random numbers need a floating dtype of 16 bits or more")
    return d


def _make(shape: tuple[int, ...], d: dtype, generator: Any, kind: str, requires_grad: bool, device: Any) -> Any:
    state = _state(generator)
    if d in dtypes.NAMED:
        raise dtypes.not_held(d)
    if d.is_complex:
        scale = 1.0 / _ROOT_OF_TWO
        real = d.to_real()
        fill = (lambda a, n: state.normal(a, 2 * n, real, 0.0, scale)) if kind == "normal" else (
            lambda a, n: state.uniform(a, 2 * n, real)
        )  # fmt: skip
    elif kind == "normal":
        fill = lambda a, n: state.normal(a, n, d)  # noqa: E731
    else:
        fill = lambda a, n: state.uniform(a, n, d)  # noqa: E731
    t = _filled(shape, d, fill, device)
    return t.requires_grad_() if requires_grad else t


def _drawn_into(out: Any, shape: tuple[int, ...], options: tuple[Any, ...], requires_grad: bool, name: str, draw: Any) -> Any:
    """`out` with new elements, drawn in the order of its addresses. `options`: dtype, layout and device as given."""
    must_fit(name, out, *options)
    return given_back(draw(out if tuple(out.shape) == shape else out.resize_(shape)), requires_grad)


@draws
def rand(*sizes: Any, size: Any = None, generator: Any = None, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """Uniform numbers in [0, 1)."""
    shape = _shape("rand", sizes, size)
    if out is not None:
        return _drawn_into(out, shape, (dtype, layout, device), requires_grad, "rand", lambda t: uniform_(t, generator=generator))  # type: ignore[no-any-return]
    return _make(shape, _floating(dtype, "rand"), generator, "uniform", requires_grad, device)  # type: ignore[no-any-return]


@draws
def randn(*sizes: Any, size: Any = None, generator: Any = None, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
          requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """Numbers of the standard normal distribution."""
    shape = _shape("randn", sizes, size)
    if out is not None:
        return _drawn_into(out, shape, (dtype, layout, device), requires_grad, "randn", lambda t: normal_(t, generator=generator))  # type: ignore[no-any-return]
    return _make(shape, _floating(dtype, "randn"), generator, "normal", requires_grad, device)  # type: ignore[no-any-return]


def _shape(name: str, sizes: tuple[Any, ...], size: Any) -> tuple[int, ...]:
    if not sizes and size is None:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    return sizes_of(sizes if size is None else (size,))


@draws
def rand_like(input: Tensor, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
              memory_format: Any = None, generator: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """rand with the shape, dtype and memory order of `input`."""
    d = _floating(dtype or input.dtype, "rand_like")
    if _row_major(input, memory_format):
        return rand(tuple(input.shape), dtype=d, device=_where(input, device), requires_grad=requires_grad, generator=generator)
    t = uniform_(_like(input, d, memory_format, device), generator=generator)
    return t.requires_grad_() if requires_grad else t


@draws
def randn_like(input: Tensor, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
               memory_format: Any = None, generator: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """randn with the shape, dtype and memory order of `input`."""
    d = _floating(dtype or input.dtype, "randn_like")
    if _row_major(input, memory_format):
        return randn(tuple(input.shape), dtype=d, device=_where(input, device), requires_grad=requires_grad, generator=generator)
    t = normal_(_like(input, d, memory_format, device), generator=generator)
    return t.requires_grad_() if requires_grad else t


def _row_major(input: Tensor, memory_format: Any) -> bool:
    """Whether a tensor like `input` is row-major: its strides are those of its sizes alone."""
    m = input._meta
    return format_strides(tuple(m.shape), m.strides, memory_format) == contiguous_strides(m.shape)


def _where(input: Tensor, device: Any) -> Any:
    """The device of what is drawn like `input`."""
    return input._meta.device if device is None else device


def _like(input: Tensor, d: dtype, memory_format: Any = None, device: Any = None) -> Tensor:
    """Memory in the order of `input`'s, or in a memory format: the elements are drawn in the order of the addresses."""
    from flambeau.ops.creation import empty_like

    return empty_like(input, dtype=d, memory_format=memory_format, device=device)


@draws
def randint(*args: Any, generator: Any = None, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False, pin_memory: bool = False, low: int = 0, high: int | None = None,
            size: Any = None) -> Tensor:  # fmt: skip
    """Integers in [low, high): randint(high, size) or randint(low, high, size)."""
    values = list(args)
    if size is None:
        if not values:
            raise TypeError("randint(): missing argument 'size'")
        size = values.pop()
        if not isinstance(size, (tuple, list)):
            raise TypeError(f"randint(): argument 'size' (position {len(args)}) must be tuple of ints, not {type_name(size)}")
    if len(values) == 2:
        low, high = values
    elif len(values) == 1:
        (high,) = values
    elif values:
        raise TypeError(f"randint(): expected (high, size) or (low, high, size), got {len(args)} arguments by position")
    if high is None:
        raise TypeError("randint(): missing argument 'high'")
    low, high = whole("randint", "low", low), whole("randint", "high", high)
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if out is not None:
        draw = lambda t: random_(t, low, high, generator=generator)  # noqa: E731
        return _drawn_into(out, sizes_of((size,)), (dtype, layout, device), requires_grad, "randint", draw)  # type: ignore[no-any-return]
    d = dtypes.int64 if dtype is None else a_dtype("randint", dtype)
    refuse_dtype("random", d)
    if d in dtypes.NAMED:
        raise dtypes.not_held(d)
    _check_bounds(d, low, high)
    t = _filled(sizes_of((size,)), d, lambda a, n: _state(generator).integers(a, n, d, low, high), device)
    return t.requires_grad_() if requires_grad else t


@draws
def randint_like(input: Tensor, low: int | None = None, high: int | None = None, *, dtype: dtype | None = None, **options: Any) -> Tensor:
    """randint with the shape, dtype and memory order of `input`: randint_like(input, high) or randint_like(input, low, high)."""
    if high is None:
        low, high = None, low
    if high is None:
        raise TypeError('randint_like() missing 1 required positional arguments: "high"')
    low, high = whole("randint_like", "low", 0 if low is None else low), whole("randint_like", "high", high)
    d = input.dtype if dtype is None else a_dtype("randint_like", dtype)
    memory_format = options.pop("memory_format", None)
    if _row_major(input, memory_format):
        return randint(low, high, tuple(input.shape), dtype=d, **{**options, "device": _where(input, options.get("device"))})
    t = random_(_like(input, d, memory_format, options.get("device")), low, high, generator=options.get("generator"))
    return t.requires_grad_() if options.get("requires_grad") else t


@draws
def randperm(n: int, *, generator: Any = None, out: Any = None, dtype: dtype = dtypes.int64, layout: Any = strided, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """A random permutation of 0 .. n - 1."""
    n = whole("randperm", "n", n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    if out is not None:  # the dtype that is the default is taken beside an `out` of any
        must_fit("randperm", out, None if dtype is dtypes.int64 else dtype, layout, device)
    t = _filled((n,), dtypes.int64, lambda a, m: _state(generator).permutation(a, m), device)
    t = t if dtype is dtypes.int64 else t.to(a_dtype("randperm", dtype))  # type: ignore[attr-defined]
    return given_back(into(out, t, "randperm"), requires_grad)  # type: ignore[no-any-return]


def _fill_in_place(self: Tensor, fill: Any, name: str) -> Tensor:
    """Draw for each element, in the order of the addresses, and write over `self`."""
    from flambeau.trace.mutation import assign

    m = self._meta
    if m.dtype in dtypes.LIMITED:
        refuse_dtype("random", m.dtype)
    if m.is_contiguous:
        drawn = _filled(tuple(m.shape), m.dtype, fill, m.device)
    else:
        order = _order(self)
        drawn = _filled(tuple([m.shape[d] for d in order]), m.dtype, fill, m.device)
        drawn = drawn.permute(sorted(range(m.ndim), key=order.__getitem__))  # type: ignore[attr-defined]
    assign(self, drawn, name)
    return self


def _through_a_copy(self: Tensor, fill: Any, first: float, second: float, generator: Any) -> Tensor:
    """Numbers drawn for memory of its own, written to a view of conjugates or negatives."""
    from flambeau.ops.creation import empty_like
    from flambeau.trace.mutation import assign

    return assign(self, fill(empty_like(self), first, second, generator=generator), fill.__name__)


def _order(x: Tensor) -> list[int]:
    """The dims of a tensor, the one with the longest steps in memory first."""
    strides = x._meta.strides
    return sorted(range(len(strides)), key=lambda d: (-strides[d], d))


@draws
def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None, **named: float) -> Tensor:
    """Fill with uniform numbers in [a, b)."""
    a, b = float(named.pop("from", a)), float(named.pop("to", b))
    if named:
        raise TypeError(f"uniform_() got an unexpected keyword argument {next(iter(named))!r}")
    d = _floating(self.dtype, "uniform_")
    if d.is_complex:
        from flambeau.ops.elementwise import view_as_real

        if self._meta.bits:
            return _through_a_copy(self, uniform_, a, b, generator)
        uniform_(view_as_real(self), a, b, generator=generator)  # type: ignore[operator]
        return self
    for bound, what in ((a, "from"), (b, "to")):
        if not abs(bound) <= finfo(d).max:
            raise RuntimeError(f"uniform_: {what} is out of bounds for {d.name}, got {bound}")
    if a > b:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}")
    if b - a > finfo(d).max:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{C_NAMES[d.name]}>::max(), but found to={b} and from={a} "
            "which result in to-from to exceed the limit"
        )
    return _fill_in_place(self, lambda p, n: _state(generator).uniform(p, n, d, a, b), "uniform_")


@draws
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with normally distributed numbers."""
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if not self._meta.numel:
        return self
    d = _floating(self.dtype, "normal_")
    if d.is_complex:  # half of the variance for each part
        from flambeau.ops.elementwise import view_as_real

        if self._meta.bits:
            return _through_a_copy(self, normal_, mean, std, generator)
        normal_(view_as_real(self), mean, std / _ROOT_OF_TWO, generator=generator)  # type: ignore[operator]
        return self
    dense = self._meta.is_contiguous or bool(self._meta.bits)
    return _fill_in_place(self, lambda p, n: _state(generator).normal(p, n, d, float(mean), float(std), contiguous=dense), "normal_")


def _continuous(d: dtype, name: str) -> None:
    if not d.is_floating_point:
        raise RuntimeError(f"{name} distribution is a continuous probability distribution. dtype must be a floating point but you specified {d.name}")


def _drawn(self: Tensor, name: str, method: str, *parameters: float, generator: Any) -> Tensor:
    d = self.dtype
    given = [float(p) for p in parameters]
    return _fill_in_place(self, lambda p, n: getattr(_state(generator), method)(p, n, d, *given), name)


@draws
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with exponentially distributed numbers of the rate `lambd`. RuntimeError unless that is positive and the dtype floating."""
    if self._meta.numel:
        _continuous(self.dtype, "Exponential")
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return _drawn(self, "exponential_", "exponential", lambd, generator=generator)


@draws
def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fill with the number of trials until the first success of probability p. RuntimeError unless that is inside (0, 1)."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    if self._meta.numel and (self.dtype.category == 0 or self.dtype.is_complex):
        raise NotImplementedError(f'"geometric_cpu" not implemented for {self.dtype.name}: counts need an integer or floating dtype')
    return _drawn(self, "geometric_", "geometric", p, generator=generator)


@draws
def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with Cauchy numbers of this median and scale. RuntimeError unless the scale is positive and the dtype floating."""
    _continuous(self.dtype, "Cauchy")
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return _drawn(self, "cauchy_", "cauchy", median, sigma, generator=generator)


@draws
def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Fill with exp of normal numbers of this mean and deviation. RuntimeError unless the deviation is positive and the dtype floating."""
    refuse_dtype("log_normal", self.dtype)
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    if not self._meta.numel:
        return self
    _floating(self.dtype, "log_normal_cpu")
    return _drawn(self, "log_normal_", "log_normal", mean, std, generator=generator)


@draws
def random_(self: Tensor, *bounds: int, generator: Any = None, **named: Any) -> Tensor:
    """Fill with integers in [0, to), [from, to), or over the dtype's whole range. The bounds' names are `from` and `to`."""
    d = self.dtype
    if named:
        if not named.keys() <= {"from", "to"}:
            raise TypeError(f"random_() got an unexpected keyword argument among {sorted(named)}; its bounds are called 'from' and 'to'")
        bounds = (*bounds, *[named[name] for name in ("from", "to") if name in named])
    if not bounds:
        return _fill_in_place(self, lambda p, n: _state(generator).random(p, n, d), "random_")
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds
    if high is None:
        high = full_range(d)[0]
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    _check_bounds(d, int(low), int(high))
    return _fill_in_place(self, lambda p, n: _state(generator).integers(p, n, d, int(low), int(high)), "random_")


def _check_bounds(d: dtype, low: int, high: int) -> None:
    """Whether the integers of [low, high) are numbers of a dtype. Of a floating one too large ones are rounded."""
    if d.is_complex:
        raise RuntimeError(f"random_: check_random_bounds handles only integral, floating-point and boolean types, got {d.name}")
    if not d.is_floating_point:
        count = full_range(d)[0]
        least = -count if d.is_signed and d.category else 0
        for name, number in (("from", low), ("to - 1", high - 1)):
            if not least <= number < count:
                raise RuntimeError(f"random_: {name} is out of bounds for {d.name}: {number} is not in [{least}, {count - 1}]")
        return
    digits, most = round(-math.log2(finfo(d).eps)) + 1, finfo(d).max
    for name, number in (("from", low), ("to - 1", high - 1)):
        if not -most <= number <= most:
            raise RuntimeError(f"random_: {name} is out of bounds for {d.name}: {number} is not in [{-most}, {most}]")
        if abs(number) > 1 << digits:
            warn_here(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations {d.name} can support discrete uniform distribution only "
                "within this range.",
            )


@draws
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with 1 with probability p (a number, or a tensor of probabilities), else 0."""
    if hasattr(p, "_meta"):
        return _draw_each(self, p.expand(self.shape), generator)
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    d = self.dtype
    return _fill_in_place(self, lambda a, n: _state(generator).bernoulli(a, n, d, float(p)), "bernoulli_")


def _draw_each(target: Tensor, p: Tensor, generator: Any) -> Tensor:
    if not devices.is_meta(p._meta.device) and not within(p._plain(), 0.0, 1.0):  # type: ignore[attr-defined]
        raise RuntimeError("bernoulli(): Expected p_in >= 0 && p_in <= 1 to be true: all probabilities must be from 0 to 1, and none a NaN")
    dense = p.detach()._plain().permute(_order(target)).contiguous()  # type: ignore[attr-defined]  # in the order of the draws
    return _fill_in_place(target, lambda a, n: _state(generator).bernoulli_each(a, n, target.dtype, dense._address(), dense.dtype), "bernoulli_")


@draws
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None, out: Any = None) -> Tensor:
    """1 with the probability that each element of `input` gives (or with probability p), else 0."""
    from flambeau.ops.creation import empty

    if p is None:
        refuse_dtype("bernoulli", input.dtype)

    def draw(target: Tensor) -> Tensor:
        return _draw_each(target, input, generator) if p is None else bernoulli_(target, p, generator=generator)  # type: ignore[no-any-return]

    shape = tuple(input.shape)
    if out is not None:
        if p is None and input.requires_grad and local.main.grad_enabled:
            raise RuntimeError("bernoulli(): functions with out=... arguments don't support automatic differentiation, but input requires grad.")
        return _drawn_into(out, shape, (), False, "bernoulli", draw)  # type: ignore[no-any-return]
    drawn = draw(empty(shape, dtype=input.dtype, device=input._meta.device))
    return tied_to(drawn, input) if p is None else drawn


@draws
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, out: Any = None, dtype: dtype | None = None,
           layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Normal numbers: normal(mean, std) with tensors, or normal(mean, std, size)."""
    if size is not None:
        from flambeau.ops.creation import empty

        if out is not None:
            draw = lambda t: normal_(t, mean, std, generator=generator)  # noqa: E731
            return _drawn_into(out, sizes_of((size,)), (dtype, layout, device), requires_grad, "normal", draw)  # type: ignore[no-any-return]
        t = normal_(empty(size, dtype=dtype, device=device), mean, std, generator=generator)
        return t.requires_grad_() if requires_grad else t
    from flambeau.ops.shape import broadcast_tensors

    shape_of = [x for x in (mean, std) if hasattr(x, "_meta")]
    if not shape_of:
        raise TypeError("normal(): give tensors, or a size")
    if hasattr(std, "_meta") and std.dtype.is_complex:
        raise RuntimeError(f"normal expects standard deviation to be non-complex, got {std.dtype}")
    if at_hand(std) and not within(std, 0.0, math.inf):
        raise RuntimeError("normal(): normal expects all elements of std >= 0.0")
    shape = tuple(broadcast_tensors(*shape_of)[0].shape)
    d = shape_of[0].dtype  # of the mean, where that is a tensor, whatever the deviation has
    t = (randn(shape, dtype=d, generator=generator, device=shape_of[0]._meta.device) * _constant(std) + _constant(mean)).to(d)  # type: ignore[operator, attr-defined]
    return into(out, tied_to(t, mean, std), "normal")


def _constant(x: Any) -> Any:
    """Without gradients: a draw's are zero in PyTorch."""
    return x.detach() if hasattr(x, "_meta") else x


@draws
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Any = None) -> Tensor:
    """Indices drawn with the (unnormalised) probabilities in the rows of `input`."""
    refuse_dtype("multinomial", input.dtype)
    if input.ndim not in (1, 2):
        raise RuntimeError("multinomial(): prob_dist must be 1 or 2 dim")
    if out is not None and out.dtype is not dtypes.int64:
        raise RuntimeError(f"multinomial(): expects Long tensor out, got: {out.dtype.name}")
    categories = input.shape[-1]
    if num_samples <= 0:
        raise RuntimeError("multinomial(): cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > categories:
        raise RuntimeError("multinomial(): cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if input._meta.device is not devices.CPU:
        return into(out, blank_tensor((*input.shape[:-1], num_samples), dtypes.int64), "multinomial")  # type: ignore[no-any-return]
    p = input.detach()._plain().contiguous()  # type: ignore[attr-defined]
    if not bool(((p >= 0) & p.isfinite()).all()):
        raise RuntimeError("multinomial(): probability tensor contains either `inf`, `nan` or element < 0")
    if not bool((p.sum(-1) > 0).all()):
        raise RuntimeError("multinomial(): invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement or num_samples == 1:
        q = exponential_(_like(input, p.dtype), 1.0, generator=generator)
        ratio = p / q
        drawn = ratio.argmax(-1, True) if num_samples == 1 else ratio.topk(num_samples, -1)[1]
        return into(out, drawn, "multinomial")
    rows = 1 if p.ndim == 1 else p.shape[0]
    buffer = allocate(8 * rows * num_samples)
    _state(generator).multinomial(buffer.address, rows, num_samples, p._address(), categories, p.dtype)
    shape = (num_samples,) if p.ndim == 1 else (rows, num_samples)
    drawn = from_buffer(buffer, shape, dtypes.int64)
    if out is not None and tuple(out.shape) != shape:
        out.resize_(shape)  # without a warning, as in PyTorch
    return into(out, drawn, "multinomial")


def install_methods(cls: Any) -> None:
    """In-place fills and draws as methods."""
    for function in (
        uniform_, normal_, exponential_, geometric_, cauchy_, log_normal_, random_, bernoulli_, bernoulli, multinomial,
    ):  # fmt: skip
        setattr(cls, function.__name__, function)
