"""Converts google/automl's hyper-parameters (`--hparams`) to fields of a run.

docs/migrating_from_automl.md has a table of the conversion. A test checks that this
code and the table agree.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.yaml_text import read_yaml
from effdet_keras.errors import InvalidValueError, check_argument, hint, require
from effdet_keras.train.schedules import REFERENCE_BATCH_SIZE

_RATE = 0.08  # google/automl's default, for a batch of 64

# Hyper-parameters that only have another name here, and the field of each.
_RUN_FIELDS = {
    "name": "model",
    "label_map": "class_names",
    "num_epochs": "epochs",
    "map_freq": "evaluate_every",
    "var_freeze_expr": "freeze",
    "weight_decay": "weight_decay",
    "grad_checkpoint": "grad_checkpoint",
    "img_summary_steps": "input_summary_every",
}
_MODEL_CONFIG_FIELDS = {
    "backbone_name": "backbone",
    "box_class_repeats": "head_repeats",
    "act_type": "activation",
    **{
        name: name
        for name in """
            min_level max_level num_scales aspect_ratios anchor_scale fpn_num_filters
            fpn_cell_repeats separable_conv conv_bn_act_pattern conv_after_downsample
            apply_bn_for_resampling survival_prob mean_rgb stddev_rgb heads
            seg_num_classes
        """.split()
    },
}
_LOSS_FIELDS = (
    "alpha",
    "gamma",
    "label_smoothing",
    "delta",
    "box_loss_weight",
    "iou_loss_type",
    "iou_loss_weight",
    "positives_momentum",
)
_POSTPROCESS_FIELDS = {
    "nms_configs.method": "method",
    "nms_configs.sigma": "sigma",
    "nms_configs.iou_thresh": "iou_threshold",
    "nms_configs.score_thresh": "score_threshold",
    "nms_configs.max_nms_inputs": "pre_nms_top_k",
    "nms_configs.max_output_size": "max_detections",
}
_SCHEDULE_FIELDS = (
    "lr_decay_method",
    "lr_warmup_epoch",
    "lr_warmup_init",
    "first_lr_drop_epoch",
    "second_lr_drop_epoch",
    "poly_lr_power",
)
# Hyper-parameters whose values are converted: see the methods of `_Reading`.
_CONVERTED = """
    image_size optimizer momentum learning_rate clip_gradients_norm moving_average_decay
    mixed_precision loss_scale fpn_name skip_crowd_during_training is_training_bn
    scale_range verbose fpn_weight_method strategy input_rand_hflip jitter_min
    jitter_max target_size autoaugment_policy grid_mask
