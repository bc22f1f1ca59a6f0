"""Detects objects in images of any size and type, with any detector."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.number_ranges import NumberRange, check_whole_number
from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras._internal.remote_path import path_of
from effdet_keras.detect.detections import Detections, labels_of_classes
from effdet_keras.errors import (
    EffDetError,
    InvalidStateError,
    InvalidTypeError,
    check_argument,
    require,
)
from effdet_keras.evaluate.thresholds import ScoreSettings, apply_temperature
from effdet_keras.images import check_pixels, list_images, read_image
from effdet_keras.letterbox import (
    boxes_in_image,
    class_map_in_image,
    letterbox_array,
    scaled_size,
)
from effdet_keras.network.config import EfficientDetConfig

# The input of `detect`: the path or the array of an image, or a list of these; the path
# of a folder of images; or the array of a batch.
Image: TypeAlias = str | os.PathLike[str] | ArrayLike
Images: TypeAlias = Image | Sequence[Image]
# A function that detects in tiles, views or frames, such as a model's `detect`.
DetectFunction: TypeAlias = Callable[[list[np.ndarray]], list[Detections]]


def detect(
    detector,
    images,
    *,
    score_threshold=0.3,
    batch_size=8,
    verbose="auto",
    calibrated=False,
    classes=None,
):
    """Detects objects in images, and returns boxes in pixels of the original images.

    Images are letterboxed to the network's input. The detector is any object with
    `config`, `class_names`, `category_ids`, `seg_class_names` if there is a
    segmentation head, and `predict_on_batch`. That method takes letterboxed images,
    float32 `[B, H, W, 3]`, pixels 0-255, and returns the dict of `Postprocess`.

    Args:
        detector: the detector.
        images: path or array of an image, list of these, path of a folder of images, or
            array `[B, H, W, 3]` of a batch.
        score_threshold: float, 0 to 1, the lowest score to keep; or "best" for the
            thresholds that are stored with the model.
        batch_size: int, images per batch.
        verbose: bool, whether to show progress; "auto" shows it if there are several
            batches.
        calibrated: bool, whether to return scores after the model's temperature.
        classes: names or labels to keep, or `None` for all.

    Returns:
        `Detections` for a single image, else a list of `Detections`.

    Raises:
        ValueError, TypeError: If an argument or an image is wrong.
        RuntimeError: If the model does not have the thresholds of "best", or the
            temperature of `calibrated`.
    """
    rule = ScoreRule(detector, score_threshold, calibrated, classes)
    check_batch_size(batch_size)
    sources, is_single = image_sources(images)
    num_batches = -(-len(sources) // batch_size)
    shows_progress = num_batches > 1 if verbose == "auto" else bool(verbose)
    progress = Progress(len(sources), "images")
    detections = []
    # The last batch is padded, because another batch size would be compiled again.
    rows = batch_size if num_batches > 1 else len(sources)
    prepare = functools.partial(_preprocess_at, detector.config, sources, rule=rule)
    items = prefetch_map(prepare, range(len(sources)), batch_size)
    while batch := list(itertools.islice(items, batch_size)):
        detections += detect_preprocessed(detector, batch, rows)
        if shows_progress:
            progress.update(len(detections))
    return detections[0] if is_single else detections


def prefetch_map(function: Callable, values: Iterable, count: int) -> Iterator:
    """Yields `function(value)` in order; threads compute `count` results ahead."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        futures = (threads.submit(function, value) for value in values)
        waiting = collections.deque(itertools.islice(futures, count))
        while waiting:
            waiting.extend(itertools.islice(futures, 1))
            yield waiting.popleft().result()


def check_batch_size(batch_size):
    """Raises ValueError if `batch_size` is not a whole number above 0."""
    check_whole_number("batch_size", batch_size, "[1, inf)")


def image_sources(images):
    """Returns a list of paths and arrays, and whether `images` is a single image."""
    if isinstance(images, (str, os.PathLike)):
        path = path_of(images)
        return (list_images(path), False) if path.is_dir() else ([path], True)
    if isinstance(images, (list, tuple)):
        # The rows of a nested list would be taken for images without color.
        shapes = [np.shape(x) for x in images if isinstance(x, (list, tuple))]
        rule = (
            "A list must contain paths or arrays of images. To detect in an image that "
            "is a nested list of numbers, pass `np.array(image)`"
        )
        are_images = all(len(shape) >= 3 for shape in shapes)
        require(are_images, rule, InvalidTypeError, shape_of_entry=shapes[:1])
        return list(images), False
    array = _as_array(images)
    return (list(array), False) if array.ndim == 4 else ([array], True)


