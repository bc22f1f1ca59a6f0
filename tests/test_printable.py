"""Names come from others: a terminal never gets the control characters in them."""

import json
import warnings

import numpy as np
import pytest
from PIL import Image
from support.tiny import LITE0, lively_model
from support.torch_files import write_zip

import effdet_keras as ek
from effdet_keras.cli import main
from effdet_keras.detect.evaluate import image_results
from effdet_keras.errors import InvalidValueError, printable
from effdet_keras.weights.archive import write_archive

CLEAR = "\x1b[2J"  # which clears a terminal
NAMES = (f"cat{CLEAR}", "dog\x9b31m", "b\u202ebird")


@pytest.fixture(scope="module")
def model():
    return lively_model(backbone=LITE0, class_names=NAMES)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A COCO file and its image, with such names."""
    folder = tmp_path_factory.mktemp("data")
    name = f"a{CLEAR}.png"
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), "uint8")
    Image.fromarray(pixels).save(folder / name)
    boxes = [(0, 0, 30, 30), (70, 70, 20, 20)]  # the second is outside of its image
    content = {
        "images": [{"id": 1, "file_name": name, "height": 64, "width": 64}],
        "categories": [{"id": i + 1, "name": text} for i, text in enumerate(NAMES)],
        "annotations": [
            {"id": i, "image_id": 1, "category_id": 1, "bbox": box, "area": 9}
            for i, box in enumerate(boxes, 1)
        ],
    }
    (folder / "train.json").write_text(json.dumps(content))
    return folder


def assert_harmless(text):
    assert "cat" in text or "a\\x1b" in text or "kernel" in text
    assert not set(text) & set("\x1b\x9b\u202e\x07\r")


def test_what_is_escaped_and_what_is_left():
    assert printable("a\x00b\x7f\x9b\x1b[0m\r") == r"a\x00b\x7f\x9b\x1b[0m\r"
    assert printable("\u202ecat\u2066\u2028") == r"\u202ecat\u2066\u2028"
    assert printable("\udcff.jpg") == r"\udcff.jpg"  # not UTF-8 in a file name
    for text in ("a\tb\n", "Übergröße", "\u4eba", "na\u0131ve \U0001f431", "\u200d"):
        assert printable(text) == text


def test_errors_of_this_package_are_harmless():
    assert str(InvalidValueError(f"cat{CLEAR}")) == r"cat\x1b[2J"


def test_what_python_shows_of_models_and_datasets(model, data, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = ek.data.from_coco(data / "train.json", data, on_error="skip")
    assert_harmless(" ".join(str(warning.message) for warning in caught))
    assert_harmless(repr(dataset))
    assert_harmless(dataset.summary())
    assert_harmless(str(ek.data.check(dataset)))
    found = model.detect(np.zeros((64, 64, 3), "uint8"), score_threshold=0.0)
    assert_harmless(repr(found))
    evaluation = ek.metrics.analyze_results(
        image_results(ek.Predictor(model), dataset), NAMES
    )
    assert_harmless(str(evaluation))
    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    other = lively_model(backbone=LITE0, class_names=(NAMES[0], "x", "y", "z")[:3])
    report = other.load_pretrained(path, class_names=NAMES, verbose=0)
    assert_harmless(str(report))


def test_what_commands_print(model, data, tmp_path, capsys):
    write_archive(model, tmp_path / "a.keras")
    state = {"conv_stem.weight": np.ones((32, 3, 3, 3), "float32")}
    state[f"kernel{CLEAR}.weight"] = np.ones(3, "float32")
    write_zip(tmp_path / "a.pth", state)
    image = str(next(data.glob("*.png")))
    commands = [
        ["inspect-weights", str(tmp_path / "a.keras"), "--all"],
        ["inspect-weights", str(tmp_path / "a.pth"), "--all"],
        ["inspect", str(data / "train.json")],
        ["predict", str(tmp_path / "a.keras"), image, "--score", "0"],
        ["predict", str(tmp_path / "a.keras"), f"{image}.gone"],
        ["eval", str(tmp_path / "a.keras"), str(data / "train.json")],
    ]
    for command in commands:
        main(command)
        shown = capsys.readouterr()
        assert_harmless(shown.out + shown.err)
