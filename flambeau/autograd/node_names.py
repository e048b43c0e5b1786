"""The names of autograd's nodes (`grad_fn=<AddBackward0>`): PyTorch's, from the public call that made a tensor.

PyTorch names a node after the native function behind a call and counts its overloads (tools/autograd/derivatives.yaml). Most names follow
from the operation's; for the others there are rules here, compared with PyTorch 2.13 by tests/documentation/test_node_names.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.compiler.graph import Value
from flambeau.exact import value_of
from flambeau.trace.meta import is_contiguous


class Call:
    """A public call: `a[name]` is what stands for an argument in the key of its edge (the slot of a tensor, the class of a number)."""

    def __init__(self, key: tuple[Any, ...], slot: int, values: Sequence[Value]) -> None:
        self.arguments = {n: value_of(k) if kind in ("static", "changing") else k for n, kind, k in zip(key[0].names, key[0].kinds, key[1:], strict=False)}
        self.result = values[slot]
        self.values = values

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def is_tensor(self, name: str) -> bool:
        """Whether an operand is a tensor."""
        return type(self.arguments[name]) is int

    def value(self, name: str) -> Value:
        """Shape, dtype and the like of a tensor argument."""
        return self.values[self.arguments[name]]

    def ndim(self, name: str) -> int:
        """The number of dims of a tensor argument."""
        return len(self.value(name).shape)


Rule = str | Callable[[Call], str]


def camel(name: str) -> str:
    """log1p -> Log1PBackward0: as PyTorch's generator writes it."""
    return "".join(part.title() for part in name.split("_")) + "Backward0"


def name_of_call(key: tuple[Any, ...], slot: int, values: Sequence[Value]) -> str:
    """The node's name for a result (`slot`) of the call with this key: an operation, then what stands for each argument."""
    full = key[0].name
    name = full.removeprefix("nn.functional.").replace(".", "_")
    rule = RULES.get(full) or RULES.get(name)
    if rule is None:
        return camel(name)
    return rule if isinstance(rule, str) else rule(Call(key, slot, values))


# -- kinds of rules -----------------------------------------------------------------------------------------------
def _by_operand(name: str, parameter: str, numbers: int = 0, tensors: int = 1) -> Callable[[Call], str]:
    """Two overloads: for a number and for a tensor."""
    return lambda a: f"{name}Backward{tensors if a.is_tensor(parameter) else numbers}"


def _by_dims(name: str) -> Callable[[Call], str]:
    """Reductions: of all elements, and over dims."""
    return lambda a: f"{name}Backward{int(a['dim'] is not None)}"


def _by_reduction(each: str) -> Callable[[Call], str]:
    """Losses that are compositions: their last step."""
    return lambda a: {"mean": "MeanBackward0", "sum": "SumBackward0", "batchmean": "DivBackward0"}.get(a["reduction"], each)


def _by_batch(dims: int, batched: str) -> Callable[[Call], str]:
    """Functions that add a dim to inputs without a batch, and take it away."""
    return lambda a: batched if a.ndim("input") == dims + 2 else "SqueezeBackward1"


# -- rules of single functions --------------------------------------------------------------------------------------
def _matmul(a: Call) -> str:
    left, right = a.ndim("input"), a.ndim("other")
    if left > 2 or (left == 1 and right > 2):
        return "UnsafeViewBackward0"
    if right > 2:
        return "CloneBackward0"
    return {(1, 1): "Dot", (1, 2): "Squeeze", (2, 1): "Mv", (2, 2): "Mm"}[left, right] + ("Backward4" if (left, right) == (1, 2) else "Backward0")


def name_of_linear(a: Call) -> str:
    """The last node of a linear layer."""
    ndim = a.ndim("input")
    if a["bias"] is not None:
        v = a.value("input")
        return "AddmmBackward0" if ndim == 2 else "ViewBackward0" if is_contiguous(v.shape, v.strides) else "AddBackward0"
    return {1: "SqueezeBackward4", 2: "MmBackward0"}.get(ndim, "UnsafeViewBackward0")


def viewed_name(a: Call) -> str:
    """The node of a reshaping that may copy."""
    base = a.value("input").base
    same = a.result.base == (a["input"] if base is None else base)  # else a copy, which is viewed
    return "ViewBackward0" if same or a.result.shape == a.value("input").shape else "UnsafeViewBackward0"


def _div(a: Call) -> str:
    if a["rounding_mode"] is not None:
        return "DivBackward2" if a.is_tensor("other") else "DivBackward3"
    return "DivBackward0" if a.is_tensor("input") else "MulBackward0"  # a number over a tensor is the reciprocal times the number


def _pow(a: Call) -> str:
    return f"PowBackward{0 if not a.is_tensor('exponent') else 1 if a.is_tensor('input') else 2}"


def _clamp(a: Call) -> str:
    return f"ClampBackward{int(not any(a[p] is not None and a.is_tensor(p) for p in ('min', 'max')))}"


