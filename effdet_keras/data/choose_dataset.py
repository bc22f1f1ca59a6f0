"""Chooses which dataset to read if a folder holds several of them."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import count_of
from effdet_keras.data.formats.dataset_files import (
    DEPTH,
    is_no_better,
    role_of_split,
    splits_of_role,
)
from effdet_keras.data.formats.image_paths import ANNOTATION_FOLDERS, dataset_root
from effdet_keras.data.formats.reading import NoClassError, NoObjectError
from effdet_keras.data.formats.unknown import describe_other_files
from effdet_keras.data.known_formats import (
    FORMATS,
    WITH_ONE_FILE,
    Source,
    collector_off,
    own_files,
)
from effdet_keras.data.near_duplicates import hash_images
from effdet_keras.data.problems import (
    KINDS,
    NoImageError,
    Severity,
    describe_problems,
)
from effdet_keras.data.record import Record, count_unusable
from effdet_keras.data.shared_images import is_copy
from effdet_keras.errors import InvalidValueError

SHOWN = 8  # the most entries of a folder, or datasets, that a message lists
EVALUATION = ("test", "validation")  # roles of splits
# A dataset without errors is preferred if it has this share of the boxes and images.
_MOST = 0.95
# Splits to evaluate on with at most this share of another dataset's images are minor.
_FEW = 0.2
_DOUBTS = ("box columns", "classes without names", "images without txt file")
_COMPARED = 20  # the most images, or pairs of images of one name, that are compared
_LONGEST = 400  # the most characters of a reason in a line
_CUT = " ..."  # the end of a reason that is longer
# A box lies elsewhere if it is off by more than this share of its sides: counting
# pixels from 1 and rounding move it by less.
_ELSEWHERE = 0.2


@dataclasses.dataclass(frozen=True)
class _Content:
    """The content of one of several datasets, to compare it with another."""

    source: Source
    readers: Mapping[str, Callable]  # of the source, returning what was read already
    boxes_of: Mapping[str, int]  # from image name to number of boxes
    images_of: Mapping[str, int]  # from image name to number of different images
    files_of: Mapping[str, list]  # from image name to files, except in larger files
    num_boxes: int
    means_of: Mapping[str, np.ndarray]  # from image name to its mean box, `xywh`
    num_usable: int  # number of boxes that can be trained on
    kinds: Set[str]  # kinds of its problems
    boxes_by_class: collections.Counter  # from class name to number of boxes
    names_by_split: Sequence[Set[str]]  # image names of each split that has boxes
    num_copies: int  # number of annotated images that are there a second time

    @property
    def is_doubtful(self):
        """Whether a file leaves open what its images or numbers are."""
        return not self.kinds.isdisjoint(_DOUBTS)

    @property
    def is_sound(self):
        """Whether no problem of the dataset is an error."""
        return all(KINDS[kind].severity is not Severity.ERROR for kind in self.kinds)

    @property
    def has_few_copies(self):
        """Whether few of its images are there twice, such as in two splits."""
        return self.num_copies <= _FEW * len(self.boxes_of)

    @property
    def place(self):
        return self.source.format, self.source.path

    @property
    def counted(self):
        images = count_of(sum(self.images_of.values()), "image")
        return f"{count_of(self.num_boxes, 'box', 'boxes')} in {images}"

    def counted_of(self, name):
        """Returns a text that counts the boxes of the images of a name."""
        if name not in self.boxes_of:
            return "no annotation"
        boxes, images = self.boxes_of[name], self.images_of[name]
        of_many = f" in {images} images of that name" if images > 1 else ""
        return count_of(boxes, "box", "boxes") + of_many


def choose(found: list[Source], inner: list[Source], path: Any) -> Source:
    """Chooses the dataset to read from several that hold the same images.

    A dataset inside another one counts if the outer one cannot be read, if it has the
    same images and splits, or if it has all of these images and more.

    Args:
        found: list of `Source`, the datasets that were found.
        inner: list of `Source`, the datasets inside those of `found`.
        path: the path that the user passed.

    Returns:
        `Source`, whose `note` and `others` name the datasets that are not read.

    Raises:
        ValueError: If none of several can be read, or if several of them hold different
            images.
    """
    contents, unread = _read_all(found)
    has_boxes = any(content.num_boxes for content in contents)
    without_boxes = InvalidValueError("none of its boxes could be read")
    if has_boxes:
        kept = [c for c in contents if c.num_boxes or c.is_sound or _has_no_txt(c)]
        faulty = [c for c in contents if all(c is not other for other in kept)]
        unread += [(content.source, without_boxes) for content in faulty]
        contents = kept
    inner_contents = [] if has_boxes else _read_inner(inner)
    others = [content for content in inner_contents if content.num_boxes]
    # Errors of an outer dataset are reported before an inner one of its images is read.
    faulty = [content for content in contents if not content.is_sound]
    if others and not any(_is_same(c, other) for c in faulty for other in others):
        unread += [(content.source, without_boxes) for content in faulty]
        contents = others
    elif contents:
        contents += _divided_in(contents, inner) or _fuller_in(contents, inner)
    else:
        contents = inner_contents
    without_package = [s for s, error in unread if isinstance(error, ImportError)]
    if without_package and not any(content.num_boxes for content in contents):
        return without_package[0]  # its reader says which package to install
    told = tuple(source for source, _ in unread)
    unread = [pair for pair in unread if not _has_nothing(*pair)]
    if any(content.num_boxes and content.is_sound for content in contents):
        told += tuple(c.source for c in contents if _has_no_txt(c))
        contents = [content for content in contents if not _has_no_txt(content)]
    if len(contents) == 1:
        (content,) = contents
        notes = "".join(_note_of_unread(content.source, *pair) for pair in unread)
        return dataclasses.replace(
            content.source, readers=content.readers, note=notes, others=told
        )
    if not contents and len(found) == 1:
        return found[0]  # its reader says why it cannot be read
    found = [*found, *inner]
    if not contents:
        raise InvalidValueError(_describe_unread(found, unread, path))
    _sort_by_worth(contents, found)
    contents, aside = _set_aside(contents, path)
    if not all(_is_same(contents[0], c) for c in contents[1:]):
        contents.sort(key=lambda content: found.index(content.source))
        raise InvalidValueError(_describe_several(contents, unread, path))
    first, others = contents[0], contents[1:]
    # A dataset may be there twice, as a whole and with its folders of splits.
    lines = dict.fromkeys(_note_of_other(first, other) for other in others[:SHOWN])
    notes = "".join(lines)
    if len(others) > SHOWN:
        more = count_of(len(others) - SHOWN, "more dataset")
        notes += f"\n  Not read: {more} of the same images"
    notes += "".join(
        f"\n  {str(c.source.path)!r} also holds a dataset of other images "
        f"({c.source.described}; {c.counted}), which was not read. "
        f"To read it, {_how_to_read(first, c)}."
        for c in aside[:SHOWN]
    )
    if len(aside) > SHOWN:
        more = count_of(len(aside) - SHOWN, "more dataset")
        notes += f"\n  Not read: {more} of other images"
    notes += "".join(_note_of_unread(first.source, *pair) for pair in unread)
    others = (*told, *(content.source for content in (*others, *aside)))
    return dataclasses.replace(
        first.source, readers=first.readers, note=notes, others=others
    )


def _read_inner(inner):
    """Returns the contents of inner datasets, without split folders of other data.

    Split folders below a dataset without splits count only if they divide it.
    """
    contents, _ = _read_all(inner)
    wholes = {c.place: c for c in contents if not is_divided(c.source)}
    return [
        c
        for c in contents
        if not is_divided(c.source)
        or c.place not in wholes
        or _divides(c, wholes[c.place])
    ]


def _divided_in(contents, inner):
    """Returns the inner datasets that have the same images, and have splits."""
    places = {(s.format, s.path) for s in inner if is_divided(s)}
    near = _read_inner([s for s in inner if (s.format, s.path) in places])
    wholes = {content.place: content for content in contents}
    same = [
        c
        for c in near
        if is_divided(c.source)
        and (
            _divides(c, wholes[c.place])
            if c.place in wholes
            else _is_same(contents[0], c)
        )
    ]
    pairs = itertools.combinations(same, 2)
    are_parts = len(contents) == 1 and not all(_is_same(*pair) for pair in pairs)
    return [] if are_parts else same


def _fuller_in(contents, inner):
    """Returns the inner datasets that have all images of the outer one, and more.

    For example, a few images were annotated first, and all of them later in a folder.
    The inner dataset must have at least twice as many images: if it has only a few
    more, these may have been left out on purpose.
    """
    wholes = {c.source.format: c for c in contents if not is_divided(c.source)}
    sources = [
        s
        for s in inner
        if s.format in wholes and not is_divided(s) and not _is_version_or_split(s.path)
    ]
    pairs = [(wholes[c.source.format], c) for c in _read_all(sources)[0]]
    return [
        other
        for whole, other in pairs
        if whole.boxes_of.keys() < other.boxes_of.keys()
        and 2 * len(whole.boxes_of) <= len(other.boxes_of)
        and _is_same(whole, other)
        and not any(_loses_boxes(name, whole, other) for name in whole.boxes_of)
        and other.boxes_by_class.keys() >= whole.boxes_by_class.keys()
        and other.num_usable > whole.num_usable
        and (other.is_sound or not whole.is_sound)
        and _are_apart(whole, other)
    ]


def _is_version_or_split(path):
    """Returns whether a folder's name is that of another version or of a split."""
    return is_no_better(path.name) or role_of_split(path.name) is not None


