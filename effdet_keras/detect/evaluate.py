"""Runs any detector on a whole dataset: COCO metrics, `ImageResult`s, losses.

Every detector is evaluated in the same way.
"""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from effdet_keras._internal.processes import current_processes
from effdet_keras.box_ops import yxyx_to_xywh
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect import detect_batch
from effdet_keras.detect.ground_truth import (
    BatchesToEvaluate,
    DatasetToEvaluate,
    seg_names_of,
)
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.evaluate.coco import COCOMetric, coco_records, results_of_coco
from effdet_keras.evaluate.diagnosis import ap50_of_boxes, diagnose, is_low
from effdet_keras.evaluate.image_result import UNMEASURED, ImageResult, spread
from effdet_keras.evaluate.mean_iou import MeanIoU
from effdet_keras.labels import BACKGROUND, IGNORED_PIXEL, extend_category_ids
from effdet_keras.letterbox import boxes_in_image, class_map_in_image

_SAMPLE = 64  # training images on which AP50 shows whether training fits its own data


def evaluate(
    detector: Any,
    data: Any,
    *,
    metric: COCOMetric | None = None,
    batch_size: int = 8,
    verbose: bool = True,
    losses: bool = False,
) -> dict[str, float]:
    """Evaluates a detector on a dataset; `Predictor.evaluate` calls this function.

    Args:
        detector: `EfficientDet`, or `Predictor` of any file.
        data: `effdet_keras.data.DetectionDataset`, or batches of `(images,
            ground_truth)` as `fit` takes them.
        metric: `COCOMetric` with the ground truth. Pass one to reuse it for several
            evaluations, or to compare with a COCO json file whose image ids are in your
            own batches. None creates one from the data.
        batch_size: int, images per batch, if `data` is not batched.
        verbose: bool, whether to print progress and results.
        losses: bool, whether to compute losses in the same forward pass.

    Returns:
        Dict of floats by name: COCO metrics with a detection head; `mIoU` and
        `IoU/<class>` if there are masks and a segmentation head; and losses.

    Raises:
        ValueError, TypeError: If the classes of detector and dataset differ, or the
            data cannot be evaluated.
    """
    found = detect_dataset(
        detector, data, batch_size=batch_size, verbose=verbose, losses=losses
    )
    numbers = {}
    if detector.config.has_detection:
        metric = COCOMetric(found.ground_truth()) if metric is None else metric
        metric.reset()
        for found_in_image in found.images:
            metric.update(*found_in_image)
        numbers = metric.result()
        if verbose:
            print(metric.table(), flush=True)
    numbers |= found.segmentation
    for part, digits in ((found.segmentation, 3), (found.losses, 4)):
        if verbose and part:
            print(in_one_line(part, digits), flush=True)
    return {**numbers, **found.losses}


def diagnose_low_ap(detector, results, ap50, num_classes, training_data, batch_size):
    """Calls `diagnose`; if AP50 is low, measures AP50 on some training images first."""
    train_ap50, names = UNMEASURED, detector.class_names
    if training_data is not None and is_low(ap50):
        places = spread(range(len(training_data)), _SAMPLE)
        sample = training_data.subset(places)
        if names is not None and set(sample.class_names) <= set(names):  # as in `fit`
            sample = sample.with_classes(names, detector.category_ids)
        options = {"batch_size": batch_size, "verbose": False}
        train_ap50 = evaluate(detector, sample, **options)["AP50"]
    return diagnose(ap50, ap50_of_boxes(results), num_classes, train_ap50)


def in_one_line(numbers: Mapping[str, float], digits: int) -> str:
    """Formats losses or `MeanIoU` metrics in one line: the total, then its parts."""
    named = ((k.removeprefix("IoU/"), value) for k, value in numbers.items())
    total, *parts = (f"{name} {value:.{digits}f}" for name, value in named)
    return f"{total}: {', '.join(parts)}"


def check_evaluation_data(detector, data, batch_size):
    """Raises the errors of `evaluate` that the dataset or its first batch reveals."""
    if isinstance(data, DetectionDataset):
        category_ids_in_dataset(detector, data)
    else:
        next(iter(BatchesToEvaluate(detector, data, batch_size)), None)


