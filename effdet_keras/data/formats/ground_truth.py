"""Reads manifests of Amazon SageMaker Ground Truth, with one json object per line."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from typing import Any

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.annotation_files import (
    Objects,
    dict_of,
    head_of,
    items_of,
    number_of,
    numbers_of,
    read_json_lines,
    read_path,
    readers_by_split,
    usable_entries,
)
from effdet_keras.data.formats.image_paths import ImageLocator, path_parts
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.problems import Problems

_SIDES = ("left", "top", "width", "height")


def from_ground_truth(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    image_dir: str | os.PathLike[str] | None = None,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads an augmented manifest with boxes of Amazon SageMaker Ground Truth.

    Each line is a json object with the address of the image as `source-ref`, the
    `annotations` of the labelling job, and its metadata with the `class-map`. Images
    are found by the longest ending of their address that exists near the file. Lines
    that were not labelled are left out, with a warning.

    Args:
        path: the `.manifest` file, or a folder that contains it, or several as splits.
        split: name of a split of a folder. None reads the only one.
        image_dir: folder of the images. None looks near the file.
        class_names, on_error: see `load`.

    Returns:
        `DetectionDataset`. The classes are in the order of their numbers in the
        `class-map`. `image_id` counts from 1 in the order of the lines; `source_id` is
        the address of the image.

    Raises:
        FileNotFoundError: If the file or images are missing.
        ValueError: If the file does not have this format, or, depending on `on_error`,
            if a box has no class or no finite numbers.

    Example:
        >>> import json, pathlib, tempfile, PIL.Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (48, 32)).save(folder / "a.png")
        >>> box = {"class_id": 0, "left": 8, "top": 4, "width": 32, "height": 16}
        >>> row = {"source-ref": "s3://bucket/a.png",
        ...        "pets": {"annotations": [box]},
        ...        "pets-metadata": {"class-map": {"0": "cat"}}}
        >>> _ = (folder / "output.manifest").write_text(json.dumps(row))
        >>> from_ground_truth(folder)[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    return read_path(
        _read_file,
        ground_truth_readers,
        path,
        split,
        "`from_ground_truth` found no file such as output.manifest: one",
        image_dir=image_dir,
        class_names=class_names,
        on_error=on_error,
    )


def ground_truth_readers(path: Any) -> dict[str, Callable]:
    """Finds manifests; returns a dict from split to the function that reads it."""
    return readers_by_split(_read_file, path, (".manifest", ".jsonl"), is_ground_truth)


def _read_file(path, *, image_dir=None, class_names=None, on_error="auto"):
    """Returns the dataset of a file."""
    problems = Problems(f"`from_ground_truth` of {str(path)!r}", on_error)
    rows = _read_rows(path, problems)
    names = {}
    for _, row in rows:
        names |= _class_map(row)
    locator = ImageLocator(path, image_dir)
    found = [_found(place, row, locator, problems) for place, row in rows]
    found = [image for image in found if image is not None]
    classes = list(dict.fromkeys(names[number] for number in sorted(names)))
    classes = reading.named_classes(classes, class_names)
    return reading.make_dataset(found, classes, problems, source=path)


def is_ground_truth(path: Any) -> bool:
    """Returns whether a file begins like the manifest of a labelling job."""
    head = head_of(path)
    return (
        head.startswith(b"{") and b'"source-ref"' in head and b'"annotations"' in head
    )


def _read_rows(path, problems):
    """Returns the `(place, object)` of each line; the place is such as "line 3"."""
    rows = read_json_lines(path, "from_ground_truth", problems)
    expected = "json objects, each with `source-ref`"
    return usable_entries(rows, _is_row, expected, path, problems)


def _is_row(content):
    return isinstance(dict_of(content).get("source-ref"), str)


def _job_of(row):
    """Returns the name of the labelling job of a row with boxes, or None."""
    return next(
        (k for k, v in row.items() if isinstance(v, dict) and "annotations" in v), None
    )


def _class_map(row):
    """Returns the name of each class by its number."""
    metadata = dict_of(row.get(f"{_job_of(row)}-metadata"))
    names = dict_of(metadata.get("class-map"))
    return {int(n): str(name) for n, name in names.items() if n.isdecimal()}


def _found(place, row, locator, problems):
    address, job = row["source-ref"], _job_of(row)
    name = (path_parts(address) or [address])[-1]
    if job is None:
        problems.add("unlabelled image", name, f"{place} has no `annotations`")
        return None
    objects, names = Objects(), _class_map(row)
    for box in items_of(row[job]["annotations"], name, problems):
        numbers = numbers_of(box.get(side) for side in _SIDES)
        label = names.get(number_of(box.get("class_id")))
        if numbers is None or label is None:
            detail = (
                f"{place}: a `class_id` of the `class-map` and the finite "
                f"{', '.join(_SIDES)} are expected. Received: {reprlib.repr(box)}"
            )
            kind = "bad box" if numbers is None else "unknown class"
            problems.add(kind, name, detail)
        else:
            objects.add(numbers, label)
    sizes = row[job].get("image_size")
    size = dict_of(sizes[0]) if isinstance(sizes, list) and sizes else {}
    return reading.Found(
        place=name,
        image=locator.find(address),
        boxes=objects.boxes,
        classes=objects.classes,
        source_id=address,
        file_name=name,
        image_size=reading.check_size(size.get("height"), size.get("width")),
    )