def _loses_boxes(name, whole, other):
    """Returns whether `other` has fewer boxes of an image, or has them elsewhere."""
    return other.boxes_of[name] < whole.boxes_of[name] or (
        name in whole.means_of
        and other.boxes_of[name] == whole.boxes_of[name]
        and _is_elsewhere(name, whole, other)
    )


def _are_apart(whole, other):
    """Returns whether an inner dataset is not just the image folder of the outer one.

    The reader of a format with one annotation file per image has already looked into
    that folder.
    """
    if whole.source.format in WITH_ONE_FILE:
        return True
    inner = os.path.realpath(other.source.path) + os.sep
    files = itertools.chain(*whole.files_of.values())
    return not any(os.path.realpath(file).startswith(inner) for file in files)


def _sort_by_worth(contents, sources):
    """Sorts datasets of the same images, the one to read first."""
    most = max(len(content.boxes_of) for content in contents)
    annotated = {n for c in contents for n, count in c.boxes_of.items() if count}

    def num_known(content):
        # An image without boxes here that has boxes in another format does not count.
        counts = content.boxes_of
        return sum(count > 0 or n not in annotated for n, count in counts.items())

    most_usable = max(content.num_usable for content in contents)
    usable = {c.place: c.num_usable for c in contents if c.is_sound}
    sound = {path for _, path in usable}
    most_known = max(map(num_known, contents))

    def is_sound(content):
        has_most = content.num_usable >= _MOST * most_usable
        has_most &= num_known(content) >= _MOST * most_known
        has_names = "classes without names" not in content.kinds
        return content.is_sound and has_names and has_most

    def adds_nothing(content):
        # It lies in `annotations`, beside a dataset of another format, or of the same
        # format with at least as many boxes.
        format, path = content.place
        if path.name.lower() not in ANNOTATION_FOLDERS or path.parent not in sound:
            return False
        return usable.get((format, path.parent), np.inf) >= content.num_usable

    # `data` comes before `data_old`, which may have the same images and more.
    has_better = any(
        c.is_sound and is_divided(c.source) and not is_no_better(c.source.path.name)
        for c in contents
    )

    def worth(content):
        is_whole = 2 * len(content.boxes_of) >= most
        return (
            is_divided(content.source) and is_whole,
            content.has_few_copies,
            not adds_nothing(content),
            not (has_better and is_no_better(content.source.path.name)),
            is_sound(content),
            num_known(content),
            content.num_usable,
            not content.is_doubtful,
            -sources.index(content.source),
        )

    contents.sort(key=worth, reverse=True)


