"""Small datasets of odd images for tests of formats, and what makes two the same."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from effdet_keras.data import DetectionDataset
from effdet_keras.data.formats.tfrecord import encode_example, write_records
from effdet_keras.data.record import Record

CLASS_NAMES = ("Bär", "no such thing", "naïve, “quoted” <b>&amp;", "dog")
CATEGORY_IDS = (90, 3, 17, 5)  # neither sorted nor without gaps


def save_image(path, size=(40, 20), turn=None):
    """Writes an image of noise, `size` is (width, height), with an EXIF orientation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    if turn is not None:
        exif[0x0112] = turn
    pixels = np.random.default_rng(len(path.name)).integers(0, 255, (*size[::-1], 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path, exif=exif)
    return path


def encoded(image, format="PNG", **options):
    """The bytes of an image file, of an array or an image of Pillow."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def bomb(width, height):
    """A PNG of a few bytes that says it has so many pixels."""

    def chunk(kind, content):
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + checksum.to_bytes(4)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def record_of(image, size, image_id, boxes=(), labels=(), **changes):
    """A `Record` of a file or array, `size` is (height, width)."""
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    fields = {
        "image": image if isinstance(image, np.ndarray) else str(image),
        "image_size": size,
        "image_id": image_id,
        "source_id": image_id,
        "file_name": "",
        "boxes_xywh": boxes,
        "labels": labels,
        "is_crowd": [False] * len(labels),
        "area": boxes[:, 2] * boxes[:, 3],
        "annotation_ids": 100 * image_id + np.arange(len(labels)),
    }
    return Record(**fields | changes)


def features(encoded, boxes=((0.1, 0.25, 0.3, 0.5),), labels=(1,), **others):
    """A TFRecord's record by its `ymin, xmin, ymax, xmax` and labels."""
    sides = np.array(boxes, float).reshape(-1, 4).T
    names = ("ymin", "xmin", "ymax", "xmax")
    result = {f"image/object/bbox/{k}": v for k, v in zip(names, sides)}
    result["image/object/class/label"] = np.array(labels, np.int64)
    result["image/encoded"] = encoded
    result.update({f"image/{k.replace('__', '/')}": v for k, v in others.items()})
    return {key: value for key, value in result.items() if value is not None}


def write_shard(folder, *records, name="a.tfrecord"):
    write_records(folder / name, map(encode_example, records))
    return folder / name


def odd_splits(folder):
    """Two splits: a thin box and a crowd, an EXIF turn, other formats, no object."""

    def record(name, size, *arguments, turn=None, **changes):
        path = save_image(folder / name, size[::-1], turn)
        size = size if turn is None else size[::-1]
        return record_of(path, size, *arguments, file_name=name, **changes)

    boxes = [[8, 4, 20, 16], [1.25, 2.5, 0.5, 9.125], [40.5, 30, 7.5, 2]]
    first = record(
        "x/same.jpg",
        (32, 48),
        397133,
        [*boxes, [0, 0, 48, 32]],
        [0, 3, 0, 2],
        source_id="image-b",
        is_crowd=[False, False, False, True],
    )
    others = [
        record("y/same.jpg", (57, 31), 7, [[1, 1, 3, 3]], [3], area=[5.5]),
        record(
            "y/turned.jpg", (32, 48), 12, [[3, 40, 29, 7]], [2], turn=6, source_id="a"
        ),
    ]
    second = [
        record("y/grün 1.png", (20, 20), 9, [[1 / 3, 2 / 3, 10 / 3, 9]], [0]),
        record("z/empty.webp", (30, 40), 7, source_id="z"),
    ]
    return {
        "train": DetectionDataset([first, *others], CLASS_NAMES, CATEGORY_IDS),
        "validation": DetectionDataset(second, CLASS_NAMES, CATEGORY_IDS),
    }


def assert_same(found, wanted, atol=1e-4):
    """Boxes in pixels may differ by `atol`: TFRecord has float32, VOC four decimals."""
    for field in ("class_names", "category_ids", "image_ids"):
        assert getattr(found, field) == getattr(wanted, field)
    assert found.problems == ()
    for record, other in zip(found.records, wanted.records):
        for field in ("source_id", "file_name", "image_size"):
            assert getattr(record, field) == getattr(other, field)
        for field in ("labels", "is_crowd", "annotation_ids"):
            np.testing.assert_array_equal(getattr(record, field), getattr(other, field))
        np.testing.assert_allclose(record.boxes_xywh, other.boxes_xywh, atol=atol)
        np.testing.assert_allclose(record.area, other.area, rtol=10 * atol)
    for example, other in zip(found, wanted):
        np.testing.assert_array_equal(example["image"], other["image"])
