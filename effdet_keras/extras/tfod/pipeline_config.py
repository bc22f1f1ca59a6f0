"""Reads a `pipeline.config` of the TF Object Detection API as fields of a run.

docs/migrating_from_tfod.md has a table of its fields. If a field is absent, the default
of that API is used, not ours.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.proto_text import parse
from effdet_keras._internal.remote_path import local_copy, path_of
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.errors import InvalidValueError, check_argument, require
from effdet_keras.extras.tfod.fields import Fields
from effdet_keras.extras.tfod.pipeline_parts import (
    EXTRACTOR,
    augmentation,
    loss,
    matching,
    model,
    model_config,
    optimizer,
    overall,
    postprocess,
    weight_decay,
)
from effdet_keras.weights.locate import CONFIG_NAME

_UNKNOWN = "this package does not know this field"


@dataclasses.dataclass(frozen=True)
class PipelineReading:
    """The meaning of a `pipeline.config` for a run.

    `fields` are those of a run, and `notes` are texts about differences. The notes in
    `unsupported` are also in `notes`. `frozen` and `trained` are the expressions of
    `freeze_variables` and `update_trainable_variables`.
    """

    fields: dict[str, Any]
    notes: tuple[str, ...]
    unsupported: tuple[str, ...]
    frozen: tuple[str, ...]
    trained: tuple[str, ...]


def read_pipeline_config(path: str | os.PathLike) -> PipelineReading:
    """Reads the `pipeline.config` of an EfficientDet.

    Args:
        path: path of the file or of its folder, or an address.

    Raises:
        ValueError: If the file is not that of an EfficientDet, or a value is wrong.
        FileNotFoundError: If there is no such file.
    """
    path = _file_at(path)
    return _parsed(path, lambda config: _Reading(config).result())


def start_of(
    path: str | os.PathLike, reading: PipelineReading, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the fields of a file, with the weights to start from and their type.

    These are its `fine_tune_checkpoint` and the type of that. `weights` in `given` take
    precedence over the file.

    Raises:
        FileNotFoundError: If the checkpoint that the file names does not exist, and
            `given` does not have `weights`.
    """
    fields = reading.fields
    start = given.get("weights", fields["weights"])
    is_of_file = start is not None and "weights" not in given
    if is_of_file and not (
        is_remote(start) or os.path.exists(start) or os.path.exists(f"{start}.index")
    ):
        raise FileNotFoundError(
            f"'{os.fspath(path)}' names a `fine_tune_checkpoint` that does not exist: "
            f"'{start}'. Give the checkpoint to start from as `weights` (--weights), "
            "or 'none' for random weights."
        )
    if start in (None, "none", "auto"):
        fields = {n: value for n, value in fields.items() if n != "checkpoint_type"}
    return {**fields, "weights": start}


def _file_at(path):
    """Returns the file at a path or address, or `pipeline.config` in that folder."""
    if is_remote(path):
        path = path_of(path)
        return local_copy(path / CONFIG_NAME if path.is_dir() else path)
    path = local_path(path, "`pipeline_config`")
    if path.is_dir():
        path = path / CONFIG_NAME
    if not path.is_file():
        raise FileNotFoundError(f"There is no `{CONFIG_NAME}` at '{path}'")
    return path


def _parsed(path, read):
    """Parses a file, and returns `read` of its message; errors name the file."""
    try:
        return read(parse(path.read_text(encoding="utf-8"), Fields))
    except InvalidValueError as error:
        raise InvalidValueError(f"'{path}': {error}") from error


@dataclasses.dataclass(frozen=True)
class PipelineModel:
    """The model in a `pipeline.config`.

    `config` are fields of `EfficientDetConfig`, and the preset as `name`.
    """

    path: pathlib.Path
    config: dict[str, Any]
    num_classes: int
    postprocess: dict[str, Any]
    label_map: str
    has_background_class: bool
    notes: tuple[str, ...]
    unsupported: tuple[str, ...]


