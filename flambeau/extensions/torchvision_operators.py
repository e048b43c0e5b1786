"""torchvision's operators under their names (`torch.ops.torchvision.nms`), with the schemas that torchvision gives them."""

from __future__ import annotations

from typing import Any, Final

from flambeau.extensions import torchvision, torchvision_sensitive
from flambeau.library import define, impl, register_autograd

_OF_BINS: Final = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SHAPE: Final = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_STEPS: Final = "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups"

SCHEMAS: Final = {
    "_cuda_version": "() -> int",
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": f"(Tensor input, Tensor rois, {_OF_BINS}, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": f"(Tensor grad, Tensor rois, {_OF_BINS}, {_SHAPE}, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": f"(Tensor input, Tensor rois, {_OF_BINS}) -> (Tensor, Tensor)",
    "_roi_pool_backward": f"(Tensor grad, Tensor rois, Tensor argmax, {_OF_BINS}, {_SHAPE}) -> Tensor",
    "ps_roi_align": f"(Tensor input, Tensor rois, {_OF_BINS}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": f"(Tensor grad, Tensor rois, Tensor channel_mapping, {_OF_BINS}, int sampling_ratio, {_SHAPE}) -> Tensor",
    "ps_roi_pool": f"(Tensor input, Tensor rois, {_OF_BINS}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": f"(Tensor grad, Tensor rois, Tensor channel_mapping, {_OF_BINS}, {_SHAPE}) -> Tensor",
    "deform_conv2d": f"(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_STEPS}, bool use_mask) -> Tensor",
    "_deform_conv2d_backward": f"(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_STEPS}, bool use_mask) -> "
                               "(Tensor, Tensor, Tensor, Tensor, Tensor)",
    "box_iou_rotated": "(Tensor boxes1, Tensor boxes2) -> Tensor",
}  # fmt: skip
# Of quantized tensors: a call says that there is no function for the CPU.
_ABSENT: Final = {
    "qnms": SCHEMAS["nms"],
    "qroi_align": f"(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, int rois_zero_point, {_OF_BINS}, "
                  "int sampling_ratio, bool aligned) -> Tensor",
}  # fmt: skip

for _name, _schema in {**SCHEMAS, **_ABSENT}.items():
    define(f"torchvision::{_name}", _schema)
for _name in SCHEMAS:
    impl(f"torchvision::{_name}", "CPU", getattr(torchvision, _name, None) or getattr(torchvision_sensitive, _name))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
    image, rois, *ctx.bins = inputs
    ctx.shape = image.shape
    ctx.save_for_backward(rois, output[1])
    ctx.mark_non_differentiable(output[1])


def _pulled(function: Any) -> Any:
    def backward(ctx: Any, grad: Any, _: Any) -> tuple[Any, ...]:
        return function(grad, *ctx.saved_tensors, *ctx.bins, *ctx.shape), None, None, None, None

    return backward


# The others are made of operations that have gradients; torchvision since 0.28 puts its own in the place of all of them.
register_autograd("torchvision::roi_pool", _pulled(torchvision._roi_pool_backward), setup_context=_keep)
register_autograd("torchvision::ps_roi_pool", _pulled(torchvision_sensitive._ps_roi_pool_backward), setup_context=_keep)
