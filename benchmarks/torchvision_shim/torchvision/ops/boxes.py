"""TorchScript-compatible plain-torch box ops with torchvision's semantics."""

import torch
from torch import Tensor


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    lt = torch.max(boxes1[:, None, :2], boxes2[None, :, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (box_area(boxes1)[:, None] + box_area(boxes2)[None, :] - inter)


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Greedy hard NMS: stable descending score order, drops IoU > threshold ."""
    n = boxes.size(0)
    if n == 0:
        return torch.empty((0,), dtype=torch.int64, device=boxes.device)
    order = torch.sort(scores, stable=True, dim=0, descending=True)[1]
    b = boxes[order]
    x1, y1, x2, y2 = b[:, 0], b[:, 1], b[:, 2], b[:, 3]
    area = (x2 - x1) * (y2 - y1)
    alive = torch.ones((n,), dtype=torch.bool, device=boxes.device)
    keep = [0]
    i = 0
    while True:
        j = i + 1
        if j >= n:
            break
        xx1 = torch.maximum(x1[i], x1[j:])
        yy1 = torch.maximum(y1[i], y1[j:])
        xx2 = torch.minimum(x2[i], x2[j:])
        yy2 = torch.minimum(y2[i], y2[j:])
        inter = (xx2 - xx1).clamp(min=0) * (yy2 - yy1).clamp(min=0)
        iou = inter / (area[i] + area[j:] - inter)
        # compared in double, as the C++ kernel does; a NaN IoU (0/0) does not suppress
        alive[j:] = alive[j:] & torch.logical_not(iou.double() > iou_threshold)
        nxt = torch.nonzero(alive[j:])
        if nxt.size(0) == 0:
            break
        i = j + int(nxt[0, 0].item())
        keep.append(i)
    return order[torch.tensor(keep, dtype=torch.int64, device=boxes.device)]


def _batched_nms_coordinate_trick(
    boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float
) -> Tensor:
    if boxes.numel() == 0:
        return torch.empty((0,), dtype=torch.int64, device=boxes.device)
    max_coordinate = boxes.max()
    offsets = idxs.to(boxes) * (max_coordinate + torch.tensor(1).to(boxes))
    return nms(boxes + offsets[:, None], scores, iou_threshold)


def _batched_nms_vanilla(
    boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float
) -> Tensor:
    keep_mask = torch.zeros_like(scores, dtype=torch.bool)
    for class_id in torch.unique(idxs):
        curr = torch.where(idxs == class_id)[0]
        k = nms(boxes[curr], scores[curr], iou_threshold)
        keep_mask[curr[k]] = True
    keep = torch.where(keep_mask)[0]
    return keep[scores[keep].sort(descending=True)[1]]


def batched_nms(
    boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float
) -> Tensor:
    # same switch as torchvision: many boxes -> per-class loop, few -> coordinate offset
    if boxes.numel() > 4000:
        return _batched_nms_vanilla(boxes, scores, idxs, iou_threshold)
    return _batched_nms_coordinate_trick(boxes, scores, idxs, iou_threshold)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    ws, hs = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return torch.where((ws >= min_size) & (hs >= min_size))[0]


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    h, w = size
    x = boxes[..., 0::2].clamp(min=0, max=w)
    y = boxes[..., 1::2].clamp(min=0, max=h)
    return torch.stack((x, y), dim=-1).reshape(boxes.shape)