def _describe_unread(sources, unread, path):
    """Returns the error text for several datasets none of which can be read."""
    kinds = ", ".join(dict.fromkeys(FORMATS[s.format].title for s in sources))
    other = describe_other_files(path)
    other = f". {other}" if other else ""
    reasons = [
        f"\n  {str(s.path)!r}, {s.described}: {error or 'no image was found'}"
        for s, error in unread[:SHOWN]
    ]
    if len(unread) > SHOWN:
        reasons.append(f"\n  and {len(unread) - SHOWN} more")
    return (
        f"{str(path)!r} holds annotations ({kinds}), but none of them can be read, or "
        "none of their images is in this folder or below it. Put the images beside "
        f"the annotations{other}{''.join(reasons)}"
    )


def _set_aside(contents, path):
    """Separates minor datasets of other images from those that may be read.

    Minor datasets are no larger than the first other one. They have only a test split,
    or lie far below, such as the samples in the code of a program, or lie in the
    annotation folder of another dataset. Or they only have splits to evaluate on, with
    far fewer images than the first other one, which has such a split itself.

    Returns:
        Two lists, the datasets that may be read and the minor ones. The second is empty
        unless all datasets of the first have the same images.
    """

    def roles_of(content):
        return {role_of_split(name) for name in content.source.readers}

    def is_test(content):
        return roles_of(content) == {"test"}

    places = {content.source.path for content in contents if not is_test(content)}

    def is_minor(content):
        source = content.source
        depth = len(source.path.parts) - len(path.parts)
        is_beside = source.path.parent in places
        is_inner = source.path.name.lower() in ANNOTATION_FOLDERS
        is_inner = is_inner and is_beside and not is_divided(source)
        return is_test(content) or depth >= DEPTH or is_inner

    first = next((c for c in contents if not is_minor(c)), None)
    if first is None:
        return contents, []
    count = len(first.boxes_of)

    def is_few(content):
        is_evaluation = roles_of(content).issubset(EVALUATION)
        are_few = len(content.boxes_of) <= _FEW * count
        return is_evaluation and are_few and is_divided(first.source)

    others = [c for c in contents if not _is_same(first, c)]
    if not all(is_few(c) or (is_minor(c) and len(c.boxes_of) <= count) for c in others):
        return contents, []
    return [c for c in contents if all(c is not other for other in others)], others


