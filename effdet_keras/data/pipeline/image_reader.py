"""Decoding the images of a run: what cannot be read is skipped, counted, named."""

from __future__ import annotations

import functools
import io
import sys
import weakref

import numpy as np
from PIL import Image, features

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.record import (
    describe_example,
    load_example,
    load_mask,
    stored_bytes,
)
from effdet_keras.errors import InvalidValueError, printable
from effdet_keras.images import EXIF_ORIENTATION, EncodedImage, read_image
from effdet_keras.labels import IGNORED_PIXEL

_SHOWN = 5  # images named in one report
_EMPTY = np.full((1, 1, 3), 127, np.uint8)  # in the place of one not read
_EMPTY_MASK = np.full((1, 1), IGNORED_PIXEL, np.uint8)
_MARGIN = 2.0  # of the sides of an image that are needed to those that are shown
_UNKNOWN = sys.maxsize  # batches, of a dataset that does not tell
# `tf.data.Dataset` of `batches` to the `ImageReader` behind it.
reader_behind = weakref.WeakKeyDictionary()


def find_image_readers(dataset):
    """Finds the `ImageReader`s behind batches, and how many batches a pass has."""
    found, to_visit, visited = {}, [(dataset, _UNKNOWN)], set()
    while to_visit:
        dataset, length = to_visit.pop()
        if isinstance(reader := getattr(dataset, "image_reader", None), ImageReader):
            found[reader] = dataset.batches_per_pass  # of `NumPyBatches`
            continue
        # Only a `tf.data.Dataset` has `_inputs`: the datasets it was made of.
        inputs = getattr(dataset, "_inputs", None)
        if not callable(inputs) or id(dataset) in visited:
            continue
        visited.add(id(dataset))
        size = int(dataset.cardinality())
        length = min(length, size) if size >= 0 else length  # it may be infinite
        reader = reader_behind.get(dataset)
        if reader is None:
            to_visit.extend((one, length) for one in reversed(inputs()))
        else:
            found.setdefault(reader, length)
    return found


class ImageReader:
    """Reads the examples of records, and remembers which images it could not read."""

    def __init__(self, dataset, *, replace, seg_class_names=None):
        self.records = dataset.records
        self.class_names = dataset.class_names
        self.category_ids = dataset.category_ids
        self.seg_class_names = seg_class_names
        self.error = None  # what stopped the pipeline: TensorFlow only tells of it
        self.order = None  # `EpochOrder` of the pipeline that reads with it
        # An image that cannot be read: by another one, not an empty one.
        self._replace = replace
        # Height and width that are shown of an image, where it need not be whole.
        self.shown = None
        self._skipped = {}

    def name_of(self, image_id):
        """Returns the file name of an image, or its id where it has none."""
        return self._names.get(int(image_id), f"image_id={int(image_id)}")

    @functools.cached_property
    def _names(self):
        return {record.image_id: record.name for record in self.records}

    def read(self, index):
        """Image, boxes, labels, image id, whether it is there, and maybe the mask."""
        try:
            return self._read(index)
        except Exception as error:
            self.error = error
            raise

    @property
    def gives_masks(self):
        """Whether `read` returns a mask as well."""
        return self.seg_class_names is not None

    def _read(self, index):
        """Reads an image; if it is unreadable, returns the next one or an empty one."""
        count = len(self.records)
        for i in range(index, index + count):
            record = self.records[i % count]
            try:
                masks = (load_mask(record),) if self.gives_masks else ()
                return (*_single_objects(record, self.shown), True, *masks)
            except (ValueError, OSError) as error:
                self._skipped[record.image_id] = error
            if len(self._skipped) == count:
                break
            if not self._replace:
                no_boxes = np.zeros((0, 4), np.float32), np.zeros(0, np.int32)
                masks = (_EMPTY_MASK,) if self.gives_masks else ()
                return _EMPTY, *no_boxes, np.int64(record.image_id), False, *masks
        raise InvalidValueError(
            f"None of the {count} images of the dataset can be read. The first: "
            f"{next(iter(self._skipped.values()))}"
        )

    def report(self):
        """Prints which images were skipped since the last report, if any."""
        skipped, self._skipped = self._skipped, {}
        if not skipped:
            return
        names = sorted(self.name_of(image_id) for image_id in skipped)
        more = "" if len(names) <= _SHOWN else f" and {len(names) - _SHOWN} more"
        place = "replaced by other images" if self._replace else "counted as empty"
        text = (
            f"\n{len(names)} of {len(self.records):,} images could not be read and "
            f"were skipped ({place}): {', '.join(names[:_SHOWN])}{more}. The first: "
            f"{next(iter(skipped.values()))}"
        )
        print(printable(text), file=sys.stderr, flush=True)


def _single_objects(record, shown):
    """Without crowds, where no loss may ask for one box; a mask has their pixels."""
    image, divisor = _smaller(record, shown)
    if image is None:
        image = decode_plain_jpeg(record.image)
    if image is None or (divisor == 1 and image.shape[:2] != tuple(record.image_size)):
        example = load_example(record)
    else:
        example = {"image": image, **describe_example(record)}
    single = ~example["is_crowd"]
    boxes, labels = example["boxes"][single] / divisor, example["labels"][single]
    return example["image"], boxes, labels, np.int64(example["image_id"])


def _smaller(record, shown):
    """An image that is shown far smaller, and what its sides were divided by.

    None where it must be whole. A JPEG file is decoded in fewer pixels (docs/speed.md).
    """
    share = 1.0
    if shown is not None and not isinstance(record.image, np.ndarray):
        share = _MARGIN * min(a / b for a, b in zip(shown, record.image_size))
    if share > 0.5:
        return None, 1
    image = read_image(record.image, size=record.image_size, share=share)
    for divisor in (2, 4, 8):
        if image.shape[:2] == tuple(-(-side // divisor) for side in record.image_size):
            return image, divisor
    return image, 1  # no JPEG file


# --- Plain JPEG files decoded by TensorFlow: the same pixels, without Python's lock.


def decode_plain_jpeg(image):
    """Decodes a JPEG file if TensorFlow's pixels are known to be Pillow's, or None."""
    # By the name, so that others are read but once.
    is_jpeg = isinstance(image, EncodedImage) or (
        isinstance(image, str) and image.lower().endswith((".jpg", ".jpeg"))
    )
    if not is_jpeg or not _can_decode_alike():
        return None
    try:
        data = stored_bytes(image)
        if not _is_plain(data):
            return None
        decoded = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
        return np.asarray(memoryview(decoded))  # without a copy
    except Exception:  # of files and decoders: `read_image` says it in plain words
        return None


@functools.cache
def _can_decode_alike():
    return tf.is_installed() and features.check_feature("libjpeg_turbo")


def _is_plain(data):
    """Whether it is a JPEG file that is not progressive, turned, or of odd colors."""
    with Image.open(io.BytesIO(data)) as stored:  # reads the header alone
        return (
            stored.format == "JPEG"
            and stored.mode in ("RGB", "L")
            and not stored.info.get("progressive")
            and stored.getexif().get(EXIF_ORIENTATION, 1) == 1
        )
