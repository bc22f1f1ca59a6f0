"""COCO's numbers of a detector on a dataset, the same way for every detector."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.coco_metric import COCOMetric
from effdet_keras.geometry.letterbox import boxes_in_image
from effdet_keras.inference.batches_to_evaluate import BatchesToEvaluate
from effdet_keras.inference.dataset_to_evaluate import DatasetToEvaluate

_AT_PRIOR = 0.02  # twice the prior of focal loss (paper, section 3.3)


def evaluate(
    detector: Any,
    data: Any,
    *,
    metric: COCOMetric | None = None,
    batch_size: int = 8,
    verbose: bool = True,
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
        batch_size: int, images at once, where `data` has no batches of its own.
        verbose: bool, whether to show progress and the table of numbers.

    Returns:
        Dict of floats by name: COCO's twelve, then `AP/<class>`; -1 where the
            dataset has nothing to measure.

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
        >>> numbers = evaluate(model, valid, batch_size=2, verbose=False)
        >>> len(numbers), 0 <= numbers["AP"] == numbers["AP/cat"], numbers["APl"]
        (13, True, -1.0)
    """
    if isinstance(data, DetectionDataset):
        category_ids = category_ids_in_dataset(detector, data)
        source = DatasetToEvaluate(detector.config, data, batch_size)
    else:
        source = BatchesToEvaluate(detector, data, batch_size)
        category_ids = np.array(source.category_ids)
    found = list(_detect(detector, source, verbose))
    _warn_if_at_prior(found)
    metric = COCOMetric(source.ground_truth()) if metric is None else metric
    metric.reset()
    for image_id, boxes, scores, labels in found:
        metric.update(image_id, boxes, scores, category_ids[labels])
    numbers = metric.result()
    if verbose:
        print(metric.table(), flush=True)
    return numbers


def check_evaluation_data(detector, data, batch_size):
    """Raises the error that `evaluate` would raise, as far as it shows at once.

    Of a user's own batches it draws the first.

    Args:
        detector, data, batch_size: as of `evaluate`.
    """
    if isinstance(data, DetectionDataset):
        category_ids_in_dataset(detector, data)
    else:
        next(iter(BatchesToEvaluate(detector, data, batch_size)), None)


def category_ids_in_dataset(detector, dataset):
    """The ids in a dataset's annotations of a detector's labels.

    Args:
        detector: has `class_names`, `category_ids` and `config`.
        dataset: `effdet_keras.data.DetectionDataset`.

    Returns:
        Int array `[C]`.

    Raises:
        ValueError: If the classes of detector and dataset differ.
    """
    names, ids = detector.class_names, detector.category_ids
    if names is not None and tuple(names) == tuple(dataset.class_names):
        return np.array(dataset.category_ids)
    if ids is not None:
        names_of_data = dict(zip(dataset.category_ids, dataset.class_names))
        names_of_model = dict(zip(ids, names or [names_of_data.get(i) for i in ids]))
        shared = set(names_of_data) & set(names_of_model)
        if shared and all(names_of_data[i] == names_of_model[i] for i in shared):
            return np.array(ids)
    elif names is None and detector.config.num_classes == dataset.num_classes:
        return np.array(dataset.category_ids)
    raise InvalidValueError(
        "The labels of the model and those of the dataset mean different things. "
        f"Received: a model with {detector.config.num_classes} classes "
        f"({_short(names)}; category ids {_short(ids)}), a dataset with "
        f"{dataset.num_classes} ({_short(dataset.class_names)}; category ids "
        f"{_short(dataset.category_ids)}). Make the model with "
        "`class_names=dataset.class_names`, or give it `category_ids`."
    )


def _detect(detector, source, verbose):
    """Yields id, boxes in pixels of the image, scores and labels of each image."""
    progress = keras.utils.Progbar(
        source.num_images, unit_name="image", verbose=int(verbose)
    )
    done, rows = 0, 0
    for batch in source:
        rows = max(rows, len(batch.images))
        outputs = detector.predict_on_batch(_filled_up(batch.images, rows))
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        for row in range(len(batch.images)):
            yield (batch.image_ids[row], *_in_image(outputs, batch, row))
        done += len(batch.images)
        progress.update(done)
    if source.num_images is None:
        progress.update(done, finalize=True)


def _warn_if_at_prior(found):
    """Says so where no score has left the value that new class heads start from."""
    best = max((scores.max() for _, _, scores, _ in found if len(scores)), default=None)
    if best is None or best > _AT_PRIOR:
        return
    warnings.warn(
        f"The best score of all images is {best:.3f}: the class head still stands at "
        "its prior, 0.01, and has not learned yet. Train for more steps or with a "
        "higher learning rate. If the model was compiled with recipe='reference' or "
        "`batch_norm_warmup=False`, the moving statistics of batch norm may lag behind "
        "the weights: compile with `batch_norm_warmup=True`.",
        stacklevel=3,
    )


def _filled_up(images, rows):
    """A last batch in the size of the others: another one is compiled anew."""
    missing = rows - len(images)
    return np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)]) if missing else images


def _in_image(outputs, batch, row):
    """Boxes in pixels of the image, scores and labels of one row."""
    scale = batch.image_scales[row]
    # A scale of 0 marks an image that could not be read: nothing is found in it.
    count = int(outputs["num_detections"][row]) if scale > 0 else 0
    boxes, scores, labels = (
        outputs[name][row, :count] for name in ("boxes", "scores", "labels")
    )
    return boxes_in_image(boxes, scale, batch.image_sizes[row]), scores, labels


def _short(values):
    if values is None:
        return "not given"
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