def is_divided(source: Source) -> bool:
    """Returns whether a dataset has a split to train on and one to evaluate on."""
    roles = {role_of_split(name) for name in source.readers}
    training = splits_of_role(source.readers, "train")
    return bool(training and roles.intersection(EVALUATION))


def _read_all(sources):
    """Returns the contents of datasets, and pairs of an unreadable one and an error."""
    results = [(source, _content_of(source)) for source in sources]
    contents = [content for _, content in results if isinstance(content, _Content)]
    return contents, [pair for pair in results if not isinstance(pair[1], _Content)]


def _content_of(source):
    """Returns the `_Content` of a dataset, or its error; None if it has no image."""
    tally, readers, problems, kinds = _Tally(), {}, [], set()
    num_unusable, unread, names_by_split = 0, None, []
    try:
        with dataset_root(source.root), collector_off():
            for split, read in source.readers.items():
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    try:
                        dataset = read(on_error="skip")
                    except NoClassError as error:  # other splits may have objects
                        readers[split], unread = read, error
                        continue
                    except NoImageError as error:  # other splits may have images
                        readers[split], unread = read, error
                        kinds.add("missing image")
                        continue
                is_clean = not told and not dataset.problems
                again = functools.partial(_read_again, dataset, read)
                readers[split] = again if is_clean else read
                problems += dataset.problems
                kinds |= {problem.kind for problem in dataset.problems}
                num_unusable += int(np.sum(count_unusable(dataset.records)))
                for record in dataset.records:
                    tally.add(record, dataset.class_names)
                if any(len(record.labels) for record in dataset.records):
                    names_by_split.append(set(map(_name_of_image, dataset.records)))
    except (ValueError, OSError, ImportError) as error:
        return error
    if not tally.boxes_of:
        left_out = InvalidValueError(describe_problems(problems)) if problems else None
        return unread or left_out
    num_boxes = sum(tally.boxes_of.values())
    return _Content(
        source,
        readers,
        tally.boxes_of,
        tally.images_of,
        tally.files_of,
        num_boxes,
        tally.means_of,
        num_boxes - num_unusable,
        kinds,
        tally.boxes_by_class,
        names_by_split,
        tally.num_copies,
    )


