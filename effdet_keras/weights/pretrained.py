"""Makes a model for the arrays of a weights file: its config, then its weights."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import warnings
from typing import Any

from effdet_keras._internal.remote_path import local_copy
from effdet_keras._internal.weights_h5 import warn_unless_finite
from effdet_keras._internal.whole_files import is_remote, put_in_place, shown_address
from effdet_keras.errors import InvalidValueError
from effdet_keras.labels import extend_category_ids
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.archive import (
    DamagedFileError,
    load_archive,
    path_of_checkpoint,
    read_entry,
)
from effdet_keras.weights.assign import BACKBONE_ALONE, assign_source
from effdet_keras.weights.checkpoint_files import (
    BEST_FILE,
    LAST_FILE,
    PREVIOUS_FILE,
    folder_of_checkpoints,
    step_copies,
    step_of,
)
from effdet_keras.weights.identify import identify, num_classes_of
from effdet_keras.weights.presets import COCO_CLASS_NAMES

_UNTRAINED = (
    "BiFPN and heads keep their initial values, so the model cannot detect anything "
    "before it is trained"
)
# Config fields that weights are trained for, although shapes do not depend on them.
_MEANING = (
    "mean_rgb",
    "stddev_rgb",
    "pad_rgb",
    "anchor_scale",
    "aspect_ratios",
    "num_scales",
    "backbone_padding",
    "fpn_padding",
    "fpn_downsampling",
    "fpn_upsampling",
    "backbone_batch_norm_epsilon",
    "backbone_taps",
    "resize_method",
)


def config_for_weights(name, source, *, class_names, category_ids, overrides):
    """Returns config, class names and category ids of a model for a `WeightSource`."""
    overrides = dict(overrides)
    if class_names is not None:
        class_names = tuple(class_names)
        overrides.setdefault("num_classes", len(class_names))
    if source is None:
        config = EfficientDetConfig.from_name(name, **overrides)
        return config, class_names, category_ids
    fields = dict(source.config or {})
    _check_needed_fields(source, {**fields, **overrides})
    _check_name(name, fields.pop("name", name), source)
    num_classes = fields.pop("num_classes", None) or num_classes_of(source)
    if num_classes is not None:
        overrides.setdefault("num_classes", num_classes)
    config = EfficientDetConfig.from_name(name, **{**fields, **overrides})
    if class_names is None and config.num_classes == num_classes:
        class_names = source.class_names
        category_ids = category_ids or source.category_ids
    elif category_ids is None:
        category_ids = _ids_with_new_classes(source, class_names)
    return config, class_names, category_ids


def _ids_with_new_classes(source, class_names):
    """Returns category ids if the model has all classes of a file, else None.

    The classes of the file keep their ids, and new classes get unused ids.
    """
    known = dict(zip(source.class_names or (), source.category_ids or ()))
    if not known or not known.keys() <= {*(class_names or ())}:
        return None
    return tuple(extend_category_ids(class_names, known))


def _check_name(name, name_in_file, source):
    if name_in_file == name or name_in_file not in MODEL_NAMES:
        return
    if name not in identify(source).names:  # D6 and D7 share their weights
        raise InvalidValueError(
            f"The weights in '{source.path}' belong to {name_in_file}. Received: "
            f"name={name!r}. Use `EfficientDet.from_preset({name_in_file!r}, ...)`."
        )


def _check_needed_fields(source, known):
    """Raises an error if the config of an Object Detection API checkpoint is missing.

    Its `pipeline.config` is a separate file.
    """
    if not {*source.scheme.needed_fields} <= {*known}:
        raise InvalidValueError(
            f"There is no `pipeline.config` beside '{source.path}', and without it the "
            "image size, the anchors and the box scales of its model are not known. "
            "Put the `pipeline.config` into the folder of the checkpoint, or pass "
            "`pipeline_config='.../pipeline.config'` to `EfficientDet.from_preset` or "
            "`load_pretrained`."
        )


def check_boxes_are_known(model, source, checkpoint_type):
    """Raises an error if a box layer would be loaded whose box coding is unknown."""
    in_file = source.config or {}
    # The Object Detection API restores a checkpoint unchanged into the model of a
    # `pipeline.config`.
    is_as_there = model.config.anchor_order == in_file.get("anchor_order")
    takes_none = checkpoint_type in ("classification", "detection")
    if not takes_none and not (checkpoint_type == "full" and is_as_there):
        _check_needed_fields(source, in_file)


def load_source(model, source, *, skip_mismatch, checkpoint_type=None, verbose):
    """Assigns a source to a model; returns the report, with notes about differences."""
    report = assign_source(
        model, source, skip_mismatch=skip_mismatch, checkpoint_type=checkpoint_type
    )
    warn_unless_finite(model, source.path)
    model.score_settings = None  # they were chosen in an evaluation of other weights
    notes = [
        *source.notes,
        *(_UNTRAINED for new in report.new if new.reason == BACKBONE_ALONE),
        *_adopted_classes(model, source, report),
        *_differences(model, source),
    ]
    report = dataclasses.replace(report, notes=tuple(notes))
    if verbose:
        print(report, flush=True)
    return report


def _adopted_classes(model, source, report):
    """Sets class names and category ids if the model has no names; yields notes."""
    names = source.class_names
    if any("class-predict" in name for new in report.new for name in new.names):
        return
    if model.class_names is None and len(names or ()) == model.num_classes:
        model.class_names = names
        model.category_ids = model.category_ids or source.category_ids
    if names == model.class_names == COCO_CLASS_NAMES:
        yield (
            "the 90 outputs are the categories of COCO: output i has category id i + 1"
        )


def _differences(model, source):
    """Yields a note, and warns, about config fields that differ from the weights'."""
    in_file = source.config or {}
    fields = dataclasses.fields(model.config)
    known = {f.name: in_file[f.name] for f in fields if f.name in in_file}
    trained_with = model.config.replace(**known)
    differing = [
        f"{field}={getattr(trained_with, field)} (here {getattr(model.config, field)})"
        for field in _MEANING
        if getattr(trained_with, field) != getattr(model.config, field)
    ]
    if differing:
        text = f"these weights were trained with {', '.join(differing)}"
        warnings.warn(
            f"'{source.path}': {text}. Make the model with the same values.",
            stacklevel=4,
        )
        yield text


