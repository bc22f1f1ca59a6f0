"""COCO's metrics of a data set after the epochs of `fit`."""

import keras
import numpy as np

from effdet_keras.callbacks.swap_ema import evaluated_weights
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.metrics import COCOMetric


class COCOEvaluation(keras.callbacks.Callback):
    """Evaluates the model's detections as COCO does, and logs the numbers.

    Runs what `predict` runs over every picture of the data set, with the
    moving averages of the weights if the model has them, and hands the
    detections to pycocotools. The twelve numbers (`AP`, `AP50`, `AP75`, `APs`,
    `APm`, `APl`, `ARmax1`, `ARmax10`, `ARmax100`, `ARs`, `ARm`, `ARl`) and the
    AP of each class (`AP/<name>`) go into the logs, so that callbacks behind
    this one can use them; Keras wants to be told that more is better:
    `EarlyStopping(monitor="AP", mode="max", patience=5)`.

    A number is -1 where the data set has no object of that kind.

    Args:
        dataset: `effdet_keras.data.DetectionDataset`.
        every: int, epochs from one evaluation to the next. The last epoch of
            `fit` is always evaluated.
        batch_size: int, pictures at once.
        log_dir: path of a folder for TensorBoard, or None.
        verbose: bool, whether to show progress and the table of numbers.

    Raises:
        ValueError: If the data set is empty, `every` or `batch_size` is below
            1, or, when training begins, the classes of model and data set differ.
        OSError: If `log_dir` cannot be written to, when training begins.
        ImportError: If `log_dir` is given and TensorBoard is not installed.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> from effdet_keras.models import EfficientDet
        >>> valid = from_arrays(
        ...     [np.zeros((64, 64, 3), "uint8")] * 3,
        ...     boxes=[[[8, 8, 40, 40]]] * 3, labels=[[0]] * 3, class_names=["cat"])
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"]
        ... )
        >>> numbers = COCOEvaluation(valid, batch_size=2, verbose=False).evaluate(model)
        >>> len(numbers), 0 <= numbers["AP"] == numbers["AP/cat"], numbers["APl"]
        (13, True, -1.0)
    """

    def __init__(self, dataset, every=1, batch_size=8, log_dir=None, verbose=True):
        super().__init__()
        for name, value in (("every", every), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(
                    f"`{name}` must be at least 1. Received: {name}={value}"
                )
        if len(dataset) == 0:
            raise ValueError("`COCOEvaluation` needs a data set with pictures")
        self.dataset = dataset
        self.every = every
        self.batch_size = batch_size
        self.verbose = verbose
        self._writer = None if log_dir is None else TensorBoardWriter(log_dir)
        self._metric = COCOMetric(dataset.to_coco())

    def on_train_begin(self, logs=None):
        # Now, not after an epoch.
        if self._writer is not None:
            self._writer.require_writable()
        _category_ids(self.model, self.dataset)

    def on_epoch_end(self, epoch, logs=None):
        is_last = epoch + 1 == (self.params or {}).get("epochs")
        if (epoch + 1) % self.every and not is_last:
            return
        numbers = self.evaluate(self.model)
        if logs is not None:
            logs.update(numbers)
        if self._writer is not None:
            known = {f"coco/{k}": v for k, v in numbers.items() if v >= 0}
            self._writer.scalars(known, step=epoch)

    def on_train_end(self, logs=None):
        if self._writer is not None:
            self._writer.close()

    def evaluate(self, model):
        """Evaluates a model, inside or outside of `fit`.

        Args:
            model: `EfficientDet`.

        Returns:
            Dict of floats by name.

        Raises:
            ValueError: If the classes of model and data set differ.
        """
        category_ids = _category_ids(model, self.dataset)
        self._metric.reset()
        with evaluated_weights(model) as which:
            self._say(
                f"\nCOCO evaluation of {len(self.dataset)} pictures with "
                f"{_WEIGHTS[which]}"
            )
            for image_ids, detections in self._detect(model):
                for image_id, (boxes, scores, labels) in zip(image_ids, detections):
                    self._metric.update(image_id, boxes, scores, category_ids[labels])
        numbers = self._metric.result()
        self._say(self._metric.table())
        return numbers

    def _detect(self, model):
        """Ids and detections of each batch, boxes in pixels of the pictures."""
        batches = self.dataset.batches(
            self.batch_size,
            training=False,
            image_size=model.config.image_size,
            pad_value=model.config.padding_rgb,
        )
        progress = keras.utils.Progbar(
            len(self.dataset), unit_name="picture", verbose=int(self.verbose)
        )
        done = 0
        for images, truth in batches:
            images = np.asarray(images)
            count = len(images)
            outputs = model.predict_on_batch(_filled_up(images, self.batch_size))
            scales = np.asarray(truth["image_scale"])
            yield (
                [int(image_id) for image_id in np.asarray(truth["image_id"])],
                [_detections(outputs, i, scales[i]) for i in range(count)],
            )
            done += count
            progress.update(done)

    def _say(self, text):
        if self.verbose:
            print(text, flush=True)


_WEIGHTS = {
    "averages": "the moving averages of the weights",
    "live": "the weights as they are",
}


def _filled_up(images, batch_size):
    """A last batch in the size of the others: another one is compiled anew."""
    missing = batch_size - len(images)
    return np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)])


def _detections(outputs, index, image_scale):
    """Boxes in pixels of the picture, scores and labels of one row."""
    # A scale of 0 marks a picture that could not be read: nothing is found in it.
    count = int(outputs["num_detections"][index]) if image_scale > 0 else 0
    boxes, scores, labels = (
        np.asarray(outputs[name][index])[:count]
        for name in ("boxes", "scores", "labels")
    )
    return boxes * image_scale, scores, labels


def _category_ids(model, dataset):
    """Array `[C]`: the id in the data set's annotations of each label."""
    names, ids = model.class_names, model.category_ids
    if names is not None and tuple(names) == tuple(dataset.class_names):
        return np.array(dataset.category_ids)
    if ids is not None:
        names_of_data = dict(zip(dataset.category_ids, dataset.class_names))
        names_of_model = dict(zip(ids, names or [names_of_data.get(i) for i in ids]))
        shared = set(names_of_data) & set(names_of_model)
        if shared and all(names_of_data[i] == names_of_model[i] for i in shared):
            return np.array(ids)
    elif names is None and model.config.num_classes == dataset.num_classes:
        return np.array(dataset.category_ids)
    raise ValueError(
        "The labels of the model and those of the data set mean different things. "
        f"Received: a model with {model.config.num_classes} classes "
        f"({_short(names)}; category ids {_short(ids)}), a data set with "
        f"{dataset.num_classes} ({_short(dataset.class_names)}; category ids "
        f"{_short(dataset.category_ids)}). Make the model with "
        "`class_names=dataset.class_names`, or give it `category_ids`."
    )


def _short(values):
    if values is None:
        return "not given"
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
