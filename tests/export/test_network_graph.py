"""The network's graph of Keras' operations, and the files that are written of it.

On JAX and torch this is how files come to be (test_without_tensorflow.py). Here
TensorFlow computes, and layers are told that it does not: then they call operations of
Keras, as on the others.
"""

import itertools
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support.tiny import lively_model, lively_segmentation, spread_outputs, tiny_model

from effdet_keras._internal.optional_imports import ai_edge_litert as interpreters
from effdet_keras._internal.optional_imports import onnx as onnx_package
from effdet_keras._internal.optional_imports import tflite_files
from effdet_keras.export import litert, onnx
from effdet_keras.export.network_graph import (
    _factor,
    _folded,
    _Value,
    _Writer,
    network_graph,
    same_padding,
)
from effdet_keras.export.runtime import open_runtime
from effdet_keras.export.torch_graph import torch_module
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network import batch_norm, computing, layers, mbconv
from effdet_keras.network.config import TIMM_BACKBONE

pytestmark = pytest.mark.tensorflow
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")

SIZE = (64, 96)
_OWN = {**TIMM_BACKBONE, "fpn_padding": "symmetric", "redundant_bias": False}
# What the published models have, and what only some configs have.
CONFIGS = {
    "b0": {"backbone": "efficientnet-b0", "activation": "swish"},
    "v2": {"backbone": "efficientnetv2-b0", "activation": "hswish"},
    "mish": {"activation": "mish", "separable_conv": False},
    "srelu": {"activation": "srelu", "fpn_weight_method": "channel_attn"},
    "effdet": {**_OWN, "fpn_name": "qufpn", "survival_prob": 0.8},
    "bilinear": {
        **_OWN,
        "fpn_downsampling": "bilinear",
        "fpn_upsampling": "bilinear",
        "max_level": 7,  # maps of 8 x 12 to 1 x 1: odd sides too
    },
    "odd sides": {"image_size": (72, 88), "max_level": 6, "activation": "relu"},
}
USUAL = ["b0", "bilinear"]


@pytest.fixture(autouse=True)
def keras_alone(monkeypatch):
    """Layers and writers as on a backend without TensorFlow."""
    for module in (computing, batch_norm, layers):
        monkeypatch.setattr(module, "ON_TENSORFLOW", False)
    monkeypatch.setattr(mbconv, "runs_on_processors", lambda: False)
    for module in (onnx, litert):
        monkeypatch.setattr(module, "runs_on_tensorflow", lambda: False)


def noise(model, count=1):
    shape = (count, *model.config.image_size, 3)
    return np.random.default_rng(1).integers(0, 256, shape).astype("uint8")


def model_of(fields):
    """A model of a config whose outputs have the usual size, and no equal scores."""
    keras.utils.set_random_seed(3)
    small = tiny_model()
    config = small.config.replace(image_size=SIZE).replace(**fields)
    model = EfficientDet(config, class_names=small.class_names)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        elif weight.path.endswith("moving_mean"):
            weight.assign(rng.normal(0.0, 0.1, weight.shape))
        elif "WSM" in weight.path:
            weight.assign(rng.uniform(0.2, 1.5, weight.shape))
    spread_outputs(model, noise(model, 2), "class-predict", "class_logits", 1.7)
    spread_outputs(model, noise(model, 2), "box-predict", "box_deltas", 0.3)
    return model


def outputs_of(model, images):
    values = model(images.astype("float32"), training=False)
    return {name: keras.ops.convert_to_numpy(v) for name, v in values.items()}