class PreprocessedImage(NamedTuple):
    """A letterboxed image, with the values that map boxes back to the original."""

    pixels: np.ndarray  # float32 [H, W, 3], letterboxed
    scale: Any  # as `letterbox` returns it
    size: tuple[int, int]  # height and width of the original image, in pixels
    image: Any  # the value of `Detections.image`
    rule: ScoreRule


def preprocess_image(
    config: EfficientDetConfig, source: Image, rule: ScoreRule
) -> PreprocessedImage:
    """Reads and letterboxes an image."""
    image = load_rgb(source)
    kept = source if isinstance(source, (str, os.PathLike)) else image
    return PreprocessedImage(*letterboxed(config, image), image.shape[:2], kept, rule)


def _preprocess_at(config, sources, index, rule):
    """Calls `preprocess_image`. The error of an array in a list names its position."""
    source = sources[index]
    try:
        return preprocess_image(config, source, rule)
    except EffDetError as error:
        if len(sources) == 1 or isinstance(source, (str, os.PathLike)):
            raise
        raise type(error)(f"{error} (`images[{index}]`)") from error


def detect_preprocessed(
    detector: Any, items: Sequence[PreprocessedImage], rows: int
) -> list[Detections]:
    """Detects in preprocessed images, padded to a batch of `rows` images."""
    config = detector.config
    inputs = np.zeros((rows, *config.image_size, 3), "float32")
    sizes = np.tile(np.float32(config.image_size), (rows, 1))
    for index, item in enumerate(items):
        inputs[index] = item.pixels
        sizes[index] = scaled_size(item.size, config.image_size, config.resize_method)
    outputs = detect_batch(detector, inputs, sizes)
    outputs = {name: np.asarray(value) for name, value in outputs.items()}
    return [
        _detections_of(detector, {n: x[index] for n, x in outputs.items()}, item)
        for index, item in enumerate(items)
    ]


def letterboxed(config: EfficientDetConfig, source: Image) -> tuple[np.ndarray, Any]:
    """Returns an image letterboxed to the network's input, and its scale."""
    return letterbox_array(
        load_rgb(source), config.image_size, config.padding_rgb, config.resize_method
    )


def detect_batch(detector, images, content_sizes):
    """Runs a detector on letterboxed images, whose content has `content_sizes`."""
    postprocess = getattr(detector, "postprocess", None)
    if getattr(postprocess, "drop_empty", False):  # only `drop_empty` needs the sizes
        return detector.predict_on_batch(images, content_sizes)
    return detector.predict_on_batch(images)


def _detections_of(detector, row, item):
    """Returns one row of a batch's outputs as `Detections`, in pixels of its image."""
    segmentation = {}
    if "class_map" in row:
        segmentation["class_map"] = class_map_in_image(row["class_map"], item.size)
        segmentation["seg_class_names"] = detector.seg_class_names
    count = int(row["num_detections"])
    is_kept, scores = item.rule.apply(row["scores"][:count], row["labels"][:count])
    kept = np.flatnonzero(is_kept)
    return Detections(
        boxes=boxes_in_image(row["boxes"][kept], item.scale, item.size),
        scores=scores[kept],
        labels=row["labels"][kept],
        class_names=detector.class_names,
        category_ids=detector.category_ids,
        image=item.image,
        **segmentation,
    )


def load_rgb(source, what="an image"):
    """Returns an image as an array `[H, W, 3]`.

    A grayscale image is repeated in three channels. An alpha channel is left out.

    Raises:
        ValueError: If the shape is not that of an image, or the values cannot be pixels
            0-255.
        TypeError: If `source` is neither a path nor an array of numbers.
    """
    if isinstance(source, (str, os.PathLike)):
        return read_image(source)
    array = _as_array(source)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3 and array.shape[-1] == 1:
        array = np.repeat(array, 3, axis=-1)
    is_image = array.ndim == 3 and array.shape[-1] in (3, 4) and 0 not in array.shape
    rule = (
        "An image must have the shape [H, W, 3], [H, W, 4] or [H, W], with pixels "
        "from 0 to 255"
    )
    require(is_image, rule, shape=array.shape)
    check_pixels(array[..., :3], what)
    return array[..., :3]


