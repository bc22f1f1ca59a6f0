"""TensorBoard summaries of training steps: input images, and norms of gradients."""

from __future__ import annotations

import os
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.old_names import warn_of_old_name
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.errors import check_argument
from effdet_keras.labels import BACKGROUND
from effdet_keras.train.optimizers import l2_loss, steps_done
from effdet_keras.train.resume import steps_done_in_epoch
from effdet_keras.visualize import draw_boxes

_MOST_BOXES = 100  # number of boxes that are drawn per image
_MIN_SIDE = 320  # pixels, so that tiny images have room for names


class _StepSummary(keras.callbacks.Callback):
    """Writes data of every Nth step, which an observer of the step has stored."""

    closes_after_fit = True  # `fit` calls `close` even if it ends with an error

    def __init__(self, log_dir: str | os.PathLike[str], every: int) -> None:
        super().__init__()
        check_argument(every >= 1, "every", every, "a number of steps, 1 or more")
        self.every = every
        self._writer = TensorBoardWriter(log_dir)
        self._observer: Any = None
        self._done = self._first = 0

    def _new_observer(self, model: Any) -> Any:
        """Returns an observer of steps; see `EfficientDet.add_step_observer`."""
        raise NotImplementedError

    def _write(self, writer: TensorBoardWriter, step: int) -> None:
        """Writes what the observer has stored of the latest step."""
        raise NotImplementedError

    def set_model(self, model):
        # Keras calls this before it compiles the step, which contains the observer.
        super().set_model(model)
        if self._observer is None and getattr(model, "settings", None) is not None:
            self._observer = self._new_observer(model)
            model.add_step_observer(self._observer)

    def on_train_begin(self, logs=None):
        self._writer.require_writable()
        self._done = steps_done(self.model.optimizer)

    def on_train_batch_begin(self, batch, logs=None):
        self._first = batch

    def on_train_batch_end(self, batch, logs=None):
        # There are several steps with `steps_per_execution`. The optimizer's counter is
        # not read: on JAX, this would copy all variables out of the step.
        count = steps_done_in_epoch(self, batch) - self._first
        before, self._done = self._done, self._done + count
        if before // self.every != self._done // self.every:
            self._write(self._writer, self._done)

    def on_train_end(self, logs=None):
        self.close()

    def close(self) -> None:
        """Closes the file, removes the observer; `fit` also calls it after errors."""
        self._writer.close()
        if self._observer is not None:
            self.model.remove_step_observer(self._observer)
            self._observer = None

    def let_go(self) -> None:
        """Deprecated: `close`."""
        warn_of_old_name(f"{type(self).__name__}.let_go", "close")
        self.close()


# --- The norm of the gradient of each variable.


class GradientSummary(_StepSummary):
    """Writes the norm of each variable's gradient to TensorBoard.

    It corresponds to `summarize_gradients` of the Object Detection API. The summaries
    `gradient_norm/<path of the variable>` are norms before clipping, and include
    `gradient_multipliers`. In contrast, `gradient_norm` in the logs of `fit` is the
    norm of all gradients together, after clipping.

    Args:
        log_dir: path of a folder for TensorBoard, on this machine or anywhere that
            TensorFlow can write, such as `gs://bucket/logs`.
        every: int, the number of steps from one summary to the next.

    Raises:
        ValueError: If `every` is below 1.
        ValueError: If `every` is below 1.
        ImportError: If TensorBoard is not installed.
        OSError: If `log_dir` cannot be written to, when training begins.

    Example:
        >>> import tempfile
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-lite0", image_size=64, max_level=5, num_classes=1)
        >>> model.compile("sgd", run_eagerly=True)
        >>> truth = {"boxes": np.float32([[[8, 8, 40, 40]]]), "labels": np.array([[0]])}
        >>> summary = GradientSummary(tempfile.mkdtemp(), every=1)
        >>> _ = model.fit(np.zeros((1, 64, 64, 3)), truth, verbose=0,
        ...               callbacks=[summary])
        >>> norms = summary.norms
        >>> len(norms) == len(model.trainable_variables), min(norms.values()) >= 0.0
        (True, True)
    """

    def __init__(self, log_dir: str | os.PathLike[str], every: int = 100) -> None:
        super().__init__(log_dir, every)
        self.norms: dict[str, float] = {}  # by path, of the last summary

    def _new_observer(self, model):
        return _GradientNorms(model)

    def _write(self, writer, step):
        model = self.model  # on JAX, reading this updates the variables
        values = ops.convert_to_numpy(self._observer.norms).tolist()
        paths = [variable.path for variable in model.optimized_variables()]
        self.norms = dict(zip(paths, values, strict=True))
        named = {f"gradient_norm/{path}": norm for path, norm in self.norms.items()}
        writer.scalars(named, step)


