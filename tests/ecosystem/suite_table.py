"""The table of `scripts/ecosystem suites`: package, repository, what of its tests is run, and which tests are known to differ and why."""

from __future__ import annotations

from dataclasses import dataclass, field

BATCHED_CSR = "mended since: compressed sparse tensors had no dense dims"
SLOW = "took longer than four times what a test with PyTorch may take"
BLOCKS = "sparse tensors of blocks (BSR) are not there"
SCRIPT = "`torch.jit.save` could not write this program as a graph"
EXPORT = "`torch.export` is there since; not run again"


@dataclass(frozen=True)
class Suite:
    """A package's own tests: where they are, and which of them are run."""

    name: str
    package: str  # as the package index calls it
    repository: str
    tag: str
    what: str
    folders: str  # what is taken from the repository
    arguments: str  # pytest's: files and folders, options; of this plugin `--every N`
    environment: dict[str, str] = field(default_factory=dict)
    differ: dict[str, str] = field(default_factory=dict)  # pattern of tests -> reason


def _under(folder: str, parts: str) -> str:
    return " ".join(f"{folder}/{part}" for part in parts.split())


SUITES = (
    Suite("einops", "einops", "arogozhnikov/einops", "v0.8.2", "all, with the backends numpy and torch", "einops/tests", "einops/tests",
          {"EINOPS_TEST_BACKENDS": "numpy,torch"}),
    Suite("torchdiffeq", "torchdiffeq", "rtqichen/torchdiffeq", "master", "API, events, norms, gradients, odeint", "tests",
          _under("tests", "api_tests.py event_tests.py norm_tests.py gradient_tests.py odeint_tests.py")),
    Suite("torchsde", "torchsde", "google-research/torchsde", "v0.2.6", "a sample of all: 1 of 10", "tests", "tests --every 10",
          differ={"*test_adjoint.py::*": SLOW, "*test_entropy_determinism*": SLOW}),
    Suite("torchcde", "torchcde", "patrick-kidger/torchcde", "master", "all", "test", "test"),
    Suite("linear_operator", "linear-operator", "cornellius-gp/linear_operator", "v0.6.1", "a sample of all: 1 of 8", "test", "test --every 8"),
    Suite("gpytorch", "gpytorch", "cornellius-gp/gpytorch", "v1.15.2", "a sample of all: 1 of 8", "test", "test --every 8"),
    Suite("pytorch-metric-learning", "pytorch-metric-learning", "KevinMusgrave/pytorch-metric-learning", "v2.8.1",
          "losses, miners, reducers, distances, samplers, utilities", "tests", _under("tests", "losses miners reducers distances regularizers samplers utils"),
          {"TEST_DTYPES": "float32,float64", "TEST_DEVICE": "cpu"}),
    Suite("captum", "captum", "pytorch/captum", "master", "a sample of all: 1 of 8", "tests", "tests --every 8"),
    Suite("x-transformers", "x-transformers", "lucidrains/x-transformers", "main", "all that is reached in the time", "tests", "tests",
          differ={"*test_mos": "signal 9 ended the process, most likely for memory"}),
    Suite("torchinfo", "torchinfo", "TylerYep/torchinfo", "v1.8.0", "summaries, exceptions, half precision", "tests",
          _under("tests", "torchinfo_test.py exceptions_test.py half_precision_test.py")),
    Suite("safetensors", "safetensors", "huggingface/safetensors", "v0.8.0-rc.0", "the Python bindings", "bindings/python/tests", "bindings/python/tests"),
    Suite("accelerate", "accelerate", "huggingface/accelerate", "v1.14.0", "utilities, hooks, models, data loaders, offloading, state: one process on the CPU",
          "tests", _under("tests", "test_utils.py test_hooks.py test_modeling_utils.py test_data_loader.py test_scheduler.py test_optimizer.py "
                          "test_accelerator.py test_big_modeling.py test_offload.py test_kwargs_handlers.py test_memory_utils.py test_dataclasses.py"),
          differ={"*test_free_memory*": "measures the machine's free memory, which other work changed"}),
    Suite("pyro-distributions", "pyro-ppl", "pyro-ppl/pyro", "1.9.1", "distributions: 1 of 20", "tests setup.cfg", "tests/distributions --every 20"),
    Suite("pyro", "pyro-ppl", "pyro-ppl/pyro", "1.9.1", "networks, operations, optimizers, parameters, handlers: 1 of 20", "tests setup.cfg",
          _under("tests", "nn ops optim params poutine test_primitives.py test_util.py") + " --every 20",
          differ={"*AutoRegressiveNNTests::test_masks": SLOW}),
    Suite("kornia", "kornia", "kornia/kornia", "v0.9.0rc1", "a sample of all: 1 of 40", "tests testing conftest.py pyproject.toml",
          "tests --every 40 --ignore tests/onnx --ignore tests/performance",
          differ={"*test_aliked.py::*test_gradcheck*": SLOW, "*test_onnx_export.py::*": "`onnx` was not installed beside flambeau there",
                  "*test_plane.py::*": "mended since: objects that pass look-ups on to the tensor they wrap"}),
    Suite("timm", "timm", "huggingface/pytorch-image-models", "v1.0.28", "layers, optimizers, schedulers, utilities: 1 of 2", "tests",
          _under("tests", "test_layers.py test_layers_drop.py test_layers_pool.py test_optim.py test_scheduler.py test_utils.py test_task.py") + " --every 2"),
    Suite("timm-models", "timm", "huggingface/pytorch-image-models", "v1.0.28", "models: forward, backward, features, TorchScript: 1 of 60", "tests",
          "tests/test_models.py --every 60"),
    Suite("torch_geometric-nn", "torch-geometric", "pyg-team/pytorch_geometric", "2.8.0", "layers: 1 of 5", "test pyproject.toml", "test/nn --every 5",
          differ={"*test_gat_conv*": BATCHED_CSR, "*test_gatv2_conv*": BATCHED_CSR,
                  "*graph_breaks*": "mended since: `torch._dynamo.explain`",
                  "*test_my_conv_jit_save": SCRIPT, "*test_load_lazy_linear*": "mended since"}),
    Suite("torch_geometric", "torch-geometric", "pyg-team/pytorch_geometric", "2.8.0", "utilities, transforms, loaders, data: 1 of 5", "test pyproject.toml",
          _under("test", "utils transforms loader data metrics") + " --every 5",
          differ={"*index_dataloader*": "tensors from workers are copied out of shared memory: `is_shared` is False",
                  "*test_to_torch_cs*_tensor": BATCHED_CSR, "*test_sparse.py::test_cat*": BATCHED_CSR}),
    Suite("skorch", "skorch", "skorch-dev/skorch", "v1.4.0", "a sample of all: 1 of 4", "skorch/tests", "skorch/tests --every 4"),
    Suite("e3nn", "e3nn", "e3nn/e3nn", "0.6.0", "a sample of all: 1 of 4", "tests", "tests --every 4"),
    Suite("torchmetrics", "torchmetrics", "Lightning-AI/torchmetrics", "v1.9.0", "regression, classification, retrieval, images, audio and others: 1 of 150",
          "tests", _under("tests/unittests", "regression classification retrieval image audio clustering nominal "
                                         "pairwise segmentation shape detection") + " --every 150"),
    Suite("torchmetrics-bases", "torchmetrics", "Lightning-AI/torchmetrics", "v1.9.0", "base classes, wrappers, utilities: 1 of 4", "tests",
          _under("tests/unittests", "bases wrappers utilities deprecations") + " --every 4"),
    Suite("torch-optimizer", "torch-optimizer", "jettify/pytorch-optimizer", "v0.3.0", "all", "tests", "tests"),
    Suite("botorch", "botorch", "pytorch/botorch", "v0.15.1", "a sample of all: 1 of 8", "test", "test --every 8",
          differ={"*test_lb_moo_joint_entropy_search_LB": SLOW,
                  "*test_AffineDeterministicModel": "asks that products with matrices of one and of two columns agree to the last bit"}),
    Suite("transformers", "transformers", "huggingface/transformers", "v5.5.0",
          "models: BERT, GPT-2, Llama, Qwen 2, Mistral, Mixtral, T5, ViT, CLIP, Whisper, wav2vec 2: 1 of 16", "tests utils src/transformers",
          " ".join(f"tests/models/{m}/test_modeling_{m}.py" for m in "bert gpt2 llama qwen2 mistral mixtral t5 vit clip whisper wav2vec2".split())
          + " --every 16"),
    Suite("transformers-utilities", "transformers", "huggingface/transformers", "v5.5.0",
          "caches, activations, masks, optimization, generation's parts: all", "tests utils",
          _under("tests", "utils/test_activations.py utils/test_cache_utils.py utils/test_masking_utils.py utils/test_model_output.py utils/test_generic.py "
                 "utils/test_modeling_rope_utils.py generation/test_logits_process.py generation/test_stopping_criteria.py "
                 "generation/test_configuration_utils.py optimization"),
          differ={"*out_of_bounds": "a computed index that is out of bounds is told where the result is used, not by the call",
                  "*bidirectional_mask_cudagraphs": "the error of the test before it, which is told here", "*torch_export": EXPORT,
                  "*nonpacked_sequence_mask_skip": "functions of torch.compile run as they are, so what is left out otherwise is left out",
                  "*test_torch_pytree": "`treespec_dumps` writes packages' own classes since; not run again"}),
    Suite("torchvision", "torchvision", "pytorch/vision", "v0.22.0", "models, operators, transforms v2: 1 of 100", "test packaging pytest.ini",
          _under("test", "test_models.py test_ops.py test_transforms_v2.py test_backbone_utils.py test_models_detection_utils.py test_utils.py")
          + " --every 100"),
    Suite("transformers-families", "transformers", "huggingface/transformers", "v5.5.0",
          "models: 20 other families, among them RoBERTa, DeBERTa, BART, OPT, Gemma, Phi, Falcon, Swin, DETR, SAM, Mamba: 1 of 40",
          "tests utils src/transformers",
          " ".join(f"tests/models/{m}/test_modeling_{m}.py" for m in "roberta distilbert deberta_v2 electra bart opt gemma phi falcon gpt_neox bloom "
                   "swin deit convnext detr segformer sam mamba pegasus hubert".split()) + " --every 40"),
    Suite("transformers-generation", "transformers", "huggingface/transformers", "v5.5.0", "generation, Trainer, data collators: 1 of 2",
          "tests utils src/transformers", _under("tests", "generation trainer") + " --every 2"),
    Suite("torchvision-operators", "torchvision", "pytorch/vision", "v0.22.0", "operators: 1 of 15", "test packaging pytest.ini", "test/test_ops.py --every 15",
          differ={"*TestDeformConv::test_forward*": SLOW}),
    Suite("lightning", "pytorch-lightning", "Lightning-AI/pytorch-lightning", "2.6.5", "core, callbacks, loops, loggers, models, trainer, utilities: 1 of 25",
          "tests pyproject.toml", _under("tests/tests_pytorch", "callbacks checkpointing core loggers loops models overrides plugins profilers trainer tuner "
                                         "utilities") + " --every 25",
          differ={"*test_torchscript*": "`torch.jit.script` leaves out what TorchScript does since; not run again"}),
    Suite("diffusers", "diffusers", "huggingface/diffusers", "v0.40.0", "schedulers, UNets, autoencoders, layers: 1 of 8", "tests",
          _under("tests", "schedulers models/unets models/autoencoders models/test_activations.py models/test_attention_processor.py "
                 "models/test_layers_utils.py") + " --every 8"),
    Suite("diffusers-transformers", "diffusers", "huggingface/diffusers", "v0.40.0",
          "transformers of images and videos, pipelines of Stable Diffusion: 1 of 8",
          "tests", _under("tests", "models/transformers pipelines/stable_diffusion pipelines/stable_diffusion_xl pipelines/flux pipelines/ddim")
          + " --every 8"),
    Suite("peft", "peft", "huggingface/peft", "v0.20.0", "adapters of custom models, buffers, utilities: 1 of 60", "tests",
          _under("tests", "test_custom_models.py test_initialization.py test_bufferdict.py test_other.py test_config.py test_mixed.py") + " --every 60"),
    Suite("stable-baselines3", "stable-baselines3", "DLR-RM/stable-baselines3", "v2.8.0", "a sample of all: 1 of 8", "tests", "tests --every 8"),
    Suite("monai", "monai", "Project-MONAI/MONAI", "1.5.0", "losses, metrics, networks, transforms, inferers: 1 of 40", "tests",
          _under("tests", "losses metrics networks transforms inferers") + " --every 40", differ={"*test_script*": SCRIPT}),
    Suite("keras", "keras", "keras-team/keras", "v3.15.1", "layers, losses, operations, optimizers, trainers with the backend torch: 1 of 20", "keras/src",
          "--import-mode=importlib " + _under("keras/src", "layers losses metrics ops optimizers trainers models initializers") + " --every 20",
          {"KERAS_BACKEND": "torch"}),
    Suite("trl", "trl", "huggingface/trl", "v1.9.0", "collators, data, utilities, core", "tests",
          _under("tests", "test_utils.py test_data_utils.py test_callbacks.py test_activation_offloading.py test_chat_template_utils.py test_model_utils.py")),
    Suite("sentence-transformers", "sentence-transformers", "huggingface/sentence-transformers", "v6.0.0",
          "a sample of all: 1 of 4; nine of ten tests need models from the hub", "tests pyproject.toml",
          "tests --every 4"),
    Suite("segmentation-models-pytorch", "segmentation-models-pytorch", "qubvel-org/segmentation_models.pytorch", "v0.5.0", "a sample of all: 1 of 10",
          "tests", "tests --every 10"),
    Suite("torchode", "torchode", "martenlienen/torchode", "main", "all", "tests", "tests",
          differ={"*opposite_directions*": "rounding of float32: the solution lies 1.5e-5 from -11, where 1.1e-5 is asked for"}),
    Suite("optuna", "optuna", "optuna/optuna", "v5.0.0-rc1", "samplers, Gaussian processes: 1 of 10", "tests",
          "tests/gp_tests tests/samplers_tests --every 10"),
    Suite("speechbrain", "speechbrain", "speechbrain/speechbrain", "v1.1.0", "unit tests", "tests pyproject.toml", "tests/unittests"),
    Suite("whisper", "openai-whisper", "openai/whisper", "v20250625", "timing, normalisation, tokens, audio: all", "tests", "tests"),
    Suite("vit-pytorch", "vit-pytorch", "lucidrains/vit-pytorch", "main", "all", "tests", "tests"),
    Suite("ignite", "pytorch-ignite", "pytorch/ignite", "v0.5.5", "engines, handlers, metrics: all that PyTorch reached in a minute",
          "tests pyproject.toml", _under("tests/ignite", "engine handlers metrics base"),
          differ={"*without_numpy": "takes NumPy away, without which flambeau does not run"}),
    Suite("lightly", "lightly", "lightly-ai/lightly", "master", "losses, models, transforms, utilities: 1 of 6", "tests",
          _under("tests", "loss models transforms utils data") + " --every 6"),
    Suite("pytorch-optimizer", "pytorch-optimizer", "kozistr/pytorch_optimizer", "v3.9.0", "a sample of all: 1 of 20", "tests", "tests --every 20",
          differ={"*test_bf16_optimizers?DAdaptAdan*": "bfloat16 at a learning rate of 2: linear layers round before the bias is added, and steps part"}),
    Suite("opacus", "opacus", "pytorch/opacus", "v1.5.4", "gradients by sample, private layers, validators, schedulers: 1 of 4", "opacus/tests",
          _under("opacus/tests", "grad_samples dp_layers validators schedulers") + " --every 4"),
    Suite("zuko", "zuko", "probabilists/zuko", "1.6.0", "all", "tests", "tests"),
    Suite("torchjd", "torchjd", "TorchJD/torchjd", "v0.8.1", "unit tests: 1 of 20", "tests pyproject.toml", "tests/unit --every 20"),
    Suite("snntorch", "snntorch", "jeshraghian/snntorch", "v0.9.4", "all", "tests", "tests"),
    Suite("torchio", "torchio", "fepegar/torchio", "main", "data, transforms: 1 of 3", "tests", _under("tests", "data transforms") + " --every 3"),
    Suite("tensordict", "tensordict", "pytorch/tensordict", "main", "modules, tensor classes, utilities: 1 of 40", "test pytest.ini",
          _under("test", "nn tensorclass utils") + " --every 40"),
    Suite("sbi", "sbi", "sbi-dev/sbi", "v0.27.0", "a sample of all: 1 of 40", "tests", "tests --every 40"),
    Suite("laplace", "laplace-torch", "aleximmer/Laplace", "main", "a sample of all: 1 of 20", "tests", "tests --every 20"),
    Suite("curvlinops", "curvlinops-for-pytorch", "f-dangel/curvlinops", "3.0.1", "a sample of all: 1 of 40", "test", "test --every 40"),
    Suite("torchopt", "torchopt", "metaopt/torchopt", "main", "a sample of all: 1 of 400", "tests", "tests --every 400"),
    Suite("tensorly-torch", "tensorly-torch", "tensorly/torch", "main", "factorized layers and tensors, functions, hooks: all", "tltorch",
          "--import-mode=importlib " + _under("tltorch", "factorized_layers factorized_tensors functional tensor_hooks"),
          differ={"*TRL*": "numbers without a seed, to six decimals of float32: with PyTorch one or two of these fail as well, others each time"}),
    Suite("nflows", "nflows", "bayesiains/nflows", "master", "all", "tests", "tests"),
    Suite("pypose", "pypose", "pypose/pypose", "v0.9.5", "a sample of all: 1 of 2", "tests", "tests --every 2",
          differ={"*test_bsr*": BLOCKS}),
    Suite("torchrl", "torchrl", "pytorch/rl", "main", "specs, distributions, exploration, loggers, utilities: 1 of 40", "test",
          _under("test", "test_specs.py test_distributions.py test_exploration.py test_loggers.py test_postprocs.py test_utils.py") + " --every 40"),
    Suite("tianshou", "tianshou", "thu-ml/tianshou", "master", "base: all", "test", "test/base"),
    Suite("tabnet", "pytorch-tabnet", "dreamquark-ai/tabnet", "develop", "all", "tests", "tests"),
)  # fmt: skip