def read_pipeline_model(path: str | os.PathLike) -> PipelineModel:
    """Reads the network of a `pipeline.config`; see `read_pipeline_config`."""
    path = _file_at(path)
    return _parsed(path, lambda config: _Reading(config).model_alone(path))


class _Reading:
    """Converts the messages to fields, and notes what has no equivalent here."""

    def __init__(self, config: Fields) -> None:
        self.config = config
        self.ssd = _ssd(config)
        self.notes: list[str] = []
        self.unsupported: list[str] = []

    def note(self, message, name, value, reason, *, is_done=False):
        """Notes an unsupported field, or with `is_done` one that works differently."""
        self.notes.append(f"{message.place_of(name)}={value}: {reason}")
        if not is_done:
            self.unsupported.append(self.notes[-1])

    def result(self):
        """Reads the whole config: model, losses, optimizer, augmentation, classes."""
        train = self.config.message("train_config")
        fields: dict[str, Any] = {
            "recipe": "tfod",
            "anchors": None,
            **model(self.ssd, self.note),
            "loss": loss(self.ssd),
            "matching": matching(self.ssd),
            "postprocess": postprocess(self.ssd, self.note),
            **weight_decay(self.config),
            **overall(self.config),
            **optimizer(train),
            **augmentation(train, self.note),
            **self.classes(),
        }
        frozen = train.all("freeze_variables", str)
        trained = train.all("update_trainable_variables", str)
        self.leftovers()
        parts = (self.notes, self.unsupported, frozen, trained)
        return PipelineReading(fields, *map(tuple, parts))

    def model_alone(self, path):
        """Reads the model, the number of classes and the postprocessing."""
        config = model_config(self.ssd, self.note)
        num_classes = self.ssd.get("num_classes", None, int)
        is_count = num_classes is not None and num_classes >= 1
        place = self.ssd.place_of("num_classes")
        check_argument(is_count, place, num_classes, "1 or more")
        reader = self.config.message("train_input_reader")
        of_postprocess = postprocess(self.ssd, self.note)
        self.leftovers(DETECTION_FIELDS)
        return PipelineModel(
            path=path,
            config=config,
            num_classes=num_classes,
            postprocess=of_postprocess,
            label_map=reader.get("label_map_path", ""),
            has_background_class=self.ssd.get("add_background_class", True),
            notes=tuple(self.notes),
            unsupported=tuple(self.unsupported),
        )

    def classes(self):
        """Returns the path of the label map as `class_names`, if the file exists."""
        reader = self.config.message("train_input_reader")
        path = reader.get("label_map_path", "")
        if not path:
            return {}
        if not os.path.isfile(path):
            why = "this file does not exist, so the class names are those of the data"
            self.note(reader, "label_map_path", path, why, is_done=True)
            return {}
        return {"class_names": path}

    def leftovers(self, places=None):
        """Notes each field that was not read; only those of `places`, if given."""
        seen = set()
        others = {path: self.config.get(path, x) for path, x in _DEFAULTS.items()}
        for path, value in (*others.items(), *self.config.left()):
            place = place_of(path)
            if place in SILENT or (places is not None and place not in places):
                continue
            same, reason = NO_PLACE.get(place, (None, _UNKNOWN))
            if is_as_here(value, same):
                continue
            is_whole = place is None or path.endswith(place)
            if not is_whole:  # fields in a message, which is noted only once
                path, value = path[: path.index(place) + len(place)], "{...}"
            if (path, value) not in seen:
                seen.add((path, value))
                self.note(self.config, path, value, reason, is_done=place in NOTED)


def _ssd(config):
    """Returns the message of the model; other kinds of models are an error."""
    expected = (
        "Only the config of an EfficientDet can be read: `model { ssd { ... } }` with "
        "a `feature_extractor` of the type `ssd_efficientnet-b0_bifpn_keras`, b0 to "
        "b7."
    )
    model = config.message("model")
    if not model.has("ssd"):
        name = (model.names or ["file without a `model`"])[0]
        raise InvalidValueError(f"this is the config of a `{name}`. {expected}")
    ssd = model.message("ssd")
    kind = ssd.get("feature_extractor.type", "")
    if not EXTRACTOR.fullmatch(kind):
        raise InvalidValueError(f"this is the config of a `{kind}`. {expected}")
    for part, needed in _PARTS.items():
        rule = f"`{ssd.place_of(part)}` of an EfficientDet must be a `{needed}`"
        names = ssd.message(part).names
        require(names in ([], [needed]), rule, **{part: names})
    return ssd


