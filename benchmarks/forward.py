"""How long does the network of D0 take, 512 x 512, for 1 and for 8 images?

Measures raw outputs of the live model as a TensorFlow graph, and in the runtimes into
which `Predictor` can convert it. They are compared with PyTorch effdet, eager and
compiled.
"""

import functools

import alternate
import numpy as np

SIZE = 512
THREADS = 2


def _cases(quick):
    """Returns batch sizes and repeats."""
    return ((1, 2),) if quick else ((1, 20), (8, 5))


def ours(quick):
    import tensorflow as tf

    import effdet_keras as ek

    model = ek.EfficientDet.from_preset("efficientdet-d0")
    result = {}
    for batch_size, repeats in _cases(quick):
        forward = tf.function(lambda images: model(images, training=False))
        images = tf.constant(_images(batch_size, channels="last"))
        step = functools.partial(_run_and_wait, forward, images)
        result[f"batch {batch_size}"] = alternate.repeat(step, repeats)
    return result


def ours_in_a_runtime(quick, runtime, precision="float32"):
    import effdet_keras as ek

    model = ek.EfficientDet.from_preset("efficientdet-d0")
    predictor = ek.Predictor(
        model, runtime=runtime, num_threads=THREADS, precision=precision
    )
    result = {}
    for batch_size, repeats in _cases(quick):
        images = _images(batch_size, channels="last")
        step = functools.partial(predictor.detector.runtime.run, images)
        result[f"batch {batch_size}"] = alternate.repeat(step, repeats)
    return result


def _run_and_wait(forward, images):
    forward(images)["class_logits"].numpy()


def peer(quick, *, channels_last=False, compiled=False):
    import torch
    from peer import network

    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = network().eval().to(memory_format=layout)
    if compiled:
        import torch._inductor.config as inductor

        inductor.freezing = True
        model = torch.compile(model)
    result = {}
    for batch_size, repeats in _cases(quick):
        images = torch.from_numpy(_images(batch_size, channels="first"))
        images = images.to(memory_format=layout)
        with torch.no_grad() if compiled else torch.inference_mode():
            step = functools.partial(model, images)
            result[f"batch {batch_size}"] = alternate.repeat(step, repeats)
    return result


def _images(batch_size, channels):
    shape = (3, SIZE, SIZE) if channels == "first" else (SIZE, SIZE, 3)
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (batch_size, *shape)).astype("float32")


if __name__ == "__main__":
    alternate.main(
        __doc__,
        {
            "ours": ours,
            "ours_openvino": functools.partial(ours_in_a_runtime, runtime="openvino"),
            "ours_onnx": functools.partial(ours_in_a_runtime, runtime="onnx"),
            "peer": peer,
            "peer_channels_last": functools.partial(peer, channels_last=True),
            "peer_spinning": functools.partial(peer, channels_last=True),
            "peer_compiled": functools.partial(peer, channels_last=True, compiled=True),
        },
    )
