"""How long does the network take in each runtime that it is exported to?

D0 at 512 and Lite0 at 320 pixels, one image, raw outputs, two threads: the live model,
SavedModel, LiteRT (float and int8), ONNX Runtime and OpenVINO. They are compared with
PyTorch effdet: eager, compiled, and its own ONNX export in ONNX Runtime.
"""

import functools
import multiprocessing
import os
import pathlib
import sys
import tempfile

import alternate
import numpy as np

THREADS = 2
MODELS = {"D0": ("efficientdet-d0", 512), "Lite0": ("efficientdet-lite0", 320)}
FOLDER = "EXPORT_SPEED_FOLDER"  # environment variable with the folder of the exports


def _cases(quick):
    """Name and size of each model."""
    return [("efficientdet-lite0", 64)] if quick else list(MODELS.values())


def _repeats(quick):
    return 2 if quick else 30


def _measured(quick, make_step):
    """Times each model; `make_step(name, size)` returns the function to repeat."""
    return {
        f"{name} {size}": alternate.repeat(make_step(name, size), _repeats(quick))
        for name, size in _cases(quick)
    }


def ours_live(quick):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)

    def make_step(name, size):
        model = _model(name, size)
        forward = tf.function(lambda images: model(images, training=False))
        images = tf.constant(_image(size))
        return lambda: forward(images)["class_logits"].numpy()

    return _measured(quick, make_step)


def ours_saved_model(quick):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)

    def make_step(name, size):
        loaded = tf.saved_model.load(os.fspath(_exported(name, size, "saved_model")))
        raw, images = loaded.signatures["raw"], tf.constant(_image(size))
        # The function does not keep its owner alive.
        return lambda loaded=loaded: raw(images=images)["class_logits"].numpy()

    return _measured(quick, make_step)


def ours_in_a_runtime(quick, ending, **options):
    from effdet_keras.export.runtime import open_runtime

    def make_step(name, size):
        path = _exported(name, size, ending, outputs="raw", batch_size=1, **options)
        runtime = open_runtime(path, num_threads=THREADS)
        return functools.partial(runtime.run, _image(size))

    return _measured(quick, make_step)


def _exported(name, size, file_name, **options):
    """Returns the path of an export; the first side makes it in its own process."""
    path = pathlib.Path(os.environ[FOLDER], f"{name}-{size}", file_name)
    if not path.exists():
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_export, args=(name, size, path, options))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"The export of {name} to '{file_name}' failed")
    return path


def _export(name, size, path, options):
    if options.get("precision") == "int8":
        options = {**options, "calibration": list(_image(size, 8))}
    _model(name, size).export(path, images=[_image(size)[0]], verbose=0, **options)


def _model(name, size):
    import keras

    import effdet_keras as ek

    keras.utils.set_random_seed(0)
    model = ek.EfficientDet.from_preset(name, image_size=size)
    rng = np.random.default_rng(0)
    for weight in model.weights:  # new weights are 0 and 1, and could be optimized away
        if weight.path.endswith(("beta", "moving_mean")):
            weight.assign(rng.normal(0, 0.1, weight.shape))
        elif weight.path.endswith(("gamma", "moving_variance")):
            weight.assign(rng.uniform(0.8, 1.2, weight.shape))
    return model


def _image(size, count=1):
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (count, size, size, 3)).astype("float32")


def peer(quick, *, channels_last=False, compiled=False):
    import torch
    from peer import network

    torch.set_num_threads(THREADS)
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def make_step(name, size):
        model = network(name=name.replace("-", "_"), size=size).eval()
        model = model.to(memory_format=layout)
        images = _peer_image(torch, size).to(memory_format=layout)
        if compiled:
            import torch._inductor.config as inductor

            inductor.freezing = True
            # With known sizes: for two models, effdet's padding must not be symbolic.
            model = torch.compile(model, dynamic=False)
        return functools.partial(model, images)

    with torch.no_grad() if compiled else torch.inference_mode():
        return _measured(quick, make_step)


def peer_onnx(quick):
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS

    def make_step(name, size):
        path = _peer_exported(torch, name, size)
        session = onnxruntime.InferenceSession(path, options)
        images = _peer_image(torch, size).numpy()
        return lambda: session.run(None, {"images": images})

    return _measured(quick, make_step)


def _peer_exported(torch, name, size):
    from peer import network

    path = pathlib.Path(os.environ[FOLDER], f"{name}-{size}", "peer.onnx")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        images = _peer_image(torch, size)
        model = network(name=name.replace("-", "_"), size=size).eval()
        with torch.no_grad():
            torch.onnx.export(
                model,
                (images,),
                path,
                opset_version=17,
                dynamo=False,
                input_names=["images"],
            )
    return path


def _peer_image(torch, size):
    return torch.from_numpy(_image(size).transpose(0, 3, 1, 2).copy() / 64)


SIDES = {
    "ours_live": ours_live,
    "ours_saved_model": ours_saved_model,
    "ours_litert": functools.partial(ours_in_a_runtime, ending="float.tflite"),
    "ours_litert_int8": functools.partial(
        ours_in_a_runtime, ending="int8.tflite", precision="int8"
    ),
    "ours_onnx": functools.partial(ours_in_a_runtime, ending="network.onnx"),
    "ours_openvino": functools.partial(ours_in_a_runtime, ending="network.xml"),
    "peer": peer,
    "peer_channels_last": functools.partial(peer, channels_last=True),
    "peer_spinning": functools.partial(peer, channels_last=True),
    "peer_compiled": functools.partial(peer, channels_last=True, compiled=True),
    "peer_onnx": peer_onnx,
}

if __name__ == "__main__":
    if "--side" in sys.argv:  # this is one of the processes that are started below
        alternate.main(__doc__, SIDES)
    else:
        with tempfile.TemporaryDirectory() as folder:
            alternate.ENVIRONMENT[FOLDER] = folder
            alternate.main(__doc__, SIDES, allocators=["tuned"])
