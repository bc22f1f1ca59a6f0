"""Browsers: an ONNX file, and a page that runs it with onnxruntime-web."""

from __future__ import annotations

import importlib.resources
import json
import pathlib
from typing import TYPE_CHECKING

from effdet_keras.export.registry import FORMATS, Written
from effdet_keras.extras.targets.detectors import (
    class_names_of,
    require_detection_alone,
)

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


MODEL_NAME, PAGE_NAME = "model.onnx", "index.html"
_RUNTIME_VERSION = "1.30.0"
_RUNTIME = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{_RUNTIME_VERSION}/dist/"


def write_browser(
    model: EfficientDet,
    folder: pathlib.Path,
    path: pathlib.Path,
    *,
    runtime_address: str | None = None,
    score_threshold: float = 0.3,
) -> Written:
    """Writes `model.onnx` and `index.html`.

    The page opens an image, letterboxes it, runs the model with onnxruntime-web in
    WebAssembly, and draws the boxes. Nothing is sent anywhere. Any web server of files
    can serve the folder.

    Args:
        model: float32 `EfficientDet`.
        folder: `pathlib.Path` to write into.
        path: `pathlib.Path` that the folder will have.
        runtime_address: where `ort.wasm.min.mjs` and its `.wasm` file are, the `dist`
            folder of npm's onnxruntime-web: an address that ends in "/", relative to
            the page or whole; None for a public one.
        score_threshold: lowest score that the page shows at first.

    Raises:
        ValueError: If the model has a segmentation head.
    """
    require_detection_alone(model, "browser")
    FORMATS["onnx"].write(model, folder / MODEL_NAME, batch_size=1)
    settings = {
        "model": MODEL_NAME,
        "runtime": (runtime_address or _RUNTIME).rstrip("/") + "/",
        "height": model.config.image_size[0],
        "width": model.config.image_size[1],
        "padding": list(model.config.padding_rgb),
        "names": class_names_of(model),
        "threshold": score_threshold,
    }
    # "<" could end the script that it stands in.
    text = json.dumps(settings).replace("<", "\\u003c")
    page = importlib.resources.files(__package__).joinpath("browser.html")
    html = page.read_text(encoding="utf-8").replace("/*SETTINGS*/", text)
    (folder / PAGE_NAME).write_text(html, encoding="utf-8")
    note = f"  python -m http.server --directory {path} 8000"
    return Written(folder / MODEL_NAME, "onnx", (note,))
