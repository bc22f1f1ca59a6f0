"""`effdet-keras predict --parts`: one shard of a large run."""

import argparse

from effdet_keras.cli.open_model import open_predictor
from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.bulk.batch_detector import BatchDetector
from effdet_keras.extras.bulk.parts import Parts
from effdet_keras.extras.bulk.shard import Shard, detect_shard, settings_of, sources_of


def predict_shard(arguments: argparse.Namespace) -> int:
    """Detects in the images of a shard, and writes a folder of parts."""
    for flag in ("out", "json", "frames"):
        if getattr(arguments, flag) is not None:
            raise InvalidValueError(
                f"--{flag} is for a run without --parts: `effdet-keras merge` writes "
                "one file of the parts"
            )
    shard = Shard.parse(arguments.shard)
    sources = sources_of(arguments.inputs, shard)  # before the model is opened
    detector = BatchDetector(
        open_predictor(arguments),
        arguments.score,
        batch_size=arguments.batch_size,
        calibrated=arguments.calibrated,
        tiles=arguments.tiles,
        augment=True if arguments.tta == [] else arguments.tta,
    )
    parts = Parts(arguments.parts)
    parts.agree(settings_of(detector, shard))
    size = arguments.part_images
    return detect_shard(detector, sources, parts, shard, part_images=size)
