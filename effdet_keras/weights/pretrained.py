"""From the arrays of a file to a model that has them: its config, then its weights."""

import dataclasses
import warnings

import numpy as np

from effdet_keras.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.errors import InvalidValueError
from effdet_keras.presets import COCO_CLASS_NAMES
from effdet_keras.weights.assign import BACKBONE_ALONE, assign_source
from effdet_keras.weights.identify import identify, num_classes_of
from effdet_keras.weights.network_arrays import TFOD

# What weights are trained for, besides the shapes that they fill.
_MEANING = (
    *("mean_rgb", "stddev_rgb", "pad_rgb"),
    *("anchor_scale", "aspect_ratios", "num_scales"),
    *("backbone_padding", "fpn_padding", "fpn_downsampling", "fpn_upsampling"),
    "backbone_batch_norm_epsilon",
    *("backbone_taps", "resize_method"),
)


def config_for_weights(name, source, *, class_names, category_ids, overrides):
    """The config and classes of a new model that starts from a source.

    What the caller says counts most, then what the file says, then what the
    preset has.

    Args:
        name: string, the preset, such as "efficientdet-d0".
        source: `WeightSource` or None.
        class_names, category_ids: as `EfficientDet.from_preset` has them.
        overrides: dict of fields of `EfficientDetConfig`, of the caller.

    Returns:
        `(config, class_names, category_ids)`.
    """
    overrides = dict(overrides)
    if class_names is not None:
        class_names = tuple(class_names)
        overrides.setdefault("num_classes", len(class_names))
    if source is None:
        config = EfficientDetConfig.from_name(name, **overrides)
        return config, class_names, category_ids
    fields = dict(source.config or {})
    _check_is_told(name, source, fields, overrides)
    _check_name(name, fields.pop("name", name), source)
    num_classes = fields.pop("num_classes", None) or num_classes_of(source)
    if num_classes is not None:
        overrides.setdefault("num_classes", num_classes)
    config = EfficientDetConfig.from_name(name, **{**fields, **overrides})
    if class_names is None and config.num_classes == num_classes:
        class_names = source.class_names
        category_ids = category_ids or source.category_ids
    return config, class_names, category_ids


def _check_name(name, name_in_file, source):
    if name_in_file == name or name_in_file not in MODEL_NAMES:
        return
    if name not in identify(source).names:  # D6 and D7 share their weights
        raise InvalidValueError(
            f"The weights in '{source.path}' are of {name_in_file}. Received: "
            f"name={name!r}. Use `EfficientDet.from_preset({name_in_file!r}, ...)`."
        )


def _check_is_told(name, source, fields, overrides):
    """What a checkpoint of the Object Detection API means is in another file."""
    needed = ("backbone_taps", "box_scales")
    if source.scheme == TFOD and not all(n in {**fields, **overrides} for n in needed):
        raise InvalidValueError(
            f"There is no `pipeline.config` beside '{source.path}', and without it the "
            "image size, anchors and scales of box codes of its model are not known. "
            f"Give it: `EfficientDet.from_preset({name!r}, weights=..., "
            "pipeline_config='.../pipeline.config')`."
        )


def load_source(model, source, *, skip_mismatch, checkpoint_type=None, verbose):
    """Assigns a source to a model, and tells what came of it.

    Args:
        model: `EfficientDet`.
        source: `WeightSource`.
        skip_mismatch, checkpoint_type: see `assign_source`.
        verbose: 0 or 1, whether to print the report.

    Returns:
        `LoadReport`.
    """
    report = assign_source(
        model, source, skip_mismatch=skip_mismatch, checkpoint_type=checkpoint_type
    )
    model.score_settings = None  # an evaluation of other weights chose them
    notes = [
        *source.notes,
        *_not_finite(source),
        *_untrained(report),
        *_adopted_classes(model, source, report),
        *_differences(model, source),
    ]
    report = dataclasses.replace(report, notes=tuple(notes))
    if verbose:
        print(report, flush=True)
    return report


def _not_finite(source):
    """Of a training that went wrong: whatever has them finds nothing."""
    bad = [name for name, a in source.arrays.items() if not _is_finite(a)]
    if bad:
        yield f"WARNING: {len(bad)} arrays are NaN or infinite, such as '{bad[0]}'"


def _is_finite(array):
    return array.dtype.kind in "iu" or bool(np.isfinite(array.astype("float32")).all())


def _untrained(report):
    """What to do with a model that got a backbone alone."""
    if any(new.reason == BACKBONE_ALONE for new in report.new):
        yield "BiFPN and heads start new: the model detects nothing before training"


def _adopted_classes(model, source, report):
    """Names the outputs of a model that has no names, and says what they are."""
    names = source.class_names
    if any("class-predict" in name for new in report.new for name in new.names):
        return
    if model.class_names is None and len(names or ()) == model.num_classes:
        model.class_names = names
        model.category_ids = model.category_ids or source.category_ids
    if names == model.class_names == COCO_CLASS_NAMES:
        yield "the 90 outputs are COCO's categories: output i has category id i + 1"


def _differences(model, source):
    """What the weights were trained with, where the model has another value."""
    told = source.config or {}
    fields = dataclasses.fields(model.config)
    known = {f.name: told[f.name] for f in fields if f.name in told}
    trained_with = model.config.replace(**known)
    differing = [
        f"{field}={getattr(trained_with, field)} (here {getattr(model.config, field)})"
        for field in _MEANING
        if getattr(trained_with, field) != getattr(model.config, field)
    ]
    if differing:
        text = f"these weights were trained with {', '.join(differing)}"
        warnings.warn(
            f"'{source.path}': {text}. Make the model with the same.", stacklevel=4
        )
        yield text
