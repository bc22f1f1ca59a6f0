"""How is the time of `detect` spent, for D0 and one JPEG file of 640 x 480?

Measures the whole call, and its stages alone: decode, letterbox, network, postprocess.
"""

import json
import pathlib
import statistics
import tempfile

import alternate
from images import write_images


def ours(quick):
    import keras
    import tensorflow as tf
    from keras import ops

    import effdet_keras as ek
    from effdet_keras.images import read_image
    from effdet_keras.letterbox import letterbox_array

    keras.utils.set_random_seed(0)
    model = ek.EfficientDet.from_preset("efficientdet-d0")
    size, mean = model.config.image_size, model.config.padding_rgb
    network = tf.function(lambda images: model(images, training=False))
    postprocess = tf.function(model.detect_outputs)
    with tempfile.TemporaryDirectory() as folder:
        write_images(folder, 1)
        path = pathlib.Path(folder) / "1.jpg"
        pixels = read_image(path)
        image, _ = letterbox_array(pixels, size, mean)
        batch = ops.convert_to_tensor(image)[None]
        outputs = network(batch)
        steps = {
            "detect": lambda: model.detect(path),
            "decode": lambda: read_image(path),
            "letterbox": lambda: letterbox_array(pixels, size, mean),
            "network": lambda: network(batch)["class_logits"].numpy(),
            "postprocess": lambda: postprocess(outputs)["boxes"].numpy(),
        }
        repeats = 2 if quick else 20
        return [
            _line(part, alternate.repeat(step, repeats)) for part, step in steps.items()
        ]


def _line(part, times):
    medians = {
        unit: round(statistics.median(values), 4) for unit, values in times.items()
    }
    return {"case": part, **medians, "repeats": len(times["seconds"])}


if __name__ == "__main__":
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
