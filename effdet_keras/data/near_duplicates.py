"""Finds near-duplicates: hashes images and groups those that look alike.

The difference hash (dHash) of an image has one bit for each of 64 pairs of neighbouring
pixels in its 9x8 grey version: whether the right pixel is brighter than the left one.
It hardly changes when an image is scaled, compressed again, or moved by a percent.
Images with little content, such as white sheets with a line, may differ and yet have
nearly the same hash. So the 16x16 grey versions of a pair must agree as well.

The package ImageHash has the same hash, but it depends on SciPy and PyWavelets, which
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
# Two images are near-duplicates if at most `MOST_BITS` bits of their hashes differ, and
# their 16x16 grey versions have at least the correlation `LEAST_CORRELATION`. In
# unrelated photographs, half of the bits differ. In five datasets, 62 pairs meet the
# first condition. Of these, the 6 pairs that show the same things in one scene meet the
# second.
MOST_BITS = 8
LEAST_CORRELATION = 0.96
_THUMBNAIL = 16  # pixels per side
# Standard deviation of the grey levels, below which an image is of a single color and
# would look like every other such image.
_FLAT = 1.0
# A JPEG file is decoded at down to an eighth of its size, as long as the longer side
# keeps at least this many pixels.
_DECODED_SIDE = 64


@dataclasses.dataclass(frozen=True)
class ImageHashes:
    """The hashes and thumbnails by which the images of a dataset are compared.

    Attributes:
        hashes: uint64 array `[n]`, the difference hash of each image.
        thumbnails: uint8 array `[n, 256]`, the 16x16 grey pixels of each image.
        is_comparable: bool array `[n]`: False for images that cannot be read, and for
            images of a single color.
    """

    hashes: np.ndarray
    thumbnails: np.ndarray
    is_comparable: np.ndarray

    def __len__(self) -> int:
        return len(self.hashes)

    def subset(self, indices: Any) -> ImageHashes:
        """Returns the hashes of the images at `indices`."""
        fields = self.hashes, self.thumbnails, self.is_comparable
        return ImageHashes(*(field[indices] for field in fields))

    def bits_between(self, first: Any, second: Any) -> np.ndarray:
        """Returns how many of the 64 bits differ between images, given as indices."""
        return np.bitwise_count(self.hashes[first] ^ self.hashes[second])

    def correlation(self, first: Any, second: Any) -> np.ndarray:
        """Returns the correlation of the thumbnails of images, given as indices."""
        return (self._centered(first) * self._centered(second)).sum(axis=-1)

    def are_alike(
        self,
        first: Any,
        second: Any,
        most_bits: int = MOST_BITS,
        least_correlation: float = LEAST_CORRELATION,
    ) -> np.ndarray:
        """Returns whether images look alike.

        Args:
            first, second: ints, indices of images, of shapes that broadcast.
            most_bits: int, the most bits of the hashes that may differ.
            least_correlation: float, the lowest correlation of the thumbnails.

        Returns:
            Bool array of the broadcast shape. An image that is not comparable is like
            no other.
        """
        return (
            self.is_comparable[first]
            & self.is_comparable[second]
            & (self.bits_between(first, second) <= most_bits)
            & (self.correlation(first, second) >= least_correlation)
        )

    def likeness(self, index: int, others: ImageHashes) -> np.ndarray:
        """Returns an image's correlation with others, `[m]`; 0 if not comparable."""
        correlation = others._all_centered @ self._centered(index)
        return correlation * others.is_comparable * self.is_comparable[index]

    def are_alike_to(self, index: int, others: ImageHashes) -> np.ndarray:
        """Returns which of other images look like the image at `index`, bool `[m]`."""
        near = others.is_comparable & bool(self.is_comparable[index])
        near &= np.bitwise_count(others.hashes ^ self.hashes[index]) <= MOST_BITS
        correlation = (others._centered(near) * self._centered(index)).sum(axis=-1)
        near[near] = correlation >= LEAST_CORRELATION
        return near

    @functools.cached_property
    def _all_centered(self):
        """Float32 `[n, 256]`, cached because `likeness` is called again and again."""
        return self._centered(slice(None))

    def _centered(self, indices):
        pixels = self.thumbnails[indices].astype(np.float32)
        pixels -= pixels.mean(axis=-1, keepdims=True)
        norm = np.linalg.norm(pixels, axis=-1, keepdims=True)
        return pixels / np.maximum(norm, 1e-6)


def hash_images(records: Sequence[Record]) -> ImageHashes:
    """Reads images and hashes them, in threads.

    JPEG files are decoded at a reduced size, down to an eighth. An image that cannot be
    read is like no other, and raises no error here: the code that needs its pixels
    reports it.

    Args:
        records: sequence of `Record`.

    Returns:
        `ImageHashes`.

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
    """Returns hash, thumbnail `[256]` and whether the image is comparable."""
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
    """Returns the difference hash of a grey Pillow image, an int of 64 bits.

    Example:
        >>> rising = np.arange(9, dtype="uint8")[np.newaxis].repeat(8, axis=0)
        >>> difference_hash(Image.fromarray(rising)) == 2**64 - 1
        True
    """
    pixels = np.asarray(_resized(grey, 9, 8), np.int16)
    bits = (pixels[:, 1:] > pixels[:, :-1]).reshape(-1)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def _resized(grey, width, height):
    """Resizes an image; each new pixel is the mean of the pixels that it covers."""
    return grey.resize((width, height), Image.Resampling.BOX)


def near_duplicate_groups(hashes: ImageHashes) -> np.ndarray:
    """Finds the groups of near-duplicates.

    Two images are in one group if they look alike, or if a chain of images, each like
    the next, links them, such as the frames of a recording.

    Args:
        hashes: `ImageHashes` of `n` images.

    Returns:
        int array `[n, 2]`: for each image, the lowest index in its group, and the index
        of the similar image through which it joined the group. For an image like no
        other, both are its own index.
    """
    groups = np.stack([np.arange(len(hashes))] * 2, axis=1)
    # Images that are in no group yet. All that look alike are removed together.
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
