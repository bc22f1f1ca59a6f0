"""Which images of a dataset belong together, and so on one side of a split.

Frames of one recording are nearly one image: a model that was trained on some of them
knows the others. How images belong together is said in `docs/data.md`.
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

# The names of ways to group images; "image" is one by one, at random.
SPLIT_BY = ("auto", "image", "folder", "name", "hash")

# What makes the images of one stem a recording: at least so many of them, and of the
# pairs of neighbours in their numbering at least this share shows one scene.
_FEWEST_FRAMES = 3
_ALIKE_NEIGHBOURS = 0.5
# Two neighbours are of one scene where at most so many of the 64 bits differ, and with
# this correlation. A scene that moves by a twentieth of the image still is; of 27,000
# pairs of photographs of five datasets one in a hundred is.
_SCENE_BITS = 20
_SCENE_CORRELATION = 0.6
# A stem with more of the images, where there is no other, numbers the whole dataset.
_NUMBERS_ALL = 0.5
# What images belong together by: see `image_groups`.
GroupsBy = str | Sequence[Hashable] | Callable[[dict[str, Any]], Hashable]
# Before so many images are hashed, a line says so: it takes a minute or more.
_MANY_IMAGES = 5_000


@dataclasses.dataclass(frozen=True)
class ImageGroups:
    """The group of each image of a dataset.

    Attributes:
        groups: int array `[n]`, each number below its largest is there: images of one
            number belong together.
        hashes: `ImageHashes` of the images, where they were compared; else None.
        may_be_cut: whether a group that leaves no way to divide the images may be cut:
            one that was guessed may, one that the caller asked for not.
        is_stratified: whether each class is to have its share of both parts.
        words: what the images of a group have in common.
    """

    groups: np.ndarray
    hashes: ImageHashes | None = None
    may_be_cut: bool = False
    is_stratified: bool = True
    words: str = "that belong together"

    def subset(self, indices: np.ndarray) -> ImageGroups:
        """The groups of some images."""
        hashes = self.hashes and self.hashes.subset(indices)
        groups = np.unique(self.groups[indices], return_inverse=True)[1]
        return dataclasses.replace(self, groups=groups, hashes=hashes)

    @property
    def counts(self) -> tuple[int, int]:
        """How many groups have two images or more, and how many images these have."""
        sizes = np.bincount(self.groups)
        return int((sizes > 1).sum()), int(sizes[sizes > 1].sum())


def image_groups(records: Sequence[Record], groups: GroupsBy = "auto") -> ImageGroups:
    """Finds which images belong together.

    Args:
        records: `Record`s of a dataset.
        groups: "auto", "image", "folder", "name" or "hash"; or one value per image; or
            a function of an example without its `image` that returns one. Images of one
            value belong together. See `DetectionDataset.split`.

    Raises:
        ValueError, TypeError: If `groups` is none of these.
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
    """An int for each key, equal keys the same, in the order in which they appear."""
    number_of = {}
    return np.array([number_of.setdefault(k, len(number_of)) for k in keys], np.int64)


class _Together:
    """Groups of images that grow together (disjoint sets)."""

    def __init__(self, groups):
        self._parent = np.array(groups)

    def join(self, first, second):
        """Makes one group of those of two images."""
        roots = sorted([self._root(first), self._root(second)])
        self._parent[roots[1]] = roots[0]

    def groups(self):
        """The group of each image, int `[n]`."""
        return _numbered([self._root(i) for i in range(len(self._parent))])

    def _root(self, image):
        path = []
        while self._parent[image] != image:
            path.append(image)
            image = self._parent[image]
        self._parent[path] = image
        return image


# --- Recordings, by the names of their images.

# Roboflow writes `street_07_jpg.rf.<hash>.jpg`, once for each augmented copy.
_ROBOFLOW = re.compile(r"(?:[_.](?:jpe?g|png|webp|bmp|tiff?))?\.rf\.[0-9A-Za-z]{16,}$")
# Label Studio writes `<8 random hex digits>-street_07.jpg`. Eight decimal digits are a
# date or another number far more often: one in 43 of Label Studio's has no letter.
_LABEL_STUDIO = re.compile(r"^(?=[0-9]*[a-f])[0-9a-f]{8}-(?=.)")
_NUMBER = re.compile(r"^(.*?)[\s_.\-]*\(?(\d+)\)?$", re.DOTALL)


def source_names(names: Sequence[str]) -> list[str]:
    """Names of images without folder and ending, and without what tools add to them.

    A prefix as Label Studio's counts as that where one name has it: it never draws one
    twice. `a1b2c3d4-001.jpg` beside `a1b2c3d4-002.jpg` are frames of one recording.

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
    """A name of `source_names` without its trailing number, and that number.

    Example:
        >>> stem_and_number("clip_a_0042")
        ('clip_a', 42)
        >>> stem_and_number("garden")
        ('garden', None)
    """
    found = _NUMBER.match(source_name)
    return (found[1], int(found[2])) if found else (source_name, None)


class _Name(NamedTuple):
    """What the path of an image tells."""

    folder: str
    source: str  # see `source_names`
    stem: str
    number: int | None


def _names(records):
    """The `_Name` of each image."""
    sources = source_names([record.name for record in records])
    return [
        _Name(_folder_of(record), source, *stem_and_number(source))
        for record, source in zip(records, sources)
    ]


def _folder_of(record):
    path = record.image if isinstance(record.image, str) else record.file_name
    return str(pathlib.PurePosixPath(path.replace("\\", "/")).parent)


def natural_order(records: Sequence[Record]) -> np.ndarray:
    """The indices of images in the order of folders, stems and numbers, int `[n]`."""
    return _in_order(_names(records))


def _in_order(names):
    def key(index):
        folder, _, stem, number = names[index]
        return folder, stem, -1 if number is None else number, index

    return np.array(sorted(range(len(names)), key=key), np.int64)


def _join_recordings(together, records, hashes):
    """Joins the frames of recordings, and the augmented copies of one image."""
    stems = collections.defaultdict(list)  # the numbered images of each stem, in order
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
