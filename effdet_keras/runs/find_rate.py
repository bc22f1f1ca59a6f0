"""`--find-rate`: the learning-rate range test of a run that is to begin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import keras

from effdet_keras.runs.asked import configured
from effdet_keras.runs.batch_size import with_batch_size
from effdet_keras.runs.drawing import draw_chart
from effdet_keras.runs.fitting import training_batches
from effdet_keras.runs.make_model import make_model
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.runs.splits import choose_splits
from effdet_keras.training.rate_test import LearningRates, find_learning_rate


def find_rate(
    out: str | os.PathLike,
    fields: Mapping[str, Any],
    *,
    configuration: str | os.PathLike | None = None,
    hparams: str | os.PathLike | None = None,
    pipeline_config: str | os.PathLike | None = None,
    ignore_unknown: bool = False,
) -> LearningRates:
    """Tests learning rates for a run, and writes the curve to its folder.

    Nothing is trained: the run itself can begin in the folder afterwards.

    Args:
        out: path of the folder of the run.
        fields: dict, fields of `RunConfiguration`, with `data`.
        configuration, hparams, pipeline_config, ignore_unknown: of
            `effdet_keras.fine_tune`.

    Returns:
        `LearningRates`.

    Raises:
        FileExistsError: If there is a run in `out` already.
        OSError, ValueError: see `fine_tune`.
    """
    folder = RunFolder(out)
    folder.check_free(overwrite=False)
    chosen = configured(
        *(configuration, hparams, dict(fields), pipeline_config),
        ignore_unknown=ignore_unknown,
    )
    splits = choose_splits(chosen)
    chosen = with_batch_size(chosen, splits, hparams, fields)
    keras.utils.set_random_seed(chosen.seed)
    model = make_model(chosen, splits.train)
    print("Testing learning rates: up to 100 steps. The first takes longer ...")
    batches = training_batches(model, chosen, splits.train)
    found = find_learning_rate(model, batches)
    with folder.taken():
        found.write(folder.rates)
        draw_chart(folder.rates_image, found.plot)
    _say(found, folder)
    return found


def _say(found, folder):
    flags = []
    for name, value in found.arguments.items():
        is_flag = name == "learning_rate"
        flags.append(
            f"--learning-rate {value:g}" if is_flag else f"--set {name}={value}"
        )
    print(
        f"The loss is smallest at a rate of about {10 * found.suggestion:.2g}. "
        f"Suggested is a tenth: {found.suggestion:.2g}. To train with it: "
        f"{' '.join(flags)}\nThe curve: {folder.rates}"
    )
