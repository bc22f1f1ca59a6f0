"""ONNX files: what they compute, what they say of themselves, and who can run them."""

import contextlib
import json
import logging
import pathlib
import re
import sys

import keras
import numpy as np
import pytest
from PIL import Image
from support.tiny import lively_model

from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.check import check_export
from effdet_keras.export.registry import open_runtime

pytestmark = pytest.mark.tensorflow
onnx = pytest.importorskip("onnx")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")

IMAGE_SIZE = (64, 96)
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "export_onnx.md"
HARD = Postprocess(method="hard", score_threshold=0.2, max_detections=40)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return lively_model(IMAGE_SIZE)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (*IMAGE_SIZE, 3)).astype("uint8") for _ in range(3)]


@pytest.fixture(scope="module")
def files(model, tmp_path_factory):
    """name -> path; each is converted once."""
    from effdet_keras.export.onnx import write_onnx

    folder = tmp_path_factory.mktemp("onnx")
    options = {
        "free": {},
        "raw": {"outputs": "raw", "batch_size": 3, "opset": 18, "postprocess": HARD},
    }
    for name, values in options.items():
        write_onnx(model, folder / f"{name}.onnx", **values)
    return {name: folder / f"{name}.onnx" for name in options}


@pytest.mark.parametrize("name", ["free", "raw"])
def test_a_file_finds_what_the_model_does(files, model, images, name):
    report = check_export(model, open_runtime(files[name]), images, format="onnx")
    assert report.live_detections > 30
    assert report.matched == report.live_detections
    assert report.max_box_difference < 0.01


def test_what_a_file_says_of_itself(files, model):
    file = onnx.load(files["raw"])
    assert file.producer_name == "effdet_keras" and file.producer_version
    assert {o.domain: o.version for o in file.opset_import}[""] == 18
    properties = {p.key: p.value for p in file.metadata_props}
    assert properties["names"] == "{0: 'cat', 1: 'dog', 2: 'bird'}"
    assert json.loads(properties["effdet_keras.json"])["batch_size"] == 3
    description = open_runtime(files["raw"]).description
    assert description.config == model.config
    assert description.class_names == model.class_names
    assert description.postprocess == HARD


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        (
            "free",
            {
                "images": ("batch", *IMAGE_SIZE, 3),
                "boxes": ("batch", 100, 4),
                "scores": ("batch", 100),
                "labels": ("batch", 100),
                "num_detections": ("batch",),
            },
        ),
        (
            "raw",
            {
                "images": (3, *IMAGE_SIZE, 3),
                "class_logits": (3, 1134, 3),
                "box_deltas": (3, 1134, 4),
            },
        ),
    ],
)
def test_inputs_and_outputs_have_names_and_shapes(files, name, shapes):
    graph = onnx.load(files[name]).graph
    found = {
        value.name: tuple(
            axis.dim_param or axis.dim_value
            for axis in value.type.tensor_type.shape.dim
        )
        for value in [*graph.input, *graph.output]
    }
    assert found == shapes


def test_the_nodes_are_those_that_runtimes_are_fast_with(files):
    graph = onnx.load(files["raw"]).graph
    kinds = [node.op_type for node in graph.node]
    # One transpose for the images, one for each head and level.
    assert kinds.count("Transpose") == 1 + 2 * 3
    assert graph.node[0].op_type == "Transpose" and graph.node[0].input[0] == "images"
    resizes = [node for node in graph.node if node.op_type == "Resize"]
    modes = {a.s for n in resizes for a in n.attribute if a.name.startswith("coord")}
    assert modes == {b"asymmetric"}  # not the deprecated `tf_half_pixel_for_nn`


def test_the_plain_code_of_the_guide_finds_what_detect_does(
    files, model, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("cv2")
    rng = np.random.default_rng(5)
    coarse = Image.fromarray(rng.integers(0, 255, (9, 12, 3)).astype("uint8"))
    coarse.resize((130, 75)).save(tmp_path / "cat.png")
    (tmp_path / "pets.onnx").write_bytes(files["free"].read_bytes())
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (code,) = [block for block in blocks if "InferenceSession" in block]
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace("cat.jpg", "cat.png"), PAGE.name, "exec"), {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    expected = model.detect(tmp_path / "cat.png", score_threshold=0.3)
    assert len(expected) > 10
    assert [line[0] for line in lines] == [
        model.class_names[label] for label in expected.labels
    ]
    numbers = np.array([[float(x) for x in line[1:]] for line in lines])
    np.testing.assert_allclose(numbers[:, 0], expected.scores, atol=2e-3)
    np.testing.assert_allclose(numbers[:, 1:], expected.boxes, atol=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": "boxes"}, "`outputs` must be one of"),
        ({"batch_size": 0}, "`batch_size` must be 1 or more"),
        ({"opset": 12}, "`opset` must be 13 to 18"),
    ],
)
def test_options_that_cannot_be(model, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / "pets.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_a_missing_converter_is_told_with_its_cure(model, tmp_path, monkeypatch):
    from effdet_keras.export.onnx import write_onnx

    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=re.escape('"effdet-keras[onnx]"')):
        write_onnx(model, tmp_path / "pets.onnx")


def test_the_converter_is_quiet_and_keeps_its_level():
    from effdet_keras.export.onnx import _quiet

    logger = logging.getLogger("tf2onnx")
    before = logger.level
    with contextlib.suppress(RuntimeError), _quiet("tf2onnx"):
        assert not logger.isEnabledFor(logging.WARNING)
        raise RuntimeError
    assert logger.level == before
