"""Makes a model of a TF-Hub module: our network if it is equal, else the module."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import shown_address
from effdet_keras.data.dataset import checked_class_names
from effdet_keras.detect.detect import Images, ScoreRule, image_sources, load_rgb
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import InvalidValueError, printable
from effdet_keras.hub.export import network_features
from effdet_keras.hub.module import HubFeatures, detector_form, open_hub_module
from effdet_keras.letterbox import boxes_in_image, letterbox_array
from effdet_keras.network.anchors import level_sizes
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.assign import assign_source
from effdet_keras.weights.identify import holds_more, match_arrays
from effdet_keras.weights.network_arrays import TF1, WeightSource

_ALL_BUT_NEW_LAYERS = r"(?!(class_net/class|box_net/box)-predict/)"
# The features of two graphs of the same network differ only by rounding, by 1e-5 of the
# largest. With one different activation or pooling, they differ by more than a tenth.
_SAME = 1e-3


def from_hub(
    cls,
    handle,
    *,
    num_classes,
    class_names,
    category_ids,
    trainable,
    model_name,
    verbose,
    overrides,
):
    """Implements `EfficientDet.from_hub`; see there. `cls` is `EfficientDet`."""
    if class_names is not None:
        class_names = checked_class_names(class_names, "`class_names`")
    module = open_hub_module(handle)
    if detector_form(module) is not None:
        _print_kind(verbose, module, "a detector, which can be used only with `detect`")
        return HubDetector(module, class_names, category_ids)
    if num_classes is None and class_names is None:
        raise InvalidValueError(
            f"The module {shown_address(module.handle)!r} returns features, so the "
            "classes of the new last layers must be given with `num_classes` or "
            "`class_names`."
        )
    overrides["num_classes"] = num_classes or len(class_names)
    classes = {"class_names": class_names, "category_ids": category_ids}
    model = _own_network(cls, module, model_name, overrides, classes, verbose)
    if model is None:
        config = _config_of_graph(module, model_name, overrides)
        check_features(module, config)
        model = cls(config, **classes, features=HubFeatures(module))
        count = len(model.features.weights)
        _print_kind(verbose, module, f"its own graph with {count} weights")
        model.pretrained = "detector"
    if not trainable:
        model.freeze(_ALL_BUT_NEW_LAYERS)
    return model


def check_features(module, config):
    images = np.zeros((1, *config.image_size, 3), "float32")
    sizes = level_sizes(config.image_size, config.min_level, config.max_level)
    expected = [tuple(size) for size in sizes]
    for features in module.features_of(images):
        found = [tuple(x.shape[1:3]) for x in features]
        if found != expected:
            raise InvalidValueError(
                f"The module {shown_address(module.handle)!r} returns features of the "
                f"sizes {found} for an image of {config.image_size}. Expected: "
                f"{expected}, for the levels {config.min_level} to {config.max_level}. "
                "Pass the `min_level`, `max_level` and `image_size` of the module."
            )


def _own_network(cls, module, model_name, overrides, classes, verbose):
    """Returns our network with the module's weights; None if the module differs."""
    weights = [v for v in module.variables if v.dtype.is_floating]  # no random state
    arrays = {v.name.split(":")[0]: v.numpy() for v in weights}
    source = WeightSource(module.handle, "TF-Hub module", TF1, arrays)
    config = _matching_config(module, source, model_name, overrides)
    if config is None:
        return None
    # A module with a fixed image size is compared at that size. Modules compute in
    # float32.
    probed = config.replace(image_size=module.fixed_size or config.image_size)
    is_float32 = keras.config.dtype_policy().name == "float32"
    model = cls(probed, **classes, dtype=None if is_float32 else "float32")
    report = assign_source(model, source, skip_mismatch=True)
    if not _computes_the_same(model, module):
        warnings.warn(
            f"The module {shown_address(module.handle)!r} has the weights of "
            f"{config.name}, but does not compute the same with them, so its own graph "
            "is used. If it is that model with other options, such as `activation`, "
            "pass these options.",
            stacklevel=4,
        )
        return None
    if probed != config or not is_float32:
        weights = model.get_weights()
        model = cls(config, **classes)
        model.set_weights(weights)
    model.pretrained = "detector of other classes"  # a module has no output layers
    text = f"{report.num_loaded} weights of {config.name}, in this package's network"
    _print_kind(verbose, module, text)
    return model


def _matching_config(module, source, model_name, overrides):
    """Returns the config whose weights match the module's, or None."""
    if module.notes is not None:
        fields = {**module.notes["config"], **overrides}
        configs = [EfficientDetConfig(**fields)]
    else:
        names = MODEL_NAMES if model_name is None else [model_name]
        configs = [c for n in names if (c := _config(n, overrides)) is not None]
        if model_name is None:  # only google/automl has modules, PyTorch effdet has not
            configs = [c for c in configs if c.backbone_padding == "same"]
    fitting = [config for config in configs if _fits(source, config)]
    if len(fitting) > 1:
        names = [config.name for config in fitting]
        raise InvalidValueError(
            f"The weights of the module {shown_address(module.handle)!r} fit several "
            f"models, {' and '.join(names)}: choose one with `model_name`."
        )
    return fitting[0] if fitting else None


def _config(name, overrides):
    try:
        return EfficientDetConfig.from_name(name, **overrides)
    except ValueError:
        return None


def _fits(source, config):
    match = match_arrays(source, config)
    others = (array.name for array in match.missing)
    wrong = [*others, *match.mismatched]
    return not holds_more(match.left_over) and all("-predict/" in n for n in wrong)


