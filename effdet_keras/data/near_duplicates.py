"""Images that look alike: a difference hash of each, and groups of near-duplicates.

The difference hash (dHash) of an image has one bit for each of 64 pairs of neighbouring
pixels of its 9x8 grey version: whether it gets brighter from left to right. It hardly
changes when an image is scaled, compressed again, or moved by a percent. Images with
little in them, such as white sheets with a line, may have nearly one hash and yet be
different, so that a pair must also agree in its 16x16 grey versions.

The package ImageHash has the same hash, and brings SciPy and PyWavelets with it, which
nothing else here needs.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from effdet_keras.data.record import Record
from effdet_keras.images import read_image

HASH_BITS = 64
# Two images are near-duplicates where at most so many bits of their hashes differ, and
# their 16x16 grey versions have at least this correlation. Of unrelated photographs
# half of the bits differ. Of five datasets 62 pairs fulfil the first, and the 6 of them
# that show the same things in one scene fulfil the second.
MOST_BITS = 8
LEAST_CORRELATION = 0.96
_THUMBNAIL = 16  # pixels per side
# Grey levels, their standard deviation: below it an image is of one color, and like
# every other such image.
_FLAT = 1.0
# A JPEG file is decoded in an eighth of its size where that has at least so many pixels
# in the longer side.
_DECODED_SIDE = 64


@dataclasses.dataclass(frozen=True)
class ImageHashes:
    """What is compared of the images of a dataset.

    Attributes:
        hashes: uint64 array `[n]`, the difference hash of each image.
        thumbnails: uint8 array `[n, 256]`, its 16x16 grey pixels.
        is_comparable: bool array `[n]`: False for images that cannot be read, and for
            those of one color.
    """

    hashes: np.ndarray
    thumbnails: np.ndarray
    is_comparable: np.ndarray

    def __len__(self) -> int:
        return len(self.hashes)

    def subset(self, indices: Any) -> ImageHashes:
        """Those of some images."""
        fields = self.hashes, self.thumbnails, self.is_comparable
        return ImageHashes(*(field[indices] for field in fields))

    def bits_between(self, first: Any, second: Any) -> np.ndarray:
        """How many of the 64 bits differ between images, by their indices."""
        return np.bitwise_count(self.hashes[first] ^ self.hashes[second])

    def correlation(self, first: Any, second: Any) -> np.ndarray:
        """The correlation of the thumbnails of images, by their indices."""
        return (self._centered(first) * self._centered(second)).sum(axis=-1)

    def are_alike(
        self,
        first: Any,
        second: Any,
        most_bits: int = MOST_BITS,
        least_correlation: float = LEAST_CORRELATION,
    ) -> np.ndarray:
        """Whether images look alike: bool, of indices that broadcast."""
        return (
            self.is_comparable[first]
            & self.is_comparable[second]
            & (self.bits_between(first, second) <= most_bits)
            & (self.correlation(first, second) >= least_correlation)
        )

    def likeness(self, index: int, others: ImageHashes) -> np.ndarray:
        """The correlation of an image with others, `[m]`: 0 where one says nothing."""
        correlation = others._all_centered @ self._centered(index)
        return correlation * others.is_comparable * self.is_comparable[index]

    def are_alike_to(self, index: int, others: ImageHashes) -> np.ndarray:
        """Which of other images an image looks like: bool `[m]`."""
        near = others.is_comparable & bool(self.is_comparable[index])
        near &= np.bitwise_count(others.hashes ^ self.hashes[index]) <= MOST_BITS
        correlation = (others._centered(near) * self._centered(index)).sum(axis=-1)
        near[near] = correlation >= LEAST_CORRELATION
        return near

    @functools.cached_property
    def _all_centered(self):
        """Float32 `[n, 256]`: `likeness` is asked of the same images again."""
        return self._centered(slice(None))

    def _centered(self, indices):
        pixels = self.thumbnails[indices].astype(np.float32)
        pixels -= pixels.mean(axis=-1, keepdims=True)
        norm = np.linalg.norm(pixels, axis=-1, keepdims=True)
        return pixels / np.maximum(norm, 1e-6)


def hash_images(records: Sequence[Record]) -> ImageHashes:
    """Reads images and hashes them, in threads; JPEG files in an eighth of their size.

    An image that cannot be read is an image like no other: whoever needs its pixels
    says what is wrong with it.

    Example:
        >>> from effdet_keras.data import write_shapes
        >>> import tempfile
        >>> from effdet_keras.data import load
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> hashes = hash_images(load(folder, "train").records)
        '/...' is COCO json: splits train, valid
        >>> hashes.are_alike([0, 0], [0, 1]).tolist()
        [True, False]
    """
    with concurrent.futures.ThreadPoolExecutor() as pool:
        looks = list(pool.map(_look_at, records))
    return ImageHashes(
        hashes=np.array([hash_ for hash_, _, _ in looks], np.uint64),
        thumbnails=np.array([pixels for _, pixels, _ in looks], np.uint8).reshape(
            -1, _THUMBNAIL**2
        ),
        is_comparable=np.array([is_comparable for _, _, is_comparable in looks], bool),
    )


def _look_at(record):
    """Hash, thumbnail `[256]`, and whether these say anything, of one image."""
    unknown = np.zeros(_THUMBNAIL**2, np.uint8)
    try:
        pixels = record.image
        if not isinstance(pixels, np.ndarray):
            share = min(_DECODED_SIDE / max(*record.image_size, 1), 1.0)
            pixels = read_image(pixels, size=record.image_size, share=share)
        grey = Image.fromarray(pixels).convert("L")
    except (ValueError, OSError):
        return 0, unknown, False
    thumbnail = np.asarray(_resized(grey, _THUMBNAIL, _THUMBNAIL)).reshape(-1)
    return difference_hash(grey), thumbnail, bool(thumbnail.std() >= _FLAT)


def difference_hash(grey: Image.Image) -> int:
    """The difference hash of a grey image of Pillow, an int of 64 bits.

    Example:
        >>> rising = np.arange(9, dtype="uint8")[np.newaxis].repeat(8, axis=0)
        >>> difference_hash(Image.fromarray(rising)) == 2**64 - 1
        True
    """
    pixels = np.asarray(_resized(grey, 9, 8), np.int16)
    bits = (pixels[:, 1:] > pixels[:, :-1]).reshape(-1)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def _resized(grey, width, height):
    """The mean of the pixels that each new pixel stands for."""
    return grey.resize((width, height), Image.Resampling.BOX)


def near_duplicate_groups(hashes: ImageHashes) -> np.ndarray:
    """Finds the groups of near-duplicates: int `[n, 2]`, group and nearest relative.

    Two images are of one group where they are alike, or a chain of images between them
    is, as the frames of a recording are.

    Returns:
        int array `[n, 2]`: for each image the lowest index in its group, and the index
        of the image through which it came into the group, which is alike. Both are the
        image itself for an image like no other.
    """
    groups = np.stack([np.arange(len(hashes))] * 2, axis=1)
    # Those that are in no group yet; all that are alike leave it together.
    left = np.flatnonzero(hashes.is_comparable)
    while len(left):
        first, left = left[0], left[1:]
        reached = [first]
        while reached:
            image = reached.pop()
            near = hashes.bits_between(image, left) <= MOST_BITS
            near[near] = hashes.correlation(image, left[near]) >= LEAST_CORRELATION
            if near.any():
                groups[left[near]] = first, image
                reached += left[near].tolist()
                left = left[~near]
    return groups