def _name_of_image(record):
    """Returns the file name of an image without folder and extension."""
    name = record.image if isinstance(record.image, str) else record.file_name
    name = name.replace("\\", "/").rpartition("/")[2]
    return name.rpartition(".")[0] or name


class _Tally:
    """Counts the boxes and collects the files of images, for `_Content`."""

    def __init__(self):
        self.boxes_of = collections.Counter()
        self.images_of = collections.Counter()
        self.files_of = collections.defaultdict(list)
        self.means_of = {}
        self.boxes_by_class = collections.Counter()
        self.num_copies = 0
        self._seen = {}  # from file to its boxes
        self._seen_of = collections.defaultdict(list)  # from image name to records

    def add(self, record, class_names):
        """Adds an image; if another split has it, adds only the boxes that are new."""
        is_file = isinstance(record.image, str)
        name = _name_of_image(record)
        if is_file and record.image in self._seen:
            self.num_copies += 1
            before = self._seen[record.image]
            both = np.unique(np.concatenate([before, record.boxes_xywh]), axis=0)
            self._seen[record.image] = both
            self.boxes_of[name] += max(len(both) - len(before), 0)
            is_new = ~(record.boxes_xywh[:, None] == before).all(axis=2).any(axis=1)
            self._add_classes(record.labels[is_new], class_names)
            return
        if is_file:
            self._seen[record.image] = record.boxes_xywh
            if not is_remote(record.image):
                self.files_of[name].append(record.image)
        if any(_is_copy_of(record, other) for other in self._seen_of[name]):
            # A copy of the image, such as one in the folder of its class.
            self.num_copies += bool(len(record.labels))
            return
        self._seen_of[name].append(record)
        self.images_of[name] += 1
        if name in self.boxes_of:
            self.means_of.pop(name, None)  # two images of one name have no mean box
        elif len(record.labels):
            self.means_of[name] = record.boxes_xywh.mean(axis=0)
        self.boxes_of[name] += len(record.labels)
        self._add_classes(record.labels, class_names)

    def _add_classes(self, labels, class_names):
        self.boxes_by_class.update(class_names[label] for label in labels)


def _is_copy_of(record, other):
    """Returns whether two records of one image name have one image and its boxes."""
    if not np.array_equal(record.boxes_xywh, other.boxes_xywh):
        return False
    files = record.image, other.image
    are_files = all(isinstance(f, str) and not is_remote(f) for f in files)
    return not are_files or is_copy(*files)


