"""The repr of tensors, as PyTorch prints them: four digits, aligned columns, summaries of large tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flambeau import dtypes

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


@dataclass
class Options:
    """What `set_printoptions` changes."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = Options()


def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None, linewidth: int | None = None,
    profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """How tensors are printed: digits, when to summarise, items at the edges, width of a line, scientific notation."""
    if profile is not None:
        threshold_of = {"default": 1000, "short": 1000, "full": math.inf}
        if profile not in threshold_of:
            raise ValueError(f"set_printoptions: profile must be one of {sorted(threshold_of)}, got {profile!r}")
        OPTIONS.precision = 2 if profile == "short" else 4
        OPTIONS.threshold = threshold_of[profile]
        OPTIONS.edgeitems = 2 if profile == "short" else 3
        OPTIONS.linewidth = 80
    if precision is not None:
        OPTIONS.precision = precision
    if threshold is not None:
        OPTIONS.threshold = threshold
    if edgeitems is not None:
        OPTIONS.edgeitems = edgeitems
    if linewidth is not None:
        OPTIONS.linewidth = linewidth
    OPTIONS.sci_mode = sci_mode


class _Format:
    """How the numbers of one tensor are written: integers, fixed point or scientific, all of one width."""

    def __init__(self, numbers: list[Any], d: dtypes.dtype) -> None:
        self.floating = d.is_floating_point
        self.integral = True
        self.scientific = False
        self.width = 1
        if not self.floating:
            self.width = max([1, *[len(str(x)) for x in numbers]])
            return
        finite = [abs(x) for x in numbers if math.isfinite(x) and x != 0]
        precision = OPTIONS.precision
        if finite:
            self.integral = all(x == math.ceil(x) for x in finite)
            high, low = max(finite), min(finite)
            if self.integral:
                wild = high / low > 1000.0 or high > 1.0e8
                self.scientific = wild
            else:
                self.scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode
        self.precision = precision
        if finite:
            self.width = max([len(self._text(x)) for x in numbers if math.isfinite(x) and x != 0])
        # Infinities, NaN and the sign of -0 do not widen a column, as in PyTorch; where there is nothing but them and zeros, there are no columns.

    def _text(self, x: Any) -> str:
        if not self.floating:
            return str(x)
        if not math.isfinite(x):
            return str(x)
        if self.scientific:
            return f"{x:.{self.precision}e}"
        if self.integral:
            return f"{x:.0f}."
        return f"{x:.{self.precision}f}"

    def __call__(self, x: Any) -> str:
        return self._text(x).rjust(self.width)


class _ComplexFormat:
    """Real and imaginary parts, each with a format of its own."""

    def __init__(self, numbers: list[complex], d: dtypes.dtype) -> None:
        self.real = _Format([x.real for x in numbers], d.to_real())
        self.imag = _Format([x.imag for x in numbers], d.to_real())
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, x: complex) -> str:
        text = self.imag(x.imag).strip()
        sign = "" if text.startswith("-") else "+"
        return f"{self.real(x.real)}{sign}{text}j"


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, list):
        return [y for part in x for y in _leaves(part)]
    return [x]


def _summary(t: Tensor) -> Tensor:
    """The edges of every dimension: what a summarised print shows."""
    import flambeau

    edge = OPTIONS.edgeitems
    for d in range(t.ndim):
        if t.shape[d] > 2 * edge:
            t = flambeau.cat((t.narrow(d, 0, edge), t.narrow(d, t.shape[d] - edge, edge)), d)  # type: ignore
    return t


