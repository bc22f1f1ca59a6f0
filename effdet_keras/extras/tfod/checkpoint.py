"""Checkpoints and SavedModels of the TF Object Detection API's EfficientDet."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re

import numpy as np

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.remote_path import WholeFileError
from effdet_keras.data.formats.label_map import read_label_map
from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.tfod.pipeline_config import read_pipeline_model
from effdet_keras.network.backbone import block_table
from effdet_keras.network.config import TFOD_TAPS, EfficientDetConfig
from effdet_keras.weights.identify import num_classes_of
from effdet_keras.weights.kinds.automl import naming_damage
from effdet_keras.weights.locate import CONFIG_NAME
from effdet_keras.weights.network_arrays import (
    LEAVES,
    TF1,
    Kind,
    Scheme,
    WeightSource,
    network_arrays,
    path_of_tf1_name,
    under,
)

_graph_pb2 = OptionalModule(
    "tensorflow.core.protobuf.trackable_object_graph_pb2", install="tensorflow"
)

_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/"
_ROOTS = ("model", "_model")  # the root of a checkpoint, and of a SavedModel
_FEATURES = b"model/_feature_extractor/"  # is in names of both
_CLASSIFIER_ROOT = "feature_extractor"  # the root of a classifier trained on ImageNet
_CLASSIFIER = b"feature_extractor/layer_with_weights-"
_BACKBONES = ("_efficientnet", "classification_backbone")  # two paths to equal layers
_BIFPN = "_feature_extractor/_bifpn_stage/"

_BACKBONE_START = "_feature_extractor/_efficientnet/"
_BACKBONE = f"{_BACKBONE_START}layer_with_weights-{{number}}"
_TOWER = "_box_predictor/_head_scope_conv_layers/"
_NORMS = "_box_predictor/_base_tower_layers_for_heads/"
_BN_IN_TOWER = "/{step}/{layer_in_tower}"
TFOD = Scheme(  # the paths in the object graph
    {
        **{p: _BACKBONE for p, n in TF1.parts.items() if n.startswith("{backbone}")},
        **under(
            _BIFPN,
            level_conv="node_input_blocks/{extra}/0/1/0",
            level_bn="node_input_blocks/{extra}/0/1/1",
            edge_conv="node_input_blocks/{node_of_all}/{edge}/1/0",
            edge_bn="node_input_blocks/{node_of_all}/{edge}/1/1",
            fusion="node_combine_op/{node_of_all}",
            node_conv="node_post_combine_block/{node_of_all}/1",
            node_bn="node_post_combine_block/{node_of_all}/2",
        ),
        "class_conv": f"{_TOWER}ClassPredictionTower/{{repeat}}",
        "class_bn": f"{_NORMS}class_predictions_with_background{_BN_IN_TOWER}",
        "class_predict": "_box_predictor/_prediction_heads/"
        "class_predictions_with_background/_class_predictor_layers/0",
        "box_conv": f"{_TOWER}BoxPredictionTower/{{repeat}}",
        "box_bn": f"{_NORMS}box_encodings{_BN_IN_TOWER}",
        "box_predict": "_box_predictor/_box_prediction_head/_box_encoder_layers/0",
    },
    # In that API, the fusion weights of a node are one array, with a row per edge.
    {**LEAVES, "fusion": tuple(f"/bifpn_combine_weights/{i}" for i in range(3))},
    has_our_anchors=True,
    needed_fields=("box_scales",),
)

# The arrays of a backbone do not depend on anchors and box coding.
_TFOD_CLASSIFIER = dataclasses.replace(TFOD, needed_fields=())

# Config fields of every EfficientDet of that API, whatever its `pipeline.config` says.
_SHARED_CONFIG = {"anchor_order": "aspect_first", "resize_method": "asymmetric"}

_BATCH_NORM_LEAVES = ("gamma", "beta", "moving_mean", "moving_variance")
_LEAVES = (
    "kernel",
    "bias",
    "depthwise_kernel",
    "pointwise_kernel",
    "bifpn_combine_weights",
    *_BATCH_NORM_LEAVES,
)
_SHARED_TOWER = "/_base_tower_layers_for_heads/"

# The paths of the arrays in the object graph, with a pattern for each step.
_INDEX = r"\d+"
_LAYER = r"layer_with_weights-\d+"
_PLACES = tuple(
    place.split("/")
    for place in (
        *(f"_feature_extractor/{backbone}/{_LAYER}" for backbone in _BACKBONES),
        f"{_BIFPN}node_input_blocks/{_INDEX}/{_INDEX}/{_INDEX}/{_INDEX}",
        f"{_BIFPN}node_combine_op/{_INDEX}",
        f"{_BIFPN}node_post_combine_block/{_INDEX}/{_INDEX}",
        rf"_box_predictor/_head_scope_conv_layers/\w+/{_INDEX}",
        rf"_box_predictor/_base_tower_layers_for_heads/\w+/{_INDEX}/{_INDEX}",
        f"_box_predictor/_box_prediction_head/_box_encoder_layers/{_INDEX}",
        rf"_box_predictor/_prediction_heads/\w+/_class_predictor_layers/{_INDEX}",
    )
)
_PLACES_OF = {**dict.fromkeys(_ROOTS, _PLACES), _CLASSIFIER_ROOT: ([_LAYER],)}
_CLASS_LAYER = re.compile(r"(.+/_class_predictor_layers)/\d+/(\w+)")
# Convolutions that always have a bias here, but in that API only with `force_use_bias`.
_BIASED = re.compile(
    r"(.+/node_input_blocks/.+/0|.+/node_post_combine_block/\d+/1|"
    r".+/_head_scope_conv_layers/\w+/\d+)/(?:pointwise_)?kernel"
)
_LAYER_NUMBER = re.compile(rf"{_BACKBONE_START}layer_with_weights-(\d+)")
_COMBINE = "/bifpn_combine_weights"
_EDGE = re.compile(r"(?<=/bifpn_combine_weights)/\d+$")


def read_tfod_checkpoint(
    prefix, averages=True, pipeline_config=None, own_pipeline_config=None
):
    """Reads a checkpoint of an EfficientDet from the API's exporter or a training.

    It also reads an EfficientNet from the API's classification zoo, from which
    trainings start.

    Args:
        prefix: prefix of the checkpoint.
        averages: bool, whether to take moving averages if there are any.
        pipeline_config: path of the `pipeline.config` of this checkpoint, or None.
        own_pipeline_config: path of a `pipeline.config` to use if there is no
            `pipeline_config` and none next to the checkpoint, or None.

    Returns:
        `WeightSource`.

    Raises:
        ValueError: If the checkpoint is damaged, incomplete or of another model, or the
            `pipeline_config` does not belong to it.
    """
    tf.require("Reading checkpoints of the Object Detection API")
    prefix = os.fspath(prefix)
    is_classifier = _is_classifier(pathlib.Path(prefix))
    if is_classifier:
        _refuse_config_of_classifier(prefix, pipeline_config)
        config_path = None  # a config next to it is that of the detector to train
    else:
        beside = _config_beside(pathlib.Path(prefix))
        config_path = pipeline_config or beside or own_pipeline_config
    model = None if config_path is None else read_pipeline_model(config_path)
    with naming_damage(prefix):
        reader = tf.train.load_checkpoint(prefix)
        stored = reader.get_variable_to_dtype_map()
        keys = {**_keys_by_name(stored), **_keys_in_graph(reader, stored)}
    if not is_classifier:
        _check_is_whole(prefix, keys)
    average = _averages(keys, stored) if averages else {}
    with naming_damage(prefix):
        arrays = {n: reader.get_tensor(average.get(n, key)) for n, key in keys.items()}
    used = {*keys.values(), *average.values()}
    others = {key for key in stored if key not in used}
    arrays, top = _without_classifier(arrays)
    of_what = ", of a classifier" if is_classifier else _where(prefix)
    config = {**_SHARED_CONFIG, "backbone_taps": _feature_blocks_of(arrays)}
    source = WeightSource(
        path=prefix,
        kind=f"checkpoint of the Object Detection API{of_what}",
        scheme=_TFOD_CLASSIFIER if is_classifier else TFOD,
        arrays=_by_edge(arrays),
        num_averages=len(set(average) & set(arrays)),
        others=tuple(sorted({*others, *(keys[name] for name in top)})),
        config=None if is_classifier else config,
    )
    if model is not None:
        model = _model_of_file(source, model, is_given=pipeline_config is not None)
    ours, notes = _in_our_form(source.arrays, model)
    source = dataclasses.replace(source, arrays=ours, notes=notes)
    return source if model is None else _with_model(source, model)


def _feature_blocks_of(arrays):
    """Returns the blocks from which the API takes P3 to P5, by the number of blocks."""
    is_block = re.compile(rf"{_BACKBONE_START}.+/depthwise_kernel")
    num_blocks = sum(is_block.fullmatch(name) is not None for name in arrays)
    taps = {len(block_table(name)): taps for name, taps in TFOD_TAPS.items()}
    return taps.get(num_blocks)


def _model_of_file(source, model, *, is_given):
    """Returns the model of a `pipeline.config`; without label map if classes differ.

    A `pipeline.config` that was not given for this file may be that of a later training
    that starts from the file. If it was given, a different number of classes is an
    error.
    """
    outputs, background = num_classes_of(source), int(model.has_background_class)
    if outputs in (None, model.num_classes + background):
        return model
    with_background = " and a background class" if background else ""
    text = (
        f"'{model.path}' has {model.num_classes} classes{with_background}, but "
        f"'{source.path}' has {outputs}"
    )
    if is_given:
        raise InvalidValueError(
            f"{text}: the checkpoint was not trained with this `pipeline.config`. Give "
            "the one that it was trained with, such as the one in the archive of the "
            "checkpoint."
        )
    note = f"{text}: its class names and ids do not belong to the checkpoint"
    return dataclasses.replace(
        model,
        num_classes=outputs - background,
        label_map="",
        notes=(*model.notes, note),
    )


def _refuse_config_of_classifier(prefix, pipeline_config):
    if pipeline_config is not None:
        raise WholeFileError(
            "`pipeline_config` can be given only with checkpoints of detectors. "
            f"Received: '{prefix}', which is the checkpoint of a classifier, whose "
            "backbone fits any detector. To make the model of the config: "
            "`EfficientDet.from_pipeline_config('.../pipeline.config', weights=...)`."
        )


def freezing_of(reading):
    """Returns `freeze` arguments for the variables that the API's config freezes.

    Its expressions are matched with the names in checkpoints, as by `filter_variables`
    of that API.
    """
    if not (reading.frozen or reading.trained):
        return {}
    fields = reading.fields
    config = EfficientDetConfig.from_name(fields["model"], **fields["model_config"])
    names = {
        path_of_tf1_name(array.name): f"model/{_EDGE.sub('', TFOD.name_of(array))}"
        for array in network_arrays(config)
        if not array.name.endswith(_BATCH_NORM_LEAVES[2:])
    }
    trained = _matching_names(reading.trained, "update_trainable_variables", names)
    frozen = _matching_names(reading.frozen, "freeze_variables", names)
    if reading.trained:
        frozen |= set(names) - trained
    return {"freeze": _expression(frozen, names), "freeze_batch_norm": False}


def _matching_names(expressions, field, names):
    """Returns the arrays whose name in that API contains one of the expressions."""
    found = set()
    for expression in expressions:
        try:
            matches = {n for n, there in names.items() if re.search(expression, there)}
        except re.error as error:
            raise InvalidValueError(
                f"`train_config.{field}` contains {expression!r}, which is not a valid "
                f"regular expression: {error}."
            ) from error
        if not matches:
            some = list(names.values())
            raise InvalidValueError(
                f"`train_config.{field}` contains {expression!r}, which occurs in no "
                "name of a variable. The variables have the names of the API's "
                f"checkpoints: '{some[0]}', '{some[-1]}', ... Change the expression, "
                "or give `freeze` (--freeze), an expression for the paths of this "
                "package's variables."
            )
        found |= matches
    return found


def _expression(chosen, names):
    """Returns a short regular expression that matches only the `chosen` names."""
    parts = {}
    for name in sorted(chosen):
        steps = name.split("/")
        for count in range(1, len(steps) + 1):
            start = "/".join(steps[:count]) + ("/" if count < len(steps) else "")
            if all(other in chosen for other in names if other.startswith(start)):
                parts[re.escape(start) + ("" if count < len(steps) else "$")] = None
                break
    return f"({'|'.join(parts)})"


def is_tfod_checkpoint(prefix):
    """Returns whether a checkpoint is of the Object Detection API, from its index."""
    names = _names_in_index(prefix)
    return _FEATURES in names or _CLASSIFIER in names


def _is_classifier(prefix):
    names = _names_in_index(prefix)
    return _CLASSIFIER in names and _FEATURES not in names


def _names_in_index(prefix):
    """Returns the bytes of the index, in which some names are stored completely."""
    index = prefix.with_name(f"{prefix.name}.index")
    return index.read_bytes() if index.is_file() else b""


def _config_beside(prefix):
    """Returns the `pipeline.config` in a folder of an exporter or training, or None."""
    folders = [prefix.parent, prefix.parent.parent]
    if prefix.name == "variables":  # saved_model/variables/variables
        folders.append(prefix.parent.parent.parent)
    paths = (folder / CONFIG_NAME for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def _where(prefix):
    return ", SavedModel" if pathlib.Path(prefix).name == "variables" else ""


def _keys_in_graph(reader, stored):
    """Returns a dict from paths in the object graph to stored keys, of all arrays."""
    if _GRAPH_KEY not in stored:
        return {}
    graph = _graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(_GRAPH_KEY))
    children = [{c.local_name: c.node_id for c in n.children} for n in graph.nodes]
    keys = {}

    def walk(node, place, path):
        if not place:
            is_bn = _SHARED_TOWER in path  # its convolutions are at another path too
            for leaf, child in children[node].items():
                if leaf not in _LEAVES or (is_bn and leaf not in _BATCH_NORM_LEAVES):
                    continue
                for attribute in graph.nodes[child].attributes:
                    if attribute.checkpoint_key in stored:
                        keys.setdefault(f"{path}/{leaf}", attribute.checkpoint_key)
            return
        for name, child in children[node].items():
            if re.fullmatch(place[0], name):
                walk(child, place[1:], f"{path}/{name}" if path else name)

    for root, places in _PLACES_OF.items():
        if children and root in children[0]:
            for place in places:
                walk(children[0][root], place, "")
    return {_one_backbone(path): key for path, key in keys.items()}


def _keys_by_name(stored):
    """Returns the dict of `_keys_in_graph` from the names of the keys only."""
    patterns = {
        root: [re.compile("/".join([*place, r"\w+"])) for place in places]
        for root, places in _PLACES_OF.items()
    }
    keys = {}
    for key in stored:
        root, _, path = key.removesuffix(_VALUE).partition("/")
        if any(pattern.fullmatch(path) for pattern in patterns.get(root, ())):
            keys[_one_backbone(path)] = key
    return keys


def _one_backbone(path):
    path = path.replace("/classification_backbone/", "/_efficientnet/")
    return f"{_BACKBONE_START}{path}" if re.match(_LAYER, path) else path


def _check_is_whole(prefix, keys):
    """Raises an error unless there are names of a BiFPN and a box predictor."""
    if any(_BIFPN in name for name in keys) and any(
        name.startswith("_box_predictor/") for name in keys
    ):
        return
    if any(name.startswith(_BACKBONE_START) for name in keys):
        raise WholeFileError(
            f"'{prefix}' contains only the backbone of an EfficientDet, without BiFPN "
            "and heads: the Object Detection API writes such a checkpoint at step 0, "
            "before it builds the network. Give a later checkpoint, such as 'ckpt-2'."
        )
    raise WholeFileError(
        f"'{prefix}' is a checkpoint of the Object Detection API, but not of an "
        "EfficientDet: it has no EfficientNet with a BiFPN "
        "(`_feature_extractor/_bifpn_stage`). Only EfficientDets can be read."
    )


def _averages(keys, stored):
    """Returns a dict from names to the keys of their moving averages."""
    by_variable = {
        key.partition(_SLOT)[0]: key
        for key in stored
        if _SLOT in key and key.removesuffix(_VALUE).endswith("/average")
    }
    found = {
        name: by_variable.get(key.removesuffix(_VALUE)) for name, key in keys.items()
    }
    return {name: key for name, key in found.items() if key is not None}


def _without_classifier(arrays):
    """Removes the last three layers of an ImageNet classifier; returns their names."""
    numbers = {n: int(m[1]) for n in arrays if (m := _LAYER_NUMBER.match(n))}
    dense = [n for n in numbers if n.endswith("/kernel") and arrays[n].ndim == 2]
    if not dense:
        return arrays, ()
    first = numbers[dense[0]] - 2
    top = tuple(name for name, number in numbers.items() if number >= first)
    return {n: a for n, a in arrays.items() if n not in top}, top


def _in_our_form(arrays, model):
    """Adds missing biases to the arrays, and removes a background class."""
    result, notes = dict(arrays), []
    found = {m[1]: v for n, v in arrays.items() if (m := _BIASED.fullmatch(n))}
    zeros = {f"{n}/bias": np.zeros(v.shape[-1], "float32") for n, v in found.items()}
    if missing := len(zeros.keys() - arrays.keys()):
        notes.append(
            f"{missing} biases before batch norms are set to 0, because the file does "
            "not have them (`force_use_bias: false`)"
        )
    if model is not None and model.has_background_class:
        for name, value in result.items():
            if "/_class_predictor_layers/0/" in name and "depthwise" not in name:
                by_class = value.reshape(*value.shape[:-1], -1, model.num_classes + 1)
                result[name] = by_class[..., 1:].reshape(*value.shape[:-1], -1)
        notes.append(
            "the background class was left out, because this package's models have none"
        )
    return {**zeros, **result}, tuple(notes)


def _by_edge(arrays):
    """Splits the fusion weights of each node into one scalar per edge."""
    result = {}
    for name, value in arrays.items():
        name = _CLASS_LAYER.sub(r"\1/0/\2", name)  # the layer is 1 after a dropout
        if name.endswith(_COMBINE):
            scalars = enumerate(value.reshape(-1))
            result |= {f"{name}/{edge}": weight for edge, weight in scalars}
        else:
            result[name] = value
    return result


def _with_model(source, model):
    """Adds the model of a `pipeline.config` to a source."""
    names, ids, notes = classes_of_label_map(model)
    return dataclasses.replace(
        source,
        class_names=names,
        category_ids=ids,
        config={**model.config, "num_classes": model.num_classes},
        postprocess=model.postprocess,
        notes=(*source.notes, *model.notes, *notes),
    )


def _is_of(path, head):
    return is_tfod_checkpoint(path)


KIND = Kind(
    title="the TF Object Detection API's checkpoint or SavedModel of an EfficientDet, "
    "in the folder of its exporter or of a training, or its checkpoint of an "
    "EfficientNet trained on ImageNet",
    is_of=_is_of,
    read=read_tfod_checkpoint,
    options=("pipeline_config", "own_pipeline_config"),
)


# --- Class names of an Object Detection API model, from its label map.


def classes_of_label_map(model):
    """Reads the class names and ids of a `PipelineModel` from its label map.

    The label map is at its path, or next to the `pipeline.config`. Returns names, ids
    and notes; names and ids are None if there is no label map.
    """
    if not model.label_map:
        return None, None, ()
    named = pathlib.Path(model.label_map)
    beside = model.path.parent / re.split(r"[/\\]", model.label_map)[-1]
    path = next((path for path in (named, beside) if path.is_file()), None)
    if path is None:
        note = (
            f"the label map '{model.label_map}' does not exist here: give `class_names`"
        )
        return None, None, (note,)
    known = read_label_map(path)
    ids = tuple(range(1, model.num_classes + 1))
    names = tuple(known.get(i, f"unused-{i}") for i in ids)
    above = [i for i in known if i > model.num_classes]
    if not above:
        return names, ids, ()
    note = (
        f"'{path}' has ids above the number of classes, {model.num_classes}: "
        f"{above[:5]}"
    )
    return names, ids, (note,)
