"""The ONNX nodes of `Postprocess` against `Postprocess` itself."""

import numpy as np
import pytest
from keras import ops

from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.model.anchors import anchors_of
from effdet_keras.model.config import EfficientDetConfig

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

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
    {"method": "hard", "score_threshold": 0.5, "iou_threshold": 0.2},
    {"method": "hard", "per_class": False, "max_detections": 10},
    {"method": "hard", "pre_nms_top_k": 0},
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
    from effdet_keras.export.onnx import onnx_postprocess

    graph = onnx_postprocess(postprocess, ANCHORS, CONFIG, opset)
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def test_hard_nms_is_the_node_that_runtimes_have():
    from effdet_keras.export.onnx import onnx_postprocess

    for method, kind in (("hard", "NonMaxSuppression"), ("gaussian", "Loop")):
        graph = onnx_postprocess(Postprocess(method=method), ANCHORS, CONFIG, 17)
        kinds = {node.op_type for node in graph.node}
        assert kinds & {"NonMaxSuppression", "Loop"} == {kind}


def run(session, outputs):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, outputs)))


def check_equal(found, outputs, postprocess):
    expected = postprocess(outputs, ANCHORS, CONFIG.image_size)
    assert set(found) == set(expected)
    for name, value in expected.items():
        value = ops.convert_to_numpy(value)
        assert found[name].dtype == value.dtype
        # The order of the sums differs: 1e-7 of a side of 100 pixels, and some.
        np.testing.assert_allclose(found[name], value, atol=1e-3, err_msg=name)


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
@pytest.mark.parametrize("opset", [13, 18])
def test_other_opsets(outputs, method, opset):
    postprocess = Postprocess(method=method)
    check_equal(run(session_of(postprocess, opset), outputs), outputs, postprocess)


@pytest.mark.parametrize("method", ["gaussian", "hard"])
def test_images_with_many_one_and_no_object(outputs, method):
    postprocess = Postprocess(method=method, score_threshold=0.5)
    logits = np.full_like(outputs["class_logits"], -9.0)
    logits[1, 7, 2] = 3.0
    logits[2] = outputs["class_logits"][2]
    outputs = {**outputs, "class_logits": logits}
    session = session_of(postprocess)
    found = run(session, outputs)
    check_equal(found, outputs, postprocess)
    assert found["num_detections"][:2].tolist() == [0, 1]
    assert (found["labels"][0] == -1).all() and found["labels"][1, 0] == 2
    nothing = {name: value[:1] for name, value in outputs.items()}
    assert run(session, nothing)["boxes"].shape == (1, 100, 4)


def test_of_equal_scores_the_earlier_comes_first(outputs):
    postprocess = Postprocess(method="hard")
    rounded = np.round(outputs["class_logits"])
    outputs = {**outputs, "class_logits": rounded}
    check_equal(run(session_of(postprocess), outputs), outputs, postprocess)
