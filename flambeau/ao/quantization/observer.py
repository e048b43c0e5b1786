"""Observers: modules that watch values go by and choose scales and zero points for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from typing import Any, Final

import flambeau as torch
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

_SYMMETRIC: Final = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
_BY_CHANNELS: Final = (torch.per_channel_affine, torch.per_channel_symmetric, torch.per_channel_affine_float_qparams)
_RANGES: Final = {
    torch.qint8: (-128, 127), torch.int8: (-128, 127), torch.quint8: (0, 255), torch.uint8: (0, 255), torch.qint32: (-(2**31), 2**31 - 1),
    torch.int32: (-(2**31), 2**31 - 1), torch.int16: (-(2**15), 2**15 - 1), torch.uint16: (0, 2**16 - 1), torch.quint4x2: (0, 15), torch.quint2x4: (0, 3),
}  # fmt: skip
EPSILON: Final = 2.0**-23  # of float32: the least scale


class _Partial:
    """A class with some of its arguments: what `with_args` gives, equal where class and arguments are."""

    def __init__(self, p: Any) -> None:
        self.p = p
        self.callable_args: dict[str, Any] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.p(*args, **{**{name: f() for name, f in self.callable_args.items() if name not in keywords}, **keywords})

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **kwargs: Any) -> _Partial:
        """With further arguments."""
        made = _Partial(partial(self.p, **kwargs))
        made.callable_args = dict(self.callable_args)
        return made

    def with_callable_args(self, **kwargs: Any) -> _Partial:
        """With arguments that are made anew for each object."""
        made = _Partial(self.p)
        made.callable_args = {**self.callable_args, **kwargs}
        return made


class ObserverBase(Module):
    """The base of observers: `forward` sees a tensor and gives it back, `calculate_qparams` answers (scales, zero points)."""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: forward")

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """(scales, zero points)."""
        raise NotImplementedError(f"{type(self).__name__}: calculate_qparams")

    @classmethod
    def with_args(cls, **kwargs: Any) -> _Partial:
        """The class with some of its arguments: what a QConfig holds."""
        return _Partial(partial(cls, **kwargs))

    @classmethod
    def with_callable_args(cls, **kwargs: Any) -> _Partial:
        """The class with arguments that are made anew for each object."""
        return _Partial(cls).with_callable_args(**kwargs)


class UniformQuantizationObserverBase(ObserverBase):
    """The base of observers of affine codes: the range of the codes, and the scales that follow from ranges of values."""

    eps: Tensor

    def __init__(
        self, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, reduce_range: bool = False, quant_min: Any = None, quant_max: Any = None,
        factory_kwargs: Any = None, eps: float = EPSILON, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        if dtype not in _RANGES:
            raise AssertionError(f"{type(self).__name__}: Default Observer only works for {', '.join(map(repr, _RANGES))}, got {dtype}")
        self.qscheme = qscheme
        self.reduce_range = reduce_range
        self.register_buffer("eps", torch.tensor([eps]))
        if qscheme in _SYMMETRIC and reduce_range and dtype is torch.quint8 and not isinstance(self, HistogramObserver):
            raise NotImplementedError(f"{type(self).__name__}: Cannot reduce range for symmetric quantization for quint8")
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange:
            if not quant_min <= 0 <= quant_max:
                raise AssertionError(f"{type(self).__name__}: Used-specified quantization range must include 0, got {quant_min} to {quant_max}")
            if quant_min >= quant_max:
                raise AssertionError(f"{type(self).__name__}: qmin must be less than qmax for user-specified quantization range.")
            low, high = quant_min, quant_max
        else:
            low, high = _RANGES[dtype]
        if reduce_range and (self.has_customized_qrange or dtype in (torch.qint8, torch.int8, torch.quint8, torch.uint8)):
            low, high = low // 2, high // 2
        self.quant_min, self.quant_max = low, high

    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        """(scales, zero points) of ranges of values, which are made to hold 0; (1, 0) where nothing was seen."""
        if min_val.numel() == 0 or max_val.numel() == 0 or bool((min_val > max_val).any()):
            if min_val.numel() and bool((min_val.isinf() & max_val.isinf()).all()):
                warn_here("must run observer before calling calculate_qparams. Returning default values.")
            elif min_val.numel():
                raise AssertionError(f"min {min_val} should be less than max {max_val}")
            return torch.tensor([1.0]), torch.tensor([0])
        low, high = min_val.clamp(max=0.0), max_val.clamp(min=0.0)
        steps = float(self.quant_max - self.quant_min)
        if self.qscheme in _SYMMETRIC:
            scale = torch.maximum(torch.maximum(-low, high) / (steps / 2), self.eps)
            middle = (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128
            zero_point = torch.full(scale.shape, middle if self.dtype in (torch.quint8, torch.uint8) else 0, dtype=torch.int64)
        elif self.qscheme is torch.per_channel_affine_float_qparams:
            scale = (max_val - min_val) / steps
            scale = torch.where(scale > self.eps, scale, 1.0)
            zero_point = -min_val / scale
        else:
            scale = torch.maximum((high - low) / steps, self.eps)
            zero_point = (self.quant_min - (low / scale).round().to(torch.int32)).clamp(self.quant_min, self.quant_max)
        return scale.reshape(-1), zero_point.reshape(-1)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val.copy_(torch.full_like(self.min_val, float("inf")))
        self.max_val.copy_(torch.full_like(self.max_val, float("-inf")))

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest value of all tensors seen."""

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, reduce_range: bool = False, quant_min: Any = None, quant_max: Any = None,
        factory_kwargs: Any = None, eps: float = EPSILON, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if qscheme in _BY_CHANNELS:
            raise NotImplementedError("MinMaxObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine.")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic)
        self.register_buffer("min_val", torch.tensor(float("inf")))
        self.register_buffer("max_val", torch.tensor(float("-inf")))

    def _seen(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(low, self.min_val), torch.maximum(high, self.max_val)

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            low, high = self._seen(*torch.aminmax(x_orig.detach().float()))  # type: ignore[attr-defined]
            self.min_val.copy_(low)
            self.max_val.copy_(high)
        return x_orig

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(scale, zero point), each of one element."""
        return self._calculate_qparams(self.min_val, self.max_val)


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Moving averages of the least and greatest values: of each tensor, `averaging_constant` goes into them."""

    def __init__(
        self, averaging_constant: float = 0.01, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, reduce_range: bool = False,
        quant_min: Any = None, quant_max: Any = None, eps: float = EPSILON, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError("MovingAverageMinMaxObserver doesn't support dynamic quantization for averaging constant of {averaging_constant}")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, None, eps, is_dynamic)
        self.averaging_constant = averaging_constant

    def _seen(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        first = self.min_val.isinf() & self.max_val.isinf()
        c = self.averaging_constant
        return torch.where(first, low, self.min_val + c * (low - self.min_val)), torch.where(first, high, self.max_val + c * (high - self.max_val))


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest value of each index of dim `ch_axis`, of all tensors seen."""

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self, ch_axis: int = 0, dtype: Any = torch.quint8, qscheme: Any = torch.per_channel_affine, reduce_range: bool = False, quant_min: Any = None,
        quant_max: Any = None, factory_kwargs: Any = None, eps: float = EPSILON, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if qscheme not in _BY_CHANNELS:
            raise NotImplementedError(
                "PerChannelMinMaxObserver's qscheme only support torch.per_channel_symmetric, torch.per_channel_affine and "
                "torch.per_channel_affine_float_qparams."
            )
        if is_dynamic:
            raise NotImplementedError("PerChannelMinMaxObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", torch.tensor([]))
        self.register_buffer("max_val", torch.tensor([]))

    def _seen(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(low, self.min_val), torch.maximum(high, self.max_val)

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            rows = x_orig.detach().float().movedim(self.ch_axis, 0).flatten(1)  # type: ignore[attr-defined]
            low, high = torch.aminmax(rows, dim=1)
            if self.min_val.numel():
                low, high = self._seen(low, high)
            self.min_val, self.max_val = low, high
        return x_orig

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(scales, zero points), one for each channel."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("min_val", "max_val"):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = torch.tensor([]), torch.tensor([])


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Moving averages of the least and greatest values of each channel."""

    def __init__(self, averaging_constant: float = 0.01, ch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(ch_axis, **kwargs)
        self.averaging_constant = averaging_constant

    def _seen(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        c = self.averaging_constant
        return self.min_val + c * (low - self.min_val), self.max_val + c * (high - self.max_val)


class HistogramObserver(UniformQuantizationObserverBase):
    """A histogram of all values seen, of which the range with the least squared error is chosen.

    The search drops a hundred-thousandth of the values from one end or the other as long as the expected error falls: norm_minimization.cc of Caffe2.
    """

    histogram: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self, bins: int = 2048, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, reduce_range: bool = False, quant_min: Any = None,
        quant_max: Any = None, factory_kwargs: Any = None, eps: float = EPSILON, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if qscheme in _BY_CHANNELS:
            raise NotImplementedError("HistogramObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine.")
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic)
        self.bins = bins
        self.register_buffer("histogram", torch.zeros(bins))
        self.register_buffer("min_val", torch.tensor(float("inf")))
        self.register_buffer("max_val", torch.tensor(float("-inf")))
        self.dst_nbins = 2 ** torch.iinfo(dtype).bits
        self.upsample_rate = 16  # how finely an old histogram is spread over a wider range

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel() == 0:
            return x_orig
        x = x_orig.detach().float()  # type: ignore[attr-defined]
        low, high = torch.aminmax(x)
        if bool(low.isinf()) or bool(high.isinf()):
            warn_here("torch.inf detected in input tensor, ignoring input")
            x = x[x.abs() != float("inf")]
            if x.numel() == 0:
                return x_orig
            low, high = torch.aminmax(x)
        before = self.min_val.item(), self.max_val.item()
        first = before[0] == float("inf") or before[1] == float("-inf")
        new = (low.item(), high.item()) if first else (min(before[0], low.item()), max(before[1], high.item()))
        added = torch.histc(x, self.bins, min=new[0], max=new[1])
        if not first:
            added = added + (self.histogram if new == before else self._spread(before, new))
        self.histogram.copy_(added)
        self.min_val.copy_(torch.tensor(new[0]))
        self.max_val.copy_(torch.tensor(new[1]))
        return x_orig

    def _spread(self, before: tuple[float, float], new: tuple[float, float]) -> Tensor:
        """The old histogram in the bins of a wider range."""
        if before[0] == before[1]:
            return torch.histc(self.min_val.reshape(1), self.bins, min=new[0], max=new[1]) * self.histogram.sum()  # type: ignore[no-any-return]
        count = self.bins * self.upsample_rate
        fine = self.histogram.repeat_interleave(self.upsample_rate) / self.upsample_rate
        half = 0.5 * ((self.max_val - self.min_val) / count)
        middles = torch.linspace(before[0], before[1], count + 1)[:-1] + half
        bounds = torch.linspace(new[0], new[1], self.bins + 1)
        places = (torch.bucketize(middles, bounds, right=True) - 1).clamp(0, self.bins - 1)
        return torch.bincount(places, weights=fine, minlength=self.bins)  # type: ignore[no-any-return]

    def _error(self, histogram: Any, width: float, start: int, end: int) -> float:
        """The expected squared error of codes that cover bins start to end."""
        import numpy as np

        f = np.float32
        code = width * (end - start + 1) / self.dst_nbins
        if code == 0.0:
            return 0.0
        begin = ((np.arange(self.bins) - start) * f(width)).astype(f)
        stop = begin + f(width)
        of_begin = np.clip(np.floor(begin / f(code)), 0, self.dst_nbins - 1)
        of_stop = np.clip(np.floor(stop / f(code)), 0, self.dst_nbins - 1)
        density = histogram / f(width)

        def integral(a: Any, b: Any) -> Any:
            return density * ((b * b * b - a * a * a) / f(3))

        half = f(code / 2)
        norm = integral(begin - (of_begin + f(0.5)) * f(code), half)
        norm = norm + (of_stop - of_begin - 1) * integral(-half, half)
        norm = norm + integral(-half, stop - (of_stop * f(code) + half))
        return float(norm.sum(dtype=f))

    def _search(self) -> tuple[Tensor, Tensor]:
        """The least and greatest value of the range that is chosen."""
        import numpy as np

        histogram = self.histogram.numpy()
        low, high = self.min_val.item(), self.max_val.item()
        width = (high - low) / self.bins
        sums = [float(v) for v in np.cumsum(histogram, dtype=np.float32)]
        total = float(histogram.sum(dtype=np.float32))
        start, end, alpha, beta, least = 0, self.bins - 1, 0.0, 1.0, float("inf")
        step = 1e-5
        while alpha < beta:
            next_alpha, next_beta = alpha + step, beta - step
            left = min(max(bisect_left(sums, float(np.float32(next_alpha * total))), start), end)
            right = max(min(bisect_right(sums, float(np.float32(next_beta * total))) - 1, end), start)
            next_start, next_end = start, end
            if left - start > end - right:
                next_start, alpha = left, next_alpha
            else:
                next_end, beta = right, next_beta
            if (next_start, next_end) == (start, end):
                continue
            error = self._error(histogram, width, next_start, next_end)
            if error > least:
                break
            least, start, end = error, next_start, next_end
        bin_width = (self.max_val - self.min_val) / self.bins
        return self.min_val + bin_width * start, self.min_val + bin_width * (end + 1)

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(scale, zero point), each of one element."""
        if self.min_val.item() == float("inf"):
            warn_here("must run observer before calling calculate_qparams. Returning default scale and zero point")
            return torch.tensor([1.0]), torch.tensor([0])
        return self._calculate_qparams(*self._search())


class FixedQParamsObserver(ObserverBase):
    """A scale and a zero point that are known before."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, scale: float, zero_point: int, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine, quant_min: int = 0, quant_max: int = 255,
        is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", torch.tensor([scale], dtype=torch.float32))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """What was given."""
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Watches nothing: says how something is quantized (dynamically, or to float16)."""

    def __init__(
        self, dtype: Any = torch.float32, custom_op_name: str = "", compute_dtype: Any = None, quant_min: Any = None, quant_max: Any = None,
        qscheme: Any = None, eps: Any = None, is_dynamic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic or compute_dtype is not None)
        self.qscheme = qscheme or torch.per_tensor_affine
        self.quant_min, self.quant_max, self.custom_op = quant_min, quant_max, custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """AssertionError: there is nothing to calculate."""
        raise AssertionError("calculate_qparams should not be called for PlaceholderObserver")


class NoopObserver(ObserverBase):
    """Watches nothing: for values that stay floats."""

    def __init__(self, dtype: Any = torch.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype)
        self.custom_op = custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """AssertionError: there is nothing to calculate."""
        raise AssertionError("calculate_qparams should not be called for NoopObserver")


class ReuseInputObserver(ObserverBase):
    """The scale of an operation's input is that of its output."""

    def __init__(self) -> None:
        super().__init__(torch.quint8)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """AssertionError: it is the input's."""
        raise AssertionError("calculate_qparams should not be called for ReuseInputObserver")


class RecordingObserver(ObserverBase):
    """Keeps a copy of each tensor seen."""

    def __init__(self, dtype: Any = torch.quint8) -> None:
        super().__init__(dtype)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        """What was seen."""
        return self.tensor_val

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """AssertionError: values are only kept."""
        raise AssertionError("calculate_qparams should not be called for RecordingObserver")


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-127, quant_max=127, eps=2**-12
)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_channel_symmetric, quant_min=-127, quant_max=127, eps=2**-12
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(dtype=torch.quint8, quant_min=0, quant_max=255, is_dynamic=True)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(dtype=torch.quint8, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(dtype=torch.quint4x2, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(scale=2.0 / 256.0, zero_point=128, dtype=torch.quint8, quant_min=0, quant_max=255)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(scale=1.0 / 256.0, zero_point=0, dtype=torch.quint8, quant_min=0, quant_max=255)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