class _GradientNorms:
    """Stores the norms of the gradients of a step, before they are clipped."""

    def __init__(self, model) -> None:
        self.norms = _kept("gradient_norms", (len(model.optimized_variables()),))
        self.variables = [self.norms]

    def __call__(self, data: Any, gradients: list, loss_scale: Any) -> None:
        squares = ops.stack([2.0 * l2_loss(gradient) for gradient in gradients])
        self.norms.assign(ops.sqrt(squares) / ops.cast(loss_scale, "float32"))


# --- The images that a step trains on.


class InputSummary(_StepSummary):
    """Writes the images that the network receives in training, with their boxes.

    They show the result of augmentation, letterbox and scale jitter. The summaries
    `input/<number>` are the first images of the batch of every Nth step.

    Args:
        log_dir: path of a folder for TensorBoard, on this machine or anywhere that
            TensorFlow can write, such as `gs://bucket/logs`.
        every: int, the number of steps from one summary to the next.
        num_images: int, number of images per batch; fewer if the batch has fewer.

    Raises:
        ValueError: If `every` or `num_images` is below 1.
        ImportError: If TensorBoard is not installed.
        OSError: If `log_dir` cannot be written to, when training begins.

    Example:
        >>> import tempfile
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-lite0", image_size=64, max_level=5, num_classes=1)
        >>> model.compile("sgd", run_eagerly=True)
        >>> truth = {"boxes": np.float32([[[8, 8, 40, 40]]]), "labels": np.array([[0]])}
        >>> summary = InputSummary(tempfile.mkdtemp(), every=1)
        >>> _ = model.fit(np.zeros((1, 64, 64, 3)), truth, verbose=0,
        ...               callbacks=[summary])
        >>> [image.shape for image in summary.images]
        [(320, 320, 3)]
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        every: int = 100,
        num_images: int = 4,
    ) -> None:
        super().__init__(log_dir, every)
        check_argument(num_images >= 1, "num_images", num_images, "1 or more")
        self.num_images = num_images
        self.images: list[np.ndarray] = []  # images of the last summary

    def _new_observer(self, model):
        return _Inputs(model.config.image_size, self.num_images)

    def _write(self, writer, step):
        kept = [ops.convert_to_numpy(v) for v in self._observer.variables]
        count = int(kept[-1])
        rows = [values[:count] for values in kept[:-1]]
        self.images = [self._drawn(*row) for row in zip(*rows)]
        writer.images("input", self.images, step)

    def _drawn(self, image, boxes, labels):
        is_box = labels > BACKGROUND
        return draw_boxes(
            np.clip(image, 0, 255).astype(np.uint8),
            boxes[is_box],
            labels=labels[is_box].astype(int),
            class_names=self.model.class_names,
            min_side=_MIN_SIDE,
        )


class _Inputs:
    """Stores the first images of a batch with their boxes and labels."""

    def __init__(self, image_size, num_images) -> None:
        self.variables = [
            _kept("input_images", (num_images, *image_size, 3)),
            _kept("input_boxes", (num_images, _MOST_BOXES, 4)),
            _kept("input_labels", (num_images, _MOST_BOXES)),
            _kept("input_count", ()),
        ]

    def __call__(self, data: Any, gradients: list, loss_scale: Any) -> None:
        images, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        kept_images, kept_boxes, kept_labels, kept_count = self.variables
        num_images = kept_images.shape[0]
        kept_images.assign(_first(images, num_images))
        if "boxes" in truth:
            boxes = _first(truth["boxes"], num_images)
            labels = _first(truth["labels"], num_images)
            kept_boxes.assign(_rows(boxes, 0.0))
            kept_labels.assign(_rows(labels, float(BACKGROUND)))
        count = ops.minimum(ops.shape(images)[0], num_images)
        kept_count.assign(ops.cast(count, "float32"))


def _kept(name, shape):
    """Returns a variable that a step writes to and does not read."""
    return keras.Variable(
        np.zeros(shape, "float32"),
        trainable=False,
        autocast=False,
        dtype="float32",
        aggregation="only_first_replica",
        name=name,
    )


def _first(values, count):
    """Returns `count` rows as float32; a smaller batch repeats its last row."""
    last = ops.shape(values)[0] - 1
    rows = ops.minimum(ops.arange(count), last)
    return ops.cast(ops.take(values, rows, axis=0), "float32")


def _rows(values, padding):
    """Returns the first `_MOST_BOXES` boxes or labels of each image, padded."""
    end = ops.full((values.shape[0], 1, *values.shape[2:]), padding)
    rows = ops.minimum(ops.arange(_MOST_BOXES), ops.shape(values)[1])
    return ops.take(ops.concatenate([values, end], axis=1), rows, axis=1)