def _render(x: Any, shape: tuple[int, ...], indent: int, form: Any, summarise: bool) -> str:
    edge = OPTIONS.edgeitems
    if not shape:
        return str(form(x))
    cut = summarise and shape[0] > 2 * edge
    if len(shape) == 1:
        per_line = max(1, (OPTIONS.linewidth - indent) // (form.width + 2))
        words = [form(y) for y in x]
        if cut:
            words[edge:edge] = [" ..."]
        lines = [words[i : i + per_line] for i in range(0, len(words), per_line)]
        return "[" + ("," + "\n" + " " * (indent + 1)).join([", ".join(line) for line in lines]) + "]"
    parts = [_render(y, shape[1:], indent + 1, form, summarise) for y in x]
    if cut:
        parts[edge:edge] = ["..."]
    gap = "," + "\n" * (len(shape) - 1) + " " * (indent + 1)
    return "[" + gap.join(parts) + "]"


def contents(t: Tensor, indent: int) -> str:
    """The values as nested brackets."""
    summarise = t.numel() > OPTIONS.threshold
    shown = _summary(t) if summarise else t
    numbers = shown.tolist()
    flat = _leaves(numbers)
    form = _ComplexFormat(flat, t.dtype) if t.dtype.is_complex else _Format(flat, t.dtype)
    return _render(numbers, tuple(t.shape), indent, form, summarise)


def sparse_repr(t: Any) -> str:
    """`repr` of a sparse tensor: its parts, then size, nnz, dtype and layout (as torch/_tensor_str.py puts them)."""
    indent = len("tensor(")
    names = ("indices",) if t.is_sparse else ("crow_indices", "col_indices") if t.is_sparse_csr else ("ccol_indices", "row_indices")
    lines = []
    for name, part in zip((*names, "values"), (*t._parts(), t._data.detach()), strict=True):
        head = f"{name}=tensor("
        body = contents(part, indent + len(head)) if part.numel() else f"[], size={tuple(part.shape)}"
        lines.append(head + body + ")")
    suffixes = [f"size={tuple(t.shape)}", f"nnz={t._nnz()}"]
    if t.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_):
        suffixes.append(f"dtype={t.dtype}")
    suffixes.append(f"layout={t.layout}")
    if t.grad_fn is not None:
        suffixes.append(f"grad_fn=<{type(t.grad_fn).__name__}>")
    elif t.requires_grad:
        suffixes.append("requires_grad=True")
    text = "tensor(" + (",\n" + " " * indent).join(lines)
    last = len(text) - text.rfind("\n") + 1
    fresh = bool(t.is_sparse)
    for s in suffixes:
        if fresh or last + len(s) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + s
            last = indent + len(s)
            fresh = False
        else:
            text += ", " + s
            last += len(s) + 2
    return text + ")"


def quantized_repr(t: Any) -> str:
    """`repr` of a quantized tensor: the real numbers, then size, dtype, scheme, scale and zero point."""
    indent = len("tensor(")
    body = contents(t.dequantize(), indent) if t.numel() else "[]"
    suffixes = [f"size={tuple(t.shape)}", f"dtype={t.dtype}", f"quantization_scheme={t.qscheme()}"]
    if t._affine.axis is None:
        suffixes += [f"scale={t.q_scale()}", f"zero_point={t.q_zero_point()}"]
    else:
        suffixes += [f"scale={t.q_per_channel_scales()}", f"zero_point={t.q_per_channel_zero_points()}", f"axis={t.q_per_channel_axis()}"]
    return join("tensor(" + body, suffixes, indent)


def tensor_repr(t: Tensor) -> str:
    """`repr(tensor)`."""
    from flambeau.tensor import Tensor as Base

    prefix = "tensor(" if type(t) in (Base,) or type(t).__name__ in ("Parameter", "Buffer") else f"{type(t).__name__}("
    suffixes = []
    plain = t.detach()._plain()
    default = t.dtype in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_, dtypes.get_default_dtype().to_complex())
    if t.device.type != "cpu":
        suffixes.append(f"device='{t.device}'")
    if t.is_meta:  # there is nothing to show
        body = "..."
        suffixes.append(f"size={tuple(t.shape)}")
        if t.dtype is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={t.dtype}")
    elif t.numel() == 0:
        body = "[]"
        if t.ndim != 1:
            suffixes.append(f"size={tuple(t.shape)}")
        if t.dtype is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={t.dtype}")
    else:
        body = contents(plain.view(dtypes.uint8).to(dtypes.float32) if t.dtype is dtypes.float4_e2m1fn_x2 else plain, len(prefix))  # type: ignore[attr-defined]
        if not default:
            suffixes.append(f"dtype={t.dtype}")
    if t.grad_fn is not None:
        suffixes.append(f"grad_fn=<{type(t.grad_fn).__name__}>")
    elif t.requires_grad:
        suffixes.append("requires_grad=True")
    return join(prefix + body, suffixes, len(prefix))


def join(text: str, suffixes: list[str], indent: int, new_line: bool = False) -> str:
    """The text, and what is said behind it, in new lines (moved right by `indent`) where the line would be too long; `new_line`: the first one too."""
    last = len(text) - text.rfind("\n") + 1  # of the last line, and two, as PyTorch counts
    for s in suffixes:
        if new_line or last + len(s) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + s
            last = indent + len(s)
            new_line = False
        else:
            text += ", " + s
            last += len(s) + 2
    return text + ")"
