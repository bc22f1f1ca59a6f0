"""ONNX files that can be opened, and those that cannot."""

import numpy as np
import pytest

from effdet_keras.export.registry import open_runtime
from effdet_keras.export.runtime import DESCRIPTION_NAME, Description
from effdet_keras.model.config import EfficientDetConfig

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CONFIG = EfficientDetConfig(image_size=64, num_classes=1)


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
    onnx.helper.set_model_props(file, properties)
    path.write_bytes(file.SerializeToString())
    return path


@pytest.fixture
def path(tmp_path):
    description = Description(CONFIG, class_names=("cat",), outputs="raw")
    return write(tmp_path / "pets.onnx", {DESCRIPTION_NAME: description.to_json()})


def test_outputs_come_by_name_and_the_description_is_read(path):
    runtime = open_runtime(path, num_threads=1)
    images = np.ones((3, 2), "float32")
    found = runtime.run(images)
    assert list(found) == ["same"]
    np.testing.assert_array_equal(found["same"], images)
    assert runtime.path == path
    assert runtime.description.class_names == ("cat",)


def test_num_threads_are_the_sessions(path):
    options = open_runtime(path, num_threads=1)._session.get_session_options()
    assert options.intra_op_num_threads == 1


def test_a_gpu_is_used_where_there_is_one(path, monkeypatch):
    import onnxruntime

    from effdet_keras.export import onnx as onnx_runtime

    given = []
    session = onnxruntime.InferenceSession

    def spy(*args, providers):
        given.extend(providers)
        return session(*args, providers=["CPUExecutionProvider"])

    names = ["TensorrtExecutionProvider", *reversed(onnx_runtime._PROVIDERS)]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    monkeypatch.setattr(onnxruntime, "InferenceSession", spy)
    open_runtime(path)
    assert given == ["CUDAExecutionProvider", "CPUExecutionProvider"]


def test_an_onnx_file_of_another_program(tmp_path):
    path = write(tmp_path / "other.onnx", {"author": "someone"})
    with pytest.raises(ValueError, match="other.onnx.*not one that"):
        open_runtime(path)


def test_a_damaged_description(tmp_path):
    path = write(tmp_path / "pets.onnx", {DESCRIPTION_NAME: "{"})
    with pytest.raises(ValueError, match="pets.onnx.*cannot be read"):
        open_runtime(path)
