"""SavedModels, run by TensorFlow alone, against the model they were made of."""

import io
import json
import pathlib
import re
import shutil

import keras
import numpy as np
import pytest
from PIL import Image
from support import programs
from support.tiny import lively_model, tiny_model

from effdet_keras.export.network import frozen, network_function
from effdet_keras.export.saved_model import _frozen_graph, _signatures

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

FLAGS = re.DOTALL | re.MULTILINE

# What a server does: it does not have this package.
SERVER = """
import sys
import numpy as np, tensorflow as tf
path, source, target = sys.argv[1:]
loaded = tf.saved_model.load(path)
outputs = {}
for key, value in np.load(source, allow_pickle=True).items():
    signature = key.split(":")[0]
    function = loaded.signatures[signature]
    name = next(iter(function.structured_input_signature[1]))
    value = value.tolist() if value.dtype == object else value
    for output, tensor in function(**{name: tf.constant(value)}).items():
        outputs[f"{key}/{output}"] = tensor.numpy()
assert "effdet_keras" not in sys.modules
np.savez(target, **outputs)
"""


def random_image(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), "uint8")


def encoded(image, format="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, format=format, **options)
    return file.getvalue()


def turned_jpeg(image, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image, "JPEG", exif=exif, quality=95)


def example(data):
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
    features = tf.train.Features(feature={"image/encoded": feature})
    return tf.train.Example(features=features).SerializeToString()


FILES = {
    "grey": encoded(random_image(30, 50)[..., 0]),
    "rgba": encoded(np.dstack([random_image(30, 50), random_image(30, 50)[..., 0]])),
    "1x1": encoded(random_image(1, 1)),
    "palette": encoded(random_image(30, 50)[..., 0] // 64, "GIF"),
    "bmp": encoded(random_image(70, 20), "BMP"),
    **{f"turned {i}": turned_jpeg(random_image(40, 90), i) for i in range(1, 9)},
}


@pytest.fixture(scope="module")
def model():
    return lively_model((64, 96), category_ids=(3, 7, 20))


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "pets"
    model.export(path, frozen_graph=True, verbose=0)
    return path


@pytest.fixture(scope="module")
def inputs():
    files = np.array(list(FILES.values()), object)
    return {
        "serving_default:one": random_image(50, 40)[None],
        "serving_default:three": np.stack([random_image(33, 77, i) for i in range(3)]),
        "serving_default:pixel": random_image(1, 1)[None],
        "image_bytes:": files,
        "tf_example:": np.array([example(data) for data in files], object),
        "raw:": random_image(64, 96)[None].astype("float32"),
    }


@pytest.fixture(scope="module")
def served(exported, inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    np.savez(folder / "inputs.npz", **inputs)
    files = folder / "inputs.npz", folder / "outputs.npz"
    programs.run_alone("-c", SERVER, exported, *files, cwd=folder)
    return dict(np.load(folder / "outputs.npz"))


def assert_found(served, key, index, detections):
    count = served[f"{key}/num_detections"][index]
    assert count == len(detections) > 0
    for name, value in (("boxes", 2e-3), ("scores", 1e-4)):
        np.testing.assert_allclose(
            served[f"{key}/{name}"][index][:count],
            getattr(detections, name),
            atol=value,
            err_msg=name,
        )
    labels = served[f"{key}/labels"][index]
    np.testing.assert_array_equal(labels[:count], detections.labels)
    assert (labels[count:] == -1).all()


@pytest.mark.smoke
@pytest.mark.parametrize("which", ["one", "three", "pixel"])
def test_images_of_any_size_and_number(model, served, inputs, which):
    key = f"serving_default:{which}"
    for index, image in enumerate(inputs[key]):
        assert_found(served, key, index, model.detect(image, score_threshold=0.0))


@pytest.mark.parametrize("key", ["image_bytes:", "tf_example:"])
@pytest.mark.parametrize("index", range(len(FILES)), ids=FILES)
def test_files_are_decoded_as_detect_decodes_them(model, served, tmp_path, key, index):
    path = tmp_path / "image"
    path.write_bytes(list(FILES.values())[index])
    expected = model.detect(path, score_threshold=0.0)
    count = served[f"{key}/num_detections"][index]
    assert count == len(expected)
    # TensorFlow's JPEG decoder is off by one in some pixels.
    limit = 0.02 if "turned" in list(FILES)[index] else 1e-4
    found = served[f"{key}/scores"][index][:count]
    np.testing.assert_allclose(found, expected.scores, atol=limit)
    np.testing.assert_allclose(
        served[f"{key}/boxes"][index][0], expected.boxes[0], atol=0.5
    )


def test_the_bare_network(model, served, inputs):
    expected = model(inputs["raw:"])
    for name in ("class_logits", "box_deltas"):
        np.testing.assert_allclose(served[f"raw:/{name}"], expected[name], atol=1e-3)


def test_the_bare_network_of_bytes(model):
    signatures = _signatures(model, "effdet", input_dtype="uint8")
    images = random_image(64, 96)[None]
    found = signatures["raw"](tf.constant(images))
    np.testing.assert_allclose(
        found["class_logits"], model(images)["class_logits"], atol=1e-3
    )
    for name in ("letterboxed", "raw"):
        assert signatures[name].input_signature[0].dtype == tf.uint8


def test_batch_norms_become_kernels_and_biases():
    model, rng = tiny_model(), np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith(("gamma", "moving_variance")):
            weight.assign(rng.uniform(0.5, 2, weight.shape))
        if weight.path.endswith(("beta", "moving_mean", "bias")):
            weight.assign(rng.normal(0, 0.1, weight.shape))
    folded = frozen(network_function(model, folds=True))
    kinds = {operation.type for operation in folded.graph.get_operations()}
    assert "Conv2D" in kinds and "FusedBatchNormV3" not in kinds
    images = tf.constant(rng.uniform(0, 255, (3, 64, 64, 3)), "float32")
    expected = model(images)
    for name, found in zip(sorted(expected), folded(images)):
        np.testing.assert_allclose(found, expected[name], atol=1e-4)


def test_what_is_inside(model, exported):
    labels = (exported / "assets/labels.txt").read_text()
    assert labels == "cat\ndog\nbird\n"
    notes = json.loads((exported / "assets/effdet_keras.json").read_text())
    assert notes["category_ids"] == [3, 7, 20]
    assert notes["config"]["image_size"] == [64, 96]
    report = json.loads((exported / "export_report.json").read_text())
    assert report["matched"] == report["live_detections"] > 0


@pytest.mark.slow
def test_the_names_of_the_object_detection_api(model, tmp_path):
    model.export(tmp_path / "pets", names="tfod", verbose=0)
    loaded = tf.saved_model.load(str(tmp_path / "pets"))
    image = random_image(30, 50)
    found = loaded.signatures["serving_default"](input_tensor=tf.constant(image[None]))
    expected = model.detect(image, score_threshold=0.0)
    count = int(found["num_detections"][0])
    assert count == len(expected)
    assert {value.dtype for value in found.values()} == {tf.float32}
    np.testing.assert_allclose(
        found["detection_boxes"][0, :count],
        expected.boxes / [30, 50, 30, 50],
        atol=1e-4,
    )
    ids = [(3, 7, 20)[label] for label in expected.labels]
    np.testing.assert_array_equal(found["detection_classes"][0, :count], ids)


def test_the_frozen_graph_in_a_session(model, exported):
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString((exported / "frozen_graph.pb").read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        feed = {"images:0": random_image(30, 50)[None]}
        scores = session.run("scores:0", feed)
    expected = model.detect(random_image(30, 50), score_threshold=0.0)
    np.testing.assert_allclose(scores[0][: len(expected)], expected.scores, atol=1e-4)


def docs_of_frozen_graphs():
    page = pathlib.Path(__file__).parents[2] / "docs" / "export.md"
    return page.read_text().split("`frozen_graph=True`")[1].split("\n\n")[0]


@pytest.mark.parametrize("names", ["effdet", "tfod"])
def test_a_frozen_graph_has_the_names_of_its_signature(model, names):
    signature = _signatures(model, names)["serving_default"]
    outputs = set(signature.get_concrete_function().structured_outputs)
    first = "images" if names == "effdet" else "image_tensor"
    nodes = _frozen_graph(signature, first).node
    assert {first, *outputs} <= {node.name for node in nodes}
    assert [node.name for node in nodes if node.op == "Placeholder"] == [first]
    ours, api = docs_of_frozen_graphs().split('with `names="tfod"`')
    told = re.findall(r"`(\w+):0`", ours if names == "effdet" else api)
    assert told[0] == first
    assert set(told[1:]) == outputs


INPUTS = {
    "image_tensor": lambda image: image[None],
    "float_image_tensor": lambda image: image[None].astype("float32"),
    "encoded_image_string_tensor": lambda image: [encoded(image)],
    "tf_example": lambda image: [example(encoded(image))],
}


@pytest.mark.parametrize("input_type", INPUTS)
def test_a_frozen_graph_of_each_input_type_in_a_session(model, input_type):
    image, signatures = random_image(30, 50), _signatures(model, "tfod", input_type)
    assert signatures["serving_default"] is signatures[input_type]
    nodes = _frozen_graph(signatures["serving_default"], input_type)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(nodes, name="")
        feed = {f"{input_type}:0": INPUTS[input_type](image)}
        names = ["detection_boxes:0", "detection_scores:0", "num_detections:0"]
        boxes, scores, counts = session.run(names, feed)
    expected = model.detect(image, score_threshold=0.0)
    count = int(counts[0])
    assert count == len(expected) > 0
    np.testing.assert_allclose(scores[0, :count], expected.scores, atol=1e-4)
    boxes = boxes[0, :count] * [30, 50, 30, 50]
    np.testing.assert_allclose(boxes, expected.boxes, atol=5e-3)


@pytest.mark.parametrize("names", ["effdet", "tfod"])
def test_additional_outputs_are_what_the_layers_return(model, names):
    layers = ["normalization", "fpn_cells"]
    serving = _signatures(model, names, additional_outputs=",".join(layers))
    images = random_image(64, 96)[None]
    found = serving["serving_default"](tf.constant(images))
    usual = _signatures(model, names)["serving_default"](tf.constant(images))
    wanted = ["normalization", *(f"fpn_cells_p{level}" for level in (3, 4, 5))]
    assert set(found) == {*usual, *wanted}
    for name, value in usual.items():
        np.testing.assert_allclose(found[name], value, atol=1e-4, err_msg=name)
    outputs = [model.get_layer(name).output for name in layers]
    first, levels = keras.Model(model.input, outputs)(images.astype("float32"))
    for name, value in zip(wanted, [first, *levels], strict=True):
        np.testing.assert_allclose(found[name], value, atol=1e-3, err_msg=name)
    raw = serving["raw"](tf.constant(images, tf.float32))
    np.testing.assert_array_equal(raw["fpn_cells_p5"], found["fpn_cells_p5"])


def test_a_layer_that_is_not_there_is_told(model):
    message = r"`additional_outputs` must be one of .*'fpn_cells'.*Received.*'P3'"
    with pytest.raises(ValueError, match=message):
        _signatures(model, "tfod", additional_outputs=["P3"])


def test_the_guide_runs_without_the_package(exported, tmp_path):
    page = pathlib.Path(__file__).parents[2] / "docs" / "export.md"
    (code,) = re.findall(
        r"^```python\n(import tensorflow.*?)^```", page.read_text(), FLAGS
    )
    shutil.copytree(exported, tmp_path / "out" / "pets")
    (tmp_path / "cat.jpg").write_bytes(FILES["turned 6"])
    programs.run_alone("-c", f"{code}\nassert count", cwd=tmp_path)