def assert_outputs_equal(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert value.std() > 0.02
        np.testing.assert_allclose(found[name], value, atol=1e-4, err_msg=name)


CASES = [
    pytest.param(name, ending, marks=[] if name in USUAL else [pytest.mark.slow])
    for name, ending in itertools.product(CONFIGS, ["onnx", "tflite"])
]


@pytest.mark.parametrize(("name", "ending"), CASES)
def test_files_compute_what_the_model_does(tmp_path, name, ending):
    model, path = model_of(CONFIGS[name]), tmp_path / f"raw.{ending}"
    model.export(
        path, outputs="raw", batch_size=2, images=list(noise(model)), verbose=0
    )
    found = open_runtime(path).run(noise(model, 2).astype("float32"))
    assert_outputs_equal(found, outputs_of(model, noise(model, 2)))


@pytest.mark.parametrize("ending", ["onnx", "tflite"])
def test_files_find_what_the_model_finds(tmp_path, ending):
    model = model_of({})
    images = list(noise(model, 2))
    report = model.export(tmp_path / f"pets.{ending}", images=images, verbose=0)
    assert report.matched == report.live_detections > 10
    assert report.max_score_difference < 1e-4


@pytest.mark.parametrize("ending", ["onnx", "tflite"])
def test_pixels_have_the_class_of_the_model(tmp_path, ending):
    model, path = lively_segmentation(), tmp_path / f"pets.{ending}"
    assert model.export(path, verbose=0).same_pixels == 1.0
    found = open_runtime(path).run(noise(model).astype("float32"))
    assert len(np.unique(found["class_map"])) > 1


@pytest.mark.parametrize("ending", ["onnx", "tflite"])
def test_files_of_bytes_and_of_many_classes(tmp_path, ending):
    more = {"onnx": {"opset": 13}, "tflite": {"max_classes_per_detection": 2}}[ending]
    model, path = model_of({}), tmp_path / f"pets.{ending}"
    images = list(noise(model, 2))
    model.export(path, images=images, input_dtype="uint8", verbose=0, **more)
    assert open_runtime(path).input_dtype == "uint8"


def test_a_file_of_float16_is_half_as_large(tmp_path):
    model = model_of({"backbone": "efficientnet-lite0"})
    images, sizes = list(noise(model, 2)), {}
    for precision in ("float32", "float16"):
        path = tmp_path / f"{precision}.tflite"
        report = model.export(path, precision=precision, images=images, verbose=0)
        sizes[precision] = report.size_bytes
    assert report.max_score_difference > 0
    assert sizes["float16"] < 0.6 * sizes["float32"]


def test_a_graph_has_no_batch_norm_that_a_convolution_can_have():
    graph = network_graph(lively_model(SIZE))
    kinds = {node.op_type for node in graph.nodes}
    assert "BatchNormalization" not in kinds and "Conv" in kinds
    assert graph.outputs["class_logits"] == ((None, 1134, 3), "float32")
    read = {name for node in graph.nodes for name in node.inputs}
    assert set(graph.arrays) <= read  # nothing is stored that nothing reads


def test_layers_do_not_learn_of_an_export():
    model = lively_model(SIZE)
    before = [len(layer._inbound_nodes) for layer in model._flatten_layers()]
    network_graph(model)
    after = [len(layer._inbound_nodes) for layer in model._flatten_layers()]
    assert before == after


def test_an_operation_that_is_not_known_is_named():
    model = lively_model(SIZE)
    graph = network_graph(model, batch_size=1)
    node = graph.nodes[0]._replace(op_type="Erf", name="stem/Erf_0")
    with pytest.raises(RuntimeError, match=r"operation Erf.*LiteRT.*stem/Erf_0"):
        litert.litert_model(SimpleNamespace(**{**vars(graph), "nodes": [node]}))

    with pytest.raises(RuntimeError, match=r"operation Erf.*KERAS_BACKEND=tensorflow"):
        _Writer().trace(keras.ops.erf, _Value("x", (1, 4, 4, 3), "float32"))


@pytest.mark.parametrize(
    ("side", "stride", "length", "expected"),
    [(7, 1, 3, (1, 1)), (8, 2, 3, (0, 1)), (7, 2, 3, (1, 1)), (8, 2, 5, (1, 2))],
)
def test_same_padding_is_that_of_keras(side, stride, length, expected):
    top, left, bottom, right = same_padding((side, 5), (stride, 1), (length, 1))
    assert (top, bottom) == expected and (left, right) == (0, 0)


def test_a_factor_reaches_the_length():
    for side, length in itertools.product(range(1, 70), range(1, 70)):
        factor = _factor(length, side)
        assert int(np.float32(side) * factor) == length == int(side * float(factor))


# --- Operation by operation: those that only some configs have are in no fast model.

X = np.random.default_rng(0).normal(0.0, 5.0, (1, 4, 6, 3)).astype("float32")


def batch_norm_of(x):
    mean, variance = np.float32([1, -2, 0.5]), np.float32([0.5, 1.5, 0.01])
    offset, scale = np.float32([3, -1, 2]), np.float32([0.5, -2, 1])
    ops = keras.ops
    return ops.batch_normalization(x, mean, variance, -1, offset, scale, epsilon=0.01)


def max_pool_of(x):
    return keras.ops.max_pool(x, 3, 2, "same")


FUNCTIONS = {
    "hard swish": keras.ops.hard_silu,
    "mish": lambda x: x * keras.ops.tanh(keras.ops.softplus(x)),
    "relu6": keras.ops.relu6,
    "swish": keras.ops.silu,
    "log1p": lambda x: keras.ops.log1p(keras.ops.relu(x)),
    "batch norm": batch_norm_of,
    "pool of numbers below 0": lambda x: max_pool_of(x - 100.0),
    "mean": lambda x: keras.ops.mean(x, (1, 2), keepdims=True) * x,
    "rows and columns": lambda x: x[:, 1:3, 2:],
    "by a constant": lambda x: x / 7.0,
    "pad": lambda x: keras.ops.pad(x, ((0, 0), (0, 1), (2, 3), (0, 0))),
    "transposed": lambda x: keras.ops.conv_transpose(
        x, np.arange(54, dtype="float32").reshape(3, 3, 2, 3) / 54, 2, "same"
    ),
    "read twice": lambda x: (lambda y: y + (y + np.float32([1, 2, 3])))(
        keras.ops.conv(x, np.eye(3, dtype="float32")[None, None])
    ),
}


def graph_of(function):
    writer, x = _Writer(), _Value("images", X.shape, "float32")
    return _folded(writer.graph(x, {"y": writer.trace(function, x)}))


def by_onnx(graph):
    helper = onnx_package.helper
    nodes = [
        helper.make_node(kind, inputs, outputs, name, **attributes)
        for kind, name, inputs, outputs, attributes in graph.nodes
    ]
    arrays = graph.arrays.items()
    constants = [onnx_package.numpy_helper.from_array(a, n) for n, a in arrays]
    x, y = (
        helper.make_tensor_value_info(name, onnx_package.TensorProto.FLOAT, None)
        for name in ("images", "y")
    )
    made = helper.make_graph(nodes, "one", [x], [y], constants)
    versions = [helper.make_opsetid("", 17)]
    file = helper.make_model(made, opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(file.SerializeToString())
    return session.run(None, {"images": X.transpose(0, 3, 1, 2)})[0]


def by_litert(graph):
    model, values = litert.litert_model(graph)
    model.outputs.append(values["y"])
    content = bytes(tflite_files.convert_object_to_bytearray(model.packed()))
    interpreter = interpreters.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def by_torch(graph):
    torch = pytest.importorskip("torch")
    planes = np.ascontiguousarray(X.transpose(0, 3, 1, 2))
    (found,) = torch_module(graph)(torch.from_numpy(planes))
    return found.numpy()


RUNTIMES = [
    by_onnx,
    by_litert,
    pytest.param(by_torch, marks=pytest.mark.extra_packages),
]


@pytest.mark.parametrize("run", RUNTIMES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operation_computes_what_keras_does(name, run):
    if (name, run) == ("log1p", by_torch):
        pytest.skip("torch's programs know no Log yet, and say so")
    expected = keras.ops.convert_to_numpy(FUNCTIONS[name](keras.ops.array(X)))
    found = run(graph_of(FUNCTIONS[name]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
