"""Reads the json and csv files of the VGG Image Annotator (VIA), versions 1 and 2."""

from __future__ import annotations

import functools
import json
import os
import reprlib
import shlex
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_order,
    dict_of,
    ellipse_box,
    files_by_split,
    head_of,
    hull_box,
    number_of,
    numbered,
    numbers_of,
    polygon_shape,
    read_json,
    read_path,
    usable_entries,
)
from effdet_keras.data.formats.csv import read_lines
from effdet_keras.data.formats.dataset_files import (
    role_of_split,
    split_folders,
    split_in_name,
)
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError

# Key in a project; its value has the images as other json files have.
_METADATA = "_via_img_metadata"
_WITHOUT_BOX = ("point", "polyline", "line")
# If regions have several attributes, the first of these is the class.
_CLASS_ATTRIBUTES = ("class", "label", "name", "category", "type", "object", "species")
_NO_ATTRIBUTE = "object"  # the class of regions without attributes
_COLUMNS = (
    "filename",
    "file_size",
    "file_attributes",
    "region_count",
    "region_id",
    "region_shape_attributes",
    "region_attributes",
)


def from_via(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    class_attribute: str | None = None,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads a project, json or csv file of the VGG Image Annotator (VIA).

    Reads the annotations of versions 1 and 2. Rectangles, circles, ellipses and
    outlines (`polygon`) become the upright box around them. So do polylines whose ends
    meet, or nearly meet, with a note. Points and other lines are left out, with a
    warning. The class of a region is the value of one of its attributes. If the
    attribute is a group of check boxes, it is the only checked one.

    Args:
        path: the json or csv file, or a folder that contains it, or a folder with
            `train` and `val` that contain one each. Several json files in one folder
            that have different images, and no split in their names, are read as one
            dataset. If the folder of a split has several files of the same images, the
            one with the most boxes is read.
        split: name of a split of a folder. None reads the only one.
        class_attribute: name of the region attribute that is the class. None takes the
            only one, or else the first of "class", "label", "name", "category", "type",
            "object" and "species" that exists. Attributes that agree in all regions
            count as one. If no region of a file has an attribute, all get one class:
            the only name in `class_names`, or the only class of the other splits, or
            else "object"; a warning reports it. If at most a fifth of the regions have
            no attribute, and all others have the same class, they get that class, with
            a warning. If at most a fifth have one, and the same, all regions are read
            as if they had none, with a warning.
        image_dir: folder of the images. None looks beside the file and in `images`.
        class_names, on_error: see `load`.
        masks: whether to keep outlines for a segmentation head, as `from_coco` does.

    Returns:
        `DetectionDataset`. The classes are in the order of the options in a project;
        others are sorted. `image_id` counts from 1 in the order of the file;
        `source_id` is the name of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file is not VIA's, if several attributes may be the class,
            or, depending on `on_error`, if a region has no class or no finite numbers.

    Example:
        >>> import pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> box = {"name": "rect", "x": 8, "y": 4, "width": 32, "height": 16}
        >>> region = {"shape_attributes": box, "region_attributes": {"class": "cat"}}
        >>> content = {"a.png99": {"filename": "a.png", "size": 99,
        ...                        "regions": [region]}}
        >>> _ = (folder / "via.json").write_text(json.dumps(content))
        >>> from_via(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        via_readers,
        path,
        split,
        "`from_via` found no json or csv file of VIA: one",
        class_attribute=class_attribute,
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
        masks=masks,
    )


def _read_file(path, repeated=(), other_splits=(), **options):
    return _read_files([path], repeated, other_splits, **options)


def _read_files(
    files,
    repeated=(),
    other_splits=(),
    class_attribute=None,
    image_dir=None,
    *,
    class_names=None,
    on_error="auto",
    masks=False,
):
    """Returns the dataset of one file, or of several files with different images.

    `repeated` are files of the same images as the first file; a note names them.
    `other_splits` are their json files: if no region has a class, their only class is
    that of all regions.
    """
    path = files[0] if len(files) == 1 else files[0].parent
    problems = Problems(f"`from_via` of {str(path)!r}", on_error)
    contents, given = [], {}
    for file in files:
        if file.suffix.lower() == ".csv":
            images = _read_csv(file, problems)
        else:
            images, of_file = _read_via_json(file, problems)
            given = given or of_file
        contents.append((images, ImageLocator(file, image_dir)))
    for other in repeated:
        there, here = (_count_boxes(_read_via_json(f)[0]) for f in (other, path))
        detail = f"{other.name!r} has the same images as {path.name!r}: "
        detail += f"{count_of(there, 'box', 'boxes')} there, {here:,} here"
        problems.add_note("repeated annotation file", path.parent.name, detail)
    regions = [r for images, _ in contents for _, of_image in images for r in of_image]
    attribute = _class_attribute(regions, class_attribute, path)
    only_class = _only_class(regions, attribute, class_names, path, problems)
    if attribute is None and only_class is None:
        only_class = _class_without_attribute(
            other_splits, class_attribute, path, problems
        )
    _note_closed_lines(regions, path, problems)
    found = [
        _found(name, of_image, attribute, only_class, locator, problems, masks)
        for images, locator in contents
        for name, of_image in images
    ]
    options = dict_of(given.get(attribute)).get("options")
    listed = list(map(str.strip, options)) if isinstance(options, dict) else []
    classes = class_order(listed, found)
    classes = reading.named_classes(classes, class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def via_readers(path: Any) -> dict[str, Callable]:
    """Finds files of VIA; returns a dict from split to the function that reads it.

    Args:
        path: file or folder.
    """
    files = files_by_split(path, (".json",), is_via)
    images, repeated = {}, {}
    if len(files) > 1:
        images = {file: _read_via_json(file)[0] for file in files.values()}
        files = _different(files, images)
    if len(files) > 1:
        files, repeated = _one_of_each_split(path, files, images)
    # A csv file beside a json file has the same boxes, unless it is of another split.
    tables = files_by_split(path, (".csv",), is_via)
    others = {s: f for s, f in tables.items() if _names_split(f) and s not in files}
    files = files | others if files else tables
    if _are_parts(files, images):
        whole = functools.partial(_read_files, list(files.values()))
        return {reading.ONE_SPLIT: whole}
    return {
        split: functools.partial(
            _read_file,
            file,
            repeated.get(file, ()),
            [other for other in images if other not in (file, *repeated.get(file, ()))],
        )
        for split, file in files.items()
    }


def _names_split(file):
    return split_in_name(file.stem) is not None


def _are_parts(files, images):
    """Returns whether files without split names are parts of one dataset.

    They are if they lie in one folder and have different images. `images` is a dict
    from each json file to its images.
    """
    if len(files) < 2 or any(role_of_split(split) is not None for split in files):
        return False
    if any(file.suffix.lower() != ".json" for file in files.values()):
        return False
    names = [{name for name, _ in images[file]} for file in files.values()]
    return len({f.parent for f in files.values()}) == 1 and not any(
        one & other for i, one in enumerate(names) for other in names[:i]
    )


def _different(files, images):
    """Returns the files without those that repeat the regions of an earlier file.

    A project repeats the regions of the json file that was exported from it. Equal
    files of two splits are kept: when they are read, a warning says that they are the
    same.
    """
    different, contents = {}, []
    for split, file in files.items():
        content, role = (file.parent, images[file]), role_of_split(split)
        roles = [r for c, r in contents if c == content]
        if not roles or (role is not None and None not in roles and role not in roles):
            contents.append((content, role))
            different[split] = file
    if len(different) == 1:
        return {reading.ONE_SPLIT: next(iter(different.values()))}
    return different


def _one_of_each_split(path, files, images):
    """Chooses one file in the folder of each split whose files have the same images.

    Returns:
        Dict from split to the file with the most boxes; and a dict from this file to
        the others.
    """
    found, repeated = {}, {}
    for split, folder in split_folders(path).items():
        own = {
            name: file
            for name, file in files.items()
            if folder in (file.parent, file.parent.parent)
        }
        names = [{name for name, _ in images[file]} for file in own.values()]
        if own and all(one == names[0] for one in names):
            best = max(own.values(), key=lambda file: _count_boxes(images[file]))
            repeated[best] = [file for file in own.values() if file != best]
            own = {split: best}
        found |= own
    return found or files, repeated


def _count_boxes(images):
    return sum(len(regions) for _, regions in images)


def is_via(path: Any) -> bool:
    """Returns whether a json or csv file begins like VIA's files."""
    head = head_of(path)
    if path.suffix.lower() == ".csv":
        return b"region_shape_attributes" in head.partition(b"\n")[0]
    if not head.startswith(b"{") or b'"categories"' in head[:2000]:
        return False
    is_project = f'"{_METADATA}"'.encode() in head or b'"_via_settings"' in head
    return is_project or (b'"filename"' in head and b'"regions"' in head)


def _read_via_json(path, problems=None):
    """Returns each image's `(name, regions)`, and a project's region attributes.

    Entries that are no images become problems; without `problems` they are left out.
    """
    content = read_json(path, "from_via")
    given = {}
    if isinstance(content, dict) and _METADATA in content:
        attributes = dict_of(content.get("_via_attributes"))
        given = dict_of(attributes.get("region"))
        content = content[_METADATA]
    expected = "images of VIA 1 or 2, each with a `filename` and `regions`"
    rule = f"`from_via` expects a json file with {expected}"
    reading.require_content(isinstance(content, dict | list), rule, path, content)
    entries = content.items() if isinstance(content, dict) else numbered(content)
    problems = problems or Problems("`from_via`", "skip")
    images = usable_entries(entries, _is_image, expected, path, problems)
    return [(str(i["filename"]), _regions(i["regions"])) for _, i in images], given


def _is_image(content):
    image = dict_of(content)
    return "filename" in image and isinstance(image.get("regions"), list | dict)


def _regions(regions):
    """Returns the regions of an image: a list, or in version 1 a dict by number."""
    regions = regions.values() if isinstance(regions, dict) else regions
    return list(map(dict_of, regions))


def _read_csv(path, problems):
    """Returns `(name, regions)` of each image in a csv file."""
    (_, header), *rows = read_lines(path, "from_via") or [(1, [])]
    names = [name.lstrip("#").strip() for name in header]
    rule = f"`from_via` expects a csv file with the columns {', '.join(_COLUMNS)}"
    reading.require_content(set(_COLUMNS) <= set(names), rule, path, header)
    images = {}
    for line, cells in rows:
        row = dict(zip(names, cells))
        regions = images.setdefault(row.get("filename", ""), [])
        try:
            shape = json.loads(row.get("region_shape_attributes") or "{}")
            attributes = json.loads(row.get("region_attributes") or "{}")
        except ValueError as error:
            problems.add(
                "bad box", path.name, f"row {line}: this is not valid json: {error}"
            )
            continue
        if shape:  # otherwise the image has no region
            region = {"shape_attributes": shape, "region_attributes": attributes}
            regions.append(region)
    return list(images.items())


# --- The attribute of a region that is its class.


def _class_attribute(regions, requested, path):
    """Returns the name of the class attribute; None if no region has an attribute."""
    names = {
        name: None
        for region in regions
        for name in dict_of(region.get("region_attributes"))
    }
    if requested is not None and names:
        if requested not in names:
            raise InvalidValueError(
                f"`class_attribute` must be one of {list(names)}, the attributes of "
                f"regions of {str(path)!r}. Received: class_attribute={requested!r}"
            )
        return requested
    if len(names) < 2:
        return next(iter(names), None)
    lower = {name.strip().lower(): name for name in reversed(names)}
    chosen = next((lower[name] for name in _CLASS_ATTRIBUTES if name in lower), None)
    if chosen is None and all(
        len({_class_of(region, name) for name in names}) == 1 for region in regions
    ):
        chosen = next(iter(names))  # all of them say the same
    if chosen is None:
        name = min(names)
        raise InvalidValueError(
            f"Regions of {str(path)!r} have the attributes {list(names)}. Say which "
            f"is the class: `from_via(path, class_attribute={name!r})`, or `load` with "
            f"`reader_options={{'class_attribute': {name!r}}}`; in a shell "
            f"`--reader-option {shlex.quote(f'class_attribute={name}')}`"
        )
    return chosen


_FEW = 0.2  # share of regions that may differ from the others in having a class


def _only_class(regions, attribute, class_names, path, problems):
    """Returns the class of all regions if they do not say it, but it is clear; or None.

    A few regions without any attribute get the class of the others if these all have
    the same one. If only a few have a class, and the same one, it counts for nothing.
    """
    is_one = isinstance(class_names, list | tuple) and len(class_names) == 1
    if attribute is None:
        return class_names[0] if is_one else None
    boxes = [
        region
        for region in regions
        if _kind_of(dict_of(region.get("shape_attributes"))) not in _WITHOUT_BOX
    ]
    values = [_class_of(region, attribute) for region in boxes]
    lacking = [r for r, value in zip(boxes, values) if value is None]
    known = set(values) - {None}
    if not lacking or len(known) != 1 or any(map(_has_attributes, lacking)):
        return None
    (name,) = known
    verb = "has" if len(lacking) == 1 else "have"
    detail = (
        f"{len(lacking):,} of {count_of(len(values), 'region')} {verb} no {attribute!r}"
    )
    if len(lacking) <= _FEW * len(values):
        detail += f", so the class {name!r} of all other regions is used"
    elif len(values) - len(lacking) <= _FEW * len(values):
        detail += f", and all others have {name!r}"
        name = class_names[0] if is_one else _NO_ATTRIBUTE
        detail += f", so all are read as the class {name!r}"
    else:
        return None
    problems.add_note("unnamed class", path.name, detail)
    return name


def _class_without_attribute(other_splits, requested, path, problems):
    """Returns the class of a file in which no region has an attribute, with a note."""
    regions = [
        region
        for file in other_splits
        for _, of_image in _read_via_json(file)[0]
        for region in of_image
    ]
    attribute = (
        _class_attribute(regions, requested, other_splits[0]) if regions else None
    )
    known = {_class_of(region, attribute) for region in regions} - {None}
    name, which = _NO_ATTRIBUTE, ""
    if len(known) == 1:
        (name,), which = known, ", the only one of the other splits"
    detail = f"no region has an attribute, so all are read as the class {name!r}{which}"
    problems.add_note("unnamed class", path.name, detail)
    return name


def _has_attributes(region):
    return any(map(bool, dict_of(region.get("region_attributes")).values()))


def _class_of(region, attribute):
    """Returns the class of a region, or None."""
    value = dict_of(region.get("region_attributes")).get(attribute)
    if isinstance(value, dict):  # check boxes: the options that are checked
        checked = [name for name, is_checked in value.items() if is_checked]
        return checked[0] if len(checked) == 1 else None
    return str(value).strip() or None if value is not None else None


# --- The regions of an image.


def _found(name, regions, attribute, only_class, locator, problems, masks):
    objects = Objects()
    for number, region in enumerate(regions):
        shape = dict_of(region.get("shape_attributes"))
        kind, place = _kind_of(shape), f"region {number}"
        if kind in _WITHOUT_BOX:
            problems.add("unread shape", name, f"{place}: {kind}")
            continue
        box, label = _box_of(kind, shape), only_class or _class_of(region, attribute)
        if box is None:
            detail = (
                f"{place} must have a known shape with finite numbers. Received: "
                f"{reprlib.repr(shape)}"
            )
            problems.add("bad box", name, detail)
        elif label is None:
            given = region.get("region_attributes")
            detail = (
                f"{place} must have one value of {attribute!r}, its class. Received: "
                f"{given}. Set it in VIA's annotation editor, and export again"
            )
            problems.add("bad box", name, detail)
        else:
            outline = polygon_shape(_points(shape)) if kind == "polygon" else None
            objects.add(box, label, outline)
    image = locator.find(name)
    return reading.Found(
        place=name,
        image=image,
        boxes=objects.boxes,
        classes=objects.classes,
        source_id=name,
        file_name=image.name if "/" in name or "\\" in name else name,
        shapes=tuple(objects.shapes) if masks else None,
    )


def _box_of(kind, shape):
    """Returns left, top, width and height of a region, or None without its numbers."""
    if kind == "polygon":
        points = _points(shape)
        return None if points is None else hull_box(points)
    names = {
        "rect": ("x", "y", "width", "height"),
        "circle": ("cx", "cy", "r"),
        "ellipse": ("cx", "cy", "rx", "ry"),
    }.get(kind)
    numbers = numbers_of(shape.get(name) for name in names) if names else None
    if numbers is None or kind == "rect":
        return numbers
    if kind == "circle":
        center_x, center_y, radius = numbers
        return ellipse_box(center_x, center_y, radius, radius, 0)
    angle = number_of(shape.get("theta")) or 0.0  # radians
    return ellipse_box(*numbers, np.degrees(angle))


# Largest gap between the ends of a closed line, per mean side of its box.
_MAX_GAP = 0.1


def _kind_of(shape):
    """Returns the name of a shape; a line drawn around something is a polygon."""
    name = str(shape.get("name"))
    points = _points(shape) if name == "polyline" else None
    if points is None or len(points) < 4:
        return name
    *_, width, height = hull_box(points)
    gap = np.abs(points[0] - points[-1]).max()
    return "polygon" if gap < _MAX_GAP * (width + height) / 2 else name


def _note_closed_lines(regions, path, problems):
    shapes = [dict_of(region.get("shape_attributes")) for region in regions]
    lines = [shape for shape in shapes if shape.get("name") == "polyline"]
    count = sum(_kind_of(shape) == "polygon" for shape in lines)
    if count:
        detail = f"{count} of {count_of(len(lines), 'polyline')} close, or nearly so"
        problems.add_note("closed lines", path.name, detail)


def _points(shape):
    """Returns the points `[n, 2]` of an outline, or None."""
    x, y = shape.get("all_points_x"), shape.get("all_points_y")
    if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
        return None
    numbers = numbers_of([*x, *y])
    return None if numbers is None else np.array(numbers).reshape(2, -1).T
