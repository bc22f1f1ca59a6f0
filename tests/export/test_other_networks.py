"""What effdet's own models have goes into every format: the same is found."""

import functools

import numpy as np
import pytest
from support.other_networks import NETWORKS, noise, other_model

import effdet_keras as ek

pytestmark = pytest.mark.tensorflow

FORMATS = {
    "pets": "tensorflow",
    "pets.tflite": "ai_edge_litert",
    "pets.onnx": "onnxruntime",
    "pets.xml": "openvino",
}
USUAL = [("qufpn", "pets.tflite"), ("qufpn", "pets.onnx")]


@functools.cache
def model_of(network):
    return other_model(network)


@pytest.mark.parametrize(
    "network, file",
    [
        pytest.param(
            *(network, file),
            marks=[] if (network, file) in USUAL else [pytest.mark.slow],
        )
        for network in NETWORKS
        for file in FORMATS
    ],
)
def test_an_export_finds_what_the_model_finds(tmp_path, network, file):
    pytest.importorskip(FORMATS[file])
    model, images = model_of(network), noise(3)
    model.export(tmp_path / file, images=images, verbose=0)
    predictor = ek.Predictor.load(tmp_path / file)
    assert predictor.config == model.config
    # LiteRT has settings of its own: docs/export_litert.md.
    live = ek.EfficientDet(
        model.config,
        class_names=model.class_names,
        postprocess=predictor.detector.postprocess,
    )
    live.set_weights(model.get_weights())
    for image in images:
        found, expected = predictor.detect(image, 0.2), live.detect(image, 0.2)
        assert len(expected) > 5
        for some, others in ((found, expected), (expected, found)):
            for one in some.filter(0.21):
                gaps = np.abs(others.boxes - one.boxes).max(axis=1)
                scores = np.abs(others.scores - one.scores)
                same = (others.labels == one.labels) & (gaps < 0.05) & (scores < 2e-3)
                assert same.any(), one
