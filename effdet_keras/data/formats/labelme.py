"""Reads datasets in LabelMe's json format, with one file per image."""

from __future__ import annotations

import base64
import dataclasses
import functools
import os
import re
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import for_each, is_file, local_copy, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras._internal.yaml_text import read_text
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    annotation_folders,
    class_order,
    dict_of,
    head_of,
    hull_box,
    note_rotated,
    number_of,
    points_of,
    polygon_shape,
    read_json,
    read_split,
)
from effdet_keras.data.formats.dataset_files import split_folders, visible_files
from effdet_keras.data.formats.image_paths import ImageLocator
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.images import IMAGE_SUFFIXES, EncodedImage, read_image_size

_SUFFIX = ".json"
# Shapes whose points are corners of an outline; shapes with corners of a box; and
# shapes without a box.
_OUTLINES = ("polygon", "rotation", "oriented_rectangle", "quadrilateral")
_CORNERS = ("rectangle", "mask", "", None)
_WITHOUT_BOX = ("point", "line", "linestrip", "points", "linestring")
_IMAGE_DATA = re.compile(rb'"imageData"\s*:\s*"([^"]*)"')
_NO_CLASSES = ("__ignore__", "_background_")  # in the lists of labels of LabelMe
_LOOKED_AT = 5  # files of a folder that are checked for LabelMe's format
_LABEL_LISTS = ("labels.txt", "classes.txt", "class_names.txt")


