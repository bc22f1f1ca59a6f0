"""How far does reading JPEG files scale with the cores, by Pillow and by TensorFlow?

Python runs in one thread at a time. What a decoder does without Python's lock scales
with the cores; the rest does not, and limits the images per second on any number of
them.

First the files are read as they are, by two threads. Then more cores are simulated:
decoding, which needs no lock, becomes a sleep of the same length, so that any number of
threads "decode" at once, and what is left takes turns for Python's lock. Of several
rounds the fastest counts, because other work on the machine only makes them slower.
"""

import json
import pathlib
import tempfile
import time
from unittest import mock

import alternate
from images import write_images

THREADS = (1, 2, 4, 8, 16)
_ROUNDS = 5


def ours(quick):
    import effdet_keras as ek

    with tempfile.TemporaryDirectory() as folder:
        count = 8 if quick else 32
        data = ek.data.from_coco(write_images(folder, count), folder)
        passes = 1 if quick else 5
        lines = []
        for decoder in ("Pillow", "TensorFlow"):
            seconds = _decoding_seconds(folder, decoder, passes)
            with _only(decoder):
                lines.append(_line(decoder, "as it is", data, passes, [2]))
            with _only(decoder), _sleeping(decoder, seconds):
                line = _line(decoder, "simulated cores", data, passes, THREADS)
            lines.append({**line, "decoding_milliseconds": round(seconds * 1e3, 2)})
    return lines


def _line(decoder, case, data, passes, threads):
    rounds = {
        count: [_speed(data, passes, count) for _ in range(_ROUNDS)]
        for count in threads
    }
    return {
        "case": f"{decoder}, {case}",
        "images_per_second_by_threads": {
            count: round(max(speed for speed, _ in runs))
            for count, runs in rounds.items()
        },
        # A simulated decoder takes none: this is what is left of an image.
        "cpu_milliseconds_per_image": {
            count: round(min(cpu for _, cpu in runs) * 1e3, 2)
            for count, runs in rounds.items()
        },
        "repeats": passes * len(data) * _ROUNDS,
    }


def _speed(data, passes, threads):
    """Images per second, and CPU seconds of one, of the reader behind `batches`."""
    import tensorflow as tf

    from effdet_keras.data.pipeline.image_reader import reader_of

    reader = reader_of(data.batches(1, training=True))
    indices = tf.data.Dataset.range(len(data)).repeat(passes + 1)
    images = indices.map(
        lambda index: tf.numpy_function(
            lambda i: reader.read(i)[0], [index], tf.uint8, stateful=False
        ),
        num_parallel_calls=threads,
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    iterator = iter(images.with_options(options))
    for _ in range(len(data)):  # the first pass fills the buffers
        next(iterator)
    start, cpu = time.perf_counter(), time.process_time()
    count = sum(1 for _ in iterator)
    cpu = time.process_time() - cpu
    return count / (time.perf_counter() - start), cpu / count


def _only(decoder):
    """Lets the reader use one of the decoders."""
    from effdet_keras.data.pipeline import image_reader

    if decoder == "TensorFlow":
        return mock.patch.object(image_reader, "load_example", None)
    return mock.patch.object(image_reader, "decode_plain_jpeg", lambda image: None)


def _decoding_seconds(folder, decoder, passes):
    """Seconds of one core for the part of decoding that needs no lock."""
    import tensorflow as tf
    from PIL import Image

    paths = sorted(pathlib.Path(folder).glob("*.jpg"))
    files = [path.read_bytes() for path in paths] * passes
    times = []
    for path, data in zip(paths * passes, files):
        if decoder == "TensorFlow":
            start = time.thread_time()
            tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
        else:
            image = Image.open(path)
            start = time.thread_time()
            image.load()
        times.append(time.thread_time() - start)
    return sorted(times)[len(times) // 2]


def _sleeping(decoder, seconds):
    """Puts a sleep, which holds no lock, in the place of decoding."""
    import numpy as np
    import tensorflow as tf
    from PIL import Image, ImageFile

    if decoder == "TensorFlow":
        pixels = tf.constant(np.zeros((480, 640, 3), "uint8"))

        def decode_jpeg(*_, **__):
            time.sleep(seconds)
            return tf.identity(pixels)

        return mock.patch.object(tf.io, "decode_jpeg", decode_jpeg)

    class Sleeping(ImageFile.PyDecoder):
        _pulls_fd = True

        def decode(self, buffer):
            time.sleep(seconds)
            return -1, 0

    return mock.patch.dict(Image.DECODERS, jpeg=Sleeping)


if __name__ == "__main__":
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
