"""Programs of `torch.export`, `.pt2`: written on TensorFlow, run by torch alone."""

import json
import zipfile

import keras
import numpy as np
import pytest
from support.tiny import lively_model, spread_outputs

import effdet_keras as ek
from effdet_keras.export.runtime import open_runtime

pytestmark = pytest.mark.tensorflow
SIZE = (64, 96)


def noise(count):
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (count, *SIZE, 3), "uint8")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = lively_model(SIZE)
    spread_outputs(model, noise(2), "class-predict", "class_logits", 1.7)
    spread_outputs(model, noise(2), "box-predict", "box_deltas", 0.3)
    return model


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("torch") / "pets.pt2"
    report = model.export(path, images=list(noise(2)), verbose=0)
    assert (report.format, report.outputs) == ("torch", "raw")
    return path


@pytest.mark.extra_packages
def test_torch_alone_computes_what_the_model_does(file, model):
    torch = pytest.importorskip("torch")
    notes = {"outputs.json": "", "effdet_keras.json": ""}
    program = torch.export.load(file, extra_files=notes)
    assert json.loads(notes["effdet_keras.json"])["class_names"] == [
        "cat",
        "dog",
        "bird",
    ]
    for count in (1, 3):
        images = noise(count).astype("float32")
        planes = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        values = program.module()(planes)
        found = dict(zip(json.loads(notes["outputs.json"]), values, strict=True))
        for name, value in model(images, training=False).items():
            expected = keras.ops.convert_to_numpy(value)
            assert expected.std() > 0.1
            np.testing.assert_allclose(found[name].detach(), expected, atol=1e-4)


@pytest.mark.extra_packages
def test_a_program_is_opened_as_any_other_file(file, model):
    predictor = ek.Predictor.load(file)
    found = predictor.detect(noise(1)[0], 0.3)
    expected = model.detect(noise(1)[0], 0.3)
    assert len(expected) > 3
    np.testing.assert_allclose(found.boxes, expected.boxes, atol=0.01)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    with pytest.warns(UserWarning, match="num_threads"):
        open_runtime(file, num_threads=1)


@pytest.mark.extra_packages
def test_a_damaged_program_is_told_and_a_whole_one_is_a_right_archive(file, tmp_path):
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    path = tmp_path / "damaged.pt2"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged\.pt2.*damaged"):
        open_runtime(path)
