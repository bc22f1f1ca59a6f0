"""OpenVINO files: what they compute, and those that cannot be opened."""

import shutil

import keras
import numpy as np
import pytest
from support.tiny import lively_model

from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.registry import FORMATS
from effdet_keras.export.runtime import open_runtime

# test_every_format.py runs such files in short tests as well.
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
openvino = pytest.importorskip("openvino")
pytest.importorskip("tf2onnx")

IMAGE_SIZE = (64, 96)
HARD = Postprocess(method="hard", score_threshold=0.2)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return lively_model(IMAGE_SIZE)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (3, *IMAGE_SIZE, 3)).astype("float32")


@pytest.fixture(scope="module")
def path(model, images, tmp_path_factory):
    """An export with all of the default options, NMS as a loop, put in its place."""
    path = tmp_path_factory.mktemp("openvino") / "pets.xml"
    report = model.export(path, images=list(images), verbose=0)
    assert report.live_detections > 30
    assert report.matched == report.live_detections
    (weights,) = FORMATS["openvino"].files_beside(path)
    assert report.files[:2] == (weights.name, path.name)
    return path


@pytest.fixture(scope="module")
def half_path(model, tmp_path_factory):
    """Raw outputs, a batch of three, weights of 16 bits."""
    from effdet_keras.export.openvino import write_openvino

    path = tmp_path_factory.mktemp("openvino") / "half.xml"
    options = {"outputs": "raw", "batch_size": 3, "precision": "float16"}
    write_openvino(model, path, **options, postprocess=HARD)
    return path


def test_raw_outputs_with_half_weights(path, half_path, model, images):
    runtime = open_runtime(half_path)
    found = runtime.run(images)
    for name, value in model(images).items():
        value = keras.ops.convert_to_numpy(value)
        assert found[name].dtype == np.float32
        # 11 bits of a weight, in sums of some hundred.
        np.testing.assert_allclose(found[name], value, atol=0.02 * np.abs(value).max())
    description = runtime.description
    assert (description.precision, description.batch_size) == ("float16", 3)
    assert (description.config, description.postprocess) == (model.config, HARD)
    sizes = [file.with_suffix(".bin").stat().st_size for file in (half_path, path)]
    assert sizes[0] < 0.52 * sizes[1]


def test_what_is_no_export_of_ours_is_told(path, tmp_path):
    shutil.copy(path, tmp_path)
    with pytest.raises(FileNotFoundError, match="pets.bin"):
        open_runtime(tmp_path / "pets.xml")
    x = openvino.opset13.parameter([1, 2], np.float32)
    other = openvino.Model([openvino.opset13.relu(x)], [x])
    openvino.save_model(other, tmp_path / "other.xml")
    with pytest.raises(
        ValueError,
        match="other.xml' is damaged, or `EfficientDet.export` did not write it",
    ):
        open_runtime(tmp_path / "other.xml")
