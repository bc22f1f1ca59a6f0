"""Loads TF-Hub modules, features or detectors, and wraps features as a Keras layer."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import tarfile

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import local_path, shown_address
from effdet_keras.errors import InvalidValueError, first_line

# tensorflow-hub 0.16.1 needs `pkg_resources`, which setuptools 82 removed.
_INSTALL = "tensorflow-hub tf-keras setuptools<82"
tensorflow_hub = OptionalModule("tensorflow_hub", install=_INSTALL)
tensorflow_hub_resolver = OptionalModule("tensorflow_hub.resolver", install=_INSTALL)

NOTES_FILE = "effdet_keras.json"  # config and class names, from `export_hub_module`
NOTES_FOLDER = "assets.extra"  # the folder in a SavedModel for files of its users
_GRAPH_FILES = ("saved_model.pb", "saved_model.pbtxt")  # a SavedModel has one of them
_FORM = (
    "A feature module must be callable with `(images, training=True or False)`, where "
    "images are float32 [batch, height, width, 3]. It must return two lists, class "
    "features and box features, each with one tensor [batch, height, width, channels] "
    "per level"
)


@dataclasses.dataclass(frozen=True, eq=False)
class HubModule:
    """A loaded TF-Hub module: a feature module (`_FORM`) or a detector."""

    handle: str
    folder: str
    loaded: object
    notes: dict | None

    @property
    def graph_digest(self):
        """The SHA-256 of the graph's file; weights are in other files."""
        return _graph_digest(self.folder)

    @property
    def variables(self):
        named = getattr(self.loaded, "variables", None)
        if named:
            return list(named)
        functions = getattr(self.loaded.__call__, "concrete_functions", ())
        every = [v for function in functions for v in function.variables]
        unique = list({id(v): v for v in every}.values())
        return sorted(unique, key=lambda v: v.name)

    def is_trainable(self, variable):
        named = getattr(self.loaded, "trainable_variables", None)
        if named:
            return any(variable is v for v in named)
        return variable.trainable

    @property
    def fixed_size(self):
        for function in getattr(self.loaded.__call__, "concrete_functions", ()):
            (first, *_), _ = function.structured_input_signature
            size = tuple((getattr(first, "shape", None) or ())[1:3])
            if len(size) == 2 and None not in size:
                return size
        return None

    def features(self, images, training):
        found = self.loaded(images, training=training)
        is_list = [isinstance(levels, (list, tuple)) for levels in found]
        if is_list != [True, True]:
            shapes = tf.nest.map_structure(lambda x: getattr(x, "shape", x), found)
            raise InvalidValueError(
                f"The module {self.handle!r} returns {shapes}. {_FORM}."
            )
        return tuple(list(levels) for levels in found)

    def features_of(self, images):
        """Computes `features` of an array in inference, outside of a model."""
        strategy = tf.distribute.get_strategy()
        images = tf.constant(images)
        found = strategy.run(lambda: self.features(images, training=False))
        local = strategy.experimental_local_results
        return tuple([local(x)[0] for x in levels] for levels in found)


def open_hub_module(handle):
    handle = os.fspath(handle)
    return _load(handle, _resolve(handle))


def reopen_hub_module(handle, graph_digest=None):
    """Loads the module that a saved model names, without a download.

    A different module in the same place, whose weights have the same shapes, would
    accept the saved weights and compute something else with them. So the graph must
    have the digest that was saved. None, for files without a digest, skips the check.
    """
    shown, folder = shown_address(handle), _cache_folder(handle)
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"The model uses the TF-Hub module {shown!r}, which is not in '{folder}'. "
            "It is not downloaded, because only the model file asks for it. If you "
            f"trust the module, download it with `tensorflow_hub.resolve({shown!r})`; "
            "or make the model with `EfficientDet.from_hub` from the place where the "
            "module is now, and call `load_weights` with this file."
        )
    if graph_digest is not None and _graph_digest(folder) != graph_digest:
        raise InvalidValueError(
            f"The TF-Hub module {shown!r} in '{folder}' is not the one that the model "
            "was saved with, because its graph is different. Put the earlier version "
            "there; or make a new model of this version with `EfficientDet.from_hub`, "
            "and train it."
        )
    return _load(handle, folder)


def detector_form(module):
    """Returns the kind of a detector's output names: "detection", "output", or None.

    None if the module is not a detector.
    """
    signatures = getattr(module.loaded, "signatures", {})
    if "serving_default" not in signatures:
        return None
    outputs = signatures["serving_default"].structured_outputs
    if {"detection_boxes", "detection_scores", "detection_classes"} <= set(outputs):
        return "detection"
    if set(outputs) != {f"output_{i}" for i in range(4)}:
        return None
    boxes = outputs["output_0"].shape  # features have 4 axes, boxes [B, D, 4]
    return "output" if boxes.rank == 3 and boxes[-1] == 4 else None


