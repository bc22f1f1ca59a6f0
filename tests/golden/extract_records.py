"""Makes the small TFRecord golden file out of the reference's.

Run from the repository with the folder of the golden arrays as argument; it
writes `records.tfrecord` beside itself. What it holds: `PROVENANCE-records.md`.
"""

import io
import pathlib
import sys

import tensorflow as tf
from PIL import Image


def main(source):
    blank = io.BytesIO()
    Image.new("RGB", (1024, 636)).save(blank, "JPEG", quality=30)
    path = pathlib.Path(__file__).with_name("records.tfrecord")
    with tf.io.TFRecordWriter(str(path)) as writer:
        for data in tf.data.TFRecordDataset(f"{source}/d_img1.tfrecord"):
            example = tf.train.Example.FromString(data.numpy())
            encoded = example.features.feature["image/encoded"].bytes_list
            encoded.value[0] = blank.getvalue()
            writer.write(example.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main(sys.argv[1])
