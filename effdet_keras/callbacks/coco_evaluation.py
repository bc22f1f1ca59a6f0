"""COCO's metrics of a dataset after the epochs of `fit`."""

import keras

from effdet_keras.callbacks.swap_ema import evaluated_weights
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.metrics import COCOMetric
from effdet_keras.inference.evaluate import category_ids_of, evaluate


class COCOEvaluation(keras.callbacks.Callback):
    """Evaluates the model's detections as COCO does, and logs the numbers.

    Runs what `predict` runs over every image of the dataset, with the
    moving averages of the weights if the model has them, and hands the
    detections to pycocotools. The twelve numbers (`AP`, `AP50`, `AP75`, `APs`,
    `APm`, `APl`, `ARmax1`, `ARmax10`, `ARmax100`, `ARs`, `ARm`, `ARl`) and the
    AP of each class (`AP/<name>`) go into the logs, so that callbacks behind
    this one can use them; Keras wants to be told that more is better:
    `EarlyStopping(monitor="AP", mode="max", patience=5)`.

    A number is -1 where the dataset has no object of that kind.

    Args:
        dataset: `effdet_keras.data.DetectionDataset`.
        every: int, epochs from one evaluation to the next. The last epoch of
            `fit` is always evaluated.
        batch_size: int, images at once.
        log_dir: path of a folder for TensorBoard, or None.
        verbose: bool, whether to show progress and the table of numbers.

    Raises:
        ValueError: If the dataset is empty, `every` or `batch_size` is below
            1, or, when training begins, the classes of model and dataset differ.
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
                raise InvalidValueError(
                    f"`{name}` must be at least 1. Received: {name}={value}"
                )
        if len(dataset) == 0:
            raise InvalidValueError("`COCOEvaluation` needs a dataset with images")
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
        category_ids_of(self.model, self.dataset)

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
            ValueError: If the classes of model and dataset differ.
        """
        with evaluated_weights(model) as which:
            if self.verbose:
                print(
                    f"\nCOCO evaluation of {len(self.dataset)} images with "
                    f"{_WEIGHTS[which]}",
                    flush=True,
                )
            return evaluate(
                model,
                self.dataset,
                metric=self._metric,
                batch_size=self.batch_size,
                verbose=self.verbose,
            )


_WEIGHTS = {
    "averages": "the moving averages of the weights",
    "live": "the weights as they are",
}
