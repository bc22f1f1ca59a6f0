"""COCO's numbers of a detector on a dataset, the same way for every detector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from effdet_keras.box_ops import yxyx_to_xywh
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect_dataset import (
    DatasetDetections,
    category_ids_in_dataset,
    detect_dataset,
)
from effdet_keras.detect.ground_truth import BatchesToEvaluate
from effdet_keras.evaluate.coco import COCOMetric, coco_records, results_of_coco
from effdet_keras.evaluate.image_result import ImageResult


def evaluate(
    detector: Any,
    data: Any,
    *,
    metric: COCOMetric | None = None,
    batch_size: int = 8,
    verbose: bool = True,
    losses: bool = False,
) -> dict[str, float]:
    """Detects in every image of a dataset, and compares with its annotations.

    Boxes are compared in pixels of the images, clipped to them, as `detect` gives
    them. It needs no TensorFlow.

    Args:
        detector: `EfficientDet` or `ExportedDetector`; see `detect`. It is run with
            the weights that it has.
        data: `effdet_keras.data.DetectionDataset`; or your own batches of
            `(images, ground_truth)` in the network's input size, such as a
            `tf.data.Dataset`, a `keras.utils.PyDataset` or a list; or one such pair
            of arrays. `images` is `[B, H, W, 3]`, pixels 0-255. `ground_truth` is a
            dict of `boxes` `[B, M, 4]`, `yxyx` in pixels of the input, and `labels`
            `[B, M]`, -1 in padding rows. Three keys more are used where they are
            there: `image_id`, ints `[B]`, else the images are counted;
            `image_scale`, floats `[B]`, else boxes are compared in pixels of the
            input; `is_crowd`, bools `[B, M]`. A `DetectionDataset` knows more: the
            size of each image, the area of each annotation and its crowd regions.
        metric: `COCOMetric` to compare with, for instance of `dataset.to_coco()` to
            make it once for many evaluations, or of a COCO json file whose image ids
            your own batches carry; None makes one from `data`.
        losses: bool, whether to compute the losses as well, from the same forward
            pass: the means over the batches, as `model.evaluate` gives them. The
            detector must be a compiled `EfficientDet`.

    Returns:
        Dict of floats by name: COCO's twelve, then `AP/<class>`; -1 where the
            dataset has nothing to measure. With `losses` also `loss`, `class_loss`,
            `box_loss`, `reg_l2_loss`, and `box_iou_loss` where there is one. Where the
            detector has a segmentation head and the dataset masks, `mIoU` and
            `IoU/<class>` in pixels of the images, see `effdet_keras.metrics.MeanIoU`.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> valid = from_arrays(
        ...     [np.zeros((64, 64, 3), "uint8")] * 3,
        ...     boxes=[[[8, 8, 40, 40]]] * 3, labels=[[0]] * 3, class_names=["cat"])
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"])
        >>> numbers = evaluate(model, valid, batch_size=2, verbose=False)
        >>> len(numbers), 0 <= numbers["AP"] == numbers["AP/cat"], numbers["APl"]
        (13, True, -1.0)
    """
    found = detect_dataset(
        detector, data, batch_size=batch_size, verbose=verbose, losses=losses
    )
    numbers = {}
    if detector.config.has_detection:
        metric = COCOMetric(found.ground_truth()) if metric is None else metric
        metric.reset()
        for image_id, boxes, scores, category_ids in found.images:
            metric.update(image_id, boxes, scores, category_ids)
        numbers = metric.result()
        if verbose:
            print(metric.table(), flush=True)
    numbers |= found.segmentation
    if verbose:
        if found.segmentation:
            print(segmentation_text(found.segmentation), flush=True)
        if losses:
            print(losses_text(found.losses), flush=True)
    return {**numbers, **found.losses}


def losses_text(losses: Mapping[str, float]) -> str:
    """Writes losses as a line for people.

    Example:
        >>> losses_text({"loss": 1.25, "class_loss": 1.0, "box_loss": 0.25})
        'loss 1.2500: class_loss 1.0000, box_loss 0.2500'
    """
    total, *parts = (f"{name} {value:.4f}" for name, value in losses.items())
    return f"{total}: {', '.join(parts)}"


def segmentation_text(numbers: Mapping[str, float]) -> str:
    """Writes the numbers of `MeanIoU` as a line for people.

    Example:
        >>> segmentation_text({"mIoU": 0.75, "IoU/cat": 0.5, "IoU/dog": 1.0})
        'mIoU 0.750: cat 0.500, dog 1.000'
    """
    total, *parts = (f"{k.removeprefix('IoU/')} {v:.3f}" for k, v in numbers.items())
    return f"{total}: {', '.join(parts)}"


def check_evaluation_data(detector, data, batch_size):
    """Raises the error that `evaluate` would raise, as far as it shows at once.

    Of a user's own batches it draws the first.
    """
    if isinstance(data, DetectionDataset):
        category_ids_in_dataset(detector, data)
    else:
        next(iter(BatchesToEvaluate(detector, data, batch_size)), None)


# --- An `ImageResult` per image: what every analysis of a detector starts from.


def image_results(
    detector: Any, data: Any, *, batch_size: int = 8, verbose: bool = True
) -> list[ImageResult]:
    """Detects in every image of a dataset, and puts its ground truth beside it.

    The detections are those that `COCOEvaluation` and `Predictor.evaluate` count, down
    to the lowest score that the model's postprocess leaves. Labels are those of the
    dataset; detections of classes that it does not have are left out.

    Args:
        detector: `EfficientDet`, or `Predictor` of any file. It is run with the
            weights that it has.
        data: `effdet_keras.data.DetectionDataset`, or your own batches, as
            `COCOEvaluation` takes them.
        batch_size: int, images at once, where `data` has no batches of its own.
        verbose: bool, whether to show progress.

    Returns:
        List of `ImageResult`, one for each image, in the order of `data`.

    Raises:
        ValueError: If the classes of detector and dataset differ, or the data is
            empty, endless or has ground truth that cannot be right.
        TypeError: If `data` is something else.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> valid = from_arrays(
        ...     [np.zeros((64, 64, 3), "uint8")] * 3,
        ...     boxes=[[[8, 8, 40, 40]]] * 3, labels=[[0]] * 3, class_names=["cat"])
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"])
        >>> results = image_results(model, valid, batch_size=2, verbose=False)
        >>> [result.image_id for result in results], results[0].truth_boxes.tolist()
        ([1, 2, 3], [[8.0, 8.0, 40.0, 40.0]])
    """
    found = detect_dataset(detector, data, batch_size=batch_size, verbose=verbose)
    return results_of_coco(found.ground_truth(), _records(found))


def image_results_and_losses(
    detector: Any, data: Any, *, batch_size: int = 8, verbose: bool = True
) -> tuple[list[ImageResult], dict[str, float]]:
    """`image_results`, and the losses from the same forward pass."""
    found = detect_dataset(
        detector, data, batch_size=batch_size, verbose=verbose, losses=True
    )
    return results_of_coco(found.ground_truth(), _records(found)), found.losses


def image_results_and_segmentation(
    detector: Any, data: Any, *, batch_size: int = 8, verbose: bool = True
) -> tuple[list[ImageResult], dict[str, float]]:
    """`image_results`, and how well the same pass found the classes of pixels."""
    found = detect_dataset(detector, data, batch_size=batch_size, verbose=verbose)
    return results_of_coco(found.ground_truth(), _records(found)), found.segmentation


def _records(found: DatasetDetections) -> Iterator[dict[str, Any]]:
    """The detections in COCO's result format."""
    for image_id, boxes, scores, category_ids in found.images:
        boxes_xywh = yxyx_to_xywh(np.asarray(boxes, "float64"))
        yield from coco_records(image_id, boxes_xywh, scores, category_ids)