def _computes_the_same(model, module):
    size = model.config.image_size
    images = np.random.default_rng(0).normal(size=(1, *size, 3)).astype("float32")
    of_module = _flat(module.features_of(images))
    of_model = _flat(network_features(model, images))
    if [x.shape for x in of_model] != [x.shape for x in of_module]:
        return False
    pairs = list(zip(of_model, of_module))
    return all(np.abs(a - b).max() <= _SAME * np.abs(b).max() for a, b in pairs)


def _flat(features):
    return [ops.convert_to_numpy(x) for levels in features for x in levels]


def _config_of_graph(module, model_name, overrides):
    if module.fixed_size is not None:
        overrides = {"image_size": module.fixed_size, **overrides}
    if module.notes is not None and model_name is None:
        return EfficientDetConfig(**{**module.notes["config"], **overrides})
    return EfficientDetConfig.from_name(model_name or MODEL_NAMES[0], **overrides)


def _print_kind(verbose, module, text):
    if verbose:
        line = f"From TF-Hub module {shown_address(module.handle)}: {text}"
        print(printable(line), flush=True)


# --- A complete detector from TF-Hub, from images to `Detections`, not trainable.

# The names of the outputs (boxes, scores, classes). Boxes of the Object Detection API
# ("detection") are fractions of the image. Boxes of google/automl's inspector
# ("output") are pixels.
_OUTPUTS = {
    "detection": ("detection_boxes", "detection_scores", "detection_classes"),
    "output": ("output_0", "output_1", "output_2"),
}


_PARSING = ("ParseExample", "ParseSingleExample")  # start of operation names


class HubDetector:
    """A detector module, such as `https://tfhub.dev/tensorflow/efficientdet/d0/1`.

    Args:
        module: `HubModule` of a detector.
        class_names: class names in the order of the labels, or None.
        category_ids: category ids, one per label, or None.

    Raises:
        ValueError: If the module does not take one tensor of images or of strings.
    """

    def __init__(self, module, class_names=None, category_ids=None):
        self.module = module
        self.class_names = None if class_names is None else tuple(class_names)
        self.category_ids = None if category_ids is None else tuple(category_ids)
        self._form = detector_form(module)
        self._signature = module.loaded.signatures["serving_default"]
        _, inputs = self._signature.structured_input_signature
        self._input_name, self._input = _only_input(module, inputs)

    def detect(
        self,
        images: Images,
        score_threshold: float = 0.3,
        *,
        batch_size: int = 1,
        verbose: int | str = "auto",
        classes: Sequence[str | int] | None = None,
    ) -> Detections | list[Detections]:
        """Detects objects in images of any size; see `EfficientDet.detect`.

        Images are processed one by one. `batch_size` and `verbose` have no effect.
        """
        rule = ScoreRule(self, score_threshold, classes=classes)  # "best" is an error
        sources, is_single = image_sources(images)
        found = [rule.applied_to(self._detect(source)) for source in sources]
        return found[0] if is_single else found

    def _detect(self, source):
        """Returns the detections in one image, boxes in its pixels."""
        image = load_rgb(source)
        inputs, size, scale = self._inputs(image)
        outputs = self._signature(**{self._input_name: inputs})
        boxes, scores, classes = (
            np.asarray(outputs[n][0]) for n in _OUTPUTS[self._form]
        )
        if self._form == "detection":
            boxes = boxes * np.tile(size, 2)
        kept = np.flatnonzero(scores > 0)
        return Detections(
            boxes=boxes_in_image(boxes[kept], scale, image.shape[:2]),
            scores=scores[kept],
            labels=classes[kept].round().astype("int32") - 1,
            class_names=self.class_names,
            category_ids=self.category_ids,
            image=source if isinstance(source, str) else image,
        )

    def _inputs(self, image):
        """Returns the input, the image's size, and image pixels per input pixel."""
        if self._input.dtype == tf.string:
            return self._encoded(image), image.shape[:2], 1.0
        batch, *size, _ = self._input.shape
        scale = 1.0
        if None not in size:
            image, scale = letterbox_array(image, tuple(size), (0.0, 0.0, 0.0))
        dtype = self._input.dtype
        if not dtype.is_floating:
            image = _whole_pixels(image)
        images = np.repeat(np.asarray(image, dtype.as_numpy_dtype)[None], batch or 1, 0)
        return tf.constant(images), image.shape[:2], scale

    def _encoded(self, image):
        """Encodes the image as PNG, in a `tf.train.Example` if the module parses it."""
        file = tf.io.encode_png(_whole_pixels(image).astype("uint8")).numpy()
        if _parses_examples(self._signature.graph):
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[file]))
            features = tf.train.Features(feature={"image/encoded": feature})
            file = tf.train.Example(features=features).SerializeToString()
        return tf.constant([file] * (self._input.shape[0] or 1))


def _only_input(module, inputs):
    """Returns the name and `tf.TensorSpec` of the only input of a detector.

    Raises:
        ValueError: If there are several inputs, or it is not images or strings.
    """
    (name, spec), *others = inputs.items()
    rank = spec.shape.rank
    if others or rank != (1 if spec.dtype == tf.string else 4):
        found = {name: (spec.shape, spec.dtype.name) for name, spec in inputs.items()}
        raise InvalidValueError(
            f"The inputs of the detector {shown_address(module.handle)!r} are {found}. "
            "Expected: one tensor, either of images [batch, height, width, 3], or of "
            "strings [batch], each of which is an image file or a `tf.train.Example`."
        )
    return name, spec


def _parses_examples(graph):
    definition = graph.as_graph_def()
    functions = (function.node_def for function in definition.library.function)
    nodes = itertools.chain(definition.node, *functions)
    return any(node.op.startswith(_PARSING) for node in nodes)


def _whole_pixels(image):
    return np.clip(np.round(image), 0, 255)