def _squeeze(a: Call) -> str:
    return f"SqueezeBackward{0 if a['dim'] is None else 1 if isinstance(a['dim'], int) else 2}"


def _split(a: Call) -> str:
    sizes = a["sizes"]
    even = len(set(sizes[:-1])) <= 1 and (len(sizes) < 2 or sizes[-1] <= sizes[0])
    return "SplitBackward0" if even else "SplitWithSizesBackward0"


def _classes(a: Call) -> str:
    if not a.value("target").dtype.is_floating_point:
        if a.arguments.get("label_smoothing"):
            return "AddBackward0"
        return "NllLossBackward0" if a.ndim("input") <= 2 else "NllLoss2DBackward0"
    return "DivBackward1" if a["reduction"] == "mean" else "NegBackward0"


def _pad(a: Call) -> str:
    if a["mode"] == "circular":
        return "CopySlices"
    return f"{'Reflection' if a['mode'] == 'reflect' else 'Replication'}Pad{len(a['pad']) // 2}DBackward0"


def _interpolate(a: Call) -> str:
    if a["mode"] == "area":
        return f"AdaptiveAvgPool{len(a['size'])}DBackward0"
    return f"Upsample{a['mode'].title().replace('-', '')}{len(a['size'])}DBackward0"


def _attention(a: Call) -> str:
    flash = all(a.ndim(n) == 4 for n in ("query", "key", "value")) and a.result.dtype.name in ("float32", "bfloat16", "float16")
    return "ScaledDotProductFlashAttentionForCpuBackward0" if flash else "UnsafeViewBackward0"


def _median(a: Call) -> str:
    return "NanmedianBackward1" if a["ignore_nan"] else "MedianBackward1"


def _median_all(a: Call) -> str:
    return "NanmedianBackward0" if a["ignore_nan"] else "MedianBackward0"


def _fourier(of_real: str) -> Callable[[Call], str]:
    return lambda a: "FftC2CBackward0" if a.value("input").dtype.is_complex else of_real


def _average(dims: int) -> Callable[[Call], str]:
    """adaptive_avg_pool: to one element a channel it is a mean."""

    def rule(a: Call) -> str:
        size = a["output_size"]
        return "MeanBackward1" if size == 1 or size == (1,) * dims else f"AdaptiveAvgPool{dims}DBackward0"

    return rule


