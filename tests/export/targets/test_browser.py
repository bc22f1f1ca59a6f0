"""The page for browsers finds in Chromium what the model finds."""

import functools
import http.server
import os
import shutil
import subprocess
import threading

import numpy as np
import pytest
from PIL import Image
from support.chromium import Page, find_chromium
from support.tiny import lively_model

from effdet_keras.export.targets import browser

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here"),
]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """The `dist` folder of onnxruntime-web, from npm's registry or from a folder."""
    if "ONNXRUNTIME_WEB" in os.environ:
        return os.environ["ONNXRUNTIME_WEB"]
    folder = tmp_path_factory.mktemp("npm")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here, nor a folder in ONNXRUNTIME_WEB")
    package = f"onnxruntime-web@{browser._RUNTIME_VERSION}"
    packed = subprocess.run(
        [npm, "pack", package], cwd=folder, capture_output=True, text=True
    )
    if packed.returncode != 0:
        pytest.skip(f"npm cannot fetch {package}: {packed.stderr[-200:]}")
    (archive,) = folder.glob("*.tgz")
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / "package" / "dist"


@pytest.fixture
def address(runtime, tmp_path):
    """A server of the exported folder, with the runtime in it."""
    folder = tmp_path / "web"
    model = lively_model()
    model.export(folder, target="browser", runtime_address="ort/", verbose=0)
    shutil.copytree(runtime, folder / "ort")
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(folder)
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, model, f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()


def test_the_page_finds_what_the_model_finds(address, tmp_path):
    folder, model, url = address
    image = np.random.default_rng(5).integers(0, 256, (64, 64, 3), "uint8")
    Image.fromarray(image).save(folder / "street.png")
    expected = model.detect(image, 0.05, verbose=0)
    script = "fetch('street.png').then(r => r.blob()).then(show)"
    with Page(url, tmp_path / "browser") as page:
        page.value("ready")
        assert page.value("document.getElementById('status').textContent") == (
            "Ready: choose an image"
        )
        found = page.value(script)
        kept = [one for one in found if one["score"] >= 0.05]
        assert len(kept) == len(expected.scores) > 20
        np.testing.assert_allclose(
            [one["score"] for one in kept], expected.scores, atol=1e-4
        )
        np.testing.assert_allclose(
            [one["box"] for one in kept], expected.boxes, atol=0.05
        )
        assert [one["label"] for one in kept] == list(expected.labels)
        names = {one["label"]: one["name"] for one in kept}
        assert all(("cat", "dog", "bird")[i] == name for i, name in names.items())
        count = int((expected.scores >= 0.6).sum())
        page.value(
            "threshold.value = '0.6'; threshold.dispatchEvent(new Event('input')); 0"
        )
        text = page.value("document.getElementById('status').textContent")
        assert text.startswith(f"{count} of ")
