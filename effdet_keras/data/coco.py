"""COCO json files to a dataset."""

import collections
import itertools
import json
import numbers
import os
import pathlib
import warnings

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.example import Record, check_files, warn_of_unusable
from effdet_keras.images import read_image_size


def from_coco(annotations, image_dir, *, class_names=None):
    """Reads a dataset in COCO's form: one json file and a folder of pictures.

    Labels count from 0 in ascending order of the file's category ids, which
    need not be without gaps: COCO's 80 classes have ids up to 90, and they
    come back out in `category_ids`, `to_coco` and evaluation.

    The annotations are checked here, before any training. What can be
    repaired is repaired, with a warning that counts it: a box that reaches
    out of its picture is clipped (no warning); one with no area in it, or an
    annotation of a picture that is not in `images`, is not trained on.
    Evaluation sees the boxes as the file has them.

    Args:
        annotations: path of the json file, or its content as a dict.
        image_dir: folder that the `file_name`s start from.
        class_names: names in the order of the labels, to bring a second file
            in line with a first: pass the first dataset's `class_names`.
            They may name classes that this file has not. None takes the
            file's own.

    Returns:
        `DetectionDataset`. A picture whose id is not an int gets 1, 2, ... as
        `image_id` and keeps its own as `source_id`.

    Raises:
        FileNotFoundError: If the json or pictures are missing.
        ValueError: If the json is not of COCO's form, a category id is
            unknown, an id repeats, or a box is not four finite numbers.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> dataset = from_coco(f"{folder}/valid.json", f"{folder}/valid")
        >>> len(dataset), dataset.class_names
        (2, ('circle', 'square', 'triangle'))
    """
    content, source = _read_json(annotations)
    names, category_ids = _read_classes(content["categories"], class_names, source)
    image_ids = _image_ids(content["images"], source)
    annotations_of = _group_annotations(content, category_ids, source)
    records = [
        _make_record(
            image, image_id, annotations_of[image["id"]], pathlib.Path(image_dir)
        )
        for image, image_id in zip(content["images"], image_ids)
    ]
    check_files(records, f"`from_coco` of {source}")
    warn_of_unusable(records, f"`from_coco` of {source}")
    return DetectionDataset(records, names, category_ids)


def _read_json(annotations):
    if isinstance(annotations, dict):
        content, source = annotations, "a dict"
    else:
        source = repr(os.fspath(annotations))
        with open(annotations, encoding="utf-8") as file:
            try:
                content = json.load(file)
            except ValueError as error:
                raise ValueError(
                    f"`from_coco` expects a json file. Received: {source} ({error})"
                ) from error
    needed = ("images", "annotations", "categories")
    if not isinstance(content, dict) or any(key not in content for key in needed):
        found = list(content) if isinstance(content, dict) else type(content).__name__
        raise ValueError(
            "`from_coco` expects a json object with `images`, `annotations` and "
            f"`categories`. Received: {source} with {found}"
        )
    return content, source


def _read_classes(categories, class_names, source):
    """The name and the category id of each label."""
    name_of = {category["id"]: str(category["name"]) for category in categories}
    if len(name_of) != len(categories) or not all(map(_is_int, name_of)):
        raise ValueError(
            "Each category must have an int `id` of its own. "
            f"Received: {source} with ids {[c['id'] for c in categories]}"
        )
    if class_names is None:
        category_ids = sorted(name_of)
        return [name_of[i] for i in category_ids], category_ids
    id_of = {name: category_id for category_id, name in name_of.items()}
    unused = itertools.count(max(name_of, default=0) + 1)
    return class_names, [
        id_of[name] if name in id_of else next(unused) for name in class_names
    ]


def _group_annotations(content, category_ids, source):
    """`(annotation id, label, annotation)` by the id of the image."""
    label_of = {category_id: label for label, category_id in enumerate(category_ids)}
    annotations = content["annotations"]
    _check_boxes(annotations, source)
    ids = [annotation.get("id") for annotation in annotations]
    if not all(map(_is_int, ids)) or len(set(ids)) != len(ids):
        # pycocotools keeps annotations by id: without one each, some are lost.
        ids = range(1, len(annotations) + 1)
    groups = {image["id"]: [] for image in content["images"]}
    unknown, strangers = collections.Counter(), 0
    for annotation_id, annotation in zip(ids, annotations):
        label = label_of.get(annotation["category_id"])
        if label is None:
            unknown[annotation["category_id"]] += 1
        elif annotation["image_id"] not in groups:
            strangers += 1
        else:
            groups[annotation["image_id"]].append((annotation_id, label, annotation))
    if unknown:
        raise ValueError(
            f"Every annotation must be of a known category, of ids {category_ids}. "
            f"Received: {source} with {dict(unknown)} (category id: annotations). "
            "If you passed `class_names`, name these categories too: classes are "
            "left out afterwards, with `dataset.filter(classes=...)`"
        )
    if strangers:
        warnings.warn(
            f"`from_coco` of {source}: {strangers} annotations belong to pictures "
            "that are not in `images` and are left out",
            stacklevel=3,
        )
    return groups


def _check_boxes(annotations, source):
    boxes = [annotation.get("bbox") for annotation in annotations]
    # All at once, and one by one only to name the wrong one: COCO has 860,000.
    if not boxes or _are_boxes(boxes, len(boxes)):
        return
    for annotation, box in zip(annotations, boxes):
        if not _are_boxes([box], 1):
            raise ValueError(
                "`bbox` must be four finite numbers: left, top, width, height. "
                f"Received: {source} with bbox={box} of annotation "
                f"{annotation.get('id')}"
            )


def _are_boxes(boxes, count):
    try:
        boxes = np.asarray(boxes, np.float64)
    except (TypeError, ValueError):
        return False
    return boxes.shape == (count, 4) and bool(np.isfinite(boxes).all())


def _image_ids(images, source):
    ids = [image["id"] for image in images]
    uses = collections.Counter(ids)
    twice = [image_id for image_id, count in uses.items() if count > 1]
    if twice:
        raise ValueError(
            "Each image must have an `id` of its own. "
            f"Received: {source} with {twice[:3]} more than once"
        )
    return ids if all(map(_is_int, ids)) else range(1, len(ids) + 1)


def _make_record(image, image_id, members, image_dir):
    path = str(image_dir / image["file_name"])
    image_size = (image.get("height"), image.get("width"))
    if not all(_is_int(side) and side > 0 for side in image_size):
        image_size = read_image_size(path)
    boxes = [annotation["bbox"] for _, _, annotation in members]
    return Record(
        image=path,
        image_size=image_size,
        image_id=image_id,
        source_id=image["id"],
        file_name=image["file_name"],
        boxes_xywh=boxes,
        labels=[label for _, label, _ in members],
        is_crowd=[bool(annotation.get("iscrowd", 0)) for _, _, annotation in members],
        area=[
            annotation.get("area", box[2] * box[3])
            for box, (_, _, annotation) in zip(boxes, members)
        ],
        annotation_ids=[annotation_id for annotation_id, _, _ in members],
    )


def _is_int(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
