"""What weights hold, in words: read from wherever they are, and described."""

import os

from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.locate import looks_like_weights
from effdet_keras.weights.read_weights import (
    describe_weights,
    list_arrays,
    read_weights,
)


def describe_source(
    source: str | os.PathLike,
    model_name: str | None = None,
    *,
    averages: bool = True,
    list_all: bool = False,
) -> str:
    """Reads weights, and says which model they belong to and what would be loaded."""
    try:
        weights = read_weights(source, model_name, averages=averages)
    except (InvalidValueError, OSError) as error:
        if os.path.exists(source) and not looks_like_weights(source):
            raise InvalidValueError(
                f"'{source}' does not hold weights. If it is a dataset, use "
                f"`effdet-keras inspect {source}`."
            ) from error
        raise
    text = describe_weights(weights, model_name)
    return f"{text}\n{list_arrays(weights)}" if list_all else text
