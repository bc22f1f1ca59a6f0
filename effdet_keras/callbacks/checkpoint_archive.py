"""The best and the last checkpoint of a training, each whole at every moment."""

import math
import pathlib
import warnings

import keras
from keras import ops

from effdet_keras.callbacks.writable import require_writable
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.archive import (
    BEST_FILE,
    LAST_FILE,
    copy_archive,
    read_archive_info,
    write_archive,
)

PREVIOUS_FILE = "best.previous.keras"


class CheckpointArchive(keras.callbacks.Callback):
    """Keeps the best and the last checkpoint, which describe themselves.

    After each epoch `last.keras` is written to the folder, and `best.keras` if
    `monitor` is better than ever before: files for
    `EfficientDet.from_archive` and `keras.saving.load_model`, with the
    optimizer and the moving averages. Each holds an entry `archive.json`, which
    `effdet_keras.weights.archive.read_archive_info` reads: config, class
    names, category ids, package versions; `epoch` (the number of epochs done),
    all `metrics` of that epoch, and `evaluated_weights`: whether `monitor` is
    that of the `"averages"` or of the `"live"` weights.

    A kill at any moment leaves the files of before whole. A training that is
    resumed goes on from the best value in the folder. One that starts anew
    keeps the best of the training before it as `best.previous.keras`.

    Put it behind the callback that computes `monitor`:
    `callbacks=[COCOEvaluation(valid), CheckpointArchive("runs/cats")]`. In
    epochs without `monitor` only `last.keras` is written.

    Args:
        folder: path of the folder, made if need be.
        monitor: string, a name in the logs of `fit`.
        mode: `"max"` or `"min"`, whether more or less is better.
        verbose: bool, whether to print each new best.

    Raises:
        ValueError: If `mode` is neither of the two.
        OSError: If the folder cannot be written to, when training begins.

    Example:
        >>> import tempfile
        >>> from effdet_keras.weights.archive import read_archive_info
        >>> from effdet_keras.models import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     archive = CheckpointArchive(folder, verbose=False)
        ...     archive.set_model(model)
        ...     archive.on_epoch_end(0, {"AP": 0.5})
        ...     archive.on_epoch_end(1, {"AP": 0.4})
        ...     info = read_archive_info(f"{folder}/best.keras")
        >>> info["epoch"], info["metrics"]
        (1, {'AP': 0.5})
    """

    def __init__(self, folder, monitor="AP", mode="max", verbose=True):
        super().__init__()
        if mode not in ("max", "min"):
            raise InvalidValueError(
                f"`mode` must be 'max' or 'min'. Received: mode={mode!r}"
            )
        self.folder = pathlib.Path(folder)
        self.monitor = monitor
        self.mode = mode
        self.verbose = verbose
        self.best = None  # the best value of `monitor`, or None before the first
        self._names_seen = set()
        self._starts_anew = False
        self._validated_weights = "live"

    def on_train_begin(self, logs=None):
        require_writable(self.folder, "`CheckpointArchive`")
        self._names_seen = set()
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            self._starts_anew = int(ops.convert_to_numpy(optimizer.iterations)) == 0
        self.best = None
        best = self.folder / BEST_FILE
        if best.exists() and not self._starts_anew:
            self.best = read_archive_info(best).get("metrics", {}).get(self.monitor)

    def on_test_batch_begin(self, batch, logs=None):
        averages = getattr(self.model, "averages", None)
        is_swapped = averages is not None and averages.is_swapped
        self._validated_weights = "averages" if is_swapped else "live"

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        self._names_seen |= set(logs)
        info = {
            "epoch": epoch + 1,
            "metrics": {name: float(value) for name, value in logs.items()},
            "monitor": self.monitor,
            "mode": self.mode,
            "evaluated_weights": self._evaluated_weights(),
        }
        best, last = self.folder / BEST_FILE, self.folder / LAST_FILE
        if not self._is_best(logs.get(self.monitor)):
            write_archive(self.model, last, info)
            return
        if self._starts_anew and best.exists():
            copy_archive(best, self.folder / PREVIOUS_FILE)
        self._starts_anew = False
        write_archive(self.model, best, info)
        copy_archive(best, last)
        before = "" if self.best is None else f", before {self.best:.4f}"
        self.best = float(logs[self.monitor])
        if self.verbose:
            print(f"Best {self.monitor}: {self.best:.4f}{before}. Written to {best}")

    def on_train_end(self, logs=None):
        if self._names_seen and self.monitor not in self._names_seen:
            warnings.warn(
                f"`CheckpointArchive` wrote '{LAST_FILE}' but no '{BEST_FILE}': "
                f"{self.monitor!r} was not in the logs of any epoch, which had "
                f"{sorted(self._names_seen)}. Put the callback that computes it, "
                "such as `COCOEvaluation`, in front of `CheckpointArchive`.",
                stacklevel=2,
            )

    def _is_best(self, value):
        if value is None or not math.isfinite(value):
            return False
        if self.best is None:
            return True
        return value > self.best if self.mode == "max" else value < self.best

    def _evaluated_weights(self):
        """Which weights `monitor` is measured with."""
        if self.monitor.startswith("val_"):
            return self._validated_weights
        of_coco = self.monitor.startswith(("AP", "AR"))
        has_averages = getattr(self.model, "averages", None) is not None
        return "averages" if of_coco and has_averages else "live"