def image_results(
    detector: Any, data: Any, *, batch_size: int = 8, verbose: bool = True
) -> list[ImageResult]:
    """Detects in every image of a dataset, and returns detections with ground truth.

    The detections are the ones that `COCOEvaluation` and `Predictor.evaluate` count.
    Labels are those of the dataset. Detections of other classes are left out.

    Args:
        detector: `EfficientDet`, or `Predictor` of any file.
        data: `effdet_keras.data.DetectionDataset`, or your own batches, as
            `COCOEvaluation` takes them.
        batch_size: int, images per batch, if `data` is not batched.
        verbose: bool, whether to show progress.

    Returns:
        List of `ImageResult`, one per image, in the order of `data`.

    Raises:
        ValueError, TypeError: If the classes of detector and dataset differ, or the
            data cannot be evaluated.

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
    return analyzed_images(detector, data, batch_size=batch_size, verbose=verbose)[0]


def analyzed_images(
    detector: Any,
    data: Any,
    *,
    batch_size: int = 8,
    verbose: bool = True,
    losses: bool = False,
) -> tuple[list[ImageResult], DatasetDetections]:
    """Returns `image_results` and the `DatasetDetections` of the same forward pass.

    The latter also holds the losses, and the mean IoU of the class maps.
    """
    found = detect_dataset(
        detector, data, batch_size=batch_size, verbose=verbose, losses=losses
    )
    records = []
    for image_id, boxes, *of_boxes in found.images:
        boxes_xywh = yxyx_to_xywh(np.asarray(boxes, "float64"))
        records += coco_records(image_id, boxes_xywh, *of_boxes)
    return results_of_coco(found.ground_truth(), records), found


# --- Detections in every image, the first step of each evaluation.


@dataclasses.dataclass(frozen=True)
class DatasetDetections:
    """The detections in the images of a dataset, and the dataset's ground truth."""

    # A tuple per image, `(image_id, boxes, scores, category_ids)`: boxes `[n, 4]` are
    # `yxyx` in pixels of the image; category ids are those of the annotations.
    images: list
    ground_truth: Callable[[], dict]  # returns the dataset as a COCO dict
    losses: dict[str, float]  # empty unless they were requested
    segmentation: dict[str, float]  # as `MeanIoU.result`; empty without masks


def detect_dataset(detector, data, *, batch_size, verbose, losses=False):
    """Detects in every image of a dataset, and returns `DatasetDetections`.

    If there are several processes, each detects in its share of the batches, and all
    of them receive all detections.
    """
    batch_losses = BatchLosses(detector) if losses else None
    processes = current_processes()
    share = processes.index, processes.count
    if isinstance(data, DetectionDataset):
        category_ids = category_ids_in_dataset(detector, data)
        labels = labels_of_detector(category_ids, data) if losses else None
        source = DatasetToEvaluate(detector.config, data, batch_size, labels, share)
        batches = iter(source)
    else:
        source = BatchesToEvaluate(detector, data, batch_size)
        # Every process reads all batches, because each batch brings its ground truth,
        # and the package cannot know how to skip one. Each detects in its share only.
        batches = itertools.islice(source, share[0], None, share[1])
        category_ids = np.array(source.category_ids)
    names = seg_names_of(detector, source.seg_class_names)
    pixels = None if names is None else MeanIoU(names)
    options = source.num_images, verbose, batch_losses, pixels
    own = [
        [(*found, category_ids[labels]) for *found, labels in batch]
        for batch in _detect(detector, batches, *options)
    ]
    own_losses = [] if batch_losses is None else batch_losses.of_batches
    own_counts = None if pixels is None else pixels.counts
    gathered = processes.gather((own, own_losses, own_counts))
    parts, parts_of_losses, counts = zip(*gathered)
    found = list(itertools.chain.from_iterable(_in_turn(parts)))
    means = mean_losses(_in_turn(parts_of_losses)) if losses else {}
    segmentation = {}
    if pixels is not None and source.seg_class_names is not None:  # there were masks
        pixels.counts = np.sum(counts, axis=0)
        segmentation = pixels.result()
    return DatasetDetections(found, source.ground_truth, means, segmentation)


def _count_pixels(metric, class_maps, batch):
    """Compares class maps `[B, H, W]`, in pixels of the input, with the masks."""
    for row, mask in enumerate(batch.masks):
        if batch.image_scales[row] > 0:  # else it could not be read
            found = class_maps[row]
            is_of_input = mask.shape == found.shape
            found = found if is_of_input else class_map_in_image(found, mask.shape)
            metric.update(mask, found)


def _in_turn(parts):
    """Merges the items of all processes into the order of a single process."""
    turns = itertools.chain.from_iterable(itertools.zip_longest(*parts))
    return [item for item in turns if item is not None]


def category_ids_in_dataset(detector, dataset):
    """Returns the dataset's category id of each label of a detector, ints `[C]`.

    Raises:
        ValueError: If the labels of detector and dataset mean different classes.
    """
    names, ids = detector.class_names, detector.category_ids
    if not detector.config.has_detection:
        return np.zeros(0, np.int64)
    id_of_name = dict(zip(dataset.class_names, dataset.category_ids))
    if names is not None and id_of_name.keys() <= set(names):
        # The dataset may have only some of the classes, with any category ids.
        return np.array(extend_category_ids(names, id_of_name))
    if ids is not None:
        name_of_id = dict(zip(dataset.category_ids, dataset.class_names))
        names_of_model = dict(zip(ids, names or [name_of_id.get(i) for i in ids]))
        shared = name_of_id.keys() & names_of_model.keys()
        named = id_of_name.keys() & set(names_of_model.values())
        agrees = all(name_of_id[i] == names_of_model[i] for i in shared)
        if shared and agrees and all(id_of_name[name] in shared for name in named):
            return np.array(ids)
    elif names is None and detector.config.num_classes == dataset.num_classes:
        return np.array(dataset.category_ids)
    raise InvalidValueError(
        "The labels of the model and those of the dataset mean different things. "
        f"Received: a model with {detector.config.num_classes} classes "
        f"({reprlib.repr(names)}; category ids {reprlib.repr(ids)}), a dataset with "
        f"{dataset.num_classes} ({reprlib.repr(dataset.class_names)}; category ids "
        f"{reprlib.repr(dataset.category_ids)}). Make the model with "
        "`class_names=dataset.class_names`, or give it `category_ids`."
    )


