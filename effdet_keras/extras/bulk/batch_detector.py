"""`BatchDetector`: batches of a table in, rows out, in an actor or in a loop."""

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
    """Detects in batches of a table: the actor class for `map_batches` of Ray Data.

    It opens the model once, where it is made. An image that cannot be read gives a row
    with an `error` and ends nothing.

    Args:
        model: what `Predictor.load` opens, or a `Predictor`.
        score_threshold, calibrated, tiles, augment, classes: see `Predictor.detect`.
        batch_size: int, images for the network at once; an export of a fixed batch
            size goes by its own.
        num_threads: int, see `Predictor.load`.

    Attributes:
        predictor: `Predictor`.
        batch_size: int, images for the network at once.
        categories: list of dicts `id` and `name`, the classes as a COCO file has them.
        options: dict, what the detections depend on beside the model.

    Raises:
        OSError, ValueError, ImportError: As of `Predictor.load`.
        RuntimeError: If thresholds or a temperature are requested, and the model
            has none.

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
        ScoreRule(model, score_threshold, calibrated, classes)  # before any work
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
        """Detects in the images of a batch, as `map_batches` of Ray Data gives them.

        Args:
            batch: dict of arrays or lists: `path`, the paths or addresses of images;
                with a column `bytes`, the contents of image files, or `image`, arrays
                `[H, W, 3]`, nothing is read.
        """
        return table_of(self.rows(batch))

    def rows(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """`__call__` without pyarrow.

        Args:
            batch: see `__call__`.

        Returns:
            List of dicts: `file_name` (the path), `width`, `height`; lists
            `category_id`, `label`, `bbox` (`xywh` in pixels) and `score`, one of each
            per object; `error`, the reason where the image could not be read, or None.

        Raises:
            ValueError: As of `__call__`.
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
        """The rows of `(name, source)`; threads read the next batch, and no further."""
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
        """Detections of each image; a smaller batch would be compiled again."""
        if not images:
            return []
        missing = self.batch_size - len(images)
        if self.options["tiles"] is None and self.options["augment"] is None:
            images = images + images[:1] * missing
        size = {"batch_size": self.batch_size, "verbose": 0}
        return self.predictor.detect(images, **size, **self.options)


def _read(path):
    return read_image(str(path))  # NumPy's strings are none of Python's paths


def _tried(read, pair):
    """Name and image, or why it cannot be read: the others are not ended by it."""
    name, source = pair
    try:
        return name, read(source)
    except (ValueError, TypeError, OSError) as error:  # TypeError: of an empty cell
        return name, error
