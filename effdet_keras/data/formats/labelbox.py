"""Reads exports of Labelbox: a json file, or a file with one object per line."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from typing import Any

from effdet_keras._internal.remote_path import is_file
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    class_order,
    dict_of,
    head_of,
    hull_box,
    items_of,
    numbered,
    numbers_of,
    points_of,
    polygon_shape,
    read_json,
    read_json_lines,
    read_path,
    readers_by_split,
    usable_entries,
)
from effdet_keras.data.formats.image_paths import ImageLocator, path_parts
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError

_SUFFIXES = (".json", ".ndjson", ".jsonl")
_SIDES = ("left", "top", "width", "height")
_NAMES = ("title", "name", "value")  # keys of a class; people wrote the first
_BOXES = ("bbox", "bounding_box")  # of the first and the second version
_EXPECTED = (
    "rows of an export, each with 'Labeled Data' and 'Label', or with 'data_row' and "
    "'projects',"
)


def from_labelbox(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
    masks: bool = False,
) -> DetectionDataset:
    """Reads an export of Labelbox, of its first or second version, as json or NDJSON.

    Reads boxes and polygons; a polygon becomes the upright box around it. Points, lines
    and masks (which Labelbox keeps on its server) are left out, with a warning. Images
    that were skipped, or have no label yet, are left out too. If several people
    labelled an image, the first label that has objects is read, and a note says so.
    Exports from before 2020, which have no `objects`, are not read: export the project
    again.

    Labelbox does not export images: put them beside the file, or into `images`. They
    are found by their external id, their global key, the end of their address, or an
    id of their rows.

    Args:
        path: the json or ndjson file, or a folder that contains it, or a folder with a
            folder for each split that contains one each.
        split: name of a split of a folder. None reads the only one.
        image_dir: folder of the images. None looks beside the file and in `images`.
        class_names, on_error: see `load`.
        masks: whether to keep outlines for a segmentation head, as `from_coco` does.

    Returns:
        `DetectionDataset`. The classes are sorted, because the file does not have their
        order. `image_id` counts from 1 in the order of the rows; `source_id` is the id
        of the data row.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file is no such export or has no label, or,
            depending on `on_error`, if an object has no name or no finite numbers.

    Example:
        >>> import json, pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> box = {"left": 8, "top": 4, "width": 32, "height": 16}
        >>> label = {"objects": [{"value": "cat", "bbox": box}]}
        >>> row = {"ID": "c1", "Labeled Data": "https://storage.example/3-a.png",
        ...        "External ID": "a.png", "Label": label}
        >>> _ = (folder / "export.json").write_text(json.dumps([row]))
        >>> from_labelbox(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        labelbox_readers,
        path,
        split,
        "`from_labelbox` found no file that Labelbox exported: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
        masks=masks,
    )


def labelbox_readers(path: Any) -> dict[str, Callable]:
    """Finds exports of Labelbox; returns a dict from split to its reader."""
    return readers_by_split(_read_file, path, _SUFFIXES, is_labelbox)


