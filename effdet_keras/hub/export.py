"""Exports a model as a TF-Hub feature module, in the format of google/automl."""

import contextlib
import json
import os

import keras

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import atomic_folder, local_path
from effdet_keras.errors import require
from effdet_keras.hub.module import NOTES_FILE, NOTES_FOLDER
from effdet_keras.network.batch_norm import momentum_warmup, set_momentum_warmup
from effdet_keras.train.averages import evaluated_weights
from effdet_keras.train.freezing import frozen_state, restore_frozen, unfreeze
from effdet_keras.weights.network_arrays import tf1_name

# Prefixes of the paths of weights and random state. Paths of metrics differ.
_NETWORK = (
    "efficientnet-",
    "efficientnetv2-",
    "resample_p",
    "fpn_cells/",
    "class_net/",
    "box_net/",
)


def network_features(model, images, training=False):
    """Computes the inputs of the last layer of each head.

    Returns two lists, for the class head and the box head, with one tensor
    `[B, H, W, C]` per level.
    """
    if model.features is not None:
        return model.features(images, training=training)
    config = model.config
    levels = list(model.get_layer(config.backbone)(images, training=training))
    for level in range(config.min_level + len(levels), config.max_level + 1):
        resample = model.get_layer(f"resample_p{level}")
        levels.append(resample(levels[-1], training=training))
    pyramid = model.get_layer("fpn_cells")(levels, training=training)
    return tuple(
        model.get_layer(head).features(pyramid, training=training)
        for head in ("class_net", "box_net")
    )


def export_hub_module(model, path):
    heads = model.config.heads
    rule = (
        "A TF-Hub module can contain only the features of the class head and the box "
        "head"
    )
    require(heads == ("object_detection",), rule, heads=heads)
    require_tensorflow(
        "A TF-Hub module is a graph of TensorFlow",
        "Save the weights, and export them in a process with KERAS_BACKEND=tensorflow.",
    )
    path = local_path(path, "The folder of a TF-Hub module")
    notes = {"config": model.config.to_dict(), "class_names": model.class_names}
    with atomic_folder(path) as folder, _unfrozen(model), evaluated_weights(model):
        tf.saved_model.save(_callable(model), os.fspath(folder))
        (folder / NOTES_FOLDER).mkdir()
        (folder / NOTES_FOLDER / NOTES_FILE).write_text(json.dumps(notes), "utf-8")


@contextlib.contextmanager
def _unfrozen(model):
    """Returns a context in which the model is trainable, as if never compiled."""
    state, warmup = frozen_state(model), momentum_warmup(model)
    unfreeze(model)
    set_momentum_warmup(model, None)
    try:
        yield
    finally:
        restore_frozen(model, state)
        set_momentum_warmup(model, warmup)


def _callable(model):
    """Returns the object to save.

    TF-Hub's layer for Keras 2 requires attributes of these names.
    """
    module = tf.train.Checkpoint()
    pairs = list(_variables(model))

    def call(images, training=False):
        with keras.StatelessScope(state_mapping=pairs) as scope:
            found = network_features(model, images, training=training)
        for variable, saved_variable in pairs:
            moved = scope.get_current_value(variable)
            if moved is not saved_variable:
                saved_variable.assign(moved)
        return tuple([tf.cast(x, tf.float32) for x in levels] for levels in found)

    module.variables = [saved_variable for _, saved_variable in pairs]
    module.trainable_variables = [v for v in module.variables if v.trainable]
    module.regularization_losses = []
    module.__call__ = tf.function(call)
    if model.features is not None:
        module.inner = model.features.module.loaded
    shape = (None, *model.config.image_size, 3)
    images = tf.TensorSpec(shape, tf.float32, name="images")
    for training in (True, False):
        module.__call__.get_concrete_function(images, training=training)
    return module


def _variables(model):
    """Yields each variable before the heads' last layers, and the variable to save."""
    if model.features is not None:
        yield from ((v, v.value) for v in model.features.variables)
        return
    for variable in model.variables:
        if variable.path.startswith(_NETWORK) and "-predict/" not in variable.path:
            yield (
                variable,
                tf.Variable(
                    tf.convert_to_tensor(variable.value),
                    trainable=variable.trainable,
                    name=tf1_name(variable),
                ),
            )