RULES: dict[str, Rule] = {
    "add": "AddBackward0", "rsub": _by_operand("Rsub", "other", 1, 0), "div": _div, "true_divide": "DivBackward0", "pow": _pow,
    "square": "PowBackward0", "floor_divide": "NotImplemented", "outer": "MulBackward0",
    "fmod": _by_operand("Fmod", "other"), "remainder": _by_operand("Remainder", "other"), "clamp": _clamp,
    "clamp_max": _by_operand("ClampMax", "max"), "clamp_min": _by_operand("ClampMin", "min"), "lerp": _by_operand("Lerp", "weight"),
    "masked_fill": _by_operand("MaskedFill", "value"), "index_fill": _by_operand("IndexFill", "value"), "cast": "ToCopyBackward0",
    "special_i0": "I0Backward0", "special_ndtr": "MulBackward1",
    # reductions
    "sum": _by_dims("Sum"), "mean": _by_dims("Mean"), "prod": _by_dims("Prod"), "nanmean": "DivBackward0", "max_over": "MaxBackward0",
    "max_all": "MaxBackward1", "min_over": "MinBackward0", "min_all": "MinBackward1", "median_over": _median, "median_all": _median_all,
    "var_op": "VarBackward0",
    "std_op": "StdBackward0", "var_mean_op": "VarMeanBackward0", "std_mean_op": "StdMeanBackward0", "vector_norm": "LinalgVectorNormBackward0",
    "quantile_values": "SqueezeBackward4", "sum_to_size_op": "SumBackward1", "cdist_values": "CdistBackward0", "sort_values": "SortBackward0",
    "msort": "SortBackward0", "diff": "SubBackward0", "einsum": "ViewBackward0", "tensordot": "ViewBackward0",
    # shapes
    "reshape": viewed_name, "flatten": viewed_name, "ravel": viewed_name, "unflatten": viewed_name, "squeeze": _squeeze, "split": _split,
    "tensor_split": "SliceBackward0", "unsafe_split": "UnsafeSplitBackward0", "unbind_one": "UnbindBackward0",
    "narrow": "SliceBackward0", "slice_step": "SliceBackward0",
    "numpy_T": "PermuteBackward0", "movedim": "PermuteBackward0", "broadcast_tensors": "ExpandBackward0", "contiguous": "CloneBackward0",
    "diag": lambda a: "DiagEmbedBackward0" if a.ndim("input") == 1 else "DiagonalBackward0_copy", "tile": "RepeatBackward0",
    "repeat_interleave_by": "ViewBackward0", "hstack": "CatBackward0", "vstack": "CatBackward0",
    # indexing
    "index_put_value": "IndexPutBackward0", "scatter_values": lambda a: f"ScatterBackward{int(not a.is_tensor('src'))}",
    "take_along_dim": "GatherBackward0", "index_by": "IndexBackward0", "index_values": "IndexBackward0",
    # matrices
    "matmul": _matmul, "linear": name_of_linear, "kron": "UnsafeViewBackward0", "inner": "ViewBackward0", "lu_solve": "LinalgLuSolveBackward0",
    "lu_unpack_op": "LuUnpackBackward0", "linalg_lu_factor": "LinalgLuFactorExBackward0", "linalg_solve": "LinalgSolveExBackward0",
    "linalg_eigvals": "LinalgEigBackward0", "linalg_eigvalsh": "LinalgEighBackward0", "linalg_svdvals": "LinalgSvdBackward0",
    "linalg_vecdot": "SumBackward1", "logdet": "WhereBackward0",
    # Fourier transforms
    **dict.fromkeys(("fft_fft", "fft_rfft", "fft_rfft2", "fft_rfftn"), _fourier("FftR2CBackward0")),
    **dict.fromkeys(("fft_ifft", "fft_ihfft"), _fourier("ConjBackward0")),
    **dict.fromkeys(("fft_fft2", "fft_fftn", "fft_ifft2", "fft_ifftn", "fft_ihfft2", "fft_ihfftn"), "FftC2CBackward0"),
    **dict.fromkeys(("fft_irfft", "fft_irfft2", "fft_irfftn", "fft_hfft", "fft_hfft2", "fft_hfftn"), "FftC2RBackward0"),
    # layers
    **{f"conv{t}{d}d": _by_batch(d, "ConvolutionBackward0") for d in (1, 2, 3) for t in ("", "_transpose")},
    "layer_norm": "NativeLayerNormBackward0", "group_norm": "NativeGroupNormBackward0", "batch_norm_train": "NativeBatchNormBackward0",
    "batch_norm": "NativeBatchNormBackward0", "batch_norm_eval": "NativeBatchNormBackward0", "instance_norm": "ViewBackward0", "rms_norm": "MulBackward0",
    "weight_norm": "WeightNormInterfaceBackward0",
    "local_response_norm": "DivBackward0", "cosine_similarity": "SumBackward1", "normalize": "DivBackward0", "dropout": "MulBackward0",
    "alpha_dropout": "AddBackward0", "scaled_dot_product_attention": _attention, "embedding_renorm": "EmbeddingBackward0", "bilinear": "AddBackward0",
    "avg_pool1d": "SqueezeBackward1", **dict.fromkeys(("max_pool1d", "max_pool1d_values"), "SqueezeBackward1"),
    **dict.fromkeys(("max_pool2d", "max_pool2d_values"), "MaxPool2DWithIndicesBackward0"),
    "max_pool3d": "MaxPool3DWithIndicesBackward0", "adaptive_avg_pool1d": "SqueezeBackward1", "adaptive_max_pool1d": "SqueezeBackward1",
    "adaptive_avg_pool2d": _average(2), "adaptive_avg_pool3d": _average(3), "fractional": lambda a: f"FractionalMaxPool{len(a['out'])}DBackward0",
    "pad_constant": "ConstantPadNdBackward0", "pad_by_index": _pad, "interpolate": _interpolate, "nn.functional.unfold": "Im2ColBackward0",
    "nn.functional.fold": "Col2ImBackward0",
    "grid_sample": lambda a: f"GridSampler{a.ndim('input') - 2}DBackward0",
    # activations
    "relu6": "HardtanhBackward0", "selu": "EluBackward0", "prelu": "PreluKernelBackward0", "rrelu": "RreluWithNoiseBackward0",
    "logsigmoid": "LogSigmoidBackward0", "softsign": "DivBackward0", "tanhshrink": "SubBackward0",
    # losses
    "cross_entropy": _classes, "nll_loss": _classes, "mse_values": "MseLossBackward0", "smooth_l1_values": "SmoothL1LossBackward0",
    "huber_values": "HuberLossBackward0", "l1_values": _by_reduction("AbsBackward0"),
    "kl_div": lambda a: _by_reduction("MulBackward0" if a["log_target"] else "SubBackward0")(a),
    "margin_ranking_loss": _by_reduction("ClampMinBackward0"), "triplet": _by_reduction("ClampMinBackward0"),
    "cosine_embedding_loss": _by_reduction("AddBackward0"), "hinge_embedding_loss": _by_reduction("AddBackward0"),
    "gaussian_nll_loss": _by_reduction("MulBackward0"), "poisson_nll_loss": _by_reduction("AddBackward0"),
    "multilabel_soft_margin_loss": _by_reduction("MeanBackward0"),
}  # fmt: skip
