"""`effdet-keras predict --parts`: one shard of a large run."""

from collections.abc import Callable, Sequence
from typing import Any

from effdet_keras.detect.detect import ScoreThreshold
from effdet_keras.detect.predictor import Predictor
from effdet_keras.extras.bulk.batch_detector import BatchDetector
from effdet_keras.extras.bulk.parts import Parts
from effdet_keras.extras.bulk.shard import Shard, detect_shard, settings_of, sources_of


def predict_shard(
    open_model: Callable[[], Predictor],
    inputs: Sequence[str],
    folder: str,
    score: ScoreThreshold,
    *,
    shard: str,
    part_images: int,
    **options: Any,
) -> int:
    """Detects in the images of a shard, and writes a folder of parts."""
    shard = Shard.parse(shard)
    sources = sources_of(inputs, shard)  # before the model is opened
    detector = BatchDetector(open_model(), score, **options)
    parts = Parts(folder)
    parts.agree(settings_of(detector, shard))
    return detect_shard(detector, sources, parts, shard, part_images=part_images)
