"""From a name, path or address of weights to a model that has them, and back."""

import dataclasses
import os
import warnings

import numpy as np
from keras import ops

from effdet_keras.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.errors import InvalidValueError
from effdet_keras.presets import (
    COCO_CATEGORY_IDS,
    COCO_CLASS_NAMES,
    WEIGHTS_KEYS,
    find_preset,
)
from effdet_keras.weights.assign import assign_source
from effdet_keras.weights.fetch.download import shown_url
from effdet_keras.weights.fetch.locate import located, looks_like_weights
from effdet_keras.weights.identify import identify, num_classes_of
from effdet_keras.weights.kinds.automl import write_tf1_checkpoint
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.kinds.torch_effdet import write_torch_effdet
from effdet_keras.weights.tf1_names import tf1_name

# What weights are trained for, besides the shapes that they fill.
_MEANING = (
    *("mean_rgb", "stddev_rgb", "pad_rgb"),
    *("anchor_scale", "aspect_ratios", "num_scales"),
)
EXPORT_FORMATS = ("automl-tf1", "torch-effdet")


def is_weights(source):
    """Whether a path, URL or key is meant as weights, not as a dataset."""
    return source in WEIGHTS_KEYS or looks_like_weights(source)


def read_weights(weights, model_name, *, averages=True, sha256=None, verbose=1):
    """Fetches, unpacks, recognises and reads weights.

    Args:
        weights: a key of `presets.WEIGHTS_KEYS`, such as "coco"; or path or URL.
        model_name: string, the published model whose preset is meant; or None.
        averages: bool, whether to take moving averages where there are any.
        sha256: string, digest of the file behind a URL, or None.
        verbose: 0 or 1, whether to show the progress of a download.

    Returns:
        `WeightSource`, with classes and config where they are known.
    """
    if isinstance(weights, str) and weights in WEIGHTS_KEYS:
        if model_name is None:
            raise InvalidValueError(
                f"Say of which model the published weights {weights!r} are, with "
                "`model_name` (`--model efficientdet-d0`)."
            )
        return _read_preset(find_preset(model_name, weights), averages, verbose)
    with located(weights, sha256=sha256, verbose=verbose) as path:
        source = open_weights(path, averages)
    source = dataclasses.replace(source, path=shown_url(os.fspath(weights)))
    is_unnamed = source.class_names is None and source.category_ids is None
    if is_unnamed and num_classes_of(source) == len(COCO_CLASS_NAMES):
        return _with_classes_of(source, COCO_CLASS_NAMES, COCO_CATEGORY_IDS)
    return source


def _read_preset(preset, averages, verbose):
    digests = {"sha256": preset.sha256, "md5": preset.md5}
    with located(preset.url, **digests, verbose=verbose) as path:
        source = open_weights(path, averages)
    source = dataclasses.replace(
        source, path=preset.url, config=preset.config_overrides
    )
    return _with_classes_of(source, preset.class_names, preset.category_ids)


def _with_classes_of(source, class_names, category_ids):
    return dataclasses.replace(
        source, class_names=class_names, category_ids=category_ids
    )


def with_class_names(source, class_names):
    """A source whose labels the caller names."""
    class_names, count = tuple(class_names), num_classes_of(source)
    if count is not None and count != len(class_names):
        raise InvalidValueError(
            "`class_names` of `load_pretrained` names the classes of the file, one a "
            f"label. Received: {len(class_names)} names, {class_names[:5]}, for "
            f"'{source.path}' with {count} classes"
        )
    return _with_classes_of(source, class_names, None)


def preset_config(name, source, *, class_names, category_ids, overrides):
    """The config and classes of a new model that starts from a source.

    What the caller says comes first, then what the file says, then what the
    name stands for.

    Args:
        name: string, the published model.
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
    notes = [*_adopted_classes(model, source, report), *_differences(model, source)]
    report = dataclasses.replace(report, notes=tuple(notes))
    if verbose:
        print(report, flush=True)
    return report


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


def export_checkpoint(model, path, format):
    """`EfficientDet.export_checkpoint`; see there."""
    if format not in EXPORT_FORMATS:
        raise InvalidValueError(
            f"`format` must be one of {', '.join(EXPORT_FORMATS)}. "
            f"Received: format={format!r}"
        )
    check_own_network(model, "write an older tool's checkpoint", "export_hub_module")
    raw, averaged = _raw_and_averaged(model)
    if format == "torch-effdet":
        write_torch_effdet(path, averaged, model.config)
        return
    step = getattr(getattr(model, "optimizer", None), "iterations", 0)
    write_tf1_checkpoint(
        path, raw, averages=averaged, global_step=int(ops.convert_to_numpy(step))
    )


def _raw_and_averaged(model):
    """The weights of training, and those with averages where there are any."""
    averages = model.averages
    if averages is None:
        raw = _named(model.weights, model.weights)
        return raw, dict(raw)
    with averages.swapped():
        averaged = _named(model.weights, model.weights)
        raw = {**averaged, **_named(averages.sources, averages.variables)}
        exact = averages.exact  # of weights that hold their average only rounded
        coarse = [averages.sources[i] for i in exact]
        return raw, {**averaged, **_named(coarse, exact.values())}


def _named(variables, values):
    # Copies: arrays may share their memory with variables that are about to change.
    pairs = zip(variables, values)
    return {tf1_name(v): np.array(ops.convert_to_numpy(a)) for v, a in pairs}


def check_own_network(model, what, instead):
    """Raises ValueError where a model computes with the graph of a TF-Hub module."""
    if model.features is not None:
        raise InvalidValueError(
            "The model computes with the graph of a TF-Hub module, whose weights have "
            f"other names than EfficientDet's: it cannot {what}. Use `{instead}`."
        )
