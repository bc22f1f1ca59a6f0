"""Reads CVAT's XML 1.1, with one file for all images or for a video."""

from __future__ import annotations

import collections
import functools
import os
import re
import xml.etree.ElementTree
import xml.sax.saxutils
from collections.abc import Callable
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from effdet_keras._internal.remote_path import (
    local_copy,
    path_of,
)
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_order,
    corners_of,
    ellipse_box,
    files_by_split,
    head_of,
    hull_box,
    note_rotated,
    number_of,
    numbers_of,
    polygon_shape,
    read_split,
    read_xml,
    split_of_subset,
    turned_corners,
)
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems

_SUFFIXES = (".xml",)
# Elements of an image without a box: lines, points, and boxes in three dimensions.
_WITHOUT_BOX = ("polyline", "points", "cuboid", "skeleton")
# Types of labels that no box, outline or mask can have.
_OTHER_LABELS = ("tag", "points", "polyline", "cuboid", "skeleton")
# Matches up to the root element, after comments, declarations and the like.
_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*|<[?!][^>]*>\s*)*<annotations\b", re.DOTALL
)
# Tags of VOC files that have the same root.
_VOC_TAG = re.compile(rb"<(?:bndbox|filename)>")
_OWN_TAG = re.compile(rb"<(?:version|meta|image|track)\b")
_IMAGE = re.compile(rb"<image\b[^>]*>")
_SUBSET = re.compile(rb'\bsubset="([^"]*)"')
_TASK_SUBSET = re.compile(rb"<subset>([^<]*)</subset>")


