"""ONNX files: what they compute, what they say of themselves, and who can run them."""

import json
import pathlib
import re
import sys

import keras
import numpy as np
import pytest
from PIL import Image
from support.tiny import lively_model

from effdet_keras._internal.checksum import (
    CHECKSUM_NAME,
    WITHOUT_CHECKSUM,
    write_checksum,
)
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.check import check_export
from effdet_keras.export.onnx import _PROVIDERS, onnx_postprocess, write_onnx
from effdet_keras.export.runtime import DESCRIPTION_NAME, Description, open_runtime
from effdet_keras.network.anchors import anchors_of
from effdet_keras.network.config import EfficientDetConfig

pytestmark = pytest.mark.tensorflow
onnx = pytest.importorskip("onnx")
pytest.importorskip("tf2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

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
    folder = tmp_path_factory.mktemp("onnx")
    options = {
        "free": {},
        "raw": {
            "outputs": "raw",
            "batch_size": 3,
            "postprocess": HARD,
            "input_dtype": "uint8",
            "opset": 18,
        },
    }
    for name, values in options.items():
        write_onnx(model, folder / f"{name}.onnx", **values)
    return {name: folder / f"{name}.onnx" for name in options}


@pytest.mark.parametrize(("name", "opset"), [("free", 17), ("raw", 18)])
def test_a_file_has_the_opset_that_was_asked_for(files, name, opset):
    file = onnx.load(files[name])
    assert {o.domain: o.version for o in file.opset_import}[""] == opset


def test_a_file_of_bytes_takes_pixels_as_they_are(files, model, images):
    session = onnxruntime.InferenceSession(files["raw"])
    assert [source.type for source in session.get_inputs()] == ["tensor(uint8)"]
    batch = np.stack(images)
    logits, _ = session.run(["class_logits", "box_deltas"], {"images": batch})
    expected = keras.ops.convert_to_numpy(model(batch)["class_logits"])
    np.testing.assert_allclose(logits, expected, atol=1e-3)
    # What `detect` gives it has fractions, which are rounded.
    runtime = open_runtime(files["raw"])
    assert runtime.input_dtype == "uint8"
    found = runtime.run(batch + np.float32(0.4))
    np.testing.assert_array_equal(found["class_logits"], logits)


# Of files with detections: test_every_format.py.
@pytest.mark.smoke
def test_a_raw_file_finds_what_the_model_does(files, model, images):
    report = check_export(model, open_runtime(files["raw"]), images, format="onnx")
    assert report.live_detections > 30
    assert report.matched == report.live_detections
    assert report.max_box_difference < 0.01


def test_what_a_file_says_of_itself(files, model):
    file = onnx.load(files["raw"])
    assert file.producer_name == "effdet_keras" and file.producer_version
    properties = {p.key: p.value for p in file.metadata_props}
    assert properties["names"] == "{0: 'cat', 1: 'dog', 2: 'bird'}"
    assert json.loads(properties["effdet_keras.json"])["batch_size"] == 3
    description = open_runtime(files["raw"]).description
    assert description.config == model.config
    assert description.class_names == model.class_names
    assert description.postprocess == HARD


def test_inputs_and_outputs_have_names_and_shapes(files):
    def shapes_of(name):
        graph = onnx.load(files[name]).graph
        return {
            value.name: tuple(
                axis.dim_param or axis.dim_value
                for axis in value.type.tensor_type.shape.dim
            )
            for value in [*graph.input, *graph.output]
        }

    assert shapes_of("free") == {
        "images": ("batch", *IMAGE_SIZE, 3),
        "boxes": ("batch", 100, 4),
        "scores": ("batch", 100),
        "labels": ("batch", 100),
        "num_detections": ("batch",),
    }
    assert shapes_of("raw") == {
        "images": (3, *IMAGE_SIZE, 3),
        "class_logits": (3, 1134, 3),
        "box_deltas": (3, 1134, 4),
    }


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


def test_what_cannot_be_is_told(model, tmp_path, monkeypatch):
    with pytest.raises(
        ValueError, match="`batch_size` must be a whole number of at least 1"
    ):
        model.export(tmp_path / "pets.onnx", batch_size=0)
    message = r"`opset` must be a whole number from 13 to 18.*Received: opset=12"
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / "pets.onnx", opset=12)
    message = r"`input_dtype` must be.*'uint8'.*Received: input_dtype='int8'"
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / "pets.onnx", input_dtype="int8")
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=re.escape('"effdet-keras[onnx]"')):
        write_onnx(model, tmp_path / "pets.onnx")
    assert not list(tmp_path.iterdir())


# The nodes of `Postprocess` against `Postprocess` itself.

