"""Targets convert what training makes of a model: batch norms that differ.

A model of Lite0's size that was trained on blood cells could not be exported to ncnn or
ExecuTorch, where untrained models could: the heads share kernels over levels that have
batch norms of their own, which XNNPACK folded into the shared kernels; and pnnx padded
a map of 3 x 4 wrongly.
"""

import keras
import pytest
from support.tiny import tiny_model

import effdet_keras as ek
from effdet_keras.export.drawn_weights import draw_weights
from effdet_keras.model.efficientdet import EfficientDet

pytestmark = pytest.mark.tensorflow

TARGETS = {  # the packages and the options that each needs
    "browser": (["onnxruntime"], {}),
    "coreml": (["coremltools"], {"precision": "float32"}),
    "executorch": (["executorch"], {}),
    "mnn": (["MNN"], {"precision": "float32"}),
    "ncnn": (["ncnn", "pnnx"], {"precision": "float32"}),
    "tensorrt": (["onnxruntime"], {}),
}
SIZE = (96, 128)  # levels 3 to 6 are 12 x 16, 6 x 8, 3 x 4 and 2 x 2


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(0)
    tiny = tiny_model()
    config = tiny.config.replace(image_size=SIZE, max_level=6, head_repeats=2)
    return draw_weights(EfficientDet(config, class_names=tiny.class_names))


@pytest.fixture(scope="module")
def full_size():
    keras.utils.set_random_seed(0)
    return draw_weights(
        ek.EfficientDet.from_preset(
            "efficientdet-lite0",
            weights=None,
            image_size=(192, 256),
            class_names=["cat", "dog", "bird"],
        )
    )


def check(model, target, folder):
    packages, options = TARGETS[target]
    for package in packages:
        pytest.importorskip(package)
    report = model.export(folder / "pets", target=target, verbose=0, **options)
    assert report.precision == "float32"
    assert report.matched == report.live_detections > 50
    assert report.max_score_difference < 5e-4
    for difference in (report.max_output_difference or {}).values():
        assert difference < 5e-4


@pytest.mark.extra_packages
@pytest.mark.parametrize("target", TARGETS)
def test_a_small_model_like_a_trained_one(small, target, tmp_path):
    check(small, target, tmp_path)


@pytest.mark.slow
@pytest.mark.extra_packages
@pytest.mark.parametrize("target", TARGETS)
def test_a_whole_lite0_like_a_trained_one(full_size, target, tmp_path):
    check(full_size, target, tmp_path)
