"""flambeau: PyTorch's API, every kernel compiled by itself. `import flambeau as torch`."""

from __future__ import annotations

import math as _math
import os as _os
from typing import Any

# Modules that are there for PyTorch's names alone stand apart from the engine's: `flambeau.mps` is flambeau/torch_names/mps.py.
__path__.append(_os.path.join(_os.path.dirname(__file__), "torch_names"))

from flambeau import dtypes as _dtypes
from flambeau import inner_modules as _inner_modules
from flambeau import statistics as _statistics
from flambeau import tracebacks as _tracebacks
from flambeau.devices import Device as device
from flambeau.dtypes import (
    bfloat16,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    uint8,
)  # fmt: skip
from flambeau.dtypes import (
    bool_ as bool,
)
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size

half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
cfloat, cdouble = complex64, complex128

from flambeau.ops import arithmetic, creation, elementwise, indexing, linear, reductions, shape
from flambeau.ops import attributes as _attributes
from flambeau.ops import more as _more
from flambeau.ops import placing as _placing  # for `with torch.device(...)`
from flambeau.ops import random as _random
from flambeau.ops import sorting as _sorting
from flambeau.ops.arithmetic import where_or_nonzero as where
from flambeau.ops.creation import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
    arange,
    empty,
    empty_like,
    empty_strided,
    eye,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    tril_indices,
    triu_indices,
    zeros,
    zeros_like,
)  # fmt: skip
from flambeau.ops.from_data import as_tensor, asarray, tensor
from flambeau.ops.from_memory import from_dlpack, from_numpy, frombuffer
from flambeau.ops.indexing import index_put, index_put_, scatter
from flambeau.ops.linear import einsum, tensordot
from flambeau.ops.random import (
    Generator,
    bernoulli,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    multinomial,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
)  # fmt: skip
from flambeau.ops.reductions import max as max
from flambeau.ops.reductions import min as min
from flambeau.ops.reductions import norm, std, std_mean, var, var_mean
from flambeau.ops.registry import install as _install
from flambeau.ops.shape import (
    broadcast_tensors,
    broadcast_to,
    chunk,
    detach,
    flip,
    fliplr,
    flipud,
    narrow,
    permute,
    reshape,
    select,
    split,
    split_with_sizes,
    swapaxes,
    tensor_split,
    tile,
    unbind,
    unflatten,
)  # fmt: skip
from flambeau.ops.sorting import (
    allclose,
    argwhere,
    bincount,
    bucketize,
    cdist,
    equal,
    histc,
    isin,
    masked_select,
    median,
    meshgrid,
    nanmedian,
    nanquantile,
    nonzero,
    quantile,
    repeat_interleave,
    searchsorted,
    sort,
    unique,
    unique_consecutive,
)  # fmt: skip

for _family in (shape, creation, indexing, reductions, linear, _sorting, _random):
    _family.install_methods(Tensor)
_more.install(globals(), Tensor)
_install(globals(), Tensor)
arithmetic.install_operators(Tensor)
_attributes.install(Tensor)


