"""Decodes the images of a dataset, and skips, counts and names unreadable ones."""

from __future__ import annotations

import functools
import io
import sys
import weakref

import numpy as np
from PIL import Image, features

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.dataset import count_of
from effdet_keras.data.record import (
    describe_example,
    load_example,
    load_mask,
    stored_bytes,
)
from effdet_keras.errors import InvalidValueError, printable
from effdet_keras.images import EXIF_ORIENTATION, EncodedImage, read_image
from effdet_keras.labels import IGNORED_PIXEL

_SHOWN = 5  # the most images that a report names
_EMPTY = np.full((1, 1, 3), 127, np.uint8)  # replaces an image that cannot be read
_EMPTY_MASK = np.full((1, 1), IGNORED_PIXEL, np.uint8)
_MARGIN = 2.0  # an image is decoded with at least this many times the sides shown
_UNKNOWN = sys.maxsize  # number of batches, for a dataset that does not know it
# From the `tf.data.Dataset` of `batches` to the `ImageReader` behind it.
reader_behind = weakref.WeakKeyDictionary()


def find_image_readers(dataset):
    """Finds the `ImageReader`s behind a dataset of batches.

    Args:
        dataset: `tf.data.Dataset` or `NumPyBatches`.

    Returns:
        Dict from `ImageReader` to the number of batches in a pass.
    """
    found, to_visit, visited = {}, [(dataset, _UNKNOWN)], set()
    while to_visit:
        dataset, length = to_visit.pop()
        if isinstance(reader := getattr(dataset, "image_reader", None), ImageReader):
            found[reader] = dataset.batches_per_pass  # of `NumPyBatches`
            continue
        # Only a `tf.data.Dataset` has `_inputs`, the datasets that it was made from.
        inputs = getattr(dataset, "_inputs", None)
        if not callable(inputs) or id(dataset) in visited:
            continue
        visited.add(id(dataset))
        size = int(dataset.cardinality())
        length = min(length, size) if size >= 0 else length  # negative: infinite etc.
        reader = reader_behind.get(dataset)
        if reader is None:
            to_visit.extend((one, length) for one in reversed(inputs()))
        else:
            found.setdefault(reader, length)
    return found


class ImageReader:
    """Reads examples by index, and remembers which images could not be read.

    Args:
        dataset: `DetectionDataset`.
        replace: bool, whether an unreadable image is replaced by the next one. If not,
            it becomes an empty image without objects.
        seg_class_names: tuple of str, the segmentation classes. None reads no masks.
    """

    def __init__(self, dataset, *, replace, seg_class_names=None):
        self.records = dataset.records
        self.class_names = dataset.class_names
        self.category_ids = dataset.category_ids
        self.seg_class_names = seg_class_names
        # The error that stopped the pipeline. TensorFlow raises only a text of it.
        self.error = None
        self.order = None  # `EpochOrder` of the pipeline that uses this reader
        self._replace = replace
        # The largest height and width at which an image is shown, if it may be decoded
        # at a reduced size.
        self.shown = None
        self._skipped = {}

    def name_of(self, image_id):
        """Returns the file name of an image, or its id if it has none."""
        return self._names.get(int(image_id), f"image_id={int(image_id)}")

    @functools.cached_property
    def _names(self):
        return {record.image_id: record.name for record in self.records}

    def read(self, index):
        """Returns the example at an index as a tuple of arrays.

        Returns:
            Image uint8 `[H, W, 3]`; boxes float32 `[n, 4]`, `yxyx` in pixels, without
            crowds; labels int32 `[n]`; image id int64; bool, False if the image could
            not be read; and the mask uint8 `[H, W]` if `gives_masks`.

        Raises:
            ValueError: If no image of the dataset can be read.
        """
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
        number = count_of(
            len(names),
            f"of {len(self.records):,} images could not be read and was skipped",
            f"of {len(self.records):,} images could not be read and were skipped",
        )
        text = (
            f"\n{number} ({place}): {', '.join(names[:_SHOWN])}{more}. The first: "
            f"{next(iter(skipped.values()))}"
        )
        print(printable(text), file=sys.stderr, flush=True)


def _single_objects(record, shown):
    """Reads a record without its crowds, which are no single objects to train on.

    A mask still has the pixels of crowds.

    Args:
        record: `Record`.
        shown: see `ImageReader`.

    Returns:
        Image, boxes, labels and image id, as `ImageReader.read` returns them.
    """
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
    """Decodes an image that is shown far smaller, if possible at a reduced size.

    JPEG files can be decoded at a reduced size (docs/speed.md).

    Returns:
        The image and the divisor of its sides, or `(None, 1)` if all pixels are needed.
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
    return image, 1  # not a JPEG file


# --- Plain JPEG files are decoded by TensorFlow: the same pixels, without the GIL.


def decode_plain_jpeg(image):
    """Decodes a JPEG file with TensorFlow if the pixels equal Pillow's, else None."""
    # Decided by the name, so that files of other formats are read only once.
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
    except Exception:  # of files and decoders: `read_image` raises it in plain words
        return None


@functools.cache
def _can_decode_alike():
    return tf.is_installed() and features.check_feature("libjpeg_turbo")


def _is_plain(data):
    """Returns whether it is a JPEG file in RGB or grey, not progressive or rotated."""
    with Image.open(io.BytesIO(data)) as stored:  # reads the header alone
        return (
            stored.format == "JPEG"
            and stored.mode in ("RGB", "L")
            and not stored.info.get("progressive")
            and stored.getexif().get(EXIF_ORIENTATION, 1) == 1
        )
