"""The page of `target="browser"` in a real, headless Chromium, with onnxruntime-web."""

import functools
import http.server
import json
import shutil
import subprocess
import threading
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support.chromium import Page, find_chromium
from support.small_datasets import encoded
from support.tiny import spread, tiny_model

import effdet_keras as ek
from effdet_keras.export.registry import ExportFormat
from effdet_keras.extras.targets import servers
from effdet_keras.extras.targets.servers import _RUNTIME_VERSION, write_browser

pytestmark = pytest.mark.tensorflow

# Appended to the page: it detects on an image of the server, and tells the result.
_ASK = """<script type="module">
try {
  await ready;
  const image = await (await fetch("image.png")).blob();
  const byId = (id) => document.getElementById(id);
  const tell = (found) => ({
    found,
    text: byId("found").textContent,
    status: byId("status").textContent,
    provider: byId("provider").value,
  });
  const providers = Array.from(byId("provider").options, ({ value }) => value);
  const told = [tell(await show(image))];
  for (const name of providers.filter((name) => name !== told[0].provider)) {
    try {
      told.push(tell(await use(name)));
    } catch (error) {
      told.push({ failed: name, provider: byId("provider").value });
    }
  }
  window.told = { providers, told };
} catch (error) { window.told = { error: String(error) }; }
</script>"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """The `dist` folder of onnxruntime-web, from npm's registry."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: there is no onnxruntime-web")
    folder = tmp_path_factory.mktemp("npm")
    package = f"onnxruntime-web@{_RUNTIME_VERSION}"
    done = subprocess.run(
        ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", package],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        pytest.skip(f"npm cannot install {package}: {done.stderr[-300:]}")
    return folder / "node_modules" / "onnxruntime-web" / "dist"


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".mjs": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *arguments):
        pass


def told_by(folder, profile, flags):
    """What the page of a folder tells in Chromium: a dict for each provider."""
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/index.html"
        with Page(address, profile, flags) as page:
            page.until("window.told")
            told = page.value("window.told")
        server.shutdown()
    assert "error" not in told, told
    return told["providers"], told["told"]


@pytest.fixture(scope="module")
def web(tmp_path_factory, runtime):
    """The folder of an export with the runtime and an image; model and image."""
    pytest.importorskip("onnxruntime")
    keras.utils.set_random_seed(0)
    model = spread(tiny_model(class_names=("cat", "</script>", "bird")))
    folder = tmp_path_factory.mktemp("browser") / "web"
    model.export(folder, target="browser", runtime_address="./dist/", verbose=0)
    shutil.copytree(runtime, folder / "dist")
    image = np.random.default_rng(0).integers(40, 200, (64, 64, 3), "uint8")
    (folder / "image.png").write_bytes(encoded(image))
    return folder, model, image


def settings_of(folder):
    """The settings in a folder's page."""
    page = (folder / "index.html").read_text()
    line = next(line for line in page.splitlines() if line.startswith("const settings"))
    assert "<" not in line
    return json.loads(line.removeprefix("const settings = ").removesuffix(";"))


# WebGPU of a processor, which Chromium has where there is no graphics card.
_SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
# Scripts that run before the page's own.
_NO_GPU = 'Object.defineProperty(navigator, "gpu", { value: undefined });'
_REAL_GPU = """
for (const type of [globalThis.GPUAdapterInfo, globalThis.GPUAdapter]) {
  if (type && "isFallbackAdapter" in type.prototype) {
    Object.defineProperty(type.prototype, "isFallbackAdapter", { get: () => false });
  }
}
"""
_BROKEN_GPU = """
const requestDevice = async () => { throw new Error("the device is lost"); };
const adapter = { info: {}, features: new Set(), limits: {}, requestDevice };
const gpu = { requestAdapter: async () => adapter };
Object.defineProperty(navigator, "gpu", { value: gpu });
"""


@pytest.mark.slow
def test_the_page_knows_all_nodes_of_the_postprocess(web):
    onnx = pytest.importorskip("onnx")
    folder, _, _ = web
    names = settings_of(folder)["postprocess"]
    graph = onnx.load(folder / "model.onnx").graph
    (loop,) = (node for node in graph.node if node.op_type == "Loop")
    (body,) = (item.g for item in loop.attribute if item.name == "body")
    assert {loop.name, *(node.name for node in body.node)} < set(names)
    # All that follows the network: whatever computes one of the file's outputs.
    found, wanted = set(), [value.name for value in graph.output]
    by_output = {name: node for node in graph.node for name in node.output}
    while wanted:
        name = wanted.pop()
        if name in by_output and name not in ("class_logits", "box_deltas"):
            node = by_output.pop(name)
            found.add(node.name)
            wanted += node.input
            if node.name == loop.name:  # reads what stands around it
                wanted += [name for inner in body.node for name in inner.input]
    assert found == {node.name for node in graph.node} & set(names)
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here")
@pytest.mark.parametrize(
    ("flags", "before", "offered", "used"),
    [
        (("--disable-gpu",), "", ["wasm"], ["wasm"]),
        (_SOFTWARE_GPU, _NO_GPU, ["wasm"], ["wasm"]),
        # WebGPU in software is slower than WebAssembly.
        (_SOFTWARE_GPU, "", ["wasm", "webgpu"], ["wasm", "webgpu"]),
        (_SOFTWARE_GPU, _REAL_GPU, ["webgpu", "wasm"], ["webgpu", "wasm"]),
        (("--disable-gpu",), _BROKEN_GPU, ["webgpu", "wasm"], ["wasm", "wasm"]),
    ],
)
def test_the_page_finds_in_chromium_what_the_model_finds(
    web, tmp_path, flags, before, offered, used
):
    folder, model, image = web
    page = folder / "index.html"
    text = page.read_text()
    changed = text.replace("<script", f"<script>{before}</script>\n<script", 1)
    try:
        page.write_text(changed.replace("</html>", f"{_ASK}</html>"))
        providers, told = told_by(folder, tmp_path / "profile", flags)
    finally:
        page.write_text(text)
    assert (providers, [one["provider"] for one in told]) == (offered, used)
    titles = {"wasm": "WebAssembly", "webgpu": "WebGPU"}
    expected = model.detect(image)
    for one in told:
        if "failed" in one:
            assert before == _BROKEN_GPU and one["failed"] == "webgpu"
            continue
        assert f"ms with {titles[one['provider']]}" in one["status"]
        assert "cat " in one["text"]
        found = one["found"]
        # `detect` drops low scores, the page hides them.
        assert len(found) >= len(expected) > 5
        for detection, box, label, score in zip(
            found, expected.boxes, expected.labels, expected.scores
        ):
            assert detection["label"] == label
            assert detection["name"] == model.class_names[label]
            np.testing.assert_allclose(detection["score"], score, atol=1e-4)
            np.testing.assert_allclose(detection["box"], box, atol=0.05)


def test_the_page_has_the_models_settings_and_no_class_ends_its_script(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        ExportFormat, "write", lambda self, model, path, **options: None
    )
    monkeypatch.setattr(servers, "_postprocess_nodes", lambda path: ["postprocess/a"])
    config = ek.EfficientDetConfig.from_name("efficientdet-lite0")
    names = ("cat", "</script>")
    model = SimpleNamespace(config=config, class_names=names, num_classes=2)
    write_browser(model, tmp_path, tmp_path, runtime_address="dist")
    settings = settings_of(tmp_path)
    assert settings["names"] == list(names)
    assert settings["postprocess"] == ["postprocess/a"]
    assert (settings["height"], settings["width"]) == config.image_size
    assert (settings["model"], settings["runtime"]) == ("model.onnx", "dist/")
