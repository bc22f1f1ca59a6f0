"""How long does the page of `target="browser"` take in a headless Chromium?

    npm install onnxruntime-web@1.30.0
    python benchmarks/browser.py node_modules/onnxruntime-web/dist

Exports a Lite0 with random heads, whose suppression runs all of its 100 rounds. Shows
the page an image with each provider; WebGPU is emulated in software if there is no
graphics card. Prints a JSON line for each: the milliseconds of the model, as the page
shows them.
"""

import argparse
import functools
import http.server
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading

import effdet_keras as ek

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests"))
from support.chromium import Page

IMAGES = pathlib.Path(ek.data.__file__).parent / "blood_cells" / "test"
SOFTWARE = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
MEASURE = """(async () => {
  const image = await (await fetch("image.jpg")).blob();
  await use("PROVIDER");
  const times = [];
  for (let i = 0; i < ROUNDS; i++) {
    await show(image);
    const said = document.getElementById("status").textContent;
    times.push(Number(said.match(/(\\d+) ms/)[1]));
  }
  return times;
})()"""


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".mjs": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *arguments):
        pass


def main():
    options = read_options()
    folder = pathlib.Path(tempfile.mkdtemp()) / "web"
    model = ek.EfficientDet.from_preset(
        options.model, image_size=options.size, num_classes=3, verbose=0
    )
    model.export(folder, target="browser", runtime_address="./dist/", verbose=0)
    shutil.copytree(options.dist, folder / "dist")
    shutil.copy(min(IMAGES.glob("*.jpg")), folder / "image.jpg")
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/index.html"
    for provider in options.providers:
        flags = () if options.graphics_card else SOFTWARE
        with Page(address, tempfile.mkdtemp(), flags) as page:
            page.value("window.ready.then(() => true)")
            rounds = str(options.rounds)
            script = MEASURE.replace("PROVIDER", provider).replace("ROUNDS", rounds)
            times = page.value(script)
        line = {
            "model": options.model,
            "size": options.size,
            "provider": provider,
            "ms": statistics.median(times),
            "least_ms": min(times),
            "rounds": len(times),
        }
        print(json.dumps(line), flush=True)
    server.shutdown()


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dist", help="the folder dist of npm's onnxruntime-web")
    parser.add_argument("--model", default="efficientdet-lite0")
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--providers", nargs="+", default=["wasm", "webgpu"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--graphics-card", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