def from_labelme(
    path: str | os.PathLike[str],
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads the json files of LabelMe and of tools that write the same, one per image.

    Rectangles, circles, outlines and masks become the upright box around them.
    Rectangles that were rotated in AnyLabeling are counted in a note. Points, lines and
    regions with the label `__ignore__` are left out, with a warning.

    If an image does not exist, it is read from the `imageData` of its json file, if
    there is one. If an image has another size than the json file says, and `imageData`
    has that size, `imageData` is read and a note says so. If `imagePath` has another
    name than the json file, and there is an image with the json file's own name beside
    it, that image is read and a note says so.

    Args:
        path: folder of the json files; or folder with `annotations` (or `labels`,
            `json`), which has them, and `images`; or one json file. The files of all
            these folders are read. If files in two folders have the same name, the
            first is read and a note says so.
        image_dir: folder of the images. None takes the `imagePath` in each json file,
            or else looks beside the file and in `images`.
        class_names, on_error: see `load`.
        masks: whether to keep outlines for a segmentation head, as `from_coco` does.

    Returns:
        `DetectionDataset`. The classes are in the order of a `labels.txt` (or
        `classes.txt`, `class_names.txt`) that names all of them, or else sorted.
        `image_id` counts from 1 in the order of the files; `source_id` is the name of
        the file without suffix.

    Raises:
        FileNotFoundError: If there is no json file of LabelMe, or images are missing.
        ValueError: If there are several splits, if `path` is a file that is not
            LabelMe's, or, depending on `on_error`, if a file is no json or a shape has
            no label or no points.

    Example:
        >>> import json, pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> shape = {"label": "cat", "points": [[8, 4], [40, 20]],
        ...          "shape_type": "rectangle"}
        >>> content = {"shapes": [shape], "imagePath": "a.png", "imageData": None}
        >>> _ = (folder / "a.json").write_text(json.dumps(content))
        >>> from_labelme(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    path = path_of(path)
    is_one = path.is_file()
    folders = [path.parent] if is_one else _json_folders(path)
    if not folders:
        options = {"class_names": class_names, "on_error": on_error, "masks": masks}
        tool = "`from_labelme` found no json file with `shapes`: a folder of LabelMe's"
        readers = labelme_readers(path)
        return read_split(readers, path, None, tool, image_dir=image_dir, **options)
    problems = Problems(f"`from_labelme` of {str(path)!r}", on_error)
    files = [path] if is_one else [f for p in folders for f in _json_files(p)]
    contents = for_each(lambda file: _read(file, problems), files)
    contents = {file: c for file, c in zip(files, contents) if c is not None}
    if is_one and not contents:
        problems.finish()
        rule = "`from_labelme` expects a json file with a list of `shapes`"
        reading.require_content(False, rule, path, read_json(path, "from_labelme"))
    contents = _without_repeated(contents, path, problems)
    locators = {f: ImageLocator(f / "labelme.json", image_dir) for f in folders}
    notes = _Notes()
    found = [
        _found(file, content, locators[file.parent], problems, notes, masks)
        for file, content in contents.items()
    ]
    notes.add_to(problems, path.name, len(found))
    classes = class_order(_listed_labels(path, folders[0], found), found)
    classes = reading.named_classes(classes, class_names)
    return reading.make_dataset(found, classes, problems, source=path)


@dataclasses.dataclass
class _Notes:
    """Collects what is noted once for all files: a text for each case."""

    rotated: list = dataclasses.field(default_factory=list)
    stale: list = dataclasses.field(default_factory=list)
    other_size: list = dataclasses.field(default_factory=list)

    def add_to(self, problems, source, count):
        note_rotated(problems, source, self.rotated)
        total = f"of {count_of(count, 'file')}"
        if self.stale:
            detail = (
                f"{count_of(len(self.stale), f'{total} names', f'{total} name')} "
                "another image than the one beside the file that has the file's own "
                f"name: {self.stale[0]}, for example"
            )
            problems.add_note("stale image path", source, detail)
        if self.other_size:
            number = count_of(
                len(self.other_size), f"{total} contains", f"{total} contain"
            )
            detail = (
                f"{number} an image of the annotated height and width, but the image "
                f"on disk has another size: {self.other_size[0]}, for example"
            )
            problems.add_note("image of another size", source, detail)


def labelme_readers(path: Any) -> dict[str, Callable]:
    """Finds json files of LabelMe; returns a dict from split to its reader."""
    if path.is_file():
        is_one = path.suffix.lower() == _SUFFIX and is_labelme(path)
        return (
            {reading.ONE_SPLIT: functools.partial(from_labelme, path)} if is_one else {}
        )
    if _json_folders(path):
        return {reading.ONE_SPLIT: functools.partial(from_labelme, path)}
    folders = split_folders(path)
    folders = {s: folder for s, folder in folders.items() if _json_folders(folder)}
    # `annotations` may have a folder for each split.
    for outer in [] if folders else annotation_folders(path):
        inner = split_folders(outer).items()
        folders |= {s: folder for s, folder in inner if _json_folders(folder)}
    return {s: functools.partial(from_labelme, p) for s, p in folders.items()}


def is_labelme(path: Any) -> bool:
    """Returns whether a json file has the shapes of one image."""
    head = head_of(path)
    may_be = any(key in head for key in (b'"shapes"', b'"imagePath"', b'"imageData"'))
    if not head.startswith(b"{") or not may_be:
        return False
    # `imageData`, which may be large, may stand before the other keys.
    content = local_copy(path).read_bytes()
    return b'"shapes"' in content and b'"imagePath"' in content


def has_embedded_images(folder: Any) -> bool:
    """Returns whether the json files in a folder have images inside, in `imageData`."""
    files = (file for file in _first_files(folder) if is_file(file))  # no broken link
    files = filter(is_labelme, files)
    matches = (_IMAGE_DATA.search(local_copy(file).read_bytes()) for file in files)
    return any(match is not None and match[1] for match in matches)


def _json_folders(folder):
    """Returns those of a folder, its `annotations` and `images` that have json files.

    Only LabelMe's json files count.
    """
    places = [folder, *annotation_folders(folder)]
    places += [p for p in (folder / "images", folder / "Images") if p.is_dir()]
    return [p for p in places if any(map(is_labelme, _first_files(p)))]


def _first_files(folder):
    files = _json_files(folder)
    return files[:_LOOKED_AT]


def _json_files(folder):
    return visible_files(folder, _SUFFIX)


def _without_repeated(contents, path, problems):
    """Returns the contents of files; if names repeat in folders, only the first."""
    first = {}
    for file in contents:
        first.setdefault(file.name, file)
    repeated = [file for file in contents if first[file.name] != file]
    if repeated:
        names = (_below(f, path) for f in (repeated[0], first[repeated[0].name]))
        total = f"of {len(contents):,} files"
        detail = count_of(len(repeated), f"{total} has", f"{total} have")
        detail += " the same name as one in another folder: {!r} and {!r}, for example"
        detail = detail.format(*names)
        problems.add_note("repeated annotation file", path.name, detail)
    return {file: contents[file] for file in first.values()}


def _below(file, folder):
    return "/".join(file.parts[len(folder.parts) :])


def _read(path, problems):
    """Returns the content of a LabelMe file, or None for other or invalid json."""
    try:
        content = read_json(path, "from_labelme")
    except ValueError as error:
        problems.add("unreadable annotation", path.name, str(error))
        return None
    if not isinstance(content, dict) or not {"shapes", "imagePath"} & content.keys():
        return None
    if not isinstance(content.get("shapes"), list):
        detail = f"a list `shapes` is expected: {reprlib.repr(content)}"
        problems.add("unreadable annotation", path.name, detail)
        return None
    return content


def _listed_labels(path, folder, found):
    """Returns the names in a list of labels near the files, if it has all used ones."""
    used = {name for image in found for name in image.classes}
    places = dict.fromkeys((folder, path if path.is_dir() else folder, folder.parent))
    for file in (place / name for place in places for name in _LABEL_LISTS):
        if is_file(file):
            lines = [line.strip() for line in read_text(file).splitlines()]
            names = [line for line in lines if line and line not in _NO_CLASSES]
            if used <= set(names):
                return names
    return []


def _found(file, content, locator, problems, notes, masks):
    """Returns the image of a json file; adds to the notes."""
    objects = Objects()
    for number, shape in enumerate(map(dict_of, content["shapes"])):
        place = f"shapes[{number}]"
        _add_shape(objects, shape, place, file.name, problems, notes)
    name = str(content.get("imagePath") or "")
    image = locator.find(name) if name else locator.find_frame(file.stem)
    if image is None or not is_file(image):
        image = locator.find_frame(file.stem) or _embedded(file, content) or image
    elif image.stem.lower() != file.stem.lower():
        own = _image_beside(file, image.suffix)
        if own is not None:  # both files were copied, and `imagePath` kept the old name
            notes.stale.append(f"{file.name!r} names {image.name!r}")
            image = own
    size = [number_of(content.get(f"image{side}")) for side in ("Height", "Width")]
    size = reading.check_size(*size)
    if isinstance(image, os.PathLike) and size and not is_remote(file):
        image = _image_with_size(size, image, file, content, notes)
    return reading.Found(
        place=file.name,
        image=file.with_suffix(".jpg") if image is None else image,
        boxes=objects.boxes,
        classes=objects.classes,
        source_id=file.stem,
        file_name=_file_name(image, name, file),
        image_size=size,
        shapes=tuple(objects.shapes) if masks else None,
    )


def _image_with_size(size, image, file, content, notes):
    """Returns the image, or the embedded one if only that has the annotated size."""
    if not content.get("imageData") or not is_file(image):
        return image
    actual = _stored_size(image)
    if actual is None or sorted(actual) == sorted(size):
        return image
    embedded = _embedded(file, content)
    if embedded is None or _stored_size(embedded) != size:
        return image
    said, found = (f"{height} and {width}" for height, width in (size, actual))
    notes.other_size.append(
        f"{file.name!r} says {said}, and {image.name!r} has {found}"
    )
    return embedded


def _stored_size(image):
    """Returns the height and width of an image, or None if it cannot be read."""
    try:
        return read_image_size(image)
    except (ValueError, OSError):
        return None


def _image_beside(file, suffix):
    """Returns the image beside a json file that has the same name, or None."""
    if is_remote(file):  # checking each suffix of an address takes long
        return None
    places = (file.with_suffix(s) for s in (suffix, *IMAGE_SUFFIXES))
    return next(filter(is_file, places), None)


def _add_shape(objects, shape, place, file_name, problems, notes):
    """Adds the box of a shape, or a problem."""
    kind, label = shape.get("shape_type", "polygon"), str(shape.get("label") or "")
    points = points_of(shape.get("points"))
    if kind in _WITHOUT_BOX or label in _NO_CLASSES:
        problems.add("unread shape", file_name, f"{place}: {kind} of {label!r}")
        return
    box = outline = None
    if points is None or not len(points) or not label:
        pass
    elif kind == "circle" and len(points) == 2:  # the center, and a point on the circle
        radius = float(np.hypot(*(points[1] - points[0])))
        box = hull_box(np.stack([points[0] - radius, points[0] + radius]))
    elif kind in _OUTLINES or (kind in _CORNERS and len(points) > 1):
        box = hull_box(points)
        outline = polygon_shape(points) if kind in _OUTLINES else None
    if box is None:
        problems.add(
            "bad box",
            file_name,
            f"{place}: a label, a known `shape_type` and points of two finite numbers "
            f"are expected. Received: label {label!r}, shape_type {kind!r}, points "
            f"{str(shape.get('points'))[:80]}",
        )
        return
    # Written by AnyLabeling, in radians.
    direction = number_of(shape.get("direction")) or 0.0
    if kind in ("rotation", "oriented_rectangle"):
        angle = f"{np.degrees(direction):.4g} degrees"
        notes.rotated.append(f"{label!r} by {angle} in {file_name}")
    objects.add(box, label, outline)


def _file_name(image, name, file):
    """Returns the file name of an image, which may be embedded in its json file."""
    if isinstance(image, os.PathLike):
        return image.name
    return name.replace("\\", "/").rpartition("/")[2] or file.name


@dataclasses.dataclass(frozen=True)
class _EmbeddedImage(EncodedImage):
    """An image file in base64 inside a json file."""

    def read(self) -> bytes:
        """Returns the bytes of the image file, not decoded."""
        text = super().read().replace(b"\\/", b"/").replace(b"\\n", b"")
        return base64.b64decode(text.rpartition(b",")[2])  # after `data:...;base64,`


def _embedded(file, content):
    """Returns the image that is embedded in a json file, or None."""
    if not content.get("imageData"):
        return None
    copy = local_copy(file)
    data = copy.read_bytes()
    match = _IMAGE_DATA.search(data)
    if match is None:
        return None
    return _EmbeddedImage(str(copy), match.start(1), len(match[1]))
