"""`BatchDetector`: detects in batches of a table, in an actor or in a loop."""

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from effdet_keras.detect.detect import (
    ScoreRule,
    ScoreThreshold,
    check_batch_size,
    load_rgb,
    prefetch_map,
)
from effdet_keras.errors import require
from effdet_keras.extras.bulk.parts import categories_of, row_of, row_of_error, table_of
from effdet_keras.extras.decoding import decode_image
from effdet_keras.images import read_image
from effdet_keras.predictor import Predictor

__all__ = ["BatchDetector"]

_COLUMNS = ("bytes", "image", "path")


class BatchDetector:
    """Detects in batches of a table: an actor class for `map_batches` of Ray Data.

    The model is opened once, on construction. An image that cannot be read gives a row
    with an `error`, and does not stop the others.

    Args:
        model: path of a model that `Predictor.load` opens, or a `Predictor`.
        score_threshold, calibrated, tiles, augment, classes: see `Predictor.detect`.
        batch_size: int, number of images for the network at once. An exported file with
            a fixed batch size uses that instead.
        num_threads: int, see `Predictor.load`.

    Attributes:
        predictor: `Predictor`.
        batch_size: int, number of images for the network at once.
        categories: list of dicts `id` and `name`, the classes as in a COCO file.
        options: dict, the settings besides the model on which the detections depend.

    Raises:
        OSError, ValueError, ImportError: As in `Predictor.load`.
        RuntimeError: If thresholds or a temperature are requested, but the model has
            none.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"])
        >>> detector = BatchDetector(Predictor(model), 0.9, batch_size=2)
        >>> rows = detector.rows({"image": np.zeros((1, 48, 100, 3), "uint8"),
        ...                       "path": np.array(["a.jpg"])})
        >>> rows[0]["file_name"], rows[0]["width"], rows[0]["score"]
        ('a.jpg', 100, [])
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Predictor,
        score_threshold: ScoreThreshold = 0.3,
        *,
        batch_size: int = 8,
        num_threads: int | None = None,
        calibrated: bool = False,
        tiles: int | Sequence[int] | bool | None = None,
        augment: Sequence[float] | bool | None = None,
        classes: Sequence[str | int] | None = None,
    ) -> None:
        if not isinstance(model, Predictor):
            model = Predictor.load(model, num_threads=num_threads)
        check_batch_size(batch_size)
        # Raises errors before any work.
        ScoreRule(model, score_threshold, calibrated, classes)
        self.predictor = model
        runtime = getattr(model.detector, "runtime", None)
        fixed = None if runtime is None else runtime.description.batch_size
        self.batch_size = fixed or batch_size
        self.categories = categories_of(model)
        self.options = {
            "score_threshold": score_threshold,
            "calibrated": calibrated,
            "tiles": tiles,
            "augment": augment,
            "classes": classes,
        }

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        """Detects in the images of a batch, as `map_batches` of Ray Data passes it.

        Args:
            batch: dict of arrays or lists. `path` has paths or addresses of images. If
                there is a column `bytes` (contents of image files) or `image` (arrays
                `[H, W, 3]`), no file is read.

        Returns:
            `pyarrow.Table` with the columns of `rows`.

        Raises:
            ValueError: If the batch has none of these columns.
        """
        return table_of(self.rows(batch))

    def rows(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Does the same as `__call__`, but without pyarrow.

        Args:
            batch: see `__call__`.

        Returns:
            List of dicts: `file_name` (the path), `width`, `height`; the lists
            `category_id`, `label`, `bbox` (`xywh` in pixels) and `score`, with one
            entry per object; and `error`, the reason why an image could not be read, or
            None.

        Raises:
            ValueError: As in `__call__`.
        """
        column = next((name for name in _COLUMNS if name in batch), None)
        rule = "A batch needs a column 'path', 'bytes' or 'image'"
        require(column is not None, rule, columns=list(batch))
        sources = list(batch[column])
        names = batch.get("path", [""] * len(sources))
        pairs = [(str(name), source) for name, source in zip(names, sources)]
        read = {"bytes": decode_image, "image": load_rgb, "path": _read}[column]
        return list(self.stream(pairs, read))

    def stream(self, pairs: Iterable[tuple], read: Any = read_image) -> Iterator[dict]:
        """Yields the rows of `(name, source)` pairs; threads read one batch ahead."""
        results = prefetch_map(functools.partial(_tried, read), pairs, self.batch_size)
        while batch := list(itertools.islice(results, self.batch_size)):
            yield from self._rows(batch)

    def _rows(self, results):
        images = [image for _, image in results if not isinstance(image, Exception)]
        found = iter(self._detected(images))
        for name, image in results:
            if isinstance(image, Exception):
                yield row_of_error(name, image)
            else:
                yield row_of(name, image.shape[:2], next(found), self.categories)

    def _detected(self, images):
        """Detects in images; fills up a small batch to avoid another compilation."""
        if not images:
            return []
        missing = self.batch_size - len(images)
        if self.options["tiles"] is None and self.options["augment"] is None:
            images = images + images[:1] * missing
        size = {"batch_size": self.batch_size, "verbose": 0}
        return self.predictor.detect(images, **size, **self.options)


def _read(path):
    return read_image(str(path))  # NumPy's strings are not Python's


def _tried(read, pair):
    """Returns a name with its image, or with the error, which must not stop others."""
    name, source = pair
    try:
        return name, read(source)
    except (ValueError, TypeError, OSError) as error:  # TypeError: an empty cell
        return name, error
