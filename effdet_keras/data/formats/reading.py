"""Makes a dataset from the images, boxes and classes that a reader has found.

All readers of formats share these functions.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import for_each, is_file
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import dataset_files
from effdet_keras.data.formats.image_paths import (
    current_root,
    find_moved,
    images_called,
    images_of_other_exports,
    may_have_images,
    named_images,
)
from effdet_keras.data.formats.label_map import ids_of_classes, requested_classes
from effdet_keras.data.problems import Severity, describe_problems
from effdet_keras.data.record import (
    Record,
    clip_boxes_xywh,
    concat_field,
    count_unusable,
    owners,
)
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import (
    LFS_CURE,
    EncodedImage,
    is_lfs_pointer,
    read_image_size,
)

ONE_SPLIT = dataset_files.ONE_SPLIT
split_of_name = dataset_files.split_of_name
split_names = dataset_files.split_names

_MAX_SIDE = 2**31  # pixels
MAX_COORDINATE = 1e9  # pixels: far outside any image, far below any overflow
MAX_FRACTION = 2.0  # image sides: larger numbers are no fractions of an image
MAX_CLASSES = 10_000  # a label above this number without a name is taken for damage
_NORMALIZED = 1.01  # highest end of a normalized box: some tools round beyond 1


@dataclasses.dataclass(slots=True, eq=False)
class Found:
    """One image as its file describes it; its classes are not labels yet."""

    place: Any  # the name of the image, or its file, in messages
    image: Any  # a path, `EncodedImage`, or uint8 `[H, W, 3]`
    boxes: np.ndarray  # [n, 4]: left, top, width, height, in pixels or fractions
    classes: Sequence  # the class of each box as in the file: a name or an id
    source_id: int | str
    file_name: str
    image_size: tuple | None = None  # (height, width); None: read from the image
    normalized_coordinates: bool = False
    is_crowd: Any = None
    area: Any = None  # square pixels of each box; None: width * height
    image_id: int | None = None  # None: images are counted from 1
    annotation_ids: Any = None
    shapes: tuple | None = None
    is_good: Any = None  # bool [n]: boxes to keep; None: all of them


# The classes of a dataset are three lists in the order of the labels: their names,
# their category ids (or None), and their keys, which are the values in `Found.classes`.


def named_classes(known, class_names):
    """Returns the classes of files that use class names.

    `known` are the names that occur in the files. If `class_names` is not None, it
    takes their place.
    """
    names, ids = known, None
    if class_names is not None:
        names, ids = requested_classes(class_names)
    return names, ids, names


def numbered_classes(known, class_names, found, *, are_category_ids):
    """Returns the classes of files that number them from 1.

    `known` is a dict from number to name. If it is empty and `class_names` is None, the
    names are "1", "2", ... up to the highest number in `found`. `are_category_ids` says
    whether the numbers become the category ids of the dataset.
    """
    if class_names is not None:
        names, ids = requested_classes(class_names)
    else:
        if not known:
            used = np.concatenate([[0], *(image.classes for image in found)])
            highest = int(used[used <= MAX_CLASSES].max(initial=0))
            known = {i: str(i) for i in range(1, highest + 1)}
        names, ids = tuple(known[i] for i in sorted(known)), None
    keys = ids_of_classes(names, known, ids if are_category_ids else None)
    return names, keys if ids is None or are_category_ids else ids, keys


class NoClassError(InvalidValueError):
    """Raised if a split has no object and nothing else names the classes."""


class NoObjectError(NoClassError):
    """Raised if a split has no annotated object at all, not even a faulty one."""


def make_dataset(
    found: Sequence[Found],
    classes: tuple,
    problems: Any,
    *,
    source: Any,
    keep_unusable: bool = False,
    image_dir: Any = None,
    why_unknown: Callable[[Any], str | None] = lambda key: None,
) -> DetectionDataset:
    """Makes a dataset from the images that were found; raises or warns of problems.

    Args:
        found: images, boxes and classes from the files. Images that do not exist are
            looked for below the dataset and, if found, replaced in these items.
        classes: names, category ids or None, and keys, as `named_classes` returns them.
        problems: `Problems` collected so far.
        source: file or folder from which the dataset is read. It names the dataset in
            messages, and missing images are looked for below the dataset that it
            belongs to.
        keep_unusable: whether to keep boxes that have no area inside their image.
        image_dir: folder that the user named for the images, or None. Missing images
            are looked for below it.
        why_unknown: function from the key of an unknown class to the reason why it is
            unknown, or to None if that is for `class_names` to solve.

    Returns:
        `DetectionDataset`.

    Raises:
        NoClassError: If there are no class names.
        FileNotFoundError, ValueError: Depending on `on_error`, if there are problems.
    """
    names, category_ids, keys = classes
    if not names:
        told = problems.check(num_images=len(found))
        left_out = [p for p in told if p.severity is Severity.ERROR]
        without_box = [p for p in told if p.kind == "unread shape"]
        text = f"{problems.reader} found no object: pass `class_names`"
        if not len(found):
            text = f"{problems.reader} found no image and no object"
        if without_box:
            shapes = describe_problems(without_box)
            text = f"{problems.reader} found {shapes}. These have no boxes: draw boxes"
        if left_out:
            cure = ", or repair" if len(found) else ". Repair"
            text += f"{cure} what was left out: {describe_problems(left_out)}"
        raise (NoClassError if left_out or without_box else NoObjectError)(text)
    labels = _labels(found, keys, problems, why_unknown)
    records = _records(found, labels, problems, source, image_dir)
    known = [record.labels >= 0 for record in records]
    records = [r if k.all() else r.select(k) for r, k in zip(records, known)]
    are_fractions = any(image.normalized_coordinates for image in found)
    records = _check_boxes(records, problems, source, are_fractions)
    if not keep_unusable:
        records = usable_only(records)
    archives = functools.partial(dataset_files.describe_archives, current_root(source))
    num_boxes = sum(len(record.labels) for record in records)
    problems = problems.finish(archives, num_images=len(records), num_boxes=num_boxes)
    return DetectionDataset(records, names, category_ids, problems=problems)


def _tell_of_emptied(found, labels, sizes, problems):
    """Warns of existing images that had boxes, all of which are left out."""
    # Names of images or of txt files.
    bad = problems.files_with("bad box", "unreadable annotation")
    bad = set(map(_stem_of, bad))
    if not bad and not problems.has("unknown class"):
        return
    emptied = [
        image.place
        for image, own, size in zip(found, labels, sizes)
        if isinstance(size, tuple)
        and not (own >= 0).any()
        and (len(own) or _stem_of(image.place) in bad)
    ]
    if emptied:
        detail = (
            f"all boxes of {count_of(len(emptied), 'image')} are left out, such as "
            f"those of {str(emptied[0])!r}: the detector would learn that these images "
            "are empty. Repair their annotations, or take the images out"
        )
        problems.add("images without a box left", emptied[0], detail)


def _stem_of(place):
    return os.path.splitext(os.path.basename(str(place)))[0]


def usable_only(records: Sequence[Record]) -> list[Record]:
    """Returns the records without the boxes that have no area inside their image."""
    counts = count_unusable(records)
    return [r.usable() if count else r for r, count in zip(records, counts)]


def _labels(found, keys, problems, why_unknown):
    """Returns the labels of each image, with -1 for an unknown class.

    Adds one problem for each unknown class.
    """
    label_of = {key: label for label, key in enumerate(keys)}
    unknown, place = collections.Counter(), {}
    labels = []
    for image in found:
        used = image.classes
        used = used.tolist() if isinstance(used, np.ndarray) else used
        labels.append(np.array([label_of.get(key, -1) for key in used], np.int32))
        for name in [key for key in used if key not in label_of]:
            unknown[name] += 1
            place.setdefault(name, image.place)
    for name, count in unknown.items():
        boxes = count_of(count, "box", "boxes")
        why = why_unknown(name)
        detail = (
            f"{boxes} with {why}"
            if why
            else f"{name!r}, the class of {boxes}, is not among the classes (if you "
            "passed `class_names`, add it there; to leave a class out, use "
            "`dataset.filter(classes=...)` afterwards)"
        )
        problems.add("unknown class", place[name], detail, count=count)
    return labels


def _records(found, labels, problems, source, image_dir):
    """Returns the records of the images that exist; counts ids where there are none."""
    paths = [f.image if isinstance(f.image, os.PathLike) else "" for f in found]
    sizes = for_each(lambda _, image: _size_of(image, problems), paths, found)
    _find_missing(found, sizes, problems, source, image_dir)
    _find_pointers(found, sizes, problems)
    _find_other_sizes(found, sizes, problems)
    _tell_of_emptied(found, labels, sizes, problems)
    is_lost = [size is None or size is _MISSING for size in sizes]
    lost = itertools.compress(labels, is_lost)
    problems.add_lost(boxes=sum(int((own >= 0).sum()) for own in lost))
    records, first_id = [], 1
    for image, size, image_labels in zip(found, sizes, labels):
        if size is None or size is _MISSING:
            continue
        height, width = size
        boxes = np.asarray(image.boxes, np.float64).reshape(-1, 4)
        if image.normalized_coordinates:
            boxes = boxes * (width, height, width, height)
        count, area = len(image_labels), boxes[:, 2] * boxes[:, 3]
        if image.area is not None:
            given = np.asarray(image.area, np.float64)
            if image.normalized_coordinates:
                # google/automl's VOC converter writes the area as a fraction of the
                # image too.
                is_close = np.isclose(given * height * width, area, rtol=1e-3, atol=0)
                given = np.where(is_close, area, given)
            area = given
        image_id = len(records) + 1 if image.image_id is None else image.image_id
        ids = image.annotation_ids
        record = Record(
            image=str(image.image)
            if isinstance(image.image, os.PathLike)
            else image.image,
            image_size=size,
            image_id=image_id,
            source_id=image_id if image.source_id == "" else image.source_id,
            file_name=image.file_name,
            boxes_xywh=boxes,
            labels=image_labels,
            is_crowd=np.zeros(count) if image.is_crowd is None else image.is_crowd,
            area=area,
            annotation_ids=first_id + np.arange(count) if ids is None else ids,
            shapes=image.shapes,
        )
        is_all = image.is_good is None or np.all(image.is_good)
        records.append(record if is_all else record.select(image.is_good))
        first_id += count
    return records


_LOOKED_AT = 20  # images, spread over the dataset, that are opened to look at them


def _local_images(found, sizes, step=1):
    """Returns the places of images on this machine whose size is known."""
    return [
        i
        for i in range(0, len(found), step)
        if isinstance(sizes[i], tuple)
        and isinstance(found[i].image, os.PathLike)
        and not is_remote(found[i].image)
    ]


def _sample_of_images(found, sizes):
    return _local_images(found, sizes, step=len(found) // _LOOKED_AT + 1)


def _find_pointers(found, sizes, problems):
    """Leaves out images that are pointers of Git LFS, if one of a sample is a pointer.

    If a file gives the size of an image, the image itself has not been opened before.
    """
    if any(is_lfs_pointer(found[i].image) for i in _sample_of_images(found, sizes)):
        for i in _local_images(found, sizes):
            if is_lfs_pointer(found[i].image):
                problems.add("corrupt image", found[i].image, LFS_CURE)
                sizes[i] = None


def _find_other_sizes(found, sizes, problems):
    """Scales the boxes of images that were made smaller; warns of other sizes.

    A sample of the images is opened. If some have another size than their annotations
    say, images may have been scaled or renamed after they were annotated.
    """
    sample = _real_sizes(found, _sample_of_images(found, sizes))
    others = _with_another_size(found, sample)
    if not others:
        return
    scaled = _scale_boxes(found, sizes, problems)
    others = [i for i in others if i not in scaled]
    if others:
        verb = "has" if len(others) == 1 else "have"
        detail = (
            f"{len(others)} of {count_of(len(sample), 'image')} that were opened "
            f"{verb} another size than the annotations say, such as "
            f"{_describe_sizes(found[others[0]], sample[others[0]])}. Training skips "
            "such images. Were they scaled or renamed? `effdet-keras inspect` finds "
            "all of them"
        )
        problems.add("sizes that differ", found[others[0]].image, detail)


def _real_sizes(found, places):
    """Returns (height, width) of the images whose annotations give a size as well."""
    sizes = {}
    for i in places:
        if found[i].image_size is not None:
            with contextlib.suppress(ValueError, OSError):  # a damaged image
                sizes[i] = read_image_size(found[i].image)
    return sizes


def _with_another_size(found, real_sizes):
    # A rotated image may be annotated as it is stored, or as it is shown.
    return [
        i
        for i, size in real_sizes.items()
        if sorted(size) != sorted(found[i].image_size)
    ]


_BEYOND = 0.1  # least share of boxes beyond smaller images: they belong to larger ones


def _scale_boxes(found, sizes, problems):
    """Scales the boxes of images that were made smaller after they were annotated.

    Such an image has the shape that its annotations give, but fewer pixels, and boxes
    end outside of it. If its boxes are inside, it may be the size in the annotations
    that is wrong.

    Returns:
        Set of the places of these images in `found`.
    """
    real_sizes = _real_sizes(found, _local_images(found, sizes))
    smaller = [
        i
        for i in _with_another_size(found, real_sizes)
        if _is_smaller(real_sizes[i], found[i].image_size) and found[i].shapes is None
    ]
    boxes = {i: np.asarray(found[i].boxes, float).reshape(-1, 4) for i in smaller}
    ends = [
        (boxes[i][:, :2] + boxes[i][:, 2:] > np.add(real_sizes[i][::-1], 1)).any(axis=1)
        for i in smaller
        if not found[i].normalized_coordinates
    ]
    are_beyond = np.concatenate([np.zeros(0, bool), *ends])
    if not are_beyond.any() or are_beyond.mean() < _BEYOND:
        return set()
    first = smaller[0]
    verb = "is" if len(smaller) == 1 else "are"
    example = _describe_sizes(found[first], real_sizes[first])
    detail = (
        f"{len(smaller):,} of {count_of(len(found), 'image')} {verb} smaller than when "
        f"annotated, such as {example}: the boxes are scaled as well"
    )
    problems.add("scaled images", found[first].image, detail)
    for i in smaller:
        image, (height, width) = found[i], real_sizes[i]
        factors = np.divide((height, width), image.image_size)
        if not image.normalized_coordinates:
            image.boxes = boxes[i] * np.tile(factors[::-1], 2)
            if image.area is not None:
                image.area = np.asarray(image.area, float) * factors.prod()
        image.image_size = sizes[i] = height, width
    return set(smaller)


def _is_smaller(size, declared):
    """Returns whether a size is a smaller one of the same shape, up to one pixel."""
    (height, width), (declared_height, declared_width) = size, declared
    if not 0 < height < declared_height:
        return False
    return abs(declared_width * height / declared_height - width) <= 1


def _describe_sizes(image, size):
    (height, width), (declared_height, declared_width) = size, image.image_size
    return (
        f"{str(image.image)!r}: {width} x {height} pixels, not {declared_width} x "
        f"{declared_height}"
    )


_MISSING = "missing"  # stands for the size of an image that does not exist


def _find_missing(found, sizes, problems, source, image_dir):
    """Looks below the dataset for images that do not exist; reports those not found."""
    missing = [i for i, size in enumerate(sizes) if size is _MISSING]
    if not missing:
        return
    names = [_names_of(found[i]) for i in missing]
    expected = [found[i].image for i in missing]
    places, root = find_moved(names, source, expected, image_dir)
    there = {str(f.image) for f, size in zip(found, sizes) if size is not _MISSING}
    count, first, lost = 0, None, []
    for i, place in zip(missing, places):
        image = found[i]
        is_there = place is not None and is_file(place)  # no link to nowhere
        if not is_there or str(place) in there or not _has_size(place, image):
            lost.append(i)
            continue
        count += 1
        first = first or f"{image.file_name!r}, which was found at {str(place)!r}"
        image.image = place
        sizes[i] = _size_of(image, problems)
    lost = _find_other_exports(found, lost, sizes, problems, source, image_dir)
    _find_in_other_splits(found, lost, sizes, problems, source)
    if first is not None:
        verb = "is" if count == 1 else "are"
        problems.add(
            "moved images",
            source,
            f"{count:,} of {count_of(len(found), 'image')} {verb} not where the "
            f"annotations say. Found below {str(root)!r} by the ending of the path, "
            f"such as {first}",
        )


def _find_other_exports(found, lost, sizes, problems, source, image_dir):
    """Reads images of another export of Roboflow instead of missing ones.

    There must be only one image with the name, except for its hash, in the stated size.

    Returns:
        List of the indices of images that are still missing, each with a text that
        says why no such image is read, or "".
    """
    names = [found[i].file_name for i in lost]
    exports = images_of_other_exports(names, source, image_dir)
    uses = collections.Counter(itertools.chain(*exports))
    there = {str(f.image) for f, size in zip(found, sizes) if size is not _MISSING}
    count, first, left = 0, None, []
    for i, places in zip(lost, exports):
        image, is_one = found[i], len(places) == 1 == uses[places[0]]
        is_free = is_one and str(places[0]) not in there and is_file(places[0])
        if not is_free or not image.image_size or not _has_size(places[0], image):
            why = ""
            if places:
                why = (
                    f"{str(places[0])!r} has that name except for Roboflow's hash: it "
                    "is of another export, and may be another image"
                )
            left.append((i, why))
            continue
        count += 1
        first = first or f"{str(places[0])!r} instead of {image.file_name!r}"
        image.image = places[0]
        sizes[i] = _size_of(image, problems)
    if first is not None:
        problems.add(
            "images of another export",
            source,
            f"{count:,} of {count_of(len(found), 'image')} are missing, and images of "
            "the same names and sizes, but with another hash, are read, such as "
            f"{first}. They are of another export of Roboflow: if it turned or "
            "cropped them in another way, their boxes are wrong",
        )
    return left


def _find_in_other_splits(found, lost, sizes, problems, source):
    """Reads missing images from folders of other splits, or reports them as missing.

    `lost` has the indices of the missing images, each with a reason or "".
    """
    named, misplaced = named_images(), []
    alike = images_called([found[i].file_name for i, _ in lost], source)
    for (i, why), same in zip(lost, alike):
        image, same = found[i], list(filter(is_file, same))
        is_free = named is not None and len(same) == 1 and str(same[0]) not in named
        if not is_free or not _has_size(same[0], image):
            why = _why_missing(image, same) or why
            problems.add("missing image", image.image, why)
            continue
        named.add(str(same[0]))
        misplaced.append(same[0])
        image.image = same[0]
        sizes[i] = _size_of(image, problems)
    if misplaced:
        verb, it = ("is", "it") if len(misplaced) == 1 else ("are", "them")
        problems.add(
            "misplaced images",
            source,
            f"{len(misplaced):,} of {count_of(len(found), 'image')} {verb} in the "
            f"folder of another split, no annotation of which names {it}, and read "
            f"from there, such as {str(misplaced[0])!r}",
        )


def _why_missing(image, same):
    """Explains why no image with the name of a missing image was used.

    `same` are the images with that name; the explanation is "" if there are none.
    """
    if not same:
        return ""
    if len(same) > 1:
        places = ", ".join(repr(str(place)) for place in same[:3])
        return (
            f"{len(same)} images have that name, such as {places}: it is unclear which "
            "one is meant"
        )
    place = repr(str(same[0]))
    if _has_size(same[0], image):
        return f"{place} has that name, but belongs to another entry or another split"
    declared, actual = image.image_size, read_image_size(same[0])
    return (
        f"{place} has that name, but another size: its height and width are {actual}, "
        f"those in the annotations {declared}"
    )


def _names_of(image):
    """Returns the possible names of an image: its file name, and its id as a text."""
    other = image.source_id if isinstance(image.source_id, str) else ""
    return image.file_name, other


def _has_size(place, image):
    """Returns whether an image may be the one meant, by the size in the annotations."""
    if image.image_size is None:
        return True
    try:
        size = read_image_size(place)
    except (ValueError, OSError):
        return True  # this is reported later, as a problem of that file
    return sorted(size) == sorted(image.image_size)


def _size_of(image, problems):
    """Returns the size of an image, or `_MISSING`, or None if it is corrupt."""
    path, declared = image.image, image.image_size
    if isinstance(path, np.ndarray):
        return path.shape[:2]
    if not isinstance(path, EncodedImage):
        if declared is not None and is_remote(path) and not path.is_listed:
            return declared  # checking each image would take hours: training finds out
        if not is_file(path):
            return _MISSING
    try:
        return declared or read_image_size(path)
    except (ValueError, OSError) as error:
        place = image.place if isinstance(path, EncodedImage) else path
        problems.add("corrupt image", place, str(error))
        return None


def _check_boxes(records, problems, source, are_fractions):
    """Reports boxes that are normalized, have no area, or lie outside their image."""
    if _are_normalized(records):
        count = sum(len(record.labels) for record in records)
        problems.add(
            "normalized box",
            source,
            f"all {count:,} boxes lie between 0 and 1, but pixels are expected: "
            "multiply x by the width and y by the height of the image",
        )
        return [record.select(slice(0, 0)) for record in records]
    _note_far_boxes(records, problems, source, are_fractions)
    _note_small_boxes(records, problems, source)
    for i in np.flatnonzero(count_unusable(records)):
        record = records[i]
        _, usable = clip_boxes_xywh(record.boxes_xywh, record.image_size)
        for left, top, width, height in record.boxes_xywh[~usable].tolist():
            problems.add(
                "box outside" if min(width, height) > 0 else "empty box",
                record.name,
                f"left {left:g}, top {top:g}, width {width:g}, height {height:g}",
                [record.image_id],
            )
    return records


# Share of a side of the image; share of all boxes; number of boxes.
_FAR, _MANY, _FEWEST = 0.1, 0.1, 3


def _note_far_boxes(records, problems, source, are_fractions):
    """Reports if many boxes end far outside, as those of images of another size do."""
    if not records:
        return
    boxes, owner = concat_field(records, "boxes_xywh"), owners(records)
    ends = (boxes[:, :2] + boxes[:, 2:])[:, ::-1]  # y, x, as the sizes
    sizes = np.asarray([record.image_size for record in records])[owner]
    far = np.flatnonzero((ends > (1 + _FAR) * sizes + 2).any(axis=1))
    if len(far) < _FEWEST or len(far) <= _MANY * len(boxes):
        return
    worst = far[np.argmax((ends[far] / sizes[far]).max(axis=1))]
    (y, x), (height, width) = ends[worst].tolist(), sizes[worst].tolist()
    doubt = "do they belong to images of another size?"
    if are_fractions:
        doubt = "are they centers and sizes, as fractions of their image?"
    elif (ends[:, ::-1] <= sizes + 2).all():
        doubt += (
            " Or do the annotations have y before x, as in top, left, bottom, right? "
            "All boxes fit into their images if x and y are exchanged"
        )
    problems.add(
        "boxes beyond images",
        source,
        f"{len(far):,} of {len(boxes):,} boxes end far outside their image, such as at "
        f"x {x:g}, y {y:g} in {records[owner[worst]].name!r}, whose width is {width} "
        f"and height {height}: {doubt}",
    )


def _note_small_boxes(records, problems, source):
    """Reports if most boxes are below a pixel, as after dividing by the size twice."""
    if not records:
        return
    boxes = concat_field(records, "boxes_xywh")
    sides = boxes[:, 2:]
    small = np.flatnonzero((sides < 1).all(axis=1) & (sides > 0).any(axis=1))
    if len(small) < _FEWEST or 2 * len(small) <= len(boxes):
        return
    _, _, width, height = boxes[small[0]].tolist()
    problems.add(
        "boxes below a pixel",
        source,
        f"{len(small):,} of {len(boxes):,} boxes are smaller than a pixel, such as "
        f"{width:g} x {height:g} in {records[owners(records)[small[0]]].name!r}: were "
        "their numbers divided by the size of the image twice?",
    )


def _are_normalized(records):
    """Returns whether there are at least two boxes and all lie between 0 and 1."""
    boxes = concat_field(records, "boxes_xywh")
    if len(boxes) < 2 or max(max(record.image_size) for record in records) <= 2:
        return False
    ends = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
    return bool(np.abs(ends).max() <= _NORMALIZED and (boxes[:, 2:] > 0).any())


# --- Checks of the values in a file.


def check_size(height, width):
    """Returns `(height, width)` as ints, or None if it is not the size of an image.

    Example:
        >>> check_size(480, 640.0), check_size(0, 640), check_size("480", "640")
        ((480, 640), None, None)
    """
    sides = (height, width)
    is_size = all(isinstance(s, int | float) and 0 < s < _MAX_SIDE for s in sides)
    return (int(height), int(width)) if is_size else None


def require_content(is_right, rule, source, content):
    """Raises ValueError with the rule and the content, unless the content is right."""
    if not is_right:
        said = reprlib.repr(content)
        raise InvalidValueError(f"{rule}. Received: {str(source)!r} with {said}")


def read_rows(read, lines, problems, place, word="line"):
    """Applies `read` to each `(number, line)` and returns the results.

    A str result is the description of an error: it becomes a problem and is left out.
    """
    rows = []
    for number, line in lines:
        row = read(line)
        if isinstance(row, str):
            add_bad_row(row, number, line, problems, place, word)
        else:
            rows.append(row)
    return rows


def add_bad_row(rule, number, line, problems, place, word="line"):
    """Adds a problem: a row of a file breaks a rule."""
    detail = f"{word} {number}: {rule}. Received: {reprlib.repr(line)}"
    problems.add("bad box", place, detail)


def are_coordinates(values):
    """Returns whether each row of `[n, 4]` has four usable numbers; NaN is not usable.

    Example:
        >>> are_coordinates(np.array([[0, 0, 5, 5], [0, 0, 5, np.nan]])).tolist()
        [True, False]
    """
    return np.all(np.abs(values) <= MAX_COORDINATE, axis=-1)


_IMAGE_PLACES = ("", "images", "data", "Images", "img")  # and the folders of the split


def image_folder_inside(file, split, names, path_in):
    """Finds the folder of the dataset that has one of a file's first images, or None.

    The folders beside the file are tried, and those beside its folder if they belong to
    the dataset. A folder of the same split comes first: if there are `images` and
    `val_images`, the second has the images of `val.json`.
    """
    folders = [file.parent / file.stem]
    for base in [file.parent, *([] if is_at_the_root(file) else [file.parent.parent])]:
        folders += [base / split, base / "images" / split]
        if _first_with(folders, names, path_in) is None:
            folders += folders_of_split(base, split, file.stem)
        folders += [base / place for place in _IMAGE_PLACES]
    return _first_with(folders, names, path_in)


def folders_of_split(base: Any, split: str, name: str) -> list[Any]:
    """Returns the image folders of a split in a folder, such as `val_images`.

    The folders that share most words with the name of the annotations come first. The
    list is empty if the name of the split does not mean training, validation or test.

    Args:
        base: path of the folder to look in.
        split: name of the split.
        name: name of the annotation file, without suffix.

    Returns:
        List of paths.
    """
    words = dataset_files.words_in_name(name)
    roles = dataset_files.split_roles([split])
    if not roles or is_remote(base) or not base.is_dir():
        return []
    folders = [
        folder
        for folder in dataset_files.visible_folders(base)
        if dataset_files.split_roles([folder.name]) == roles
        and may_have_images(folder.name)
    ]
    shared = {f: len(words & dataset_files.words_in_name(f.name)) for f in folders}
    return sorted(folders, key=lambda folder: -shared[folder])


def image_folder_around(file, split, names, path_in, problems):
    """Finds the image folder beside a dataset's folder, or None.

    That folder may belong to another dataset. It is used, with a note, only if no image
    is found inside the dataset.
    """
    if not is_at_the_root(file) or any(find_moved([(n,) for n in names[:10]], file)[0]):
        return None
    places = (split, f"images/{split}", *_IMAGE_PLACES)
    folders = [file.parent.parent / place for place in places]
    folder = _first_with(folders, names, path_in)
    if folder is not None:
        detail = (
            f"no image of {str(file)!r} is below its folder: {names[0]!r} and others "
            f"are read from {str(folder)!r}, beside that folder. If these are not the "
            "right images, pass `image_dir`"
        )
        problems.add("moved images", file, detail)
    return folder


def is_at_the_root(file):
    """Returns whether the folder around a file's folder is outside the dataset."""
    if is_remote(file):
        return False
    root = current_root(file)
    return root is None or root not in file.absolute().parent.parents


