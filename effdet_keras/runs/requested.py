"""Builds the configuration of a run from files and fields, or checks it on resume."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.yaml_text import read_yaml
from effdet_keras.errors import InvalidValueError
from effdet_keras.runs.configuration import (
    FILE_PATTERNS,
    LENGTHS,
    RunConfiguration,
    refuse_unsupported,
)
from effdet_keras.train.schedules import REFERENCE_BATCH_SIZE

# Fields that may change on resume: the run's length, its outputs, the path of its data.
_FREE_ON_RESUME = {
    "epochs",
    "steps",
    "verbose",
    "data",
    *FILE_PATTERNS,
    "tensorboard",
    "gradient_summary_every",
    "input_summary_every",
    "profile",
    "export",
    "save_every_steps",
    "save_every_minutes",
    "keep",
    "keep_every_hours",
}
# Fields that hold a mapping. A caller may give one key, and the other keys stay.
_MAPPINGS = (
    "model_config",
    "loss",
    "matching",
    "postprocess",
    "adversarial",
    "quantize_aware",
    "optimizer",
    "schedule",
    "learning_rate_multipliers",
    "gradient_multipliers",
    "weight_decay",
    "name_map",
    "reader_options",
)
# In these a new `name` replaces the whole mapping, since it has options of its own.
_NAMED = ("optimizer", "schedule")


def resumed(
    folder, configuration, hparams, fields, pipeline_config=None, *, ignore_unknown
):
    """Returns the configuration of a run that is resumed.

    The arguments are those of `build_configuration`. Arguments with which the run began
    may be given again: a batch size or a length that was measured for them stays.
    """
    run = folder.read_configuration()
    if fields.get("batch_size", base_configuration(configuration).batch_size) == "auto":
        fields = {**fields, "batch_size": run.batch_size}
    # All fields of a `RunConfiguration` count, but of a file only those that it sets.
    is_whole = isinstance(configuration, RunConfiguration)
    if hparams is None and pipeline_config is None and not is_whole:
        now = _merged(run.to_dict(), _fields_in(configuration))
        now = run.replace(**_merged(now, fields))
    else:
        sources = (configuration, hparams, fields, pipeline_config)
        now = build_configuration(*sources, ignore_unknown=ignore_unknown)
    sources = ("data", *FILE_PATTERNS)
    if all(getattr(now, name) is None for name in sources):
        now = now.replace(**{name: getattr(run, name) for name in sources})
    if now.split_by == "auto":  # not requested, so it stays as it was
        now = now.replace(split_by=run.split_by)
    if now.time_budget is not None:
        print("`time_budget` is ignored: a resumed run keeps its length.")
        measured = [*LENGTHS, "evaluate_every", "validation_losses", "monitor"]
        measured += ["freeze"] if now.freeze == "auto" else []
        now = now.replace(**{name: getattr(run, name) for name in measured})
    for name, value in sorted(vars(now).items()):
        if name not in _FREE_ON_RESUME and value != getattr(run, name):
            raise InvalidValueError(
                f"A resumed run keeps its configuration. Received: {name}={value!r}, "
                f"but it began with {getattr(run, name)!r}. Only these fields may "
                f"change: {', '.join(sorted(_FREE_ON_RESUME))}"
            )
    return now


def _fields_in(path):
    """Returns the fields that a YAML file sets; no fields for None."""
    if path is None:
        return {}
    read = RunConfiguration.read(path).to_dict()
    return {name: read[name] for name in read_yaml(path)}


def base_configuration(configuration: Any) -> RunConfiguration:
    """Returns the configuration itself, the one in a file, or for None the default."""
    if isinstance(configuration, RunConfiguration):
        return configuration
    is_none = configuration is None
    return RunConfiguration() if is_none else RunConfiguration.read(configuration)


def build_configuration(
    configuration, hparams, fields, pipeline_config=None, *, ignore_unknown=False
):
    """Returns the configuration of a new run, merged from all sources."""
    configuration = base_configuration(configuration)
    if hparams is not None and pipeline_config is not None:
        raise InvalidValueError("Give `hparams` or `pipeline_config`, not both.")
    if pipeline_config is not None:
        from effdet_keras.extras.tfod.pipeline_config import read_pipeline_config

        read = read_pipeline_config(pipeline_config)
        if not ignore_unknown:
            refuse_unsupported(f"'{os.fspath(pipeline_config)}'", read.unsupported)
        title = f"Differences from '{os.fspath(pipeline_config)}':"
        print("\n  ".join([title, *read.notes]))
        from effdet_keras.extras.tfod.pipeline_config import start_of

        start = start_of(pipeline_config, read, fields)
        if "freeze" not in fields:
            from effdet_keras.extras.tfod.checkpoint import freezing_of

            start |= freezing_of(read)
        fields = _merged(start, fields)
    if hparams is not None:
        batch_size = fields.get("batch_size", configuration.batch_size)
        known = REFERENCE_BATCH_SIZE if batch_size == "auto" else batch_size
        from effdet_keras.extras.hparams import read_hparams

        read = read_hparams(hparams, batch_size=known)
        if not ignore_unknown:
            refuse_unsupported("`hparams`", read.unsupported)
        print("\n".join(["google/automl's hyper-parameters:", *read.notes]))
        fields = _merged(read.fields, fields)
    return configuration.replace(**_merged(configuration.to_dict(), fields))


def _merged(fields, more):
    """Merges fields; those in `more` take precedence, in mappings key by key."""
    if any(more.get(name) is not None for name in LENGTHS):
        fields = {**fields, **dict.fromkeys(set(LENGTHS) & set(fields))}
    if more.get("data") is not None:  # `data` replaces the file patterns
        fields = {**fields, **dict.fromkeys(set(FILE_PATTERNS) & set(fields))}
    if "data" in fields and any(more.get(name) is not None for name in FILE_PATTERNS):
        fields = {**fields, "data": None}
    both = [name for name in _MAPPINGS if name in fields and name in more]
    inner = {name: _merged_mapping(name, fields[name], more[name]) for name in both}
    return {**fields, **more, **inner}


def _merged_mapping(field, value, more):
    """Merges two values of a field that may be a mapping; `more` takes precedence."""
    if more is True and isinstance(value, Mapping):
        return value  # True turns it on, and the mapping has its options
    if not isinstance(more, Mapping) or (field in _NAMED and "name" in more):
        return more
    if field in _NAMED and isinstance(value, str):
        value = {"name": value}
    return {**(value if isinstance(value, Mapping) else {}), **more}
