"""The images that tell int8 the range of every number in a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from effdet_keras.config import EfficientDetConfig
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidValueError
from effdet_keras.inference.detect import Images, image_sources, letterboxed


def calibration_inputs(
    config: EfficientDetConfig,
    calibration: DetectionDataset | Images,
    limit: int,
) -> list[Callable[[], np.ndarray]]:
    """Functions that each read one image as the network's input `[H, W, 3]`.

    Args:
        config: `EfficientDetConfig`.
        calibration: a `DetectionDataset`, or what `detect` takes.
        limit: int, how many images at most; they are evenly spread.

    Returns:
        List of functions, each of which returns a float32 array.

    Raises:
        ValueError: If there is no image.
    """
    if isinstance(calibration, DetectionDataset):
        sources = [lambda i=i: calibration[i]["image"] for i in range(len(calibration))]
    else:
        found, _ = image_sources(calibration)
        sources = [lambda source=source: source for source in found]
    if not sources or limit < 1:
        raise InvalidValueError(
            "int8 needs at least one image to calibrate with. Received: "
            f"{len(sources)} images, calibration_images={limit}"
        )
    chosen = np.linspace(0, len(sources) - 1, min(limit, len(sources)))
    return [
        lambda read=sources[int(i)]: letterboxed(config, read())[0]
        for i in chosen.round()
    ]
