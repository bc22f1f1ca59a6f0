"""How many images per second does the training input make in NumPy and in `tf.data`?

JPEG files of 640 x 480 become batches of 8 at 320 x 320, with flip and scale jitter.
Each side runs in a process of its own: `ours in NumPy`, where `import tensorflow`
fails, and `ours in tf.data`. A repeat is one pass over the images, so that images per
second are `images / seconds`.
"""

import os
import sys
import tempfile

import alternate
from images import write_images

BATCH_SIZE, SIZE = 8, 320  # images, pixels


def in_numpy(quick):
    sys.modules["tensorflow"] = None  # `import tensorflow` raises ImportError
    return _measured(quick)


def _measured(quick):
    import effdet_keras as ek

    count = 16 if quick else 64
    with tempfile.TemporaryDirectory() as folder:
        data = ek.data.from_coco(write_images(folder, count), folder)
        batches = data.batches(BATCH_SIZE, image_size=SIZE, training=True, seed=0)

        def one_pass():
            for _ in batches:
                pass

        times = alternate.repeat(one_pass, 1 if quick else 6, warm_up=1)
    return {f"{count} images at {SIZE} x {SIZE}": times}


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")
    alternate.ENVIRONMENT.setdefault("KERAS_BACKEND", os.environ["KERAS_BACKEND"])
    sides = {"ours in NumPy": in_numpy, "ours in tf.data": _measured}
    alternate.main(__doc__, sides, allocators=["default"], rounds=3)
