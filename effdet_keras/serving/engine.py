"""A model, ready to answer: images to inputs of the network, inputs to detections."""

import dataclasses
from typing import Any

import numpy as np

from effdet_keras.detections import Detections
from effdet_keras.geometry.letterbox import has_area
from effdet_keras.images import decode_image
from effdet_keras.inference.detect import (
    content_size,
    detections_of,
    found_in,
    in_input,
)
from effdet_keras.inference.scores import ScoreRule
from effdet_keras.predictor import Predictor
from effdet_keras.serving.limits import Limits


@dataclasses.dataclass(frozen=True)
class Prepared:
    """One image as the network's input, and the way back to it.

    Attributes:
        engine: the `Engine` that made it, and answers it, also after a newer one came.
        pixels: float32 array `[H, W, 3]`, letterboxed.
        image_scale: as `letterbox_array` returns.
        image_size: `(height, width)` of the image.
        rule: `ScoreRule`.
    """

    engine: "Engine"
    pixels: np.ndarray
    image_scale: Any
    image_size: tuple[int, int]
    rule: ScoreRule


class Engine:
    """Detects in batches of 1, 2, 4, ... images, so that few sizes are compiled.

    Args:
        predictor: `Predictor`.
        max_batch: int.
        calibrated: bool, see `Predictor.detect`.
    """

    def __init__(
        self, predictor: Predictor, max_batch: int, calibrated: bool = False
    ) -> None:
        self.detector, self._calibrated = predictor.detector, calibrated
        sizes = [1]
        while sizes[-1] < max_batch:
            sizes.append(min(2 * sizes[-1], max_batch))
        self._sizes = sizes

    def warm_up(self) -> None:
        """Runs the network once for every size of a batch."""
        grey = np.full((*self.detector.config.image_size, 3), 128, "uint8")
        item = self._prepared(grey, self.rule(0.5))
        for size in self._sizes:
            self.detect([item] * size)

    def rule(self, score: Any) -> ScoreRule:
        """What is kept for a lowest score, or "best"; errors as of `ScoreRule`."""
        return ScoreRule(self.detector, score, self._calibrated)

    def prepare(self, data: bytes, score: Any, limits: Limits) -> Prepared:
        """Decodes an image; the decoded image is gone when this returns."""
        rule = self.rule(score)
        return self._prepared(decode_image(data, **limits.of_image), rule)

    def detect(self, items: list[Prepared]) -> list[Detections]:
        """Returns the detections of each image."""
        config = self.detector.config
        rows = next(size for size in self._sizes if size >= len(items))
        inputs = np.zeros((rows, *config.image_size, 3), "float32")
        sizes = np.tile(np.float32(config.image_size), (rows, 1))
        for index, item in enumerate(items):
            inputs[index] = item.pixels
            sizes[index] = content_size(config, item.image_size)
        outputs = found_in(self.detector, inputs, sizes)
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        found = [
            detections_of(
                *(self.detector, outputs, index, item.rule),
                *(None, item.image_scale, item.image_size),
            )
            for index, item in enumerate(items)
        ]
        # What was found in the padding beside an image has no area in it.
        return [some[has_area(some.boxes)] for some in found]

    def _prepared(self, image, rule):
        pixels, scale = in_input(self.detector.config, image)
        return Prepared(self, np.asarray(pixels), scale, image.shape[:2], rule)


def detect_all(items: list[Prepared]) -> list[Detections | Exception]:
    """Detects in images that were prepared by one engine or, for a moment, by two."""
    results: list[Any] = [None] * len(items)
    for engine in dict.fromkeys(item.engine for item in items):
        places = [i for i, item in enumerate(items) if item.engine is engine]
        found = engine.detect([items[i] for i in places])
        for place, detections in zip(places, found):
            results[place] = detections
    return results