def _as_array(image):
    # There can be no tensor of the backend if Keras was never imported.
    is_tensor = sys.modules.get("keras") is not None and ops.is_tensor(image)
    array = ops.convert_to_numpy(image) if is_tensor else np.asarray(image)
    rule = "An image must be a path, or an array of pixels from 0 to 255"
    received = {"type": type(image), "dtype": array.dtype}
    require(array.dtype.kind in "uif", rule, InvalidTypeError, **received)
    return array


# --- Thresholds and temperature: which detections are returned, with which scores.

# The lowest score to keep, or "best" for the thresholds that are stored with the model.
ScoreThreshold: TypeAlias = float | Literal["best"]

_MARGIN = 1e-6  # of a score, for the rounding error of the inverse temperature
_CURE = (
    "To store them in a `.keras` file, run `effdet-keras eval MODEL DATA "
    "--store-thresholds`; in Python, set `model.score_settings = "
    "evaluation.score_settings(model.class_names)`. They are lost when the model is "
    "trained or other weights are loaded."
)


class ScoreRule:
    """Implements `score_threshold`, `calibrated` and `classes` of `detect`.

    A number as `score_threshold` is compared with the returned scores, which are
    calibrated with `calibrated=True`. The thresholds of "best" are compared with the
    model's own scores. No detection whose score from the model is below `lowest` is
    kept, with or without `calibrated`.
    """

    def __init__(
        self,
        detector: Any,
        score_threshold: ScoreThreshold,
        calibrated: bool = False,
        classes: Sequence[str | int] | None = None,
    ) -> None:
        self._labels = None
        if classes is not None:
            self._labels = labels_of_classes(classes, detector.class_names)
        is_best = isinstance(score_threshold, str) and score_threshold == "best"
        number = score_threshold
        if isinstance(number, np.ndarray) and number.ndim == 0:
            number = number.item()
        is_right = is_best or NumberRange("[0, 1]").contains(number)
        expected = (
            "a number from 0 to 1, or 'best' for the thresholds that are stored with "
            "the model"
        )
        check_argument(is_right, "score_threshold", score_threshold, expected)
        settings = getattr(detector, "score_settings", None)
        self._temperature = _temperature(settings) if calibrated else None
        self._threshold = self._thresholds = None
        if is_best:
            if settings is None:
                raise InvalidStateError(
                    "`score_threshold='best'` needs a model with stored thresholds, "
                    f"and this model has none. {_CURE}"
                )
            self._thresholds = np.array(settings.thresholds)
            self.lowest = float(self._thresholds.min())
            return
        self._threshold = self.lowest = score_threshold
        if self._temperature is not None:
            raw = apply_temperature(score_threshold, 1 / self._temperature)
            self.lowest = max(float(raw) - _MARGIN, 0.0)

    def apply(
        self, scores: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns bools `[n]` of the detections to keep, and the scores to return."""
        shown = np.asarray(scores, "float32")
        if self._temperature is not None:
            shown = apply_temperature(shown, self._temperature).astype("float32")
        if self._thresholds is None:
            is_kept = shown >= self._threshold
        else:
            is_kept = scores >= self._thresholds[labels]
        if self._labels is not None:
            is_kept &= np.isin(labels, self._labels)
        return is_kept, shown

    def applied_to(self, detections: Detections) -> Detections:
        """Returns the detections to keep, with the scores to return."""
        kept, shown = self.apply(detections.scores, detections.labels)
        return dataclasses.replace(detections, scores=shown)[kept]


def _temperature(settings: ScoreSettings | None):
    if settings is None or settings.temperature is None:
        raise InvalidStateError(
            "`calibrated=True` needs a model with a stored temperature, and this "
            f"model has none. {_CURE} An evaluation cannot find a temperature if the "
            "scores do not separate right from wrong detections."
        )
    return settings.temperature


_REDRAWN = 0.2  # the least seconds between two updates of the line


class Progress:
    """Shows progress on standard output, if the number of items is known."""

    def __init__(self, total, unit):
        self._total, self._unit = total, unit
        self._start = self._shown = time.monotonic()

    def update(self, done):
        """Updates the line, unless it was updated just before and work is not done."""
        now, is_end = time.monotonic(), done >= self._total
        is_terminal = sys.stdout.isatty()
        if not is_end and (not is_terminal or now - self._shown < _REDRAWN):
            return
        self._shown = now
        speed = done / max(now - self._start, 1e-9)
        text = f"{done}/{self._total} {self._unit}, {speed:.3g} per second"
        start, end = "\r" if is_terminal else "", "\n" if is_end else ""
        print(f"{start}{text:<60}", end=end, flush=True)