# --- The checkpoint of a folder from which a training resumes, if some are damaged.


def load_checkpoint_to_resume(path: str | os.PathLike) -> Any:
    """Loads the model of a checkpoint to continue its training; see `load_archive`."""
    path = folder_of_checkpoints(path_of_checkpoint(path))
    # A remote folder without the last checkpoint, such as a hub's, is not a training's.
    if path.is_dir() and (not is_remote(path) or (path / LAST_FILE).exists()):
        found, damages = checkpoint_to_resume(path)
        if damages:
            warnings.warn(resumed_from_another(found, damages), stacklevel=3)
        path = found or path / LAST_FILE
    return load_archive(path, resume=True)


def resumed_from_another(path: Any, damages: list[str]) -> str:
    return f"{' '.join(damages)} The training continues from '{shown_address(path)}'."


def checkpoint_to_resume(folder: str | os.PathLike) -> tuple[Any, list[str]]:
    """Returns the newest undamaged checkpoint in a folder, and texts about damages.

    This is the last checkpoint. If it is missing or damaged, it is the one with the
    most steps that is not damaged, among the checkpoint before the last, the best one,
    and the kept copies of other steps. The path is None if there is no checkpoint.

    Raises:
        ValueError: If there are checkpoints, but all of them are damaged.
    """
    folder = path_of_checkpoint(folder)
    damages: list[str] = []
    if (folder / LAST_FILE).exists() and _is_whole(folder / LAST_FILE, damages):
        return folder / LAST_FILE, []
    others = [folder / name for name in (PREVIOUS_FILE, BEST_FILE)]
    others = [path for path in others if path.exists()] + step_copies(folder)
    # A checkpoint whose steps cannot be read is damaged, and is listed in `damages`.
    steps = {path: _steps(path, damages) for path in others}
    known = [path for path in others if steps[path] is not None]
    for path in sorted(known, key=steps.get, reverse=True):
        if _is_whole(path, damages):
            return path, damages
    if damages:
        raise InvalidValueError(
            f"No checkpoint in '{shown_address(folder)}' can be read, so the training "
            f"cannot be resumed. {' '.join(damages)}"
        )
    return None, []


def set_aside_damaged(folder: pathlib.Path) -> None:
    """Renames damaged checkpoints, and prints it, so that none of them is replaced."""
    usual = [folder / name for name in (LAST_FILE, PREVIOUS_FILE, BEST_FILE)]
    damaged = [path for path in usual if path.exists() and not _is_whole(path, [])]
    if damaged:  # the disk may be faulty, so the kept copies are checked as well
        damaged += [path for path in step_copies(folder) if not _is_whole(path, [])]
    for path in damaged:
        aside = _free_name(path.with_name(f"{path.stem}.damaged{path.suffix}"))
        put_in_place(path, aside)
        print(f"'{path}' is damaged, and was renamed to '{aside.name}'.")


def _free_name(path):
    """Returns the path, or if it exists, the first free path with a number appended."""
    found, number = path, 1
    while os.path.lexists(found):
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found


def _is_whole(path, damages):
    try:
        read_entry(local_copy(path), check_all=True)
    except DamagedFileError:
        damages.append(f"'{shown_address(path)}' is damaged.")
        return False
    return True


def _steps(path, damages):
    """Returns the steps and epoch of a checkpoint to compare; None if unreadable."""
    try:
        info = read_entry(local_copy(path)) or {}
    except DamagedFileError:
        damages.append(f"'{shown_address(path)}' is damaged.")
        return None
    position = info.get("training_position", {})
    steps = position.get("total_steps", step_of(path) or 0)
    return steps, info.get("epoch", 0)


def is_as_new(path: Any, other: Any) -> bool:
    """Returns whether a checkpoint has at least as many steps as another.

    False if one of them is damaged.
    """
    first, second = _steps(path, []), _steps(other, [])
    return None not in (first, second) and first >= second


def check_own_network(model, what, instead):
    """Raises ValueError if a model computes with the graph of a TF-Hub module."""
    if model.features is not None:
        raise InvalidValueError(
            "The model uses the graph of a TF-Hub module, whose weights have other "
            f"names than those of EfficientDet: it cannot {what}. Use `{instead}` "
            "instead."
        )