def _lazy_method(name: str, module: str) -> Any:
    """A Tensor method that is a function of a module, which is loaded when it is first called."""

    found: Any = None

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal found
        if found is None:
            import importlib

            found = getattr(importlib.import_module(module), name)
        return found(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"torch.{name} of this tensor."
    return method


for _name in ("prelu", "hardshrink"):
    setattr(Tensor, _name, _lazy_method(_name, "flambeau.nn.functional"))


def _lazy_softmax(name: str) -> Any:
    """The method `softmax(dim, dtype)`: the function of nn.functional has another argument between the two."""

    found: Any = None

    def method(self: Tensor, dim: Any = None, dtype: Any = None, *, axis: int | None = None) -> Any:  # noqa: F811 - PyTorch's name of the argument
        nonlocal found
        if found is None:
            import importlib

            found = getattr(importlib.import_module("flambeau.nn.functional"), name)
        if dim is None:
            if axis is None:
                raise TypeError(f'{name}() missing 1 required positional arguments: "dim"')
            dim = axis
        elif axis is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument 'axis': 'dim' is given, too")
        return found(self, dim, 3, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"torch.{name} of this tensor."
    return method


for _name in ("softmax", "log_softmax"):
    setattr(Tensor, _name, _lazy_softmax(_name))

from flambeau import autograd
from flambeau import wiring as _wiring
from flambeau.defaults import (
    are_deterministic_algorithms_enabled,
    get_default_device,
    get_deterministic_debug_mode,
    is_deterministic_algorithms_warn_only_enabled,
    set_default_device,
    set_deterministic_debug_mode,
    use_deterministic_algorithms,
)  # fmt: skip
from flambeau.grad_modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from flambeau.ops.numeric import result_type
from flambeau.printing import set_printoptions
from flambeau.queries import (
    _assert,
    broadcast_shapes,
    can_cast,
    channels_last,
    channels_last_3d,
    contiguous_format,
    finfo,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    iinfo,
    is_complex,
    is_floating_point,
    is_nonzero,
    is_storage,
    is_tensor,
    legacy_contiguous_format,
    memory_format,
    numel,
    preserve_format,
    set_default_dtype,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    typename,
)  # fmt: skip

globals().update(_dtypes.NAMED_BY_NAME)
globals().update({_d.name: _d for _d in _dtypes.LIMITED})
chalf = _dtypes.complex32
__version__ = "0.1.0"
pi, e, inf, nan = _math.pi, _math.e, _math.inf, _math.nan
newaxis = None
from flambeau.layouts import jagged, layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided

stats = _statistics.snapshot
trace = linear.trace  # the function: the package of that name is reached by its modules
del _family, _name

_LAZY_MODULES = frozenset(
    "nn optim utils func linalg sparse fft distributions cuda backends testing array_api special version amp cpu profiler masked "
    "signal multiprocessing serialization storage".split()
)
_LAZY_MODULES |= frozenset(  # Modules that programs import for their names; most answer that something is not here
    "jit fx hub overrides compiler version types random futures distributed export onnx quantization ao mps xpu mtia accelerator _C _dynamo _subclasses "
    "_inductor _utils _ops library functional return_types torch_version __config__ __future__ _jit_internal _tensor _tensor_str "
    "_custom_ops quasirandom nested _VF _prims_common _higher_order_ops _refs".split()
)
_FROM_FUNCTIONAL = frozenset(
    "adaptive_avg_pool1d avg_pool1d bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d cosine_similarity "
    "hardshrink "
    "pairwise_distance pixel_shuffle pixel_unshuffle prelu rms_norm".split()
)
_LAZY_NAMES = {
    "set_sync": "flambeau.errors", "is_sync": "flambeau.errors", "set_traceback": "flambeau.errors",
    "compile": "flambeau.compiling", "save": "flambeau.io", "load": "flambeau.io", "autocast": "flambeau.amp", "GradScaler": "flambeau.amp",
    "vmap": "flambeau.func", "Tag": "flambeau.library",
}  # fmt: skip
_LAZY_NAMES |= dict.fromkeys(
    "is_autocast_available is_autocast_enabled set_autocast_enabled get_autocast_dtype set_autocast_dtype is_autocast_cpu_enabled "
    "set_autocast_cpu_enabled get_autocast_cpu_dtype set_autocast_cpu_dtype get_autocast_gpu_dtype set_autocast_gpu_dtype "
    "is_autocast_cache_enabled set_autocast_cache_enabled autocast_increment_nesting autocast_decrement_nesting "
    "clear_autocast_cache".split(), "flambeau.amp.autocast_mode"
)  # fmt: skip
_LAZY_NAMES |= dict.fromkeys(("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"), "flambeau.amp.grad_scaler")
_LAZY_NAMES |= dict.fromkeys(("UntypedStorage", "TypedStorage", "StorageBase", "from_file"), "flambeau.storage")
_LAZY_NAMES |= dict.fromkeys(("_nested_compute_contiguous_strides_offsets", "_nested_view_from_buffer"), "flambeau.nested.buffers")
_LAZY_NAMES |= dict.fromkeys(
    (
        f"{kind}Storage"
        for kind in "Double Float Half BFloat16 Long Int Short Char Byte Bool ComplexFloat ComplexDouble QUInt8 QInt8 QInt32 QUInt4x2 QUInt2x4".split()
    ),
    "flambeau.storage",
)
_LAZY_NAMES |= dict.fromkeys(
    "AcceleratorError OutOfMemoryError Stream Event get_device_module get_device set_warn_always is_warn_always_enabled is_inference "
    "is_inference_mode_enabled is_distributed is_vulkan_available init_num_threads set_default_tensor_type SymInt SymFloat SymBool sym_int sym_float "
    "sym_not sym_max sym_min sym_sum sym_sqrt sym_ite sym_fresh_size sym_constrain_range sym_constrain_range_for_size _check _check_is_size "
    "_check_index _check_value _check_type cond while_loop is_anomaly_enabled is_anomaly_check_nan_enabled set_anomaly_enabled "
    "is_autocast_ipu_enabled set_autocast_ipu_enabled get_autocast_ipu_dtype set_autocast_ipu_dtype is_autocast_xla_enabled "
    "set_autocast_xla_enabled get_autocast_xla_dtype set_autocast_xla_dtype".split(), "flambeau.settings"
) | {"thread_safe_generator": "flambeau.random"}  # fmt: skip
_LAZY_NAMES |= dict.fromkeys(
    "AnyType BoolType ComplexType DeviceObjType DictType FloatType FutureType IntType ListType NoneType NumberType OptionalType RRefType StreamObjType "
    "StringType TensorType TupleType Type UnionType".split(), "flambeau.jit.types"
)  # fmt: skip
_LAZY_NAMES |= dict.fromkeys("ScriptModule ScriptFunction CompilationUnit fork wait".split(), "flambeau.jit") | {"Future": "flambeau.futures"}
_LAZY_NAMES |= dict.fromkeys(("DisableTorchFunction", "DisableTorchFunctionSubclass"), "flambeau.ops.dispatch")
_LAZY_NAMES |= dict.fromkeys(
    "_LinAlgError _get_privateuse1_backend_name _jit_can_fuse_on_cpu _jit_can_fuse_on_gpu _jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu "
    "_jit_set_nvfuser_enabled _jit_set_nvfuser_guard_mode _jit_set_profiling_executor _jit_set_profiling_mode _jit_set_texpr_fuser_enabled".split(),
    "flambeau._C",
) | dict.fromkeys(("eig", "lstsq", "solve", "symeig"), "flambeau.ops.attributes")
has_lapack = has_openmp = has_spectral = True
has_mkl = has_cuda = has_cudnn = has_mps = has_mkldnn = False
_LINALG_METHODS = (
    "cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu lu_solve matrix_exp matrix_power orgqr ormqr pinverse qr slogdet "
    "svd triangular_solve".split()
)
_LAZY_NAMES |= dict.fromkeys((*_LINALG_METHODS, "chain_matmul", "frobenius_norm", "lu_unpack", "nuclear_norm"), "flambeau.ops.linalg.legacy")
for _name in _LINALG_METHODS:
    setattr(Tensor, _name, _lazy_method(_name, "flambeau.ops.linalg.legacy"))
_LAZY_NAMES |= dict.fromkeys(
    "batch_norm instance_norm native_batch_norm native_layer_norm native_group_norm native_dropout feature_dropout dropout_ alpha_dropout_ "
    "feature_alpha_dropout_ feature_dropout_ celu_ selu_ threshold_ rrelu_ convolution constant_pad_nd max_pool1d_with_indices max_pool3d "
    "adaptive_max_pool1d grid_sampler grid_sampler_2d grid_sampler_3d affine_grid_generator embedding embedding_renorm_ poisson_nll_loss "
    "hinge_embedding_loss binary_cross_entropy_with_logits pdist channel_shuffle native_channel_shuffle conv_tbc norm_except_dim "
    "split_with_sizes_copy unsafe_split_with_sizes embedding_bag native_norm lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split(),
    "flambeau.nn.functional.native",
)
_LAZY_NAMES |= dict.fromkeys(
    "softmax log_softmax celu selu threshold dropout alpha_dropout feature_alpha_dropout rrelu layer_norm group_norm max_pool1d max_pool2d kl_div "
    "cosine_embedding_loss margin_ranking_loss triplet_margin_loss ctc_loss".split(), "flambeau.nn.functional.native_names"
)  # fmt: skip
_LAZY_NAMES |= dict.fromkeys(
    "_shape_as_tensor _has_compatible_shallow_copy_type _assert_async _check_with _check_tensor_all _check_tensor_all_with _int_mm _scaled_mm "
    "_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _softmax_backward_data _grouped_mm _is_functional_tensor".split(),
    "flambeau.inner_names",
) | dict.fromkeys(("PyTorchFileReader", "PyTorchFileWriter"), "flambeau._C")  # fmt: skip
_LAZY_NAMES |= dict.fromkeys([f"_sobol_engine_{_name}" for _name in ("draw", "ff_", "initialize_state_", "scramble_")], "flambeau.composed.sobol")
_LAZY_NAMES["lobpcg"] = "flambeau.composed.lobpcg"
_LAZY_NAMES |= dict.fromkeys(("segment_reduce", "_segment_reduce", "range", "kaiser_window"), "flambeau.composed.segments")
_LAZY_NAMES |= dict.fromkeys(("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"), "flambeau.composed.fake_quantize")
_LAZY_NAMES |= dict.fromkeys(
    "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize int_repr q_scale q_zero_point q_per_channel_scales "
    "q_per_channel_zero_points q_per_channel_axis empty_quantized quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_batch_norm "
    "_make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor _empty_affine_quantized _empty_per_channel_affine_quantized".split(),
    "flambeau.quantized.construct",
) | dict.fromkeys(
    "qscheme per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric per_channel_affine_float_qparams".split(),
    "flambeau.quantized.schemes",
)  # fmt: skip
_LAZY_NAMES |= {"i0": "flambeau.ops.special_bessel"} | dict.fromkeys(("polygamma", "igamma", "igammac"), "flambeau.ops.special_gamma")
_LAZY_NAMES |= dict.fromkeys(
    "poisson binomial _standard_gamma _standard_gamma_grad _sample_dirichlet _dirichlet_grad".split(), "flambeau.composed.random_rejection"
)
_LAZY_NAMES |= dict.fromkeys(("stft", "istft"), "flambeau.composed.stft") | dict.fromkeys(("svd_lowrank", "pca_lowrank"), "flambeau.ops.linalg.lowrank")
for _name in ("i0", "igamma", "igammac", "stft", "istft", "polygamma"):
    setattr(Tensor, _name, _lazy_method("polygamma_of" if _name == "polygamma" else _name, _LAZY_NAMES[_name]))
for _name in ("i0", "igamma", "igammac", "polygamma"):
    setattr(Tensor, _name + "_", _more.in_place(_name))
i0_ = Tensor.i0_  # type: ignore[attr-defined]
_LAZY_NAMES |= dict.fromkeys(
    "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor".split(),
    "flambeau.sparse.construct",
) | dict.fromkeys(
    "smm dsmm hsmm hspmm sspaddmm resize_as_sparse_ crow_indices_copy col_indices_copy ccol_indices_copy row_indices_copy indices_copy values_copy".split(),
    "flambeau.sparse.methods",
)
for _name in (
    "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc to_dense sparse_mask coalesce is_coalesced indices "
    "values _indices _values _nnz sparse_dim dense_dim crow_indices col_indices ccol_indices row_indices smm sparse_resize_ "
    "sparse_resize_and_clear_ sspaddmm resize_as_sparse_"
).split():
    setattr(Tensor, _name, _lazy_method(_name, "flambeau.sparse.methods"))
spmm = linear.mm
del _name
_tracebacks.install()

from flambeau.documentation import document as _document
from flambeau.ops.guard import guard as _guard  # all public names are there now

_guard("", globals())
_guard("", Tensor.__dict__)
_document("torch", globals())
_document("torch.Tensor", Tensor.__dict__)

_inner_modules.install()


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES, *_LAZY_NAMES, *_FROM_FUNCTIONAL, "Storage"})


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY_MODULES:
        try:
            return importlib.import_module(f"flambeau.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"flambeau.{name}":
                raise
    if name in _FROM_FUNCTIONAL:
        found = globals()[name] = getattr(importlib.import_module("flambeau.nn.functional"), name)
        return found
    if name in _LAZY_NAMES:
        found = globals()[name] = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
        _guard("", {name: found}, underscored=True)
        _document("torch", {name: found})
        return found
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "Storage":  # of the default dtype, which may change
        from flambeau.storage import legacy_storage_class

        return legacy_storage_class(get_default_dtype())
    from flambeau.names import otherwise

    return otherwise("torch", name, globals())