""".split()
# A mapping from methods to their options. google/automl's trainer reads it, although it
# is not among the defaults. The methods are "prune" and "quantize" (tf2/tfmot.py).
_OPTIMIZATIONS = "model_optimizations"
# Hyper-parameters whose value is a mapping. An empty mapping requests nothing.
_MAPPINGS = ("nms_configs", "backbone_config", "fpn_config", _OPTIMIZATIONS)
# Those of `_NO_PLACE` that change the network, and therefore the training.
_TRAINING_FIELDS = ("backbone_config", "fpn_config")
# Hyper-parameters without an equivalent: google/automl's default, and the reason. There
# is no note if the value is the default.
_NO_PLACE = {
    "num_classes": (
        None,
        "the classes are taken from the dataset, or from `class_names`",
    ),
    "backbone_config": (None, "the blocks follow from `backbone`"),
    "fpn_config": (None, "the graph follows from `min_level` and `max_level`"),
    "data_format": ("channels_last", "the data format is always channels last"),
    "skip_mismatch": (True, "see `skip_mismatch` of `load_pretrained`"),
    "ckpt_var_scope": (None, "the kind of a checkpoint is detected"),
    "save_freq": ("epoch", "checkpoints are written after each epoch"),
    "sample_image": (None, "TensorBoard gets images of the validation split"),
    "use_keras_model": (True, "there is only one network here"),
    "drop_remainder": (True, "the last batch is left out if it is not full"),
    "max_instances_per_image": (100, "an image may have any number of objects"),
    "regenerate_source_id": (False, "ids are generated where the file has none"),
    "dataset_type": (None, "an internal setting of google/automl"),
    "nms_configs.pyfunc": (
        False,
        "evaluation and prediction use the same non-maximum suppression",
    ),
    "tflite_max_detections": (100, "see `max_detections` of `model.export`"),
}


@dataclasses.dataclass(frozen=True)
class HparamsReading:
    """The fields of a run for hyper-parameters of google/automl.

    Attributes:
        fields: dict of fields of `RunConfiguration`.
        notes: tuple of strings, on hyper-parameters without an equivalent.
        unsupported: tuple of strings, the notes on hyper-parameters that would change
            the training and are not supported.
    """

    fields: dict[str, Any]
    notes: tuple[str, ...]
    unsupported: tuple[str, ...]


def read_hparams(
    hparams: str | os.PathLike | Mapping[str, Any], *, batch_size: int
) -> HparamsReading:
    """Reads hyper-parameters as google/automl's `--hparams` takes them.

    Hyper-parameters that are not given have google/automl's values:
    `recipe="reference"`, and the model's own image size and anchors.

    Args:
        hparams: string "name=value,...", in which "a.b=value" sets a name in a mapping
            and "1.0*2.0" is a list; or the path of a YAML file; or a dict.
        batch_size: int, images per step of the run, to which learning rates are scaled.

    Returns:
        `HparamsReading`.

    Raises:
        ValueError: If google/automl has no hyper-parameter of a name, or if a value is
            invalid.

    Example:
        >>> reading = read_hparams(
        ...     "image_size=1920x1280,gamma=2.0,num_classes=3,nms_configs.method=hard",
        ...     batch_size=8)
        >>> reading.fields["image_size"], reading.fields["loss"]
        ((1280, 1920), {'gamma': 2.0})
        >>> reading.notes[0]
        'num_classes=3: the classes are taken from the dataset, or from `class_names`'
    """
    values = _flat(_content(hparams))
    optimizations = _take_optimizations(values)
    _check_known(values)
    reading = _Reading(values, batch_size, optimizations)
    fields = reading.fields()
    return HparamsReading(fields, tuple(reading.notes), tuple(reading.unsupported))


class _Reading:
    """Converts flat names and values to fields; notes those without an equivalent."""

    def __init__(self, values, batch_size, optimizations):
        self.values = values
        self.optimizations = optimizations
        self.batch_size = batch_size
        self.notes, self.unsupported = [], []

    def note(self, name, value, reason, is_done=True):
        self.notes.append(f"{name}={value!r}: {reason}")
        if not is_done:
            self.unsupported.append(self.notes[-1])

    def fields(self):
        """Returns fields of `RunConfiguration`, and adds notes on the rest."""
        values = self.values
        for name in values.keys() & _NO_PLACE.keys():
            default, reason = _NO_PLACE[name]
            if values[name] != default:
                self.note(name, values[name], reason, name not in _TRAINING_FIELDS)
        self.notes.sort()
        fields = {
            "recipe": "reference",
            "image_size": self.size("image_size"),
            "target_size": self.size("target_size"),
            "anchors": None,
            **{_RUN_FIELDS[n]: v for n, v in values.items() if n in _RUN_FIELDS},
            "loss": {n: v for n, v in values.items() if n in _LOSS_FIELDS},
            "postprocess": self.postprocess(),
            "model_config": {
                _MODEL_CONFIG_FIELDS[n]: v
                for n, v in values.items()
                if n in _MODEL_CONFIG_FIELDS
            },
            **self.optimizer(),
            **self.schedule(),
            **self.augmentation(),
            **self.model_optimizations(),
        }
        self.switches(fields)
        return fields

    def size(self, name):
        """Returns an int or `(height, width)`; text has the width first."""
        size = self.values.get(name)
        match = re.fullmatch(r"(\d+)x(\d+)", size) if isinstance(size, str) else None
        return (int(match[2]), int(match[1])) if match else size

    def optimizer(self):
        """Returns fields of the optimizer.

        google/automl's SGD is the recipe's optimizer, whose rate `fit` scales by the
        batch size. For any other optimizer, the rate is scaled here.
        """
        name = self.values.get("optimizer", "sgd")
        rate, momentum = self.values.get("learning_rate"), self.values.get("momentum")
        if name == "sgd" and momentum in (None, 0.9):
            return {} if rate is None else {"learning_rate": rate}
        rule = "The hyper-parameter `optimizer` must be 'sgd' or 'adam'"
        require(name in ("sgd", "adam"), rule, optimizer=name)
        rule = "The hyper-parameter `learning_rate` must be a number"
        require(isinstance(rate, float | int | None), rule, learning_rate=rate)
        rate = (_RATE if rate is None else rate) * self.batch_size
        optimizer = {"name": "momentum", "momentum": momentum}
        if name == "adam":
            optimizer = (
                "adam" if momentum is None else {"name": name, "beta_1": momentum}
            )
        return {"optimizer": optimizer, "learning_rate": rate / REFERENCE_BATCH_SIZE}

    def schedule(self):
        """Returns a dict with the field `schedule`; empty if nothing sets it."""
        given = {n: v for n, v in self.values.items() if n in _SCHEDULE_FIELDS}
        if not given:
            return {}
        name = given.get("lr_decay_method", "cosine")
        schedule = {"name": name}
        if name == "stepwise":
            schedule["drop_epochs"] = (
                given.get("first_lr_drop_epoch", 200.0),
                given.get("second_lr_drop_epoch", 250.0),
            )
        if name == "polynomial" and "poly_lr_power" in given:
            schedule["power"] = given["poly_lr_power"]
        for name_there, field in (
            ("lr_warmup_epoch", "warmup_epochs"),
            ("lr_warmup_init", "warmup_init"),
        ):
            # google/automl's constant schedule has no warm-up.
            if name_there in given and name != "constant":
                schedule[field] = given[name_there]
        return {"schedule": schedule}

    def augmentation(self):
        values, fields = self.values, {}
        if "input_rand_hflip" in values:
            fields["flip_probability"] = 0.5 if values["input_rand_hflip"] else 0.0
        if "jitter_min" in values or "jitter_max" in values:
            jitter = values.get("jitter_min", 0.1), values.get("jitter_max", 2.0)
            fields["scale_jitter"] = jitter
        policy = values.get("autoaugment_policy")
        names = []
        if policy is not None:
            is_random = policy == "randaug"
            names.append("rand_augment" if is_random else f"auto_augment_{policy}")
        if values.get("grid_mask"):
            names.append("grid_mask")
        return {**fields, "augment": tuple(names)} if names else fields

    def model_optimizations(self):
        """Returns the field for quantization-aware training; notes other methods."""
        fields = {}
        for method, options in self.optimizations.items():
            name = f"{_OPTIMIZATIONS}.{method}"
            if method == "quantize":
                fields["quantize_aware"] = True
                reason = "its options are set with --set quantize_aware.NAME=VALUE here"
            elif method == "prune":
                reason = (
                    "pruning is not supported; smaller and faster models come from "
                    "--quantize-aware, --model and --teacher"
                )
            else:
                reason = "not supported, and google/automl has no such method"
            if options or method != "quantize":
                self.note(name, options, reason, is_done=False)
        return fields

    def postprocess(self):
        given = {n: v for n, v in self.values.items() if n in _POSTPROCESS_FIELDS}
        fields = {_POSTPROCESS_FIELDS[name]: value for name, value in given.items()}
        # In google/automl, None and 0 stand for a default in these.
        for name in ("method", "sigma", "iou_threshold", "pre_nms_top_k"):
            if not fields.get(name, True):
                del fields[name]
        return fields

    def switches(self, fields):
        """Sets fields for switches that are a number, a word or another field here."""
        values, config = self.values, fields["model_config"]
        if "clip_gradients_norm" in values:
            fields["clip_norm"] = values["clip_gradients_norm"] or None
        if "moving_average_decay" in values:
            fields["ema_decay"] = values["moving_average_decay"] or None
        if values.get("mixed_precision"):
            fields["precision"] = "mixed_bfloat16"
        if values.get("loss_scale"):
            fields["precision"] = "mixed_float16"
            fields["loss_scale"] = values["loss_scale"]
        if values.get("fpn_name"):
            # google/automl's "bifpn_dyn" builds the same graph in another way.
            name = values["fpn_name"]
            config["fpn_name"] = "bifpn" if name == "bifpn_dyn" else name
        if values.get("skip_crowd_during_training") is False:
            fields["train_on_crowds"] = True
        if values.get("is_training_bn") is False:
            config["frozen_batch_norm"] = True
        if values.get("scale_range"):
            config.update(mean_rgb=127.5, stddev_rgb=127.5, pad_rgb=0.0)
        if "fpn_weight_method" in values:
            config["fpn_weight_method"] = values["fpn_weight_method"] or "fastattn"
        if values.get("verbose") == 0:
            fields["verbose"] = 0
        strategy = values.get("strategy")
        if strategy == "gpus":
            fields["distribute"] = "mirrored"
        elif strategy:
            self.note("strategy", strategy, "only 'gpus' is supported here")


def _content(hparams):
    """Returns the names and values, as they are given."""
    if isinstance(hparams, Mapping):
        return hparams
    text = os.fspath(hparams)
    if not text or ("=" in text and not os.path.isfile(text)):
        return _parsed(text)
    expected = "\"name=value,...\", or a file that ends in '.yaml'"
    check_argument(text.endswith((".yaml", ".yml")), "hparams", text, expected)
    return read_yaml(text)


def _parsed(text):
    """Parses text of the form "name=value,name=value"."""
    values = {}
    for pair in filter(None, (piece.strip() for piece in text.split(","))):
        name, is_pair, value = pair.partition("=")
        rule = (
            '`hparams` must have the form "name=value,name=value", with lists such '
            "as 1.0*2.0*0.5"
        )
        require(is_pair, rule, hparams=text, pair=pair)
        items = [_value(item) for item in value.split("*")]
        values[name.strip()] = items if len(items) > 1 else items[0]
    return values


def _value(text):
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _flat(content, above=""):
    """Flattens nested mappings to names with dots, except for a label map.

    An empty mapping is kept as a value, except for `_MAPPINGS`: as the value of a
    method, it requests this method.
    """
    values = {}
    for name, value in content.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and value and path != "label_map":
            values |= _flat(value, f"{path}.")
        elif path not in _MAPPINGS or not isinstance(value, Mapping):
            values[path] = value
    return values


def _take_optimizations(values):
    """Removes `model_optimizations` from flat values; returns options by method."""
    methods = {}
    for name in list(values):
        first, *inner = name.split(".", 2)
        if first != _OPTIMIZATIONS:
            continue
        value = values.pop(name)
        if not inner:  # the name of a method, or a list of names, without options
            names = value if isinstance(value, list | tuple) else [value]
            methods |= {method: {} for method in names if method}
            continue
        options = methods.setdefault(inner[0], {})
        if len(inner) == 2:
            options[inner[1]] = value
        elif value is False:
            del methods[inner[0]]
        elif value not in (None, True, {}):
            options["value"] = value
    return methods


def known_names() -> list[str]:
    """Returns the sorted names of all hyper-parameters of google/automl.

    Example:
        >>> len(known_names())
        84
    """
    component_fields = (*_MODEL_CONFIG_FIELDS, *_LOSS_FIELDS, *_POSTPROCESS_FIELDS)
    others = (*_CONVERTED, *_NO_PLACE, _OPTIMIZATIONS)
    return sorted({*_RUN_FIELDS, *component_fields, *_SCHEDULE_FIELDS, *others})


def _check_known(values):
    known = known_names()
    unknown = [name for name in values if name not in known]
    if unknown:
        hints = "".join(hint(name, known) for name in unknown[:3])
        raise InvalidValueError(
            "google/automl has no hyper-parameter "
            f"{', '.join(map(repr, unknown))}.{hints} docs/migrating_from_automl.md "
            "lists all that exist."
        )
    for name, value in values.items():
        is_right = name == "label_map" or not isinstance(value, Mapping)
        rule = f"The hyper-parameter `{name}` must be a value, not a mapping"
        require(is_right, rule, **{name: value})
