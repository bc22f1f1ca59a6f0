"""Outputs of a whole network beside the reference's, level by level."""

import numpy as np
from keras import ops

from effdet_keras.network.anchors import level_sizes

# The reference's own eager and graph modes differ by 2.5e-5.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def split_levels(outputs, config):
    """Gives each level and its output as a map: `[B, N, C]` to `[B, H, W, A * C]`."""
    outputs = ops.convert_to_numpy(outputs)
    start = 0
    sizes = level_sizes(config.image_size, config.min_level, config.max_level)
    for level, (height, width) in enumerate(sizes, start=config.min_level):
        end = start + height * width * config.num_anchors
        yield level, outputs[:, start:end].reshape(len(outputs), height, width, -1)
        start = end


def assert_outputs_equal(outputs, expected, config):
    """Compares with golden maps, named by `expected(head, level)`.

    Of the finest level's classes every second or fourth row and column is stored.
    """
    for key, head in (("class_logits", "cls"), ("box_deltas", "box")):
        for level, ours in split_levels(outputs[key], config):
            theirs = expected(head, level)
            step = ours.shape[1] // theirs.shape[1]
            ours = ours[:, ::step, ::step]
            np.testing.assert_allclose(
                ours, theirs, **TOLERANCE, err_msg=f"{key} of level {level}"
            )
