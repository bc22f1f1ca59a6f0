"""COCO's numbers of a detector on a dataset, the same way for every detector."""

import keras
import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.metrics import COCOMetric


def evaluate(detector, dataset, *, metric=None, batch_size=8, verbose=True):
    """Detects in every image of a dataset, and compares with its boxes.

    Args:
        detector: `EfficientDet` or `ExportedDetector`; see `detect`. It is run with
            the weights that it has.
        dataset: `effdet_keras.data.DetectionDataset`.
        metric: `COCOMetric` of `dataset.to_coco()`, to make it once for many
            evaluations; None makes one.
        batch_size: int, images at once.
        verbose: bool, whether to show progress and the table of numbers.

    Returns:
        Dict of floats by name: COCO's twelve, then `AP/<class>`; -1 where the
            dataset has nothing to measure.

    Raises:
        ValueError: If the classes of detector and dataset differ.

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
    category_ids = category_ids_of(detector, dataset)
    metric = COCOMetric(dataset.to_coco()) if metric is None else metric
    metric.reset()
    for image_ids, detections in _detect(detector, dataset, batch_size, verbose):
        for image_id, (boxes, scores, labels) in zip(image_ids, detections):
            metric.update(image_id, boxes, scores, category_ids[labels])
    numbers = metric.result()
    if verbose:
        print(metric.table(), flush=True)
    return numbers


def category_ids_of(detector, dataset):
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


def _detect(detector, dataset, batch_size, verbose):
    """Ids and detections of each batch, boxes in pixels of the images."""
    batches = dataset.batches(
        batch_size,
        training=False,
        image_size=detector.config.image_size,
        pad_value=detector.config.padding_rgb,
    )
    progress = keras.utils.Progbar(
        len(dataset), unit_name="image", verbose=int(verbose)
    )
    done = 0
    for images, truth in batches:
        images = np.asarray(images)
        count = len(images)
        outputs = detector.predict_on_batch(_filled_up(images, batch_size))
        scales = np.asarray(truth["image_scale"])
        yield (
            [int(image_id) for image_id in np.asarray(truth["image_id"])],
            [_detections(outputs, i, scales[i]) for i in range(count)],
        )
        done += count
        progress.update(done)


def _filled_up(images, batch_size):
    """A last batch in the size of the others: another one is compiled anew."""
    missing = batch_size - len(images)
    return np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)])


def _detections(outputs, index, image_scale):
    """Boxes in pixels of the image, scores and labels of one row."""
    # A scale of 0 marks an image that could not be read: nothing is found in it.
    count = int(outputs["num_detections"][index]) if image_scale > 0 else 0
    boxes, scores, labels = (
        np.asarray(outputs[name][index])[:count]
        for name in ("boxes", "scores", "labels")
    )
    return boxes * image_scale, scores, labels


def _short(values):
    if values is None:
        return "not given"
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