_PARTS = {
    "anchor_generator": "multiscale_anchor_generator",
    "box_coder": "faster_rcnn_box_coder",
    "box_predictor": "weight_shared_convolutional_box_predictor",
}


# --- The fields of a `pipeline.config` that have no equivalent in a run, and why.

# These fields make no difference here and are not noted.
_SILENT = """
    depth_multiplier min_depth pad_to_multiple use_explicit_padding
    feature_extractor.use_depthwise num_layers replace_preprocessor_with_placeholder
    conv_hyperparams.regularize_depthwise conv_hyperparams.op batch_norm.center
    batch_norm.scale batch_norm.train use_matmul_gather
    similarity_calculator.iou_similarity min_num_negative_samples
    desired_negative_sampling_ratio encode_background_as_zeros
    inplace_batchnorm_update return_raw_detections_during_predict use_static_shapes
    use_native_resize_op sync_replicas replicas_to_aggregate startup_delay_steps
    max_number_of_boxes unpad_groundtruth_tensors anchorwise_output
    batch_queue_capacity num_batch_queue_threads prefetch_queue_capacity
    fine_tune_checkpoint_version retain_original_images normalize_coordinates
    keypoint_flip_permutation keypoint_rot_permutation dropout_keep_probability
    num_visualizations min_score_threshold max_num_boxes_to_visualize skip_scores
    skip_labels visualize_groundtruth_boxes groundtruth_box_visualization_color
    visualization_export_dir keep_image_id_for_visualization_export export_path
    use_moving_averages pad_to_max_dimension ignore_groundtruth save_graph eval_master
    include_metrics_per_category keypoint_edge
    retain_original_image_additional_channels
    eval_input_reader.label_map_path shuffle shuffle_buffer_size
    filenames_shuffle_buffer_size eval_input_reader.num_epochs
    train_input_reader.num_epochs num_readers num_parallel_batches
    num_prefetch_batches read_block_length queue_capacity min_after_dequeue
    prefetch_size num_parallel_map_calls use_display_name include_source_id
    train_input_reader.name eval_input_reader.name mask_type num_keypoints
    keypoint_type_weight
"""
SILENT = _SILENT.split()

