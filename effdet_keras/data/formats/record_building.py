"""What the readers share: classes, sizes of images, checks of boxes, records."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from effdet_keras._internal.remote_path import is_file
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.formats.label_map import requested_classes
from effdet_keras.data.formats.sidecar import FIELDS, apply_sidecar
from effdet_keras.data.record import Record, clip_boxes_xywh, count_unusable
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import read_image_size

_MAX_SIDE = 2**31  # pixels
_MAX_COORDINATE = 1e9  # pixels: far outside any image, far from any overflow
_NORMALIZED = 1.01  # ends of boxes: some tools round beyond 1


def choose_classes(found, class_names, sidecar, reader, problems):
    """Chooses the classes of a dataset whose files have names, but no ids."""
    ids = None
    if class_names is not None:
        class_names, ids = requested_classes(class_names)
    elif sidecar is not None and set(found) <= set(sidecar.class_names):
        class_names = sidecar.class_names
    else:
        class_names = tuple(found)
    if not class_names:
        problems.finish()
        raise InvalidValueError(f"{reader} found no object: pass `class_names`")
    if ids is None and sidecar is not None:
        ids = sidecar.category_ids_of(class_names)
    return class_names, ids


def label_boxes(names_of_files, class_names, problems):
    """Turns class names into labels; unknown names become one problem each."""
    label_of = {name: label for label, name in enumerate(class_names)}
    unknown, first_file = collections.Counter(), {}
    labels = []
    for file, names in names_of_files:
        labels.append(np.array([label_of.get(name, -1) for name in names], np.int32))
        for name in set(names) - label_of.keys():
            unknown[name] += names.count(name)
            first_file.setdefault(name, file)
    for name, count in unknown.items():
        problems.add(
            "unknown class", first_file[name], unknown_class(repr(name), count)
        )
    return labels


def unknown_class(name, count):
    """The detail of an "unknown class"."""
    boxes = "1 box" if count == 1 else f"{count:,} boxes"
    return (
        f"{name} of {boxes} (if you passed `class_names`, name it too: classes "
        "are left out afterwards, with `dataset.filter(classes=...)`)"
    )


def check_size(height, width):
    """Returns `(height, width)` as ints, or None if it is no size of an image."""
    sides = (whole_number(height), whole_number(width))
    return sides if all(s is not None and 0 < s < _MAX_SIDE for s in sides) else None


def whole_number(value):
    """Returns an int or a float without fraction as int, anything else as None."""
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() else None


def are_coordinates(values):
    """Says of each row of an array `[n, 4]` whether it is four usable numbers."""
    # NaN compares as False.
    return np.all(np.abs(values) <= _MAX_COORDINATE, axis=-1)


def find_image_size(path, declared, problems):
    """Finds the size of an image, and whether it is there."""
    if declared is not None and is_remote(path) and not path.is_listed:
        return declared  # asking for each would take hours: training finds out
    if not is_file(path):
        problems.add("missing image", path)
        return None
    if declared is not None:
        return declared
    try:
        return read_image_size(path)
    except (ValueError, OSError) as error:
        problems.add("corrupt image", path, str(error))
        return None


def plain_record(path, image_size, boxes_xywh, labels, *, source_id, file_name):
    """Makes a `Record` without crowds, areas or ids; `finish_records` numbers it."""
    boxes_xywh = np.asarray(boxes_xywh, np.float64).reshape(-1, 4)
    return Record(
        image=str(path),
        image_size=image_size,
        image_id=0,
        source_id=source_id,
        file_name=file_name,
        boxes_xywh=boxes_xywh,
        labels=labels,
        is_crowd=np.zeros(len(boxes_xywh), bool),
        area=boxes_xywh[:, 2] * boxes_xywh[:, 3],
        annotation_ids=np.zeros(len(boxes_xywh), np.int64),
    )


def finish_records(
    records,
    problems,
    *,
    source,
    sidecar,
    split,
    names,
    class_names,
    fields=FIELDS,
):
    """Numbers records, restores what the sidecar keeps, leaves out unusable boxes."""
    records = apply_sidecar(
        sidecar, split, _numbered(records), names, class_names, fields=fields
    )
    records = [_labelled(record) for record in records]
    records = check_boxes(records, problems, source)
    counts = count_unusable(records)
    return [r.usable() if count else r for r, count in zip(records, counts)]


def _numbered(records):
    numbered, first = [], 1
    for image_id, record in enumerate(records, 1):
        ids = first + np.arange(len(record.labels))
        first += len(ids)
        numbered.append(
            dataclasses.replace(record, image_id=image_id, annotation_ids=ids)
        )
    return numbered


def _labelled(record):
    known = record.labels >= 0
    return record if known.all() else record.select(known)


def check_boxes(records, problems, source):
    """Notes boxes that are normalized, have no area, or lie outside their image."""
    if are_normalized(records):
        count = sum(len(record.labels) for record in records)
        problems.add(
            "normalized box",
            source,
            f"all {count:,} lie between 0 and 1, but pixels are expected: multiply "
            "x by the width and y by the height of the image",
        )
        return [record.select(slice(0, 0)) for record in records]
    counts = count_unusable(records)
    for i in np.flatnonzero(counts):
        _note_unusable(records[i], problems)
    return records


def are_normalized(records):
    """Says whether two boxes or more all lie between 0 and 1."""
    boxes = [record.boxes_xywh for record in records if len(record.labels)]
    boxes = np.concatenate(boxes) if boxes else np.zeros((0, 4))
    if len(boxes) < 2 or max(max(record.image_size) for record in records) <= 2:
        return False
    ends = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
    return bool(np.abs(ends).max() <= _NORMALIZED and (boxes[:, 2:] > 0).any())


def _note_unusable(record, problems):
    _, usable = clip_boxes_xywh(record.boxes_xywh, record.image_size)
    for box in record.boxes_xywh[~usable]:
        left, top, width, height = box.tolist()
        problems.add(
            "box outside" if min(width, height) > 0 else "empty box",
            record.name,
            f"left {left:g}, top {top:g}, width {width:g}, height {height:g}",
        )


# --- Names of splits, and what names of files and folders say of them.

ONE_SPLIT = "train"  # the name of a dataset that is not divided

# Names of annotation files that name what is in them, not a split.
_NO_SPLITS = ("annotations", "labels", "data", "dataset", "coco", "default", "result")


def split_of_name(name: str) -> str:
    """Returns the split that the name of a file stands for."""
    return ONE_SPLIT if name.lower() in _NO_SPLITS else name
