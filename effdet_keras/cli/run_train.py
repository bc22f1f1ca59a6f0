"""Runs a training as the flags of `effdet-keras train` say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from effdet_keras._internal.processes import is_first_process
from effdet_keras.errors import InvalidValueError
from effdet_keras.runs.configuration import parse_settings
from effdet_keras.runs.fine_tune import find_rate as find_rate_of_run
from effdet_keras.runs.fine_tune import fine_tune
from effdet_keras.runs.run_folder import RunFolder


def run_train(
    out: str | os.PathLike,
    *,
    fields: Mapping[str, Any],
    settings: Sequence[str] = (),
    configuration: str | os.PathLike | None = None,
    hparams: str | os.PathLike | None = None,
    pipeline_config: str | os.PathLike | None = None,
    ignore_unknown: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    find_rate: bool = False,
) -> Any:
    """Trains, and says where what is.

    Args:
        configuration, hparams, pipeline_config, ignore_unknown, resume, overwrite: of
            `effdet_keras.fine_tune`.
    """
    more = parse_settings(settings)
    twice = sorted(set(fields) & set(more))
    if twice:
        flag = f"--{twice[0].replace('_', '-')}"
        raise InvalidValueError(
            f"`{twice[0]}` is given by {flag} and by --set: leave one of the two out."
        )
    given = {**fields, **more}
    files: dict[str, Any] = {
        "configuration": configuration,
        "hparams": hparams,
        "pipeline_config": pipeline_config,
        "ignore_unknown": ignore_unknown,
    }
    if find_rate:
        return find_rate_of_run(out, given, **files)
    try:
        result = fine_tune(
            given.pop("data", None),
            out=out,
            **files,
            resume=resume,
            overwrite=overwrite,
            **given,
        )
    except KeyboardInterrupt:
        folder = RunFolder(out)
        if folder.archive.is_dir():
            print(f"\nTo go on: effdet-keras train --resume --out {out}")
        raise
    if is_first_process():
        _say(result, RunFolder(out))
    return result


def _say(result, folder):
    numbers, best = result.numbers, folder.archive / "best.keras"
    rows = [("best checkpoint", best)]
    if not best.exists():
        rows = [("last checkpoint", folder.archive / "last.keras")]
    rows += [("report", folder.report)]
    rows += [("training curves", folder.curves)]
    rows += [("first batch", folder.first_batch)]
    rows += [("log", folder.text), ("for TensorBoard", folder.tensorboard)]
    rows += [("trace", folder.profile)]
    if numbers:
        found = f"AP {numbers['AP']:.3f}, AP50 {numbers['AP50']:.3f}"
        print(f"\n{found} on '{result.split}'")
    for title, path in rows:
        if path.exists():
            print(f"  {title:<17} {path}")
