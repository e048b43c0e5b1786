import math
from typing import Dict, List, Optional, Tuple
import torch
from torch import nn, Tensor
import torch.nn.functional as F


def sigmoid_focal_loss(
    inputs: torch.Tensor,
    targets: torch.Tensor,
    alpha: float = 0.25,
    gamma: float = 2,
    reduction: str = "none",
):
    p = torch.sigmoid(inputs)
    ce_loss = F.binary_cross_entropy_with_logits(
        inputs, targets, reduction="none"
    )
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce_loss * ((1 - p_t) ** gamma)

    if alpha >= 0:
        alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
        loss = alpha_t * loss

    if reduction == "mean":
        loss = loss.mean()
    elif reduction == "sum":
        loss = loss.sum()

    return loss


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    area1 = box_area(boxes1)
    area2 = box_area(boxes2)
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])  # [N,M,2]
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])  # [N,M,2]
    wh = (rb - lt).clamp(min=0)  # [N,M,2]
    inter = wh[:, :, 0] * wh[:, :, 1]  # [N,M]
    return inter / (area1[:, None] + area2 - inter)


class AnchorGenerator(nn.Module):
    __annotations__ = {
        "cell_anchors": List[torch.Tensor],
    }

    def __init__(self, sizes=((8,), (16,)), aspect_ratios=((0.5, 1.0, 2.0),)):
        super(AnchorGenerator, self).__init__()
        if not isinstance(sizes[0], (list, tuple)):
            sizes = tuple((s,) for s in sizes)
        aspect_ratios = aspect_ratios * len(sizes)
        self.sizes = sizes
        self.aspect_ratios = aspect_ratios
        self.cell_anchors = [self.generate_anchors(size, aspect_ratio)
                             for size, aspect_ratio in zip(sizes, aspect_ratios)]

    def generate_anchors(self, scales: List[int], aspect_ratios: List[float], dtype: torch.dtype = torch.float32,
                         device: torch.device = torch.device("cpu")):
        scales = torch.as_tensor(scales, dtype=dtype, device=device)
        aspect_ratios = torch.as_tensor(aspect_ratios, dtype=dtype, device=device)
        h_ratios = torch.sqrt(aspect_ratios)
        w_ratios = 1 / h_ratios

        ws = (w_ratios[:, None] * scales[None, :]).view(-1)
        hs = (h_ratios[:, None] * scales[None, :]).view(-1)

        base_anchors = torch.stack([-ws, -hs, ws, hs], dim=1) / 2
        return base_anchors.round()

    def num_anchors_per_location(self):
        return [len(s) * len(a) for s, a in zip(self.sizes, self.aspect_ratios)]

    def grid_anchors(self, grid_sizes: List[List[int]], strides: List[List[Tensor]]) -> List[Tensor]:
        anchors = []
        for size, stride, base_anchors in zip(grid_sizes, strides, self.cell_anchors):
            grid_height, grid_width = size
            stride_height, stride_width = stride
            device = base_anchors.device
            shifts_x = torch.arange(0, grid_width, dtype=torch.int32, device=device) * stride_width
            shifts_y = torch.arange(0, grid_height, dtype=torch.int32, device=device) * stride_height
            shift_y, shift_x = torch.meshgrid(shifts_y, shifts_x, indexing="ij")
            shift_x = shift_x.reshape(-1)
            shift_y = shift_y.reshape(-1)
            shifts = torch.stack((shift_x, shift_y, shift_x, shift_y), dim=1)
            anchors.append((shifts.view(-1, 1, 4) + base_anchors.view(1, -1, 4)).reshape(-1, 4))
        return anchors

    def forward(self, image: Tensor, feature_maps: List[Tensor]) -> Tensor:
        grid_sizes = [feature_map.shape[-2:] for feature_map in feature_maps]
        image_size = image.shape[-2:]
        strides = [[torch.empty((), dtype=torch.int64).fill_(image_size[0] // g[0]),
                    torch.empty((), dtype=torch.int64).fill_(image_size[1] // g[1])] for g in grid_sizes]
        return torch.cat(self.grid_anchors(grid_sizes, strides))


class FeaturePyramidNetwork(nn.Module):
    def __init__(self, in_channels_list: List[int], out_channels: int):
        super(FeaturePyramidNetwork, self).__init__()
        self.inner_blocks = nn.ModuleList()
        self.layer_blocks = nn.ModuleList()
        for in_channels in in_channels_list:
            if in_channels == 0:
                raise ValueError("in_channels=0 is currently not supported")
            inner_block_module = nn.Conv2d(in_channels, out_channels, 1)
            layer_block_module = nn.Conv2d(out_channels, out_channels, 3, padding=1)
            self.inner_blocks.append(inner_block_module)
            self.layer_blocks.append(layer_block_module)

        # initialize parameters now to avoid modifying the initialization of top_blocks
        for m in self.children():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_uniform_(m.weight, a=1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x: Dict[str, Tensor]) -> List[Tensor]:
        x = list(x.values())
        last_inner = self.inner_blocks[-1](x[-1])
        results = []
        results.append(self.layer_blocks[-1](last_inner))

        for idx in range(len(x) - 2, -1, -1):
            inner_lateral = self.inner_blocks[idx](x[idx])
            feat_shape = inner_lateral.shape[-2:]
            inner_top_down = F.interpolate(last_inner, size=feat_shape, mode="nearest")
            last_inner = inner_lateral + inner_top_down
            results.insert(0, self.layer_blocks[idx](last_inner))
        return results


class BoxCoder(object):
    def __init__(self, weights=(1.0, 1.0, 1.0, 1.0), bbox_xform_clip=math.log(1000.0 / 16)):
        self.weights = weights
        self.bbox_xform_clip = bbox_xform_clip


    def encode_single(self, reference_boxes, proposals):
        wx, wy, ww, wh = self.weights
        ex_widths = (proposals[:, 2] - proposals[:, 0]).unsqueeze(1)
        ex_heights = (proposals[:, 3] - proposals[:, 1]).unsqueeze(1)
        ex_ctr_x = proposals[:, 0].unsqueeze(1) + 0.5 * ex_widths
        ex_ctr_y = proposals[:, 1].unsqueeze(1) + 0.5 * ex_heights
        gt_widths = (reference_boxes[:, 2] - reference_boxes[:, 0]).unsqueeze(1)
        gt_heights = (reference_boxes[:, 3] - reference_boxes[:, 1]).unsqueeze(1)
        gt_ctr_x = reference_boxes[:, 0].unsqueeze(1) + 0.5 * gt_widths
        gt_ctr_y = reference_boxes[:, 1].unsqueeze(1) + 0.5 * gt_heights
        return torch.cat((wx * (gt_ctr_x - ex_ctr_x) / ex_widths, wy * (gt_ctr_y - ex_ctr_y) / ex_heights,
                          ww * torch.log(gt_widths / ex_widths), wh * torch.log(gt_heights / ex_heights)), dim=1)

    def decode_single(self, rel_codes, boxes):
        boxes = boxes.to(rel_codes.dtype)
        widths = boxes[:, 2] - boxes[:, 0]
        heights = boxes[:, 3] - boxes[:, 1]
        ctr_x = boxes[:, 0] + 0.5 * widths
        ctr_y = boxes[:, 1] + 0.5 * heights
        wx, wy, ww, wh = self.weights
        dx = rel_codes[:, 0::4] / wx
        dy = rel_codes[:, 1::4] / wy
        dw = rel_codes[:, 2::4] / ww
        dh = rel_codes[:, 3::4] / wh
        # Prevent sending too large values into torch.exp()
        dw = torch.clamp(dw, max=self.bbox_xform_clip)
        dh = torch.clamp(dh, max=self.bbox_xform_clip)
        pred_ctr_x = dx * widths[:, None] + ctr_x[:, None]
        pred_ctr_y = dy * heights[:, None] + ctr_y[:, None]
        pred_w = torch.exp(dw) * widths[:, None]
        pred_h = torch.exp(dh) * heights[:, None]
        pred_boxes1 = pred_ctr_x - torch.tensor(0.5, dtype=pred_ctr_x.dtype, device=pred_w.device) * pred_w
        pred_boxes2 = pred_ctr_y - torch.tensor(0.5, dtype=pred_ctr_y.dtype, device=pred_h.device) * pred_h
        pred_boxes3 = pred_ctr_x + torch.tensor(0.5, dtype=pred_ctr_x.dtype, device=pred_w.device) * pred_w
        pred_boxes4 = pred_ctr_y + torch.tensor(0.5, dtype=pred_ctr_y.dtype, device=pred_h.device) * pred_h
        return torch.stack((pred_boxes1, pred_boxes2, pred_boxes3, pred_boxes4), dim=2).flatten(1)


class Matcher(object):
    BELOW_LOW_THRESHOLD = -1
    BETWEEN_THRESHOLDS = -2

    def __init__(self, high_threshold: float, low_threshold: float, allow_low_quality_matches: bool = False):
        assert low_threshold <= high_threshold
        self.high_threshold = high_threshold
        self.low_threshold = low_threshold
        self.allow_low_quality_matches = allow_low_quality_matches

    def __call__(self, match_quality_matrix: Tensor) -> Tensor:
        # match_quality_matrix is M (gt) x N (predicted)
        # Max over gt elements (dim 0) to find best gt candidate for each prediction
        matched_vals, matches = match_quality_matrix.max(dim=0)
        if self.allow_low_quality_matches:
            all_matches = matches.clone()
        else:
            all_matches = None  # type: ignore[assignment]

        # Assign candidate matches with low quality to negative (unassigned) values
        below_low_threshold = matched_vals < self.low_threshold
        between_thresholds = (matched_vals >= self.low_threshold) & (matched_vals < self.high_threshold)
        matches[below_low_threshold] = self.BELOW_LOW_THRESHOLD
        matches[between_thresholds] = self.BETWEEN_THRESHOLDS

        if self.allow_low_quality_matches:
            # For each gt, find the prediction with which it has highest quality
            highest_quality_foreach_gt, _ = match_quality_matrix.max(dim=1)  # dim=1
            # Find highest quality match available, even if it is low, including ties
            gt_pred_pairs_of_highest_quality = torch.where(match_quality_matrix == highest_quality_foreach_gt[:, None])
            pred_inds_to_update = gt_pred_pairs_of_highest_quality[1]
            matches[pred_inds_to_update] = all_matches[pred_inds_to_update]
        return matches


class RetinaHead(nn.Module):
    def __init__(self, in_channels, num_anchors, outputs, prior_probability=None):
        super().__init__()
        conv = []
        for _ in range(1):
            conv.append(nn.Conv2d(in_channels, in_channels, kernel_size=3, stride=1, padding=1))
            conv.append(nn.ReLU())
        self.conv = nn.Sequential(*conv)
        for layer in self.conv.children():
            if isinstance(layer, nn.Conv2d):
                torch.nn.init.normal_(layer.weight, std=0.01)
                torch.nn.init.constant_(layer.bias, 0)
        self.out = nn.Conv2d(in_channels, num_anchors * outputs, kernel_size=3, stride=1, padding=1)
        torch.nn.init.normal_(self.out.weight, std=0.01)
        torch.nn.init.constant_(self.out.bias, 0 if prior_probability is None else -math.log((1 - prior_probability) / prior_probability))
        self.outputs = outputs

    def forward(self, x: List[Tensor]) -> Tensor:
        all_outputs = []
        for features in x:
            output = self.out(self.conv(features))
            # Permute output from (N, A * K, H, W) to (N, HWA, K).
            N, _, H, W = output.shape
            output = output.view(N, -1, self.outputs, H, W)
            output = output.permute(0, 3, 4, 1, 2)
            output = output.reshape(N, -1, self.outputs)  # Size=(N, HWA, 4)
            all_outputs.append(output)
        return torch.cat(all_outputs, dim=1)


class RetinaNet(nn.Module):
    __annotations__ = {'box_coder': BoxCoder, 'proposal_matcher': Matcher}

    def __init__(self, num_classes=3):
        super().__init__()
        self.body = nn.ModuleDict({'0': nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU()), '1': nn.Sequential(nn.Conv2d(8, 12, 3, 2, 1), nn.ReLU())})
        self.fpn = FeaturePyramidNetwork([8, 12], 8)
        self.anchor_generator = AnchorGenerator()
        num_anchors = self.anchor_generator.num_anchors_per_location()[0]
        self.classification_head = RetinaHead(8, num_anchors, num_classes, 0.01)
        self.regression_head = RetinaHead(8, num_anchors, 4)
        self.proposal_matcher = Matcher(0.5, 0.4, allow_low_quality_matches=True)
        self.box_coder = BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))

    def compute_loss(self, targets, cls_logits, bbox_regression, anchors):
        losses_cls, losses_reg = [], []
        for t, cls_logits_per_image, regression_per_image in zip(targets, cls_logits, bbox_regression):
            match_quality_matrix = box_iou(t['boxes'], anchors)
            matched_idxs = self.proposal_matcher(match_quality_matrix)
            # determine only the foreground
            foreground_idxs_per_image = matched_idxs >= 0
            num_foreground = foreground_idxs_per_image.sum()
            # create the target classification
            gt_classes_target = torch.zeros_like(cls_logits_per_image)
            gt_classes_target[
                foreground_idxs_per_image,
                t['labels'][matched_idxs[foreground_idxs_per_image]]
            ] = 1.0
            # find indices for which anchors should be ignored
            valid_idxs_per_image = matched_idxs != self.proposal_matcher.BETWEEN_THRESHOLDS
            losses_cls.append(sigmoid_focal_loss(cls_logits_per_image[valid_idxs_per_image], gt_classes_target[valid_idxs_per_image], reduction='sum') / max(1, num_foreground))
            foreground = torch.where(matched_idxs >= 0)[0]
            matched_gt_boxes_per_image = t['boxes'][matched_idxs[foreground]]
            target_regression = self.box_coder.encode_single(matched_gt_boxes_per_image, anchors[foreground, :])
            losses_reg.append(torch.nn.functional.l1_loss(regression_per_image[foreground, :], target_regression, reduction='sum') / max(1, foreground.numel()))
        return {'classification': sum(losses_cls) / max(1, len(targets)), 'bbox_regression': sum(losses_reg) / max(1, len(targets))}

    def forward(self, images, targets=None):
        features = {}
        x = images
        for name, layer in self.body.items():
            x = layer(x)
            features[name] = x
        features = self.fpn(features)
        cls_logits, bbox_regression = self.classification_head(features), self.regression_head(features)
        anchors = self.anchor_generator(images, features)
        if self.training:
            assert targets is not None
            return self.compute_loss(targets, cls_logits, bbox_regression, anchors)
        detections = []
        for logits, deltas in zip(cls_logits, bbox_regression):
            scores_per_level = torch.sigmoid(logits).flatten()
            keep_idxs = scores_per_level > 0.005
            scores_per_level = scores_per_level[keep_idxs]
            topk_idxs = torch.where(keep_idxs)[0]
            # keep only topk scoring predictions
            num_topk = min(5, topk_idxs.size(0))
            scores_per_level, idxs = scores_per_level.topk(num_topk)
            topk_idxs = topk_idxs[idxs]
            anchor_idxs = torch.div(topk_idxs, cls_logits.shape[-1], rounding_mode='floor')
            labels_per_level = topk_idxs % cls_logits.shape[-1]
            boxes_per_level = self.box_coder.decode_single(deltas[anchor_idxs], anchors[anchor_idxs])
            boxes_x = boxes_per_level[..., 0::2].clamp(min=0, max=images.shape[-1])
            boxes_y = boxes_per_level[..., 1::2].clamp(min=0, max=images.shape[-2])
            detections.append({'boxes': torch.stack((boxes_x, boxes_y), dim=2).reshape(boxes_per_level.shape), 'scores': scores_per_level, 'labels': labels_per_level})
        return detections


def program():
    model = RetinaNet()
    yield 'initial', model
    images = torch.rand(2, 3, 32, 48)
    targets = [{'boxes': torch.tensor([[2., 3., 15., 20.], [20., 10., 40., 30.]]), 'labels': torch.tensor([0, 2])},
               {'boxes': torch.tensor([[5., 5., 12., 14.]]), 'labels': torch.tensor([1])}]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9, weight_decay=0.0005)
    for step in range(3):
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        if step == 0:
            yield 'gradients', model
        optimizer.step()
        yield 'losses', loss_dict
    model.eval()
    with torch.no_grad():
        yield 'detections', model(images)