def _first_with(folders, names, path_in):
    """Returns the first folder that has one of the first ten images, or None."""
    known = (f for f in folders if any(is_file(path_in(f, n)) for n in names[:10]))
    return next(known, None)


def chosen_split(splits: Iterable[str], split: str | None, source: Any) -> str:
    """Returns the split that was asked for, or the only one there is.

    Another name of the same role is accepted if it is the only one: "train" for
    `train2017`, "valid" for `val`.

    Args:
        splits: names of the splits that there are.
        split: name of the split that was asked for, or None.
        source: file or folder, for the error.

    Returns:
        One of `splits`.

    Raises:
        ValueError: If there is no such split, or if `split` is None and there is not
            exactly one.

    Example:
        >>> chosen_split(["train2017", "val2017"], "train", "coco")
        'train2017'
    """
    splits = list(splits)
    if split is None and len(splits) == 1:
        return splits[0]
    if split is not None and split not in splits:
        # "train" means `train2017` and "valid" means `val`, if there is one of them.
        role = dataset_files.role_of_split(str(split))
        same = dataset_files.splits_of_role(splits, role)
        if role is not None and len(same) == 1:
            return same[0]
    if split not in splits:
        raise InvalidValueError(
            f"`split` must be one of {splits}, the splits of {str(source)!r}. "
            f"Received: split={split!r}{_how_to_divide(splits, split)}"
        )
    return split


def _how_to_divide(splits, split):
    """Returns advice if an evaluation split is wanted but there is none, else ""."""
    role = dataset_files.role_of_split(str(split))
    if role not in ("validation", "test") or dataset_files.splits_of_role(splits, role):
        return ""
    train = dataset_files.splits_of_role(splits, "train")
    if len(splits) > 1 and not train:
        return ""
    name = "" if len(splits) == 1 else f", {train[0]!r}"
    return (
        f". To divide the images: `train, valid = ek.data.load(DATA{name}).split(0.8)`"
    )