def _detect(detector, batches, num_images, verbose, batch_losses, pixels):
    """Yields a list per batch: id, boxes in pixels of the image, scores and labels."""
    progress = keras.utils.Progbar(num_images, unit_name="image", verbose=int(verbose))
    done, rows = 0, 0
    for batch in batches:
        rows = max(rows, len(batch.images))
        images = _filled_up(batch.images, rows)
        if batch_losses is None:
            sizes = _filled_up(batch.content_sizes, rows)
            outputs = detect_batch(detector, images, sizes)
        else:
            outputs = batch_losses.detect(images, batch)
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        if pixels is not None:
            _count_pixels(pixels, outputs["class_map"], batch)
        yield [
            (batch.image_ids[row], *_in_image(outputs, batch, row))
            for row in range(len(batch.images))
        ]
        done += len(batch.images)
        progress.update(done)
    if num_images is None:
        progress.update(done, finalize=True)


def _filled_up(values, rows):
    """Pads the last batch to the size of the others, to avoid compiling again."""
    margins = [(0, 0)] * (values.ndim - 1)
    return np.pad(values, [(0, rows - len(values)), *margins])


def _in_image(outputs, batch, row):
    """Returns the boxes in pixels of the image, scores and labels of one row."""
    scale = batch.image_scales[row]
    # A scale of 0 marks an image that could not be read. It has no detections.
    count = int(outputs["num_detections"][row]) if np.all(scale > 0) else 0
    boxes, scores, labels = (
        outputs[name][row, :count] for name in ("boxes", "scores", "labels")
    )
    return boxes_in_image(boxes, scale, batch.image_sizes[row]), scores, labels


# --- The losses of an evaluation, collected from the forward passes that detect.

_FILLING = {"boxes": 0, "labels": BACKGROUND, "masks": IGNORED_PIXEL}


class BatchLosses:
    """Detects in batches, and collects their losses in `of_batches`."""

    def __init__(self, detector: Any) -> None:
        self._model = getattr(detector, "detector", detector)
        is_live = hasattr(self._model, "evaluate_and_detect_on_batch")
        rule = (
            "Losses can be computed only with a model that runs in Keras, such as one "
            "from a `.keras` file, not with an exported file"
        )
        require(is_live, rule, type=type(self._model).__name__)
        self.of_batches: list[dict[str, float]] = []
        self._num_rows = 0

    def detect(self, images, batch):
        """Detects in a padded batch, and stores the losses of its real images."""
        count, rows = len(batch.images), batch.truth["labels"].shape[1]
        # The number of rows never decreases, because a new shape is compiled again.
        self._num_rows = max(self._num_rows, rows, 1)
        more = {"boxes": self._num_rows - rows, "labels": self._num_rows - rows}
        truth = {}
        for name, values in batch.truth.items():
            margins = [(0, len(images) - count), (0, more.get(name, 0))]
            margins += [(0, 0)] * (values.ndim - 2)
            truth[name] = np.pad(values, margins, constant_values=_FILLING[name])
        sizes = {}
        if self._model.postprocess.drop_empty:
            sizes = {"content_sizes": _filled_up(batch.content_sizes, len(images))}
        outputs, losses = self._model.evaluate_and_detect_on_batch(
            images, truth, np.arange(len(images)) < count, **sizes
        )
        self.of_batches.append(losses)
        return outputs


def mean_losses(of_batches: list[dict[str, float]]) -> dict[str, float]:
    """Returns the mean of each loss over the batches, `loss` first."""
    names = ["loss", *(name for name in of_batches[0] if name != "loss")]
    return {x: float(np.mean([one[x] for one in of_batches])) for x in names}


def labels_of_detector(category_ids: np.ndarray, dataset: DetectionDataset):
    """Returns the detector's label for each label of a dataset.

    `category_ids` are the dataset's category ids of the detector's labels.
    """
    if not len(category_ids):  # the detector has no detection head
        return None
    label_of = {int(x): label for label, x in enumerate(category_ids)}
    missing = [x for x in dataset.category_ids if x not in label_of]
    rule = "Losses need a model that has all classes of the dataset"
    require(not missing, rule, missing_ids=missing[:5])
    return np.array([label_of[category_id] for category_id in dataset.category_ids])