CONFIG = EfficientDetConfig.from_name(
    "efficientdet-lite0", image_size=(64, 96), max_level=5, num_classes=3
)
ANCHORS = anchors_of(CONFIG)
OPTIONS = [
    {},
    {"sigma": 0.2, "score_threshold": 0.3, "max_detections": 20},
    {"per_class": False},
    {"pre_nms_top_k": 0},
    {"pre_nms_top_k": 15, "max_detections": 30, "clip": False},
    {"method": "hard"},
    {"method": "hard", "per_class": False, "max_detections": 10, "iou_threshold": 0.2},
    {"method": "hard", "pre_nms_top_k": 0, "score_threshold": 0.5},
    {"method": "hard", "pre_nms_top_k": 15, "max_detections": 30, "clip": False},
]


@pytest.fixture(scope="module")
def outputs():
    """Of three images; boxes reach over the border."""
    rng = np.random.default_rng(3)
    shape = (3, len(ANCHORS))
    return {
        "class_logits": rng.normal(-1.0, 1.5, (*shape, 3)).astype("float32"),
        "box_deltas": rng.normal(0.0, 0.4, (*shape, 4)).astype("float32"),
    }


def session_of(postprocess, opset=17):
    graph = onnx_postprocess(postprocess, ANCHORS, CONFIG, opset)
    kind = "NonMaxSuppression" if postprocess.method == "hard" else "Loop"
    kinds = {node.op_type for node in graph.node}
    assert kinds & {"NonMaxSuppression", "Loop"} == {kind}  # which runtimes have
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(session, outputs):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, outputs)))


def check_equal(found, outputs, postprocess):
    expected = postprocess(outputs, ANCHORS, CONFIG.image_size)
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        # The order of the sums differs: 1e-7 of a side of 100 pixels, and some.
        np.testing.assert_allclose(found[name], value, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("method", ["gaussian", "hard"])
@pytest.mark.parametrize("opset", [13, 18])
def test_the_nodes_of_the_oldest_and_the_newest_opset(outputs, method, opset):
    postprocess = Postprocess(method=method)
    check_equal(run(session_of(postprocess, opset), outputs), outputs, postprocess)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_nodes_compute_what_postprocess_does(outputs, options):
    postprocess = Postprocess(**options)
    session = session_of(postprocess)
    batch = run(session, outputs)
    assert batch["num_detections"].min() > 5
    check_equal(batch, outputs, postprocess)
    first = {name: value[:1] for name, value in outputs.items()}
    check_equal(run(session, first), first, postprocess)


@pytest.mark.parametrize("method", ["gaussian", "hard"])
def test_images_with_one_and_no_object(outputs, method):
    postprocess = Postprocess(method=method, score_threshold=0.5)
    logits = np.full_like(outputs["class_logits"], -9.0)
    logits[1, 7, 2] = 3.0
    outputs = {**outputs, "class_logits": logits}
    found = run(session_of(postprocess), outputs)
    check_equal(found, outputs, postprocess)
    assert found["num_detections"].tolist() == [0, 1, 0]


# Files that can be opened, and those that cannot.

PETS = EfficientDetConfig(image_size=64, num_classes=1)


def write(path, properties):
    """A file that gives back its input."""
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("batch", 2))
        for name in ("images", "same")
    ]
    node = onnx.helper.make_node("Identity", ["images"], ["same"])
    graph = onnx.helper.make_graph([node], "pets", ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 17)]
    file = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.helper.set_model_props(file, {**properties, CHECKSUM_NAME: WITHOUT_CHECKSUM})
    path.write_bytes(file.SerializeToString())
    write_checksum(path)
    return path


@pytest.fixture
def path(tmp_path):
    description = Description(PETS, class_names=("cat",), outputs="raw")
    return write(tmp_path / "pets.onnx", {DESCRIPTION_NAME: description.to_json()})


def test_a_file_of_another_program_is_refused(path):
    path.write_bytes(
        path.read_bytes().replace(WITHOUT_CHECKSUM[:9].encode(), b"something")
    )
    with pytest.raises(
        ValueError,
        match="pets.onnx' is damaged, or `EfficientDet.export` did not write it",
    ):
        open_runtime(path)


def test_a_gpu_is_used_where_there_is_one(path, monkeypatch):
    given = []
    session = onnxruntime.InferenceSession

    def spy(*args, providers):
        given.extend(providers)
        return session(*args, providers=["CPUExecutionProvider"])

    names = ["TensorrtExecutionProvider", *reversed(_PROVIDERS)]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    monkeypatch.setattr(onnxruntime, "InferenceSession", spy)
    open_runtime(path)
    exact = {"use_tf32": "0"}  # else the check refuses what it rounds
    assert given == [("CUDAExecutionProvider", exact), ("CPUExecutionProvider", {})]
