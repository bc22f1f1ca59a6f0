"""Finds images that belong together and should be in the same part of a split.

Frames of one recording are nearly the same image, so a model that was trained on some
of them knows the others. `docs/data.md` has the rules by which images belong together.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from effdet_keras.data.near_duplicates import (
    ImageHashes,
    hash_images,
    near_duplicate_groups,
)
from effdet_keras.data.record import Record, describe_example
from effdet_keras.errors import InvalidTypeError, InvalidValueError, check_choice

# The names of ways to group images; "image" means no groups, at random.
SPLIT_BY = ("auto", "image", "folder", "name", "hash")

# Images whose names have the same stem are a recording if there are at least this many
# of them, and if at least this share of neighbours in their numbering shows one scene.
_FEWEST_FRAMES = 3
_ALIKE_NEIGHBOURS = 0.5
# Two neighbours show one scene if at most this many of the 64 bits of their hashes
# differ, and their correlation is at least this. A scene that moves by a twentieth of
# the image still passes. Of 27,000 pairs of photographs of five datasets, one in a
# hundred passes.
_SCENE_BITS = 20
_SCENE_CORRELATION = 0.6
# If only one stem has numbered images, and more than this share of all images has it,
# the stem numbers the whole dataset.
_NUMBERS_ALL = 0.5
# How to group images: see `image_groups`.
GroupsBy = str | Sequence[Hashable] | Callable[[dict[str, Any]], Hashable]
# If there are more images than this, a line is printed before they are hashed, because
# that takes a minute or more.
_MANY_IMAGES = 5_000


@dataclasses.dataclass(frozen=True)
class ImageGroups:
    """The group of each image of a dataset.

    Attributes:
        groups: int array `[n]`, the group number of each image, without gaps from 0.
            Images of the same number belong together.
        hashes: `ImageHashes` of the images if they were compared, else None.
        may_be_cut: bool, whether a group that makes a fair split impossible may be cut.
            A group that was guessed may be cut, one that the caller asked for may not.
        is_stratified: bool, whether each class should have its share in both parts.
        words: str, what the images of a group have in common, for messages.
    """

    groups: np.ndarray
    hashes: ImageHashes | None = None
    may_be_cut: bool = False
    is_stratified: bool = True
    words: str = "that belong together"

    def subset(self, indices: np.ndarray) -> ImageGroups:
        """Returns the groups of the images at `indices`, numbered anew from 0."""
        hashes = self.hashes and self.hashes.subset(indices)
        groups = np.unique(self.groups[indices], return_inverse=True)[1]
        return dataclasses.replace(self, groups=groups, hashes=hashes)

    @property
    def counts(self) -> tuple[int, int]:
        """How many groups have two or more images, and how many images those have."""
        sizes = np.bincount(self.groups)
        return int((sizes > 1).sum()), int(sizes[sizes > 1].sum())


def image_groups(records: Sequence[Record], groups: GroupsBy = "auto") -> ImageGroups:
    """Finds which images belong together.

    Args:
        records: sequence of `Record`.
        groups: "auto", "image", "folder", "name" or "hash"; or one value per image; or
            a function that takes an example without its `image` and returns a value.
            Images of equal values belong together. See `DetectionDataset.split`.

    Returns:
        `ImageGroups`.

    Raises:
        ValueError: If `groups` is an unknown name, or has not one value per image.
        TypeError: If a value is not hashable.
    """
    if callable(groups):
        keys = [groups(describe_example(record)) for record in records]
        return ImageGroups(_numbered(_hashable(keys)))
    if not isinstance(groups, str):
        keys = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
        if len(keys) != len(records):
            raise InvalidValueError(
                "`groups` must have one value per image. "
                f"Received: {len(keys)} values for {len(records)} images"
            )
        return ImageGroups(_numbered(_hashable(keys)))
    check_choice("groups", groups, SPLIT_BY, ", or one value per image, or a function")
    if groups == "folder":
        keys = [_folder_of(record) for record in records]
        return ImageGroups(_numbered(keys), words="of one folder")
    if groups == "name":
        keys = [(name.folder, name.stem) for name in _names(records)]
        return ImageGroups(
            _numbered(keys), words="whose names differ in a trailing number alone"
        )
    if groups == "image":
        return ImageGroups(np.arange(len(records)), is_stratified=False)
    if len(records) > _MANY_IMAGES:
        print(
            f"Comparing {len(records):,} images with each other, so that "
            "near-duplicates stay on one side of the split ..."
        )
    hashes = hash_images(records)
    together = _Together(near_duplicate_groups(hashes)[:, 0])
    if groups == "auto":
        _join_recordings(together, records, hashes)
    return ImageGroups(
        together.groups(), hashes, may_be_cut=groups == "auto", words="that look alike"
    )


def _hashable(keys):
    for key in keys:
        if not isinstance(key, Hashable):
            raise InvalidTypeError(
                "`groups` must give each image a value that can be the key of a dict, "
                f"such as a name or a number. Received: {key!r}"
            )
    return keys


def _numbered(keys):
    """Numbers keys from 0 in the order in which they first appear, int64 `[n]`."""
    number_of = {}
    return np.array([number_of.setdefault(k, len(number_of)) for k in keys], np.int64)


class _Together:
    """Groups of images that can be merged (disjoint sets)."""

    def __init__(self, groups):
        self._parent = np.array(groups)

    def join(self, first, second):
        """Merges the groups of two images."""
        roots = sorted([self._root(first), self._root(second)])
        self._parent[roots[1]] = roots[0]

    def groups(self):
        """Returns the group of each image, int `[n]`."""
        return _numbered([self._root(i) for i in range(len(self._parent))])

    def _root(self, image):
        path = []
        while self._parent[image] != image:
            path.append(image)
            image = self._parent[image]
        self._parent[path] = image
        return image


# --- Recordings, recognized by the names of their images.

# Roboflow writes `street_07_jpg.rf.<hash>.jpg`, one file for each augmented copy.
_ROBOFLOW = re.compile(r"(?:[_.](?:jpe?g|png|webp|bmp|tiff?))?\.rf\.[0-9A-Za-z]{16,}$")
# Label Studio writes `<8 random hex digits>-street_07.jpg`. At least one digit must be
# a letter: eight decimal digits are far more often a date or another number, and only
# one in 43 of Label Studio's prefixes has no letter.
_LABEL_STUDIO = re.compile(r"^(?=[0-9]*[a-f])[0-9a-f]{8}-(?=.)")
_NUMBER = re.compile(r"^(.*?)[\s_.\-]*\(?(\d+)\)?$", re.DOTALL)


def source_names(names: Sequence[str]) -> list[str]:
    """Returns image names without folder, extension and the additions of tools.

    A prefix that looks like Label Studio's is removed only if a single name has it,
    because Label Studio never draws a prefix twice. `a1b2c3d4-001.jpg` and
    `a1b2c3d4-002.jpg` are frames of one recording.

    Args:
        names: sequence of str, file names or paths of images.

    Returns:
        List of str.

    Example:
        >>> source_names(["street/clip_42_jpg.rf.0cc175b9c0f1b6a831c399e269772661.jpg"])
        ['clip_42']
        >>> source_names(["a1b2c3d4-clip_003.jpg", "20230101-003.jpg"])
        ['clip_003', '20230101-003']
    """
    paths = [pathlib.PurePosixPath(name.replace("\\", "/")) for name in names]
    stems = [_ROBOFLOW.sub("", path.stem) for path in paths]
    matches = {stem: _LABEL_STUDIO.match(stem) for stem in stems}
    prefixes = {stem: found[0] for stem, found in matches.items() if found}
    uses = collections.Counter(prefixes.values())
    added = {stem: prefix for stem, prefix in prefixes.items() if uses[prefix] == 1}
    return [stem.removeprefix(added.get(stem, "")) for stem in stems]


def stem_and_number(source_name: str) -> tuple[str, int | None]:
    """Splits a name of `source_names` into its stem and its trailing number, or None.

    Example:
        >>> stem_and_number("clip_a_0042")
        ('clip_a', 42)
        >>> stem_and_number("garden")
        ('garden', None)
    """
    found = _NUMBER.match(source_name)
    return (found[1], int(found[2])) if found else (source_name, None)


class _Name(NamedTuple):
    """The parts of an image's path by which recordings are recognized."""

    folder: str
    source: str  # see `source_names`
    stem: str
    number: int | None


