"""What the shards of one run must have in common."""

import hashlib
import pathlib
from typing import Any

import numpy as np

from effdet_keras.bulk.batch_detector import BatchDetector
from effdet_keras.bulk.sources import Shard
from effdet_keras.export.exported_detector import ExportedDetector
from effdet_keras.predictor import Predictor


def settings_of(detector: BatchDetector, shard: Shard) -> dict[str, Any]:
    """Returns a dict for JSON, by which one run is told from another."""
    return {
        "shards": shard.count,
        "model": model_digest(detector.predictor),
        **detector.options,
        "categories": detector.categories,
    }


def model_digest(predictor: Predictor) -> str:
    """A digest of the weights, or of the exported file: wherever the model lies."""
    digest, detector = hashlib.sha256(), predictor.detector
    if isinstance(detector, ExportedDetector):
        path = pathlib.Path(detector.runtime.path)
        # OpenVINO has a `.bin` beside the `.xml`; a SavedModel is a folder.
        is_file = path.is_file()
        files = path.parent.glob(f"{path.stem}.*") if is_file else path.rglob("*")
        for file in sorted(filter(pathlib.Path.is_file, files)):
            if not is_file or file.suffix in (path.suffix, ".bin"):
                digest.update(file.read_bytes())
    else:
        for weight in detector.weights:
            digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()[:16]
