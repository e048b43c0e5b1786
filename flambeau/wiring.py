"""What calls upwards, and whom: where each declaration of upward.py has its function. Folders import downwards only; this file is above them."""

from __future__ import annotations

from flambeau.ops import primitives
from flambeau.trace import fragment
from flambeau.upward import HOMES

vars(fragment)["primitives"] = primitives  # bodies that recording itself has are made of them, too

# By the module that calls: the module of each function.
HOMES |= {
    "flambeau.trace.evaluate": {"plan_history": "flambeau.autograd.segment", "keep_history": "flambeau.autograd.segment", "start": "flambeau.ops.known_edge"},
    "flambeau.trace.fragment": {"casting": "flambeau.ops.autocast_lists"},
    "flambeau.trace.kept": {"tape_of": "flambeau.autograd.segment", "kept_segments": "flambeau.autograd.kept_segment"},
    "flambeau.trace.mutation": {
        "freed_outputs": "flambeau.autograd.differentiate",
        "refuse_one_of_many": "flambeau.autograd.one_of_many",
        "resize_": "flambeau.ops.more",
        "become_view": "flambeau.ops.more",
    },
    "flambeau.trace.recorder": {"as_strided": "flambeau.ops.shape"},
    "flambeau.trace.salvage": {"keep_salvaged": "flambeau.autograd.salvaged"},
    "flambeau.storage": {"load": "flambeau.io.checkpoint", "get_sharing_strategy": "flambeau.multiprocessing"},
    "flambeau.queries": {"has_torch_function": "flambeau.overrides", "handle_torch_function": "flambeau.overrides"},
    "flambeau.ops": {"_namespace": "flambeau._ops:namespace"},
    "flambeau.ops.creation": {"without_elements": "flambeau.sparse.construct", "fills_memory": "flambeau.utils.deterministic"},
    "flambeau.ops.at_once": {"way_of": "flambeau.ops.index_ways", "rows_of": "flambeau.ops.index_ways"},
    "flambeau.ops.dispatch": {"resolve_name": "flambeau.overrides"},
    "flambeau.ops.from_memory": {"tensor_over": "flambeau.storage"},
    "flambeau.ops.more": {"leave_to_what_it_was": "flambeau.autograd.hooks", "refuse_one_of_many": "flambeau.autograd.one_of_many"},
    "flambeau.ops.primitives.forward": {"transposed": "flambeau.func.tape"},
    "flambeau.ops.random": {"reduce_generator": "flambeau.io.pickling"},
    "flambeau.ops.wrapper": {"collect": "flambeau.autograd.collected:collected", "sparse_dispatch": "flambeau.sparse.dispatch:dispatch"},
    "flambeau.autograd.engine": {
        "over_batch": "flambeau.func.pullback",
        "differentiate_batched": "flambeau.func.pullback",
        "grad_under_levels": "flambeau.func.pullback",
    },
    "flambeau.autograd.node": {"saved": "flambeau.autograd.saved_values", "rules_of": "flambeau.autograd.saved_values"},
    "flambeau.autograd.forward_ad": {"jvp_level": "flambeau.func.forward:JvpLevel", "check_tangent": "flambeau.func.forward_mode"},
    "flambeau.autograd.functional": {
        "tracking_scope": "flambeau.func.tracking:Scope",
        "standard_basis": "flambeau.func.reverse",
        "jacfwd": "flambeau.func.forward_mode",
    },
    "flambeau.autograd.gradcheck": {"make_tensor": "flambeau.testing.creation"},
    "flambeau.compiler.kernels.tiled": {"program_of": "flambeau.tile.kernels"},
    "flambeau.compiler": {"_torch_compiler": "flambeau.compiling:named"},
    "flambeau.runtime.select": {"emitter": "flambeau.compiler.kernels.select"},
    "flambeau.runtime.random": {"fill_emitter": "flambeau.compiler.kernels.random_emitters"},
    "flambeau.distributed.launcher.child": {"run": "flambeau.cli.run"},
    "flambeau.utils.collect_env": {"command": "flambeau.cli.main:main"},
    "flambeau.utils.data.sampler": {"rank_and_size": "flambeau.distributed.group"},
    "flambeau.nn.modules.batchnorm": {"rank_and_size": "flambeau.distributed.group", "all_reduce": "flambeau.distributed.nn.functional"},
    "flambeau.nn.attention.flex_attention": {"vmap": "flambeau.func.mapping"},
    "flambeau.nn.utils._per_sample_grad": {"vmap": "flambeau.func.mapping", "functional_call": "flambeau.func.modules"},
    "flambeau._ops": {"schema_text": "flambeau.export.schemas:text", "load_extension": "flambeau.extensions:load"},
    "flambeau.library": {
        "is_autocast_enabled": "flambeau.amp.autocast_mode",
        "autocast": "flambeau.amp.autocast_mode",
        "run_opcheck": "flambeau.testing._internal.optests:opcheck",
    },
    "flambeau.composed.stft": {"pad": "flambeau.nn.functional"},
    "flambeau.tensor_asks": {
        "legacy_constructor": "flambeau.ops.creation",
        "admit": "flambeau.ops.dispatch",
        "torch_function": "flambeau.ops.dispatch",
        "as_subclass": "flambeau.ops.dispatch",
        "part": "flambeau.ops.subclass_names",
        "must_be": "flambeau.ops.signatures",
        "problem": "flambeau.ops.signatures",
        "detach": "flambeau.ops.shape",
        "conj": "flambeau.ops.elementwise",
        "neg_view": "flambeau.ops.elementwise",
        "from_numpy": "flambeau.ops.from_memory",
        "as_bfloat16": "flambeau.ops.from_memory",
        "node_of": "flambeau.autograd.node",
        "edge_of": "flambeau.autograd.node",
        "backward": "flambeau.autograd.engine",
        "forget_leaf": "flambeau.autograd.leaf_views",
        "register_hook": "flambeau.autograd.hooks",
        "register_post_accumulate_grad_hook": "flambeau.autograd.hooks",
        "retain_grad": "flambeau.autograd.hooks",
        "untyped_storage": "flambeau.storage",
        "typed_storage": "flambeau.storage",
        "legacy_storage_class": "flambeau.storage",
        "set_source": "flambeau.storage",
        "tensor_repr": "flambeau.printing",
        "reduce_tensor": "flambeau.io.pickling",
        "array_namespace": "flambeau.array_api.types",
    },
}
