"""A detector on a whole dataset, the same way for every detector: COCO's numbers, an
`ImageResult` per image, losses."""

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

_SAMPLE = 64  # images of a training, to see whether it learned its own


def evaluate(
    detector: Any,
    data: Any,
    *,
    metric: COCOMetric | None = None,
    batch_size: int = 8,
    verbose: bool = True,
    losses: bool = False,
) -> dict[str, float]:
    """Detects in every image, and compares with its annotations: `Predictor.evaluate`.

    `metric` is a `COCOMetric` to compare with, made once for many evaluations, or of a
    COCO json file whose image ids your own batches carry; None makes one.
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
    """`diagnose` of an AP50; of a low one with some of the images of the training."""
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
    """Losses, or the numbers of `MeanIoU`: the first of them, then its parts."""
    named = ((k.removeprefix("IoU/"), value) for k, value in numbers.items())
    total, *parts = (f"{name} {value:.{digits}f}" for name, value in named)
    return f"{total}: {', '.join(parts)}"


def check_evaluation_data(detector, data, batch_size):
    """Raises the error that `evaluate` would raise, as far as the first batch shows."""
    if isinstance(data, DetectionDataset):
        category_ids_in_dataset(detector, data)
    else:
        next(iter(BatchesToEvaluate(detector, data, batch_size)), None)


def image_results(
    detector: Any, data: Any, *, batch_size: int = 8, verbose: bool = True
) -> list[ImageResult]:
    """Detects in every image of a dataset, and puts its ground truth beside it.

    The detections are those that `COCOEvaluation` and `Predictor.evaluate` count.
    Labels are those of the dataset; detections of other classes are left out.

    Args:
        detector: `EfficientDet`, or `Predictor` of any file.
        data: `effdet_keras.data.DetectionDataset`, or your own batches, as
            `COCOEvaluation` takes them; the results are in its order.
        batch_size: int, images at once, where `data` has no batches of its own.
        verbose: bool, whether to show progress.

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
    """`image_results`, and the losses and class maps of the same forward pass."""
    found = detect_dataset(
        detector, data, batch_size=batch_size, verbose=verbose, losses=losses
    )
    records = []
    for image_id, boxes, *of_boxes in found.images:
        boxes_xywh = yxyx_to_xywh(np.asarray(boxes, "float64"))
        records += coco_records(image_id, boxes_xywh, *of_boxes)
    return results_of_coco(found.ground_truth(), records), found


# --- Detections in every image: what each evaluation begins with.


@dataclasses.dataclass(frozen=True)
class DatasetDetections:
    """What was found in the images of a dataset, and what is true of them."""

    # Of each image `(image_id, boxes, scores, category_ids)`: boxes `[n, 4]` are `yxyx`
    # in pixels of the image, the category ids those of the dataset's annotations.
    images: list
    ground_truth: Callable[[], dict]  # makes the dataset's COCO dict
    losses: dict[str, float]  # empty where they are not wanted
    segmentation: dict[str, float]  # as `MeanIoU.result`; empty without masks


def detect_dataset(detector, data, *, batch_size, verbose, losses=False):
    """Of several processes each detects in its share; all get all detections."""
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
        # All are drawn: nobody knows how, and each tells of its ground truth.
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
    """Compares the class maps of images, `[B, H, W]` of the input, with their masks."""
    for row, mask in enumerate(batch.masks):
        if batch.image_scales[row] > 0:  # else it could not be read
            found = class_maps[row]
            is_of_input = mask.shape == found.shape
            found = found if is_of_input else class_map_in_image(found, mask.shape)
            metric.update(mask, found)


def _in_turn(parts):
    """The items of the shares of processes, in the order of one process."""
    turns = itertools.chain.from_iterable(itertools.zip_longest(*parts))
    return [item for item in turns if item is not None]


def category_ids_in_dataset(detector, dataset):
    """The ids in a dataset's annotations of a detector's labels, ints `[C]`."""
    names, ids = detector.class_names, detector.category_ids
    if not detector.config.has_detection:
        return np.zeros(0, np.int64)
    id_of_name = dict(zip(dataset.class_names, dataset.category_ids))
    if names is not None and id_of_name.keys() <= set(names):
        # The data may have some of the classes, and number them as it likes.
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
    """Yields for each batch id, boxes in pixels of the image, scores and labels."""
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
    """A last batch in the size of the others: another one is compiled again."""
    margins = [(0, 0)] * (values.ndim - 1)
    return np.pad(values, [(0, rows - len(values)), *margins])


def _in_image(outputs, batch, row):
    """Boxes in pixels of the image, scores and labels of one row."""
    scale = batch.image_scales[row]
    # A scale of 0 marks an image that could not be read: nothing is found in it.
    count = int(outputs["num_detections"][row]) if np.all(scale > 0) else 0
    boxes, scores, labels = (
        outputs[name][row, :count] for name in ("boxes", "scores", "labels")
    )
    return boxes_in_image(boxes, scale, batch.image_sizes[row]), scores, labels


# --- The losses of an evaluation, collected from the forward passes that detect.

_FILLING = {"boxes": 0, "labels": BACKGROUND, "masks": IGNORED_PIXEL}


class BatchLosses:
    """Detects in batches, and keeps their losses, `of_batches`."""

    def __init__(self, detector: Any) -> None:
        self._model = getattr(detector, "detector", detector)
        is_live = hasattr(self._model, "evaluate_and_detect_on_batch")
        rule = "Losses are computed by a model that runs in Keras, from a `.keras` file"
        require(is_live, rule, type=type(self._model).__name__)
        self.of_batches: list[dict[str, float]] = []
        self._num_rows = 0

    def detect(self, images, batch):
        """Detects in the images of a batch, and in others that fill it up."""
        count, rows = len(batch.images), batch.truth["labels"].shape[1]
        # Never fewer rows than before: another shape is compiled again.
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
    """The mean of each loss over the batches, `loss` first."""
    names = ["loss", *(name for name in of_batches[0] if name != "loss")]
    return {x: float(np.mean([one[x] for one in of_batches])) for x in names}


def labels_of_detector(category_ids: np.ndarray, dataset: DetectionDataset):
    """The detector's label of each label of a dataset, from the ids of its labels."""
    if not len(category_ids):  # of a detector that finds no objects
        return None
    label_of = {int(x): label for label, x in enumerate(category_ids)}
    missing = [x for x in dataset.category_ids if x not in label_of]
    rule = "Losses need a model that has all classes of the dataset"
    require(not missing, rule, missing_ids=missing[:5])
    return np.array([label_of[category_id] for category_id in dataset.category_ids])
