"""The smallest `EfficientDet` that still has every part, its data, and a stand-in."""

import types

import keras
import numpy as np

from effdet_keras.export.drawn_weights import scale_kernels
from effdet_keras.network import backbone as variants
from effdet_keras.network import config as configuration
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.averages import WeightAverages

# EfficientNet-Lite's seven stages with one narrow block each. Most of a small test's
# time is the making of its graph, and this one has half as many operations as Lite0's.
BACKBONE = "efficientnet-lite-tiny"
variants._SCALES[BACKBONE] = (0.1, 0.1)
configuration.BACKBONES = (*configuration.BACKBONES, BACKBONE)
configuration._CHOICES["backbone"] = configuration.BACKBONES
LITE0 = "efficientnet-lite0"  # where files and modules are recognised by their backbone
# On TensorFlow a few steps are done before the graph of one is made.
EAGER = keras.backend.backend() == "tensorflow"


BOTH_HEADS = ("object_detection", "segmentation")


def tiny_model(*, backbone=BACKBONE, heads="object_detection", **arguments):
    """A detector of three classes on images of 64 x 64, with random weights.

    With a segmentation head it has four classes of pixels.
    """
    from effdet_keras.model.efficientdet import EfficientDet

    config = EfficientDetConfig.from_name(
        "efficientdet-lite0",
        backbone=backbone,
        image_size=64,
        max_level=5,
        fpn_num_filters=8,
        fpn_cell_repeats=1,
        head_repeats=1,
        num_classes=3,
        heads=heads,
        seg_num_classes=4,
    )
    return EfficientDet(config, **{"class_names": ("cat", "dog", "bird"), **arguments})


def batch(count=2, *, label=1, box=(8, 8, 40, 40), padding=0, dtype="float32"):
    """Images for `tiny_model` and their ground truth, as `fit` takes arrays.

    Each image has random pixels, one box, and `padding` rows that are no box.
    """
    images = np.random.default_rng(0).integers(0, 255, (count, 64, 64, 3))
    boxes = np.zeros((count, 1 + padding, 4), "float32")
    labels = np.full(
        (count, 1 + padding), -1, "int32" if isinstance(label, int) else "float32"
    )
    boxes[:, 0], labels[:, 0] = box, label
    return images.astype(dtype), {"boxes": boxes, "labels": labels}


def segmented_batch(count=2, **options):
    """`batch`, in which the pixels of the box have class 2 and the others class 0."""
    images, truth = batch(count, **options)
    masks = np.zeros((count, 64, 64), "uint8")
    y0, x0, y1, x1 = truth["boxes"][0, 0].astype(int)
    masks[:, y0:y1, x0:x1] = 2
    masks[:, :, 60:] = 255
    return images, {**truth, "masks": masks}


def values(variables):
    """Variables or tensors as new arrays."""
    return [np.array(keras.ops.convert_to_numpy(v)) for v in variables]


def without_stochastic_depth(model, *, batch_norm=True):
    """The model, without random draws: two runs of it are equal.

    Without `batch_norm` no statistics move, and an image's result does not depend on
    the others in its batch.
    """
    for layer in model._flatten_layers():
        if hasattr(layer, "survival_prob"):
            layer.survival_prob = 1.0
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = layer.trainable and batch_norm
    return model


class Stream(keras.utils.PyDataset):
    """Batches that nobody can look into before training."""

    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


class StandIn(keras.Sequential):
    """One weight, 1.0, and its average, 2.0: written and read in no time."""

    def __init__(self):
        super().__init__([keras.layers.Input((1,)), keras.layers.Dense(1)])
        self.config = types.SimpleNamespace(to_dict=dict)
        self.class_names = self.category_ids = None
        self.compile("sgd", "mse")
        self.layers[0].kernel.assign([[2.0]])
        self.averages = WeightAverages([self.layers[0].kernel])
        self.layers[0].kernel.assign([[1.0]])

    @property
    def weight(self):
        return float(keras.ops.convert_to_numpy(self.layers[0].kernel)[0, 0])


def lively_model(image_size=64, *, backbone=BACKBONE, **arguments):
    """A `tiny_model` that finds things: its last layers have large random weights."""
    from effdet_keras.model.efficientdet import EfficientDet

    small = tiny_model(backbone=backbone)
    config = small.config.replace(image_size=image_size)
    model = EfficientDet(config, **{"class_names": small.class_names, **arguments})
    boost = 3.0 if backbone == BACKBONE else 1.0  # its narrow layers say less
    rng = np.random.default_rng(7)
    for weight in model.weights:
        if "-predict/" in weight.path and weight.path.endswith("kernel"):
            scale = 2.0 if "class" in weight.path else 0.3
            weight.assign(boost * rng.normal(0.0, scale, weight.shape))
    return model


def spread_outputs(model, images, part, output, deviation):
    """Gives the outputs of a head this deviation, by its last layer's kernels."""
    outputs = model(images.astype("float32"))
    factor = deviation / np.std(keras.ops.convert_to_numpy(outputs[output]))
    scale_kernels(model, part, factor)


def spread(model, class_scale=3.5, box_scale=1.0):
    """Random last layers, so that there is something to find."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "predict" in weight.path and "kernel" in weight.path:
            scale = class_scale if "class" in weight.path else box_scale
            weight.assign(rng.normal(0, scale, weight.shape))
        if "class-predict/bias" in weight.path:
            weight.assign(np.full(weight.shape, -2.0))
    return model


def lively_segmentation(*, heads=BOTH_HEADS, **arguments):
    """A `tiny_model` whose segmentation head finds several classes."""
    model = tiny_model(heads=heads, **arguments)
    rng = np.random.default_rng(3)
    for weight in model.weights:
        if weight.path.startswith("segmentation_head/") and "kernel" in weight.path:
            weight.assign(rng.normal(0.0, 0.5, weight.shape))
    return model
