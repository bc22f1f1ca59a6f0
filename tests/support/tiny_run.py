"""The fields of a run that is done in seconds."""

from support.tiny import BACKBONE, EAGER

MODEL_CONFIG = {
    "backbone": BACKBONE,
    "max_level": 5,
    "fpn_num_filters": 8,
    "fpn_cell_repeats": 1,
    "head_repeats": 1,
}
TINY_RUN = {
    "weights": None,
    "image_size": 64,
    "anchors": None,
    "batch_size": 4,
    "run_eagerly": EAGER,
    "tensorboard": False,
    "postprocess": {"max_detections": 5},  # each is an iteration of the suppression
}


def tiny_run(**fields):
    """Fields of `RunConfiguration`, for a dataset of images of 64 x 64."""
    return {**TINY_RUN, "model_config": dict(MODEL_CONFIG), **fields}