def is_labelbox(path: Any) -> bool:
    """Returns whether a file begins like the exports of Labelbox."""
    head = head_of(path)
    if not head.startswith((b"[", b"{")):
        return False
    is_first = b'"Labeled Data"' in head and b'"Label"' in head
    # Embeddings may come before the first key.
    keys = b'"projects"', b'"media_attributes"'
    return is_first or (b'"data_row"' in head and any(key in head for key in keys))


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto", masks=False):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_labelbox` of {str(path)!r}", on_error)
    locator = ImageLocator(path, image_dir)
    images = {}  # id of the data row -> names, ids and labels
    for row in _read_rows(path, problems):
        names, source_id, labels = _parts_of(row)
        _, ids, known = images.setdefault(source_id, (names, [], []))
        ids += _ids_of(row)
        known += labels
    found = []
    for source_id, (names, ids, labels) in images.items():
        if not labels:
            detail = "it has no label or was skipped"
            problems.add("unlabelled image", names[0], detail)
            continue
        full = [label for label in labels if dict_of(label).get("objects")]
        if len(full) > 1:
            problems.add_note("several labels", names[0], f"{len(full)} labels")
        objects = _objects_of((full or labels)[0], names[0], problems)
        image = _locate([*names, *ids], locator)
        found.append(_found(names, source_id, objects, image, problems, masks))
    if not found:
        problems.finish()
        raise InvalidValueError(
            f"`from_labelbox` found no row with a label in {str(path)!r}. Export the "
            "project once its images are labelled"
        )
    classes = reading.named_classes(class_order([], found), class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def _read_rows(path, problems):
    """Returns the rows of an export: a json list, or one object per line."""
    if head_of(path).startswith(b"["):
        rows = numbered(read_json(path, "from_labelbox"), "row")
    else:
        rows = read_json_lines(path, "from_labelbox", problems)
    return [row for _, row in usable_entries(rows, _is_row, _EXPECTED, path, problems)]


def _is_row(content):
    return isinstance(content, dict) and bool(_parts_of(content)[0])


# --- A row: its image, and the labels that people gave it.


def _parts_of(row):
    """Returns the possible names of an image, its id, and its labels."""
    if "data_row" in row:
        image = dict_of(row["data_row"])
        names = (image.get(key) for key in ("external_id", "global_key", "row_data"))
        source_id, labels = image.get("id"), _labels_of_projects(row)
    else:
        names = (row.get(key) for key in ("External ID", "Global Key", "Labeled Data"))
        source_id = row.get("DataRow ID") or row.get("ID")
        is_label = bool(row.get("Label")) and row.get("Skipped") is not True
        labels = [row["Label"]] if is_label else []
    names = [name for name in names if isinstance(name, str) and name.strip()]
    return names, str(source_id or names[:1]), labels


def _ids_of(row):
    """Returns the ids of a row: programs that download the images name them so."""
    ids = (row.get("ID"), row.get("DataRow ID"), dict_of(row.get("data_row")).get("id"))
    return [text for text in ids if isinstance(text, str) and text.strip()]


def _labels_of_projects(row):
    """Returns an image's labels in all projects; some may classify whole images."""
    labels = []
    for project in map(dict_of, dict_of(row.get("projects")).values()):
        given = project.get("labels")
        given = map(dict_of, given) if isinstance(given, list) else ()
        labels += [label["annotations"] for label in given if label.get("annotations")]
    return labels


def _objects_of(label, name, problems):
    """Returns the objects of a label; an image without objects has an empty list."""
    rule = (
        "`from_labelbox` expects 'objects' in each label, as exports have them since "
        "2020: export the project again"
    )
    label = dict_of(label)
    if label.keys().isdisjoint(("objects", "classifications")):
        if "frames" not in label:
            raise InvalidValueError(f"{rule}. Received: {reprlib.repr(label)}")
        problems.add("unread shape", name, "the frames of a video")
    return items_of(label.get("objects"), name, problems)


def _found(names, source_id, objects, image, problems, masks):
    found = Objects()
    for item in objects:
        label = next((str(item[key]) for key in _NAMES if item.get(key)), "").strip()
        box = next((item[key] for key in _BOXES if key in item), None)
        if box is not None:
            numbers, outline = numbers_of(dict_of(box).get(s) for s in _SIDES), None
        elif "polygon" in item:
            numbers, outline = _hull_of(item["polygon"])
        else:
            kind = item.get("annotation_kind") or "point, line or mask"
            problems.add("unread shape", names[0], f"{kind} of {label!r}")
            continue
        if numbers is None or not label:
            detail = (
                "a name and the finite left, top, width, height or points are "
                f"expected. Received: {reprlib.repr(item)}"
            )
            problems.add("bad box", names[0], detail)
        else:
            found.add(numbers, label, outline)
    return reading.Found(
        place=names[0],
        image=image,
        boxes=found.boxes,
        classes=found.classes,
        source_id=source_id,
        file_name=(path_parts(str(image)) or [names[0]])[-1],
        shapes=tuple(found.shapes) if masks else None,
    )


def _hull_of(polygon):
    """Returns the box and the outline of a polygon, a list of points with `x` and `y`.

    Both are None if these are no points.
    """
    corners = polygon if isinstance(polygon, list) else []
    points = points_of([[dict_of(c).get("x"), dict_of(c).get("y")] for c in corners])
    if points is None or not len(points):
        return None, None
    return hull_box(points), polygon_shape(points)


def _locate(names, locator):
    """Returns the path of an image, by the first of its names that is a file."""
    paths = (locator.find(name) for name in names)
    found = next(filter(is_file, paths), None)
    return found or locator.find(names[0])
