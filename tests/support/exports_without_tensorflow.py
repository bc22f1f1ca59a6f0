"""A program: exports where neither TensorFlow nor its converters are installed.

    python tests/support/exports_without_tensorflow.py ARCHIVE IMAGE OUT ENDING...

It exports the model of an archive to each ending, checked on an image (a `.npy` file,
uint8 `[H, W, 3]`, the size of the network's input), and writes as `OUT/outputs.npz`
what the model and each file return for it: `live/class_logits`, `onnx/box_deltas`, ...
An ENDING may be a target and its detector, `frigate-onnx`, whose rows for the image are
`frigate-onnx/rows`.
"""

import sys

if __name__ == "__main__":  # in a process of its own, in which no import finds them
    sys.modules["tensorflow"] = sys.modules["tf2onnx"] = None

import pathlib

import keras
import numpy as np

import effdet_keras as ek
from effdet_keras.export.runtime import open_runtime
from effdet_keras.extras.targets.frigate import ONNXCheck, OpenVINOCheck

_FRIGATE = {
    "frigate-onnx": lambda folder: ONNXCheck(folder / "model.onnx"),
    "frigate-openvino": lambda folder: OpenVINOCheck(folder / "model.xml"),
}


def main(archive, image, out, endings):
    out = pathlib.Path(out)
    model = ek.EfficientDet.from_archive(archive)
    image = np.load(image)
    batch = image[None].astype("float32")
    outputs = model(batch, training=False)
    arrays = {f"live/{n}": keras.ops.convert_to_numpy(v) for n, v in outputs.items()}
    for ending in endings:
        if ending in _FRIGATE:
            detector, run = ending.partition("-")[2], _FRIGATE[ending]
            folder = out / ending
            model.export(
                folder, target="frigate", detector=detector, images=[image], verbose=0
            )
            arrays[f"{ending}/rows"] = run(folder).rows(image[None])
            continue
        options = {} if ending == "pt2" else {"outputs": "raw"}
        path = out / f"raw.{ending}"
        model.export(path, images=[image], verbose=0, **options)
        found = open_runtime(path).run(batch)
        arrays |= {f"{ending}/{name}": value for name, value in found.items()}
        if ending != "pt2":  # which has no other outputs
            model.export(out / f"pets.{ending}", images=[image], verbose=0)
    assert sys.modules["tensorflow"] is sys.modules["tf2onnx"] is None
    np.savez(out / "outputs.npz", **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