# In these tables, a line has a field and the reason why it has no equivalent here. With
# the value after "=", if any, the field has the same effect as here and is not noted.
# Fields of this table do not change training or detections.
_NOTED = """
num_classes: the classes are those of the dataset
add_background_class=false: models have no background class here; that of a
  checkpoint is left out
conv_hyperparams.initializer: weights are initialised as in google/automl
conv_hyperparams.force_use_bias=true: BiFPN and heads always have biases
load_all_detection_checkpoint_vars=false: see `skip_mismatch` of `load_pretrained`
use_bfloat16=false: the API uses bfloat16 only on TPUs; for half precision, set
  `precision` to `mixed_bfloat16`
eval_config.metrics_set=coco_detection_metrics: a run measures COCO's metrics;
  `effdet-keras eval` also measures those of Pascal VOC
eval_config.batch_size: the evaluation uses batches of `batch_size`
eval_config.num_examples: all images of the split are evaluated
eval_config.max_evals: see `evaluate_every`
eval_config.eval_interval_secs: `evaluate_every` counts epochs, not seconds
eval_config.eval_instance_masks=false: only boxes are evaluated
eval_config.recall_lower_bound=0: the whole precision-recall curve is used
eval_config.recall_upper_bound=1: the whole precision-recall curve is used
tf_record_input_reader: the data is the one that you give as DATA
external_input_reader: the data is the one that you give as DATA
eval_input_reader.sample_1_of_n_examples=1: all images are evaluated
load_instance_masks=false: only boxes are read
input_type=TF_EXAMPLE: the data is the one that you give as DATA
load_dense_pose=false: only boxes are read
quantization.symmetric=false: ranges are symmetric for kernels, but not for features
"""
# Fields of this table change the detections of a trained model.
_DETECTION_DEFAULTS = """
resize_method=BILINEAR: images are always resized bilinearly
convert_to_grayscale=false: the network always takes three channels
conv_hyperparams.group_norm: the network always uses batch norm
kernel_size=3: kernels always have the size 3
box_code_size=4: a box always has 4 numbers
share_prediction_tower=false: class head and box head are always separate
explicit_background_class=false: there is no background class
use_depthwise=true: the convolutions of the heads are always separable
mask_head_config: there is no head for the masks of objects
score_converter=SIGMOID: scores are always computed with a sigmoid
logit_scale=1: logits are never scaled
calibration_config: this calibration is not supported
change_coordinate_frame=true: boxes are always relative to the image
max_classes_per_detection=1: see `pre_nms_top_k` of `postprocess`
num_additional_channels=0: the network always takes three channels
image_resizer: the image size of the model's preset is used
"""
# Fields of this table change the training.
_TRAINING_DEFAULTS = """
class_prediction_bias_init=-4.6: the bias always starts at -4.595, a
  probability of 0.01
use_dropout=false: see `survival_prob`
apply_conv_hyperparams_pointwise=false: the heads' pointwise kernels do not decay
apply_conv_hyperparams_to_heads=false: the heads' last layers do not decay
similarity_calculator: the similarity is always IoU
l1_regularizer: only L2 regularization is supported
hard_example_miner: the focal loss always uses all anchors
random_example_sampler: the focal loss always uses all anchors
equalization_loss: this loss is not supported
expected_loss_weights=NONE: the focal loss always uses all anchors
use_confidences_as_targets=false: confidences are not supported
implicit_example_weight=1: this weight is not supported
merge_multiple_label_boxes=false: give the box once with each label
use_multiclass_scores=false: scores of several classes are not supported
min_learning_rate=0: the learning rate has no lower limit
train_input_reader.sample_1_of_n_examples=1: all images are trained on
load_multiclass_scores=false: scores of several classes are not supported
load_context_features=false: context features are not supported
expand_labels_hierarchy=false: class hierarchies are not supported
ignore_thresholds=false: the thresholds of matching are always used
negatives_lower_than_unmatched=true: what lies between the thresholds is ignored
clip_boxes=true: boxes are clipped to the image
jitter_mode=DEFAULT: only the mode DEFAULT is supported
quantization.weight_bits=8: weights always have 8 bits
quantization.activation_bits=8: activations always have 8 bits
"""

# Defaults of that API that differ from what is done here, so an absent field is noted.
_DEFAULTS = {
    "model.ssd.add_background_class": "true",
    "model.ssd.post_processing.score_converter": "IDENTITY",
    f"model.ssd.box_predictor.{_PARTS['box_predictor']}.use_depthwise": "false",
}


def _table(text):
    """Parses a table to a dict: field to the equivalent value (or None) and reason."""
    rows = (row.partition(": ") for row in text.replace("\n  ", " ").split("\n") if row)
    fields = ((field.partition("="), reason) for field, _, reason in rows)
    return {name: (same or None, reason) for (name, _, same), reason in fields}


NOTED, DETECTION_FIELDS = _table(_NOTED), _table(_DETECTION_DEFAULTS)
NO_PLACE = {**NOTED, **DETECTION_FIELDS, **_table(_TRAINING_DEFAULTS)}


def place_of(path: str) -> str | None:
    """Returns the entry of `SILENT` or `NO_PLACE` for a field's path, or None."""
    found = [n for n in (*SILENT, *NO_PLACE) if f".{n}." in f".{path}."]
    return max(found, key=len, default=None)


def is_as_here(value: str, same: str | None) -> bool:
    """Returns whether a value is the one with which a field has the effect of here."""
    if same is None:
        return False
    try:
        return float(value) == float(same)
    except ValueError:
        return value.lower() == same.lower()
