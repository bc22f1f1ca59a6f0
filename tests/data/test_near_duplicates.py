"""Hashes of images, and which images are near-duplicates."""

import numpy as np
import pytest
from PIL import Image
from support.clips import photo, write_clip
from support.small_datasets import record_of

from effdet_keras.data.near_duplicates import (
    MOST_BITS,
    difference_hash,
    hash_images,
    near_duplicate_groups,
)


def hashed(images):
    return hash_images(
        [
            record_of(np.asarray(image), image.size[::-1], i)
            for i, image in enumerate(images)
        ]
    )


def groups_of(images):
    return near_duplicate_groups(hashed(images))[:, 0].tolist()


def test_the_hash_is_that_of_its_definition():
    """Bit by bit: whether a pixel is brighter than the one to the left of it."""
    grey = photo(0, 9, 8).convert("L")
    expected = 0
    for y in range(8):
        for x in range(8):
            expected = 2 * expected + (
                grey.getpixel((x + 1, y)) > grey.getpixel((x, y))
            )
    assert difference_hash(grey) == expected
    assert difference_hash(grey.resize((90, 80), Image.Resampling.NEAREST)) == expected


def test_a_copy_that_is_scaled_compressed_or_brighter_is_a_near_duplicate(tmp_path):
    image = photo(1)
    image.save(tmp_path / "small.jpg", quality=20)
    copies = [
        image.resize((120, 90)),
        Image.open(tmp_path / "small.jpg").convert("RGB"),
        image.point(lambda value: min(value + 20, 255)),
        image.crop((2, 1, 240, 180)),
    ]
    assert groups_of([image, photo(2), *copies]) == [0, 1, 0, 0, 0, 0]
    assert groups_of([image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]) == [
        0,
        1,
    ]


def test_frames_of_a_clip_are_one_group_by_the_frames_between_them(tmp_path):
    paths = write_clip(tmp_path, "clip", seed=3, num_frames=20)
    records = [record_of(path, (90, 120), i) for i, path in enumerate(paths)]
    hashes = hash_images(records)
    assert hashes.bits_between(0, 19) > MOST_BITS  # not alike by themselves
    groups = near_duplicate_groups(hashes)
    assert set(groups[:, 0]) == {0}
    # Each came into the group through an image that is alike.
    assert hashes.are_alike(groups[:, 1], np.arange(20)).all()


def test_images_with_little_in_them_are_not_alike_for_their_hash_alone():
    """White sheets with a short line, each in another place, and sheets without."""
    sheets = []
    for x, y in ((30, 20), (160, 130), (90, 60)):
        pixels = np.full((180, 240, 3), 255, np.uint8)
        pixels[y : y + 30, x : x + 4] = 0
        sheets.append(Image.fromarray(pixels))
    hashes = hashed(sheets)
    assert hashes.bits_between(0, 1) <= MOST_BITS
    assert groups_of(sheets) == [0, 1, 2]
    white = Image.fromarray(np.full((18, 24, 3), 255, np.uint8))
    assert groups_of([white, white]) == [0, 1]


def test_files_are_hashed_as_viewers_show_them(tmp_path):
    """Decoded in an eighth of the size, and turned upright; noise of JPEG aside."""
    image = photo(4, 1600, 1200)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned by 90 degrees
    turned = image.transpose(Image.Transpose.ROTATE_90)
    turned.save(tmp_path / "turned.jpg", exif=exif)
    image.save(tmp_path / "plain.jpg")
    paths = [tmp_path / "plain.jpg", tmp_path / "turned.jpg"]
    records = [record_of(path, (1200, 1600), i) for i, path in enumerate(paths)]
    assert near_duplicate_groups(hash_images(records))[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize("content", [None, b"", b"no image"])
def test_what_cannot_be_read_is_like_no_other(tmp_path, content):
    paths = [tmp_path / "a.jpg", tmp_path / "b.jpg"]
    for path in paths:
        if content is not None:
            path.write_bytes(content)
    hashes = hash_images(
        [record_of(path, (90, 120), i) for i, path in enumerate(paths)]
    )
    assert not hashes.is_comparable.any()
    assert near_duplicate_groups(hashes)[:, 0].tolist() == [0, 1]


def test_no_images_have_no_groups():
    assert near_duplicate_groups(hash_images([])).shape == (0, 2)
