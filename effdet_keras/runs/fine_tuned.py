"""`FineTuned`: what a run came to."""

from __future__ import annotations

import dataclasses
import pathlib

from effdet_keras.evaluation.evaluation import Evaluation
from effdet_keras.models import EfficientDet


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """What `fine_tune` returns.

    Attributes:
        model: `EfficientDet`, the best checkpoint; the last one of a run with
            `evaluate_every=0`.
        numbers: dict from name to float, COCO's numbers of `model` on `split`; empty
            where the run does not evaluate.
        split: string, the split that it was evaluated on: by its name in the data for
            the test split, or else "validation", by which the checkpoint was chosen;
            None where the run does not evaluate.
        evaluation: `Evaluation`, all that was found out on that split; `numbers` is
            its `coco`. None where the run does not evaluate.
        history: dict from name to a list of floats, one per epoch, NaN where an epoch
            has no such number. `ek.visualize.plot_history` draws it.
        folder: `pathlib.Path` of the run; None where no folder was asked for.
    """

    model: EfficientDet
    numbers: dict[str, float]
    split: str | None
    evaluation: Evaluation | None
    history: dict[str, list[float]]
    folder: pathlib.Path | None
