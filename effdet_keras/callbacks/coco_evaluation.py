"""Computes the COCO metrics on a dataset after epochs of `fit`."""

from __future__ import annotations

from typing import Any

import keras

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect import check_batch_size
from effdet_keras.detect.evaluate import (
    check_evaluation_data,
    diagnose_low_ap,
    evaluate,
)
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.coco import COCOMetric, results_of_metric
from effdet_keras.evaluate.diagnosis import ENOUGH_STEPS, NUM_IMAGES
from effdet_keras.evaluate.image_result import UNMEASURED
from effdet_keras.train.averages import evaluated_weights
from effdet_keras.train.optimizers import steps_done


class COCOEvaluation(keras.callbacks.Callback):
    """Computes the COCO metrics of the model's detections, and logs them.

    It detects in every image of the dataset, with the moving averages of the weights if
    the model has them. The logs get the COCO metrics (`AP`, `AP50`, `AP75`, `APs`,
    `APm`, `APl`, `ARmax1`, `ARmax10`, `ARmax100`, `ARs`, `ARm`, `ARl`) and the AP of
    each class (`AP/<name>`). A metric is -1 if the dataset has no annotation of that
    kind. With a segmentation head and masks, the logs also get `mIoU` and
    `IoU/<class>`.

    `fit` calls this callback before all others, wherever it is in the list. So other
    callbacks, such as `keras.callbacks.TensorBoard`, find the metrics in the logs.
    Keras has to be told that higher is better:
    `EarlyStopping(monitor="AP", mode="max", patience=5)`.

    If several processes train together (docs/distributed.md), each detects in its share
    of the images, and all get the same metrics.

    In three cases it prints a diagnosis once, with the cure (docs/low_ap.md): if
    classes stay near chance, if the model does not learn the `DetectionDataset` that
    `fit` trains on, or if it only learns that one.

    Args:
        dataset: `effdet_keras.data.DetectionDataset`; or your own batches of
            `(images, ground_truth)` in the network's input size, as `fit` takes them: a
            `tf.data.Dataset`, a `keras.utils.PyDataset`, a list, or one such pair of
            arrays. `ground_truth` is a dict of `boxes` `[B, M, 4]`, `yxyx` in pixels of
            the input, and `labels` `[B, M]`, -1 in padding rows. Optional are
            `image_id`, ints `[B]`; `image_scale`, floats `[B]`, pixels of the image per
            pixel of the input; and `is_crowd`, bools `[B, M]`.
        every: int, the number of epochs from one evaluation to the next. The last of
            the `epochs` of `fit` is always evaluated. If a callback such as
            `EarlyStopping` ends the training earlier, its last epoch is only evaluated
            if it is due.
        batch_size: int, the number of images per batch, if the dataset is not batches
            already.
        verbose: bool, whether to show progress and the table of metrics after each
            evaluation. "auto" shows in `fit` only the table, at the end of the
            training, because the line per epoch has AP and AP50. For your own batches,
            "auto" shows both each time.
        losses: bool, whether to log also the losses on the dataset, as `val_loss`,
            `val_class_loss`, `val_box_loss` and `val_reg_l2_loss`. They come from the
            same forward pass as the detections. `evaluate` names them without `val_`.

    Raises:
        ValueError, TypeError: If the dataset is empty or none of these types, or its
            classes are not those of the model.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> from effdet_keras.model.efficientdet import EfficientDet
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

    evaluates = True  # `fit` calls it before the callbacks that read its metrics

    def __init__(
        self,
        dataset: Any,
        every: int = 1,
        batch_size: int = 8,
        verbose: bool | str = "auto",
        losses: bool = False,
    ) -> None:
        super().__init__()
        check_whole_number("every", every, "[1, inf)")
        check_batch_size(batch_size)
        is_dataset = isinstance(dataset, DetectionDataset)
        if is_dataset and len(dataset) == 0:
            raise InvalidValueError("`COCOEvaluation` needs a dataset with images")
        self.dataset = dataset
        self.every = every
        self.batch_size = batch_size
        self.verbose = verbose
        self.losses = losses
        # The ground truth of the user's own batches is known only after reading them.
        self._metric = COCOMetric(dataset.to_coco()) if is_dataset else None
        self._is_quiet = self._has_table_to_show = False
        self.explains_at_end = True
        self._has_explained, self._ap50 = False, UNMEASURED

    def on_train_begin(self, logs=None):
        check_evaluation_data(self.model, self.dataset, self.batch_size)
        self._has_explained = False

    def on_epoch_end(self, epoch, logs=None):
        """Evaluates every `every` epochs and after the last; adds metrics to `logs`."""
        is_last = epoch + 1 == (self.params or {}).get("epochs")
        if (epoch + 1) % self.every and not is_last:
            return
        # The table is printed at the end: see `on_train_end`.
        self._is_quiet = self.verbose == "auto" and self._metric is not None
        try:
            numbers = self.evaluate(self.model)
        finally:
            self._has_table_to_show, self._is_quiet = self._is_quiet, False
        # "AP/floss" is not a loss, but the AP of a class.
        losses = [k for k in numbers if k.endswith("loss") and "/" not in k]
        losses = {f"val_{k}": numbers.pop(k) for k in losses}
        if logs is not None:
            logs.update({**losses, **numbers})
        self._ap50 = numbers.get("AP50", UNMEASURED)
        optimizer = getattr(self.model, "optimizer", None)
        steps = 0 if optimizer is None else steps_done(optimizer)
        if steps >= ENOUGH_STEPS and not is_last:
            self._explain()

    def on_train_end(self, logs=None):
        if self._has_table_to_show and self._metric.has_result:
            print(self._metric.table(), flush=True)
        self._has_table_to_show = False
        if self.explains_at_end:
            self._explain(getattr(self.model, "training_dataset", None))

    def _explain(self, training_data=None):
        """Prints why the AP50 is low, if the reason is known and not yet printed."""
        known = self._metric is not None and self._metric.has_result
        if self._has_explained or not (known and self.verbose):
            return
        results = results_of_metric(self._metric, NUM_IMAGES)
        of_data = results, self._ap50, len(self._metric.category_names)
        with evaluated_weights(self.model):
            why = diagnose_low_ap(self.model, *of_data, training_data, self.batch_size)
        if why is not None:
            print(f"\n{why}", flush=True)
            self._has_explained = True

    def evaluate(self, model: Any) -> dict[str, float]:
        """Evaluates an `EfficientDet`, during or outside `fit`.

        Args:
            model: `EfficientDet`.

        Returns:
            Dict of floats by name: the COCO metrics, the AP of each class and, with
            `losses`, the losses.

        Raises:
            ValueError: If the classes of model and dataset differ, or the dataset
                cannot be evaluated.
        """
        verbose = bool(self.verbose) and not self._is_quiet
        with evaluated_weights(model) as which:
            if verbose:
                known = self._metric is not None
                images = f" of {len(self.dataset)} images" if known else ""
                print(f"\nCOCO evaluation{images} with {_WEIGHTS[which]}", flush=True)
            return evaluate(
                model,
                self.dataset,
                metric=self._metric,
                batch_size=self.batch_size,
                verbose=verbose,
                losses=self.losses,
            )


_WEIGHTS = {
    "averages": "the moving averages of the weights",
    "live": "the weights as they are",
}
