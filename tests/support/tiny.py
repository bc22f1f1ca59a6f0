"""The smallest `EfficientDet` that still has every part, its data, and a stand-in."""

import types

import keras
import numpy as np

from effdet_keras import config as configuration
from effdet_keras.backbones import variants
from effdet_keras.config import EfficientDetConfig
from effdet_keras.training.ema import WeightAverages

# EfficientNet-Lite's seven stages with one narrow block each. Most of a small test's
# time is the making of its graph, and this one has half as many operations as Lite0's.
BACKBONE = "efficientnet-lite-tiny"
variants._SCALES[BACKBONE] = (0.1, 0.1)
configuration.BACKBONES = (*configuration.BACKBONES, BACKBONE)
LITE0 = "efficientnet-lite0"  # where files and modules are recognised by their backbone
# On TensorFlow a few steps are done before the graph of one is made.
EAGER = keras.backend.backend() == "tensorflow"


def tiny_model(*, backbone=BACKBONE, **arguments):
    """A detector of three classes on images of 64 x 64, with random weights."""
    from effdet_keras.models import EfficientDet

    config = EfficientDetConfig.from_name(
        "efficientdet-lite0",
        backbone=backbone,
        image_size=64,
        max_level=5,
        fpn_num_filters=8,
        fpn_cell_repeats=1,
        head_repeats=1,
        num_classes=3,
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
    from effdet_keras.models import EfficientDet

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