def from_cvat(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads an export of CVAT in its format "CVAT for images 1.1", or "for video".

    Reads boxes, including rotated ones, outlines (`polygon`), ellipses and masks. A
    shape that is not an upright rectangle becomes the upright box around it, and
    rotated boxes are counted in a note. Lines, points, cuboids and skeletons are left
    out, with a warning. Tags of whole images are no objects; a warning names them if a
    file has nothing else. Of a video, the frames that were exported with it are read:
    `frame_000000.png` and so on. Consecutive frames are alike, so do not split them at
    random.

    Args:
        path: the `annotations.xml`, or a folder that contains it.
        split: a subset of the project, such as "train". None reads all subsets of a
            file, or the only split of a folder.
        image_dir: folder of the images. None looks beside the file and in `images`.
        class_names, on_error: see `load`.
        masks: whether to keep outlines and masks for a segmentation head, as
            `from_coco` does.

    Returns:
        `DetectionDataset`. The classes are in the order of the labels of the task or
        project. `image_id` counts from 1 in the order of the file; `source_id` is the
        name of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file is no such export, if a folder has several subsets and
            `split` is None, or, depending on `on_error`, if a shape has no label or no
            finite numbers.

    Example:
        >>> import pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> _ = (folder / "annotations.xml").write_text('''<annotations>
        ...   <image id="0" name="a.png" width="48" height="32">
        ...     <box label="cat" xtl="8" ytl="4" xbr="40" ybr="20"/>
        ...   </image>
        ... </annotations>''')
        >>> from_cvat(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    path = path_of(path)
    options = {"class_names": class_names, "on_error": on_error, "masks": masks}
    if path.is_dir():
        tool = "`from_cvat` found no xml file of CVAT, such as annotations.xml: one"
        readers = cvat_readers(path)
        return read_split(readers, path, split, tool, image_dir=image_dir, **options)
    root = _read_xml(path)
    problems = Problems(f"`from_cvat` of {str(path)!r}", on_error)
    images = root.findall("image")
    if not images and root.find("track") is not None:
        images = _frames(root, ImageLocator(path, image_dir), path)
    if split is not None:
        split = split_of_subset(split)
        reading.chosen_split(cvat_readers(path) or [reading.ONE_SPLIT], split, path)
    if split is not None and any(image.get("subset") for image in images):
        images = [i for i in images if split_of_subset(i.get("subset", "")) == split]
    subsets = dict.fromkeys(image.get("subset") or split for image in images)
    locators = {s: ImageLocator(path, image_dir, s) for s in subsets}
    rotated = []
    found = [
        _found(image, locators[image.get("subset") or split], problems, rotated, masks)
        for image in images
    ]
    if not any(image.classes for image in found):
        _tell_of_tags(images, problems)
    note_rotated(problems, path.name, rotated)
    classes = class_order(_labels(root, found), found)
    classes = reading.named_classes(classes, class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def cvat_readers(path: Any) -> dict[str, Callable]:
    """Finds xml files of CVAT; returns a dict from split to its reader."""
    readers = {}
    for name, file in files_by_split(path, _SUFFIXES, is_cvat).items():
        for subset in _subsets_of(file) or [None]:
            key = subset or name
            key = f"{name}_{key}" if key in readers else key
            readers[key] = functools.partial(from_cvat, file, subset)
    return readers


def is_cvat(path: Any) -> bool:
    """Returns whether an xml file begins like those of CVAT.

    Pascal VOC's files do not: they may have the same root, but none of CVAT's other
    tags.
    """
    head = head_of(path, 4096)
    is_voc = _VOC_TAG.search(head) and not _OWN_TAG.search(head)
    return _ROOT.match(head) is not None and not is_voc


def _subsets_of(path):
    """Returns the sorted subsets of the images in a file; empty if it has none."""
    content = local_copy(path).read_bytes()
    matches = [_SUBSET.search(image) for image in _IMAGE.findall(content)]
    names = {match[1] if match else b"" for match in matches}
    if not any(names):  # no image has a subset, but the task may
        names = set(_TASK_SUBSET.findall(content))
    texts = [xml.sax.saxutils.unescape(name.decode()) for name in names]
    return sorted(map(split_of_subset, texts)) if any(texts) else []


def _read_xml(path):
    rule = "`from_cvat` expects an xml file of CVAT's format 'CVAT for images 1.1'"
    root = read_xml(path, rule)
    reading.require_content(root.tag == "annotations", rule, path, f"<{root.tag}>")
    return root


# --- Tracks of a video, exported as "CVAT for video 1.1": boxes by frame.


def _frames(root, locator, path):
    """Returns the existing frames of a video, each as an `<image>` with its shapes."""
    shapes = collections.defaultdict(list)
    for track in root.findall("track"):
        for shape in track:
            if shape.get("outside") != "1":
                shape.set("label", track.get("label", ""))
                shapes[number_of(shape.get("frame"))].append(shape)
    size = root.find("meta//original_size")
    sides = ("width", "height")
    given = {} if size is None else {side: size.findtext(side, "") for side in sides}
    images = []
    for frame, name in locator.frames():
        image = xml.etree.ElementTree.Element("image", {**given, "name": name})
        image.extend(shapes.get(frame, ()))
        images.append(image)
    if not images:
        raise FileNotFoundError(
            f"`from_cvat` found no frame, such as frame_000000.png, of the video of "
            f"{str(path)!r}. Export the task again as 'CVAT for images 1.1' or 'CVAT "
            "for video 1.1' with 'Save images'"
        )
    return images


def _labels(root, found):
    """Yields the labels of the task or project that boxes can have, in its order."""
    used = {name for image in found for name in image.classes}
    for label in root.findall("meta//labels/label"):
        name = label.findtext("name", "").strip()
        kind, parent = label.findtext("type", "any").strip(), label.find("parent")
        if name and (name in used or (kind not in _OTHER_LABELS and parent is None)):
            yield name


def _found(image, locator, problems, rotated, masks):
    name, objects = image.get("name", ""), Objects()
    size = [number_of(image.get(side)) for side in ("height", "width")]
    for item in image:
        if item.tag in ("tag", "attribute"):
            continue
        if item.tag in _WITHOUT_BOX:
            problems.add("unread shape", name, f"{item.tag} of {item.get('label')!r}")
            continue
        label, box = item.get("label", "").strip(), _box_of(item)
        if box is None or not label:
            given = {k: v for k, v in item.attrib.items() if k != "rle"}
            detail = (
                f"<{item.tag}> must have a label and finite numbers. Received: {given}"
            )
            problems.add("bad box", name, detail)
            continue
        rotation = number_of(item.get("rotation")) or 0.0
        if rotation % 360 and item.tag == "box":
            rotated.append(f"{label!r} by {rotation:g} degrees in {name}")
        objects.add(box, label, _shape_of(item, size) if masks else None)
    return objects.found(
        name,
        locator.find(name),
        image_size=reading.check_size(*size),
        shapes=tuple(objects.shapes) if masks else None,
    )


def _tell_of_tags(images, problems):
    """Adds a problem for each tag, if images have nothing else."""
    for image in images:
        for tag in image.findall("tag"):
            detail = f"tag {tag.get('label')!r} of the whole image"
            problems.add("unread shape", image.get("name", ""), detail)


# --- The shapes of CVAT.


def _box_of(item):
    """Returns left, top, width and height of a shape, or None without its numbers."""
    rotation = number_of(item.get("rotation", "0"))
    if rotation is None:
        return None
    if item.tag == "polygon":
        points = _points(item)
        return None if points is None else hull_box(points)
    names = {
        "box": ("xtl", "ytl", "xbr", "ybr"),
        "ellipse": ("cx", "cy", "rx", "ry"),
        "mask": ("left", "top", "width", "height"),
    }.get(item.tag)
    numbers = numbers_of(item.get(name) for name in names) if names else None
    if numbers is None or item.tag == "mask":
        return numbers
    if item.tag == "ellipse":
        return ellipse_box(*numbers, rotation)
    left, top, right, bottom = numbers
    if not rotation % 360:
        return left, top, right - left, bottom - top
    corners = corners_of(left, top, right - left, bottom - top)
    center = ((left + right) / 2, (top + bottom) / 2)
    return hull_box(turned_corners(corners, rotation, center))


def _points(item):
    """Returns the points `[n, 2]` in `x,y;x,y;...`, or None."""
    pairs = [pair.split(",") for pair in item.get("points", "").split(";") if pair]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        return None
    numbers = numbers_of(number for pair in pairs for number in pair)
    return None if numbers is None else np.array(numbers).reshape(-1, 2)


def _shape_of(item, size):
    """Returns the outline or the run lengths of a shape; None for a box."""
    if item.tag == "polygon":
        return polygon_shape(_points(item))
    if item.tag != "mask" or None in size:
        return None
    counts = numbers_of(item.get("rle", "").split(","))
    left, top, width, height = (int(n) for n in _box_of(item))
    if counts is None or sum(counts) != width * height or min(left, top) < 0:
        return None
    # CVAT counts row by row inside the box, zeros first; COCO counts column by column
    # in the whole image.
    counts = np.asarray(counts, np.int64)
    inside = np.repeat(np.arange(len(counts)) % 2, counts).reshape(height, width)
    pixels = np.zeros([int(side) for side in size], np.uint8, order="F")
    place = pixels[top : top + height, left : left + width]
    place[:] = inside[: place.shape[0], : place.shape[1]]
    return coco_mask.encode(pixels)
