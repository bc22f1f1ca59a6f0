"""An `ImageResult` per image: what every analysis of a detector starts from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from effdet_keras.evaluation.coco_records import coco_records
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.results_of_coco import results_of_coco
from effdet_keras.geometry.box_ops import yxyx_to_xywh
from effdet_keras.inference.detect_dataset import DatasetDetections, detect_dataset


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
        >>> from effdet_keras.data import from_arrays
        >>> from effdet_keras.models import EfficientDet
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
    """`image_results`, and the losses from the same forward pass.

    Args:
        detector: compiled `EfficientDet`, or `Predictor` of one.
        data, batch_size, verbose: as of `image_results`.

    Returns:
        `(results, losses)`: as of `image_results`, and as of `evaluate`.
    """
    found = detect_dataset(
        detector, data, batch_size=batch_size, verbose=verbose, losses=True
    )
    return results_of_coco(found.ground_truth(), _records(found)), found.losses


def image_results_and_segmentation(
    detector: Any, data: Any, *, batch_size: int = 8, verbose: bool = True
) -> tuple[list[ImageResult], dict[str, float]]:
    """`image_results`, and how well the classes of pixels were found by the same pass.

    Args:
        detector, data, batch_size, verbose: as of `image_results`.

    Returns:
        `(results, numbers)`: as of `image_results`, and as of `MeanIoU.result`; no
        numbers where the detector has no segmentation head, or the data no masks.
    """
    found = detect_dataset(detector, data, batch_size=batch_size, verbose=verbose)
    return results_of_coco(found.ground_truth(), _records(found)), found.segmentation


def _records(found: DatasetDetections) -> Iterator[dict[str, Any]]:
    """The detections in COCO's result format."""
    for image_id, boxes, scores, category_ids in found.images:
        boxes_xywh = yxyx_to_xywh(np.asarray(boxes, "float64"))
        yield from coco_records(image_id, boxes_xywh, scores, category_ids)
