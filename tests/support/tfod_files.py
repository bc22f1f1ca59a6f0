"""Checkpoints as the TF Object Detection API writes them, of any EfficientDet."""

import pathlib

import numpy as np
import tensorflow as tf

from effdet_keras.extras.tfod.checkpoint import TFOD
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.network_arrays import network_arrays

# Of the API's own models but for its size.
SMALL = EfficientDetConfig(
    image_size=128,
    num_classes=2,
    fpn_num_filters=8,
    fpn_cell_repeats=1,
    head_repeats=1,
    box_scales=(10.0, 10.0, 5.0, 5.0),
)

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_COMBINE = "/bifpn_combine_weights/"

# What an exported EfficientDet has.
PIPELINE = """
model {{ ssd {{
  num_classes: {num_classes}  # of the dataset
  image_resizer {{ keep_aspect_ratio_resizer {{
    min_dimension: {size} max_dimension: {size} pad_to_max_dimension: true }} }}
  feature_extractor {{
    type: "ssd_{backbone}_bifpn_keras"
    conv_hyperparams {{
      regularizer {{ l2_regularizer {{ weight: 4e-05 }} }}
      initializer {{ truncated_normal_initializer {{ mean: 0.0 stddev: 0.03 }} }}
      activation: SWISH batch_norm {{ decay: 0.99 scale: true epsilon: 0.001 }}
      force_use_bias: true }}
    bifpn {{
      min_level: 3 max_level: 7 num_iterations: {cells} num_filters: {filters} }} }}
  box_coder {{ faster_rcnn_box_coder {{
    y_scale: {scales[0]} x_scale: {scales[1]}
    height_scale: {scales[2]} width_scale: {scales[3]} }} }}
  matcher {{ argmax_matcher {{
    force_match_for_each_row: true matched_threshold: 0.5 }} }}
  similarity_calculator {{ iou_similarity {{ }} }}
  box_predictor {{ weight_shared_convolutional_box_predictor {{
    conv_hyperparams {{
      regularizer {{ l2_regularizer {{ weight: 4e-05 }} }}
      activation: SWISH batch_norm {{ decay: 0.99 epsilon: 0.001 }}
      force_use_bias: true }}
    depth: {filters} num_layers_before_predictor: {repeats} use_depthwise: true
    class_prediction_bias_init: -4.6 }} }}
  anchor_generator {{ multiscale_anchor_generator {{
    min_level: 3 max_level: 7 anchor_scale: {anchor_scale} scales_per_octave: 3
    aspect_ratios: [1.0, 2.0, 0.5] }} }}
  post_processing {{
    batch_non_max_suppression {{
      score_threshold: 1e-08 iou_threshold: 0.5
      max_detections_per_class: 100 max_total_detections: 100 }}
    score_converter: SIGMOID }}
  loss {{
    localization_loss {{ weighted_smooth_l1 {{ }} }}
    classification_loss {{ weighted_sigmoid_focal {{ gamma: 1.5 alpha: 0.25 }} }}
    classification_weight: 1.0 localization_weight: 1.0 }}
  normalize_loc_loss_by_codesize: true
  add_background_class: false
}} }}
train_config: {{
  batch_size: 16
  data_augmentation_options {{ random_horizontal_flip {{ }} }}
  data_augmentation_options {{
    random_scale_crop_and_pad_to_square {{ output_size: 512 scale_max: 1.5 }} }}
  optimizer {{ momentum_optimizer {{
    learning_rate {{ cosine_decay_learning_rate {{
      learning_rate_base: 0.08 total_steps: 9000
      warmup_learning_rate: 0.001 warmup_steps: 500 }} }}
    momentum_optimizer_value: 0.8 }}
    use_moving_average: false }}
  num_steps: 9000
}}
{readers}
eval_config {{ metrics_set: "coco_detection_metrics" }}
"""
LABEL_MAP = 'train_input_reader { label_map_path: "somewhere/labels.pbtxt" }'


def pipeline_text(config, readers=LABEL_MAP):
    """The `pipeline.config` of a config with one side."""
    return PIPELINE.format(
        num_classes=config.num_classes,
        size=config.image_size[0],
        backbone=config.backbone,
        cells=config.fpn_cell_repeats,
        filters=config.fpn_num_filters,
        scales=config.box_scales,
        repeats=config.head_repeats,
        anchor_scale=config.anchor_scale,
        readers=readers,
    )


def tfod_arrays(config, values):
    """The arrays of a checkpoint by path, of a dict of TF1 name to value."""
    last = max(
        int(TFOD.name_of(array).split("layer_with_weights-")[1].split("/")[0])
        for array in network_arrays(config)
        if array.is_backbone
    )
    backbone = "_feature_extractor/classification_backbone/layer_with_weights-"
    arrays = {
        f"{backbone}{last + 1}/kernel": np.ones((1, 1, 320, 8), "float32"),
        f"{backbone}{last + 2}/gamma": np.ones(8, "float32"),
        f"{backbone}{last + 3}/kernel": np.ones((8, 10), "float32"),
        f"{backbone}{last + 3}/bias": np.ones(10, "float32"),
    }
    for array in network_arrays(config):
        path, value = TFOD.name_of(array), np.asarray(values[array.name], "float32")
        if _COMBINE in path:
            path = path.rpartition("/")[0]
            rows = [*arrays.get(path, np.zeros((0, 1))), [value]]
            arrays[path] = np.array(rows, "float32")
        else:
            arrays[path] = value
    return arrays


class _Node(tf.Module):
    """An object whose attributes have names of any kind."""


def write_with_graph(prefix, arrays, root="model", flat=False):
    """Writes a checkpoint with an object graph.

    With `flat` each part has all its variables in a list as well, so that the file
    names them by that: as in the variables of a SavedModel.
    """
    model = _Node()
    for path, value in arrays.items():
        *steps, leaf = path.split("/")
        node = model
        for step in steps:
            if not hasattr(node, step):
                setattr(node, step, _Node())
            node = getattr(node, step)
        setattr(node, leaf, tf.Variable(value))
    if flat:
        for part in ("_feature_extractor", "_box_predictor"):
            part = getattr(model, part)
            part.all_of_them = list(part.variables)
    tf.train.Checkpoint(**{root: model}).write(str(prefix))


def write_by_name(prefix, entries):
    """Writes a checkpoint of names and values, without an object graph."""
    pathlib.Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=[f"{name}{_VALUE}" for name in entries],
        shape_and_slices=[""] * len(entries),
        tensors=[tf.constant(value) for value in entries.values()],
    )