def _resolve(handle):
    """Returns the local folder of a module, downloaded if `handle` is a URL."""
    tensorflow_hub.require("Loading a TF-Hub module")
    if not _is_url(handle):
        handle = os.fspath(local_path(handle, "A TF-Hub module without http(s)://"))
        if not os.path.isdir(handle):
            raise FileNotFoundError(
                f"There is no TF-Hub module {handle!r}: give the address or the folder "
                "of a module."
            )
        return os.path.abspath(handle)
    try:
        return tensorflow_hub.resolve(handle)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise OSError(
            f"No TF-Hub module could be loaded from {shown_address(handle)!r}: "
            f"{error}. There must be a compressed SavedModel (tar.gz) at this address "
            "followed by '?tf-hub-format=compressed'."
        ) from error


def _cache_folder(handle):
    """Returns the folder of a handle's module, after it has been downloaded."""
    if not _is_url(handle):
        return handle
    cache = tensorflow_hub_resolver.tfhub_cache_dir(use_temp=True)
    return os.path.join(cache, hashlib.sha1(handle.encode()).hexdigest())


def _graph_digest(folder):
    paths = [pathlib.Path(folder, name) for name in _GRAPH_FILES]
    path = next((path for path in paths if path.is_file()), None)
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def _is_url(handle):
    return handle.startswith(("http://", "https://"))


def _load(handle, folder):
    """Loads the SavedModel in a folder as a `HubModule`, with its notes if any."""
    load = tensorflow_hub.require("Loading a TF-Hub module").load
    try:
        loaded = load(folder)
    except Exception as error:  # TensorFlow's errors have no common base class
        raise InvalidValueError(
            f"TensorFlow cannot load the TF-Hub module {shown_address(handle)!r} in "
            f"'{folder}' as a SavedModel: {first_line(error)}. Copy or download the "
            "folder again: it needs 'saved_model.pb' and 'variables'."
        ) from error
    handle = handle if _is_url(handle) else folder
    path = pathlib.Path(folder, NOTES_FOLDER, NOTES_FILE)
    notes = json.loads(path.read_text("utf-8")) if path.is_file() else None
    module = HubModule(handle, folder, loaded, notes)
    if detector_form(module) is None and not callable(loaded):
        raise InvalidValueError(
            f"The module {shown_address(handle)!r} has another format. {_FORM}."
        )
    return module


# --- A feature module as a Keras 3 layer, which can be trained, frozen and saved.


class _Fixed(keras.Variable):
    """A variable that is never trained; only the module's graph may update it."""

    @property
    def trainable(self):
        return False

    @trainable.setter
    def trainable(self, value):
        pass


@keras.saving.register_keras_serializable(package="effdet_keras")
class HubFeatures(keras.layers.Layer):
    """Computes features with the graph and the variables of a feature module.

    Args:
        module: `HubModule` of a feature module.
        **kwargs: arguments of `keras.layers.Layer`, such as `name`. `dtype` is always
            float32.

    Call arguments:
        images: float32 tensor `[B, H, W, 3]`.

    Returns:
        Two lists, class features and box features, with one float tensor
        `[B, h, w, C]` per level.

    Raises:
        RuntimeError: If the Keras backend is not TensorFlow.
    """

    def __init__(self, module, **kwargs):
        require_tensorflow(
            f"The TF-Hub module {module.handle!r} is a graph of TensorFlow",
            "Set KERAS_BACKEND to 'tensorflow' before Keras is imported.",
        )
        kwargs = {"name": "hub_module", **kwargs, "dtype": "float32"}
        super().__init__(**kwargs)
        self.module = module
        self._graph_digest = module.graph_digest  # digest of the loaded graph
        used_paths = set()
        for variable in module.variables:
            self._track_variable(_wrapped(module, variable, used_paths))

    def build(self, input_shape):
        # The graph of a module may not state the shapes of its outputs.
        found = self.module.features_of(np.zeros((1, *input_shape[1:]), "float32"))
        self._shapes = tuple([tuple(x.shape[1:]) for x in levels] for levels in found)

    def call(self, images, training=False):
        is_training = bool(training) and bool(self.trainable_variables)
        found = self.module.features(images, training=is_training)
        return tuple(
            [ops.reshape(x, (-1, *shape)) for x, shape in zip(*pair)]
            for pair in zip(found, self._shapes)
        )

    def get_config(self):
        config = super().get_config()
        config.pop("dtype")
        config["handle"] = self.module.handle
        return {**config, "graph_digest": self._graph_digest}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        # Former versions called the digest "fingerprint", and some had none.
        digest = config.pop("fingerprint", None)
        digest = config.pop("graph_digest", digest)
        module = reopen_hub_module(config.pop("handle"), digest)
        return cls(module, **config)


def _wrapped(module, variable, used_paths):
    """Wraps a TensorFlow variable as a Keras variable with the same storage."""
    *scopes, name = _free_path(variable.name, used_paths).split("/")
    trains = module.is_trainable(variable)
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        kind = keras.Variable if trains else _Fixed
        return kind(  # shares the storage instead of a copy
            initializer=variable, trainable=trains, dtype=variable.dtype.name, name=name
        )


def _free_path(name, used_paths):
    """Turns a variable's name into a path that no other weight of the model has."""
    path = "/".join(part for part in name.split(":")[0].split("/") if part)
    if "-predict/" in path:  # a module may have layers that the model creates itself
        path = f"hub_module/{path}"
    unique, number = path, 1
    while unique in used_paths:
        unique, number = f"{path}_{number}", number + 1
    used_paths.add(unique)
    return unique
