"""Targets to serve a model: TF Serving, Triton, and browsers with onnxruntime-web."""

from __future__ import annotations

import importlib.resources
import json

from effdet_keras._internal.optional_imports import onnx
from effdet_keras.errors import require
from effdet_keras.export.onnx import POSTPROCESS, all_nodes_of
from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.export.runtime import labels_of
from effdet_keras.extras.targets.tflite import require_detection_alone

_RUNTIME_VERSION = "1.30.0"
_RUNTIME = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{_RUNTIME_VERSION}/dist/"


def write_tf_serving(model, folder, path, *, names="effdet"):
    """Writes one version of a SavedModel for TF Serving.

    `path` is `MODEL/VERSION`, such as `models/pets/1`. Its last part must be a whole
    number, because TF Serving watches `models/pets` and serves the highest version.
    """
    is_version = path.name.isascii() and path.name.isdigit()
    rule = f"`target='tf-serving'` needs a path with a version, such as '{path / '1'}'"
    require(is_version, rule, path=str(path))
    FORMATS["saved_model"].write(model, folder, names=names)
    base = path.parent.absolute()
    note = (
        f"  tensorflow_model_server --rest_api_port=8501 "
        f"--model_name={path.parent.name} --model_base_path={base}"
    )
    return Written(folder, "saved_model", (note,))


# --- Triton.


def write_triton(model, folder, path, *, max_batch_size=8):
    """Writes one model of a Triton model repository.

    `path` is `REPOSITORY/MODEL`, whose last part is the model's name. The folder gets
    `config.pbtxt`, `labels.txt` and version 1. Triton combines simultaneous requests
    into one batch.
    """
    (folder / "1").mkdir()
    file = folder / "1" / "model.onnx"
    FORMATS["onnx"].write(model, file)
    names = labels_of(model)
    (folder / "labels.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    text = _triton_configuration(path.name, model, max_batch_size)
    (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    note = f"  tritonserver --model-repository={path.parent.absolute()}"
    return Written(file, "onnx", (note,))


def _triton_configuration(name, model, max_batch_size):
    """Returns the text of `config.pbtxt`; shapes omit the variable batch axis."""
    images = ("images", "TYPE_FP32", (*model.config.image_size, 3))
    outputs = "".join(f"output [{triton_tensor(*o)}]\n" for o in _triton_outputs(model))
    return (
        f'name: "{name}"\n'
        'platform: "onnxruntime_onnx"\n'
        f"max_batch_size: {max_batch_size}\n"
        f"input [{triton_tensor(*images)}]\n"
        f"{outputs}"
        "dynamic_batching { max_queue_delay_microseconds: 1000 }\n"
    )


def _triton_outputs(model):
    """Returns name, type and shape of each output."""
    config, count = model.config, model.postprocess.max_detections
    found = []
    if config.has_detection:
        found += [
            ("boxes", "TYPE_FP32", (count, 4)),
            ("scores", "TYPE_FP32", (count,)),
            ("labels", "TYPE_INT32", (count,)),
            ("num_detections", "TYPE_INT32", ()),
        ]
    if config.has_segmentation:
        found.append(("class_map", "TYPE_UINT8", config.image_size))
    return found


def triton_tensor(name, kind, shape):
    dims = ", ".join(map(str, shape))
    lines = f'  name: "{name}"\n  data_type: {kind}\n'
    if shape:
        return f"{{\n{lines}  dims: [ {dims} ]\n}}"
    # One number per image: Triton does not allow empty `dims`, but an empty shape.
    return f"{{\n{lines}  dims: [ 1 ]\n  reshape: {{ shape: [ ] }}\n}}"


# --- Browsers.


def write_browser(model, folder, path, *, runtime_address=None, score_threshold=0.3):
    """Writes `model.onnx` and `index.html`.

    The page opens an image, letterboxes it, runs the model with onnxruntime-web, and
    draws the boxes. It uses WebGPU if available, else WebAssembly. No data is sent
    anywhere. Any web server for static files can serve the folder.
    """
    require_detection_alone(model, "browser")
    FORMATS["onnx"].write(model, folder / "model.onnx", batch_size=1)
    settings = {
        "model": "model.onnx",
        "postprocess": _postprocess_nodes(folder / "model.onnx"),
        "runtime": (runtime_address or _RUNTIME).rstrip("/") + "/",
        "height": model.config.image_size[0],
        "width": model.config.image_size[1],
        "padding": list(model.config.padding_rgb),
        "names": labels_of(model),
        "threshold": score_threshold,
    }
    # "<" could end the script element that contains the text.
    text = json.dumps(settings).replace("<", "\\u003c")
    page = importlib.resources.files(__package__).joinpath("browser.html")
    html = page.read_text(encoding="utf-8").replace("/*SETTINGS*/", text)
    (folder / "index.html").write_text(html, encoding="utf-8")
    note = f"  python -m http.server --directory {path} 8000"
    return Written(folder / "model.onnx", "onnx", (note,))


def _postprocess_nodes(path):
    """Returns the names of the nodes after the network, which run in WebAssembly.

    On a GPU, each of the hundred steps of Soft-NMS waits for the previous one. A small
    model took 15 times as long.
    """
    nodes = all_nodes_of(onnx.load(path).graph)
    return [node.name for node in nodes if node.name.startswith(POSTPROCESS)]