def _read_again(known, read, *, class_names=None, on_error="auto", **options):
    """Returns a dataset that is known already, or reads it with other options."""
    if class_names is None and not options:
        return known
    return read(class_names=class_names, on_error=on_error, **options)


def are_versions(one: Sequence[Record], other: Sequence[Record]) -> bool:
    """Returns whether two lists of records are versions of the same images.

    They are if more than half of the images of the smaller list have a namesake in the
    other one, and more than half of up to 20 such pairs look alike.
    """
    by_name = {record.name.rpartition("/")[2]: record for record in one}
    names = (record.name.rpartition("/")[2] for record in other)
    pairs = [(by_name[n], r) for n, r in zip(names, other) if n in by_name]
    if 2 * len(pairs) <= min(len(one), len(other)):
        return False
    pairs = pairs[:: len(pairs) // _COMPARED + 1]
    count = len(pairs)
    hashes = hash_images([record for records in zip(*pairs) for record in records])
    alike = hashes.are_alike(range(count), range(count, 2 * count))
    return 2 * int(np.sum(alike)) > count


def _is_same(one, other):
    """Returns whether at least half of the smaller dataset's images are in the other.

    Images of the same name may differ, such as frames of two videos, so the bytes of
    some of them are compared.
    """
    shared = sorted(one.boxes_of.keys() & other.boxes_of.keys())
    some = shared[:: len(shared) // _COMPARED + 1]
    num_same = sum(_is_one_image(name, one, other) for name in some)
    count = len(shared) * num_same / max(len(some), 1)
    return 2 * count >= min(len(one.boxes_of), len(other.boxes_of))


def _divides(divided, whole):
    """Returns whether split folders hold all that the dataset around them holds.

    The folders must be a real division of that dataset: not copies of its annotations
    in each folder, not folders with the same images, and not just some of the images.
    At least 95 % of its images and boxes must be there.
    """
    if not divided.is_sound or not _is_same(divided, whole):
        return False
    known = set().union(*divided.names_by_split)
    is_once = len(known) == sum(map(len, divided.names_by_split))
    if not is_once or len(divided.names_by_split) < len(divided.readers):
        return False
    counts = divided.boxes_of
    boxes = sum(min(n, counts.get(name, 0)) for name, n in whole.boxes_of.items())
    images = len(known.intersection(whole.boxes_of))
    return (
        images >= _MOST * len(whole.boxes_of)
        and boxes >= _MOST * whole.num_boxes
        and divided.num_usable >= _MOST * whole.num_usable
    )


def _is_one_image(name, one, other):
    """Returns whether the files show that two datasets share the image of a name.

    If one of the datasets has no file of this name, they count as sharing it.
    """
    here, there = one.files_of.get(name, ()), other.files_of.get(name, ())
    if not here or not there:
        return True
    return any(is_copy(first, second) for first in here for second in there)


def _owner_of(content, contents):
    """Returns the dataset in whose folder the images of `content` lie, or None."""
    if _has_own_images(content):
        return None
    owners = [other for other in contents if _has_own_images(other)]
    return next((owner for owner in owners if _is_same(content, owner)), None)


def _has_own_images(content):
    """Returns whether images lie below the dataset's path, or inside larger files."""
    root = os.path.realpath(content.source.path)
    files = itertools.chain(*content.files_of.values())
    first = [os.path.realpath(file) for file in itertools.islice(files, _COMPARED)]
    return not first or any(file.startswith(root + os.sep) for file in first)


def _note_of_other(chosen, other):
    """Returns a line on another dataset of the same images, and how it differs."""
    title = FORMATS[other.source.format].title
    line = (
        f"\n  {str(other.source.path)!r} also has annotations of the same images as "
        f"{title}. They were not read"
    )
    names = sorted(chosen.boxes_of.keys() | other.boxes_of.keys())
    different = [n for n in names if chosen.boxes_of.get(n) != other.boxes_of.get(n)]
    cure = f"To read them, {_how_to_read(chosen, other)}"
    if not different:
        moved = [name for name in chosen.means_of if _is_elsewhere(name, chosen, other)]
        if not moved:
            line = f"{line}: both have {chosen.counted}"
            if not (chosen.is_sound and other.is_sound):
                line += ", not counting what cannot be read"
            here, there = _class_counts(chosen), _class_counts(other)
            if here == there or there is None:
                return f"{line}."
            if here is None:
                names = _describe_counts(there)
                return f"{line}, but only they name the classes: {names}. {cure}."
            counts = map(_describe_counts, (here - there, there - here))
            return f"{line}, but the classes differ ({_compare(*counts)}). {cure}."
        means = (
            _describe_mean(content.means_of[moved[0]]) for content in (chosen, other)
        )
        return (
            f"{line}, and they differ: both have {chosen.counted}, but the boxes of "
            f"{count_of(len(moved), 'image')} lie elsewhere, such as the mean box of "
            f"{moved[0]!r} ({_compare(*means)}). {cure}."
        )
    name = different[0]
    counts = chosen.counted_of(name), other.counted_of(name)
    how = count_of(len(different), "image differs: ", "images differ, such as ")
    how += f"{name!r} ({_compare(*counts)})"
    unread = "" if other.is_sound else ", not counting what cannot be read"
    all_counts = _compare(chosen.counted, f"{other.counted}{unread}")
    return f"{line}, and they differ ({all_counts}). {how}. {cure}."


def _compare(here, there):
    """Returns a text with what the chosen dataset has, and what another one has."""
    return f"read: {here}; not read: {there}"


def _class_counts(content):
    """Returns a counter from normalized class name to boxes; None without names."""
    counts = content.boxes_by_class
    if "classes without names" in content.kinds or counts.total() != content.num_boxes:
        return None
    found = collections.Counter()
    for name, count in counts.items():
        found[name.strip().replace("_", " ").casefold()] += count
    return found


def _describe_counts(counts):
    """Returns a text with the class names that have most boxes, and their counts."""
    shown = [f"{count:,} {name!r}" for name, count in counts.most_common(3)]
    return ", ".join([*shown, "..."] if len(counts) > 3 else shown) or "none"


def _is_elsewhere(name, one, other):
    """Returns whether an image's mean box differs between two datasets."""
    if name not in other.means_of:
        return False
    here, there = one.means_of[name], other.means_of[name]
    room = np.maximum(_ELSEWHERE * np.tile(here[2:], 2), 3)
    return bool((np.abs(here - there) > room).any())


def _describe_mean(box_xywh):
    left, top, width, height = box_xywh.tolist()
    return f"left {left:.0f}, top {top:.0f}, width {width:.0f}, height {height:.0f}"


def _how_to_read(chosen, other):
    """Returns what to do in order to read `other` instead of `chosen`."""
    if other.place == chosen.place:  # `chosen` is in folders of splits
        return "move the folders of the splits away"
    here, there = chosen.source, other.source
    if there.format != here.format:
        folder = "" if there.path == there.root else " or pass that folder"
        return f"pass format={there.format!r} (--format){folder}"
    if there.path not in here.path.parents:
        return "pass that folder"
    if there.format in WITH_ONE_FILE:
        return f"pass {_file_of(there)}"
    return f"move {str(here.path)!r} away"


def _file_of(source):
    """Returns the annotation file to pass in order to read this dataset, as text."""
    files = own_files(source) if source.format in WITH_ONE_FILE else []
    return repr(str(files[0])) if len(files) == 1 else "the annotation file"


def _has_nothing(source, error):
    """Returns whether a dataset that cannot be read is no more than images.

    Images without any txt file look like those of YOLO without objects.
    """
    return source.format == "yolo" and isinstance(error, NoObjectError)


def _has_no_txt(content):
    """Returns whether a YOLO dataset is no more than images, or a yaml file of others.

    A program's `data/` has yaml files for several datasets. One of them may find the
    txt files of the dataset beside it, whose class numbers it has no names for.
    """
    errors = {k for k in content.kinds if KINDS[k].severity is Severity.ERROR}
    is_yolo = content.source.format == "yolo" and not content.num_boxes
    return is_yolo and errors <= {"unknown class"}


def _note_of_unread(chosen, source, error):
    """Returns a line on a dataset that was found as well, but cannot be read."""
    reason = reason_of(error)
    reason += "" if reason.endswith(_CUT) else "."
    if source.format != chosen.format:
        reason += f" For the full error, pass format={source.format!r} (--format)."
    elif source.path != source.root:
        reason += " For the full error, pass that folder."
    if isinstance(error, ImportError):
        reason = str(error)
    line = f"{str(source.path)!r} also holds a dataset ({source.described})"
    return f"\n  {line}, which cannot be read: {reason}"


def reason_of(error: Exception | str | None) -> str:
    """Returns a short text that says why a dataset cannot be read.

    Args:
        error: the error of its reader, or its text; or None if it has no image.
    """
    if error is None:
        return "none of its images was found"
    reason = textwrap.shorten(str(error), _LONGEST, placeholder=_CUT)
    return reason if reason.endswith(_CUT) else reason.rstrip(".")


def _describe_several(contents, unread, path):
    contents = list({content.place: content for content in contents}.values())
    groups = _groups_of_same(contents)
    lines = [_describe(group, contents, path) for group in groups]
    lines += [
        f"{str(s.path)!r} is {s.described}; it cannot be read: {reason_of(error)}"
        for s, error in unread
    ]
    shown = "".join(f"\n  {line}" for line in lines[:SHOWN])
    more = f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    if len({c.source.path for c in contents}) == 1:
        names = [c.source.format for c in contents]
        return (
            f"{str(path)!r} holds annotations of different images in {len(groups)} "
            f"formats: choose one of {names} with `format` (--format of a command)."
            f"{shown}{more}"
        )
    return (
        f"{str(path)!r} holds {len(groups)} datasets of different images: pass the "
        f"folder of one of them.{shown}{more}"
    )


def _groups_of_same(contents):
    """Returns lists of the datasets that have the same images, boxes and classes."""
    groups = []
    for content in contents:
        for group in groups:
            is_equal = content.boxes_of == group[0].boxes_of
            is_equal &= content.boxes_by_class == group[0].boxes_by_class
            if is_equal and _is_same(content, group[0]):
                group.append(content)
                break
        else:
            groups.append([content])
    return groups


def _describe(group, contents, path):
    """Returns the line of one dataset in an error that lists several.

    The line begins with the annotations of `group` that can be read by their folder,
    and with those beside their images if there are several.
    """
    places = collections.Counter(c.source.path for c in contents)
    places.subtract(c.source.path for c in group)  # now only those of other datasets
    content, *others = sorted(
        group, key=lambda c: (places[c.source.path] > 0, not _has_own_images(c))
    )
    source = content.source
    line = f"{str(source.path)!r} is {source.described}; {content.counted}"
    if others:
        also = (
            f"{FORMATS[c.source.format].title} in {str(c.source.path)!r}"
            for c in others
        )
        line += f"; the same as {', '.join(also)}"
    owner = _owner_of(content, contents)
    line += "" if owner is None else f", which lie in {str(owner.source.path)!r}"
    line += "" if content.is_sound else ", not counting what cannot be read"
    if len({c.source.path for c in contents}) == 1:  # the error names the formats
        return line
    if source.path == path:
        if sum(c.source.format == source.format for c in contents) > 1:
            return f"{line} (to read it, pass {_file_of(source)})"
        line += f" (to read it, pass format={source.format!r}, --format)"
    elif places[source.path]:
        line += f" (pass that folder and format={source.format!r}, --format)"
    return line
