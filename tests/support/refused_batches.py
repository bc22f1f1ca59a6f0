"""Batches that a training step refuses, and all that it must leave as it was."""

import numpy as np
from keras import ops
from support.tiny import batch


def with_pixel(value):
    """A batch in which one pixel has this value."""
    images, truth = batch()
    images[1, 0, 0] = value
    return images, truth


def everything(model):
    """All that a step can change, but for the random numbers that it draws."""
    variables = [*model.variables, *model.optimizer.variables]
    variables += model.averages.variables
    variables += model.quantization.variables if model.quantization else []
    return {
        f"{place} {v.path}": np.array(ops.convert_to_numpy(v))
        for place, v in enumerate(variables)
        if "seed" not in v.path
    }
