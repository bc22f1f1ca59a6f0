"""TensorFlow decodes plain JPEG files to Pillow's pixels; others stay with Pillow."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from effdet_keras.augment import Mosaic
from effdet_keras.data import DetectionDataset, from_arrays, write_shapes
from effdet_keras.data.pipeline import image_reader as decoding
from effdet_keras.data.pipeline.image_reader import decode_plain_jpeg
from effdet_keras.images import EXIF_ORIENTATION, read_image

pytestmark = pytest.mark.tensorflow


def photograph(height, width, seed=0):
    """Smooth patches with noise, which every part of the decoder has to do with."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (4, 5, 3), dtype="uint8")
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height)))
    noisy = smooth + rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype("uint8"))


def encoded(image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("quality", [10, 75, 95, 100])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (17, 33), (48, 64), (101, 77)])
def test_the_pixels_are_those_of_pillow(tmp_path, mode, quality, size):
    image = photograph(*size).convert(mode)
    path = tmp_path / "image.jpg"
    kinds = [{"subsampling": kind} for kind in (0, 1, 2, "4:1:1")]
    kinds += [{"restart_marker_blocks": 2}]
    kinds += [{"keep_rgb": True, "subsampling": 0}] if mode == "RGB" else []
    for kind in kinds:
        path.write_bytes(encoded(image, quality=quality, **kind))
        decoded = decode_plain_jpeg(str(path))
        np.testing.assert_array_equal(decoded, read_image(path), err_msg=str(kind))
        assert decoded.dtype == np.uint8


def turned(orientation):
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    return {"exif": exif}


@pytest.mark.parametrize(
    "mode, options",
    [
        ("RGB", {"format": "PNG"}),
        ("P", {"format": "PNG"}),
        ("I;16", {"format": "PNG"}),
        ("RGB", {"format": "WEBP"}),
        ("CMYK", {"format": "JPEG"}),
        ("RGB", {"format": "JPEG", "progressive": True}),
        ("RGB", {"format": "JPEG", **turned(6)}),
        ("RGB", {"format": "JPEG", **turned(3)}),
    ],
)
def test_other_kinds_stay_with_pillow(tmp_path, mode, options):
    grey16 = Image.fromarray(np.arange(600, dtype="uint16").reshape(20, 30) * 100)
    image = grey16 if mode == "I;16" else photograph(20, 30).convert(mode)
    path = tmp_path / "image.jpg"  # the name says nothing
    image.save(path, **options)
    assert decode_plain_jpeg(str(path)) is None


def test_whatever_tensorflow_decodes_of_damaged_files_is_what_pillow_decodes(tmp_path):
    whole = encoded(photograph(48, 64), quality=85)
    path = tmp_path / "image.jpg"
    rng = np.random.default_rng(0)
    decoded_some = 0
    for number in range(120):
        data = bytearray(whole)
        data[rng.integers(2, len(data))] = rng.integers(256)
        if number % 3 == 0:  # cut, with the marker of an end or without
            data = data[: rng.integers(2, len(data))] + b"\xff\xd9" * (number % 2)
        path.write_bytes(data)
        decoded = decode_plain_jpeg(str(path))
        if decoded is not None:
            decoded_some += 1
            np.testing.assert_array_equal(decoded, read_image(path))
    assert 40 < decoded_some < 120


@pytest.mark.smoke
def test_batches_have_the_pixels_of_the_dataset_without_pillow(tmp_path, monkeypatch):
    dataset, _ = write_shapes(tmp_path, num_train=3, num_valid=1, image_size=32)
    expected = [example["image"] for example in dataset]

    def refuse(record):
        raise AssertionError("Pillow decoded an image that TensorFlow can decode")

    monkeypatch.setattr(decoding, "load_example", refuse)
    images, _ = next(iter(dataset.batches(3, image_size=32)))
    np.testing.assert_array_equal(images, expected)


@pytest.fixture(params=[("JPEG", 1), ("JPEG", 6), ("PNG", 1)])
def photo(request, tmp_path):
    """A dataset of one image, 603 x 1201 pixels: a white box on black."""
    format, orientation = request.param
    pixels = np.zeros((603, 1201, 3), "uint8")
    pixels[120:480, 400:560] = 255
    stored = Image.fromarray(np.rot90(pixels) if orientation == 6 else pixels)
    path = tmp_path / f"{format}.jpg"
    stored.save(path, format, **turned(orientation))
    dataset = from_arrays([pixels], [[[120, 400, 480, 560]]], [[0]], ["patch"])
    record = dataclasses.replace(dataset.records[0], image=str(path))
    return DetectionDataset([record], ["patch"])


@pytest.mark.parametrize("shown, divisor", [(64, 8), (128, 4), (320, 1)])
def test_of_a_large_photo_no_more_pixels_are_decoded_than_needed(photo, shown, divisor):
    (record,) = photo.records
    divisor = divisor if record.image.endswith("JPEG.jpg") else 1
    image, boxes, *_ = decoding._single_objects(record, (shown, shown))
    assert image.shape == (-(-603 // divisor), -(-1201 // divisor), 3)
    np.testing.assert_array_equal(boxes * divisor, [[120, 400, 480, 560]])
    y0, x0, y1, x1 = boxes.astype(int)[0]
    assert image[y0 + 2 : y1 - 2, x0 + 2 : x1 - 2].min() > 240
    image = image.copy()
    image[y0 - 2 : y1 + 2, x0 - 2 : x1 + 2] = 0
    assert image.max() < 15


@pytest.mark.parametrize(
    "augment, shown",
    [(None, (80.0, 80.0)), (Mosaic(), (80.0, 80.0)), (lambda x, seed: x, None)],
)
def test_all_pixels_are_there_to_judge_and_for_functions(photo, augment, shown):
    same = {"image_size": 64, "scale_jitter": (0.5, 1.25)}
    batches = photo.batches(1, training=True, augment=augment, **same)
    assert decoding.reader_behind[batches].shown == shown
    assert decoding.reader_behind[photo.batches(1, **same)].shown is None