def _names(records):
    """Returns the `_Name` of each image."""
    sources = source_names([record.name for record in records])
    return [
        _Name(_folder_of(record), source, *stem_and_number(source))
        for record, source in zip(records, sources)
    ]


def _folder_of(record):
    path = record.image if isinstance(record.image, str) else record.file_name
    return str(pathlib.PurePosixPath(path.replace("\\", "/")).parent)


def natural_order(records: Sequence[Record]) -> np.ndarray:
    """Returns image indices, int `[n]`, in the order of folder, stem and number."""
    return _in_order(_names(records))


def _in_order(names):
    def key(index):
        folder, _, stem, number = names[index]
        return folder, stem, -1 if number is None else number, index

    return np.array(sorted(range(len(names)), key=key), np.int64)


def _join_recordings(together, records, hashes):
    """Joins the frames of recordings, and the augmented copies of one image."""
    stems = collections.defaultdict(list)  # from stem to its numbered images, in order
    copies, names = {}, _names(records)
    for index in _in_order(names).tolist():
        folder, source, stem, number = names[index]
        first = copies.setdefault((folder, source), index)
        together.join(first, index)
        if number is not None:
            stems[folder, stem].append(index)
    stems = [images for images in stems.values() if len(images) >= _FEWEST_FRAMES]
    for images in map(np.array, stems):
        is_one_scene = hashes.are_alike(
            images[:-1], images[1:], _SCENE_BITS, _SCENE_CORRELATION
        )
        if is_one_scene.mean() < _ALIKE_NEIGHBOURS:
            continue
        numbers_all = len(stems) == 1 and len(images) > _NUMBERS_ALL * len(records)
        for before, after, is_alike in zip(images, images[1:], is_one_scene):
            if is_alike or not numbers_all:
                together.join(before, after)
