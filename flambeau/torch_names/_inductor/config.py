"""torch._inductor.config: settings that a script makes and reads again. None of them changes anything."""

from __future__ import annotations

from types import SimpleNamespace

debug = False
coordinate_descent_tuning = False
max_autotune = False
epilogue_fusion = True
conv_1x1_as_mm = False
force_fuse_int_mm_with_mul = False
use_mixed_mm = False
fx_graph_cache = True
freezing = False
cpp_wrapper = False
shape_padding = True
permute_fusion = False
triton = SimpleNamespace(cudagraphs=False, unique_kernel_names=True)
cpp = SimpleNamespace(threads=-1, enable_kernel_profile=False)
trace = SimpleNamespace(enabled=False)
coordinate_descent_check_all_directions = False
max_autotune_gemm_search_space = "DEFAULT"
pre_grad_custom_pass = post_grad_custom_pre_pass = post_grad_custom_post_pass = None
eager_numerics = SimpleNamespace(division_rounding=False)
