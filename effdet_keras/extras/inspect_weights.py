"""`effdet-keras inspect-weights`: which model weights are of, what would be loaded."""

from __future__ import annotations

from typing import Annotated

from effdet_keras.cli.arguments import Flag


def run(
    weights: str,
    *,
    model: str | None = None,
    list_all: Annotated[bool, Flag("--all")] = False,
    raw: bool = False,
) -> None:
    """say which model a file of weights belongs to

    Reads weights of any known kind, and says which model they belong to and what would
    be loaded into it.

    Args:
        weights (WEIGHTS): file, folder or address of weights; or the key of published
            weights, such as coco, together with --model
        model (NAME): the model to load them into (by default, the one that fits)
        list_all: list every array
    """
    from effdet_keras.weights.read_weights import describe_weights, read_weights

    source = read_weights(weights, model, averages=not raw)
    print(describe_weights(source, model, list_all))
