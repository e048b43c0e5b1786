"""Measuring kernels (Triton's `triton.testing`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


def do_bench(
    fn: Callable[[], Any], warmup: float = 25, rep: float = 100, grad_to_none: Sequence[Any] | None = None, quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:  # fmt: skip
    """Milliseconds of a call, over `rep` milliseconds of calls: the mean, or what `return_mode` or `quantiles` say."""
    import flambeau

    if return_mode not in ("min", "max", "mean", "median", "all"):
        raise ValueError(f"do_bench: return_mode is {return_mode!r}; it must be min, max, mean, median or all")

    def once() -> float:
        for x in grad_to_none or ():
            x.grad = None
        start = time.perf_counter()
        result = fn()
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, flambeau.Tensor):
                x.data_ptr()  # which runs what is recorded
        return 1e3 * (time.perf_counter() - start)

    def measured(milliseconds: float) -> list[float]:
        end, found = time.perf_counter() + milliseconds / 1e3, [once()]
        while time.perf_counter() < end:
            found.append(once())
        return found

    measured(warmup)
    times = sorted(measured(rep))
    if quantiles is not None:
        found = [_quantile(times, q) for q in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times
    return {"min": times[0], "max": times[-1], "median": _quantile(times, 0.5), "mean": sum(times) / len(times)}[return_mode]


do_bench_cudagraph = do_bench


def _quantile(times: list[float], q: float) -> float:
    at = q * (len(times) - 1)
    low = int(at)
    high = min(low + 1, len(times) - 1)
    return times[low] + (at - low) * (times[high] - times[low])


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """AssertionError unless two tensors or arrays are close."""
    import numpy

    a, b = (v.detach().float().numpy() if hasattr(v, "detach") else numpy.asarray(v) for v in (x, y))
    numpy.testing.assert_allclose(a, b, atol=1e-2 if atol is None else atol, rtol=0.0 if rtol is None else rtol, err_msg=err_msg)


class Benchmark:
    """What a plot of times shows: which argument along which axis."""

    def __init__(self, x_names: Sequence[str], x_vals: Sequence[Any], line_arg: str, line_vals: Sequence[Any], line_names: Sequence[str], plot_name: str,
                 args: dict[str, Any], **labels: Any) -> None:  # fmt: skip
        self.x_names, self.x_vals, self.line_arg, self.line_vals = x_names, x_vals, line_arg, line_vals
        self.line_names, self.plot_name, self.args, self.labels = line_names, plot_name, args, labels


class Mark:
    """A function that measures one point, and the benchmarks that ask it."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Any) -> None:
        self.fn, self.benchmarks = fn, benchmarks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def run(self, show_plots: bool = False, print_data: bool = False, save_path: str = "", return_df: bool = False, **kwargs: Any) -> Any:
        """Measure all points and print them. No plot is made."""
        several = isinstance(self.benchmarks, (list, tuple))
        for b in self.benchmarks if several else [self.benchmarks]:
            print(f"{b.plot_name}:")
            print("  ".join([*b.x_names, *b.line_names]))
            for x in b.x_vals:
                xs = x if isinstance(x, (tuple, list)) else [x] * len(b.x_names)
                row = []
                for value in b.line_vals:
                    point = self.fn(**dict(zip(b.x_names, xs, strict=True)), **{b.line_arg: value}, **b.args, **kwargs)
                    row.append(point[0] if isinstance(point, (tuple, list)) else point)
                print("  ".join([*map(str, xs), *(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row)]))


def perf_report(benchmarks: Any) -> Callable[[Callable[..., Any]], Mark]:
    """A decorator: the function measures the points of benchmarks."""
    return lambda fn: Mark(fn, benchmarks)
