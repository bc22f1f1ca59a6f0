"""COCO json files: to a dataset, and from one."""

from __future__ import annotations

import functools
import json
import mmap
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from effdet_keras._internal.remote_path import is_file, local_copy, path_of
from effdet_keras._internal.whole_files import new_folder
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.coco_json import (
    group_annotations,
    is_id,
    read_classes,
    read_images,
    read_json,
)
from effdet_keras.data.formats.folder_writing import (
    named_splits,
    png_of,
    write_images,
)
from effdet_keras.data.formats.label_map import (
    ClassNames,
)
from effdet_keras.data.formats.record_building import (
    check_boxes,
    check_size,
    find_image_size,
)
from effdet_keras.data.formats.sidecar import (
    apply_sidecar,
    read_sidecar,
    write_sidecar,
)
from effdet_keras.data.formats.split_names import split_of_name
from effdet_keras.data.mask import load_mask, shape_as_coco
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import Record
from effdet_keras.errors import InvalidValueError


def from_coco(
    annotations: str | os.PathLike[str] | dict,
    image_dir: str | os.PathLike[str] | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "raise",
    masks: bool = False,
) -> DetectionDataset:
    """Reads a dataset in COCO's format: one json file and a folder of images.

    Labels count from 0 in ascending order of the file's category ids, which may
    have gaps: COCO's 80 classes have ids up to 90. The dataset keeps the ids as
    `category_ids`, and `to_coco` and evaluation use them.

    The annotations are checked here, before any training. A box that reaches
    out of its image is clipped. A box with no area inside its image is not trained
    on, and a warning says so. Evaluation sees the boxes as the file has them. If
    `area` is not a number, that of the box is used.

    Args:
        annotations: path of the json file, or its address, such as
            `s3://bucket/train.json` (docs/remote_files.md); or its content as a dict.
        image_dir: folder, or its address, that the `file_name`s start from. None looks
            for it beside the json: for `train.json` in `train`, for
            `annotations/instances_val2017.json` in `val2017`, and in `images`.
        class_names: names in the order of the labels, to bring a second dataset in
            line with a first one: pass the first dataset's `class_names`, which may
            have classes that are not in this one. Or a label map, as for `load`. None
            takes the file's own.
        on_error: "raise" raises one error that names everything that is wrong;
            "skip" leaves it out, warns, and lists it in `dataset.problems`.
        masks: whether to keep the `segmentation` of the annotations, polygons or run
            lengths, for a model with a segmentation head. Class 0 of pixels is
            "background", class `i + 1` is label `i`, crowds included; smaller objects
            lie over larger ones. Inside the box of an object without `segmentation`
            pixels of no other object have no class. It takes memory: that of
            COCO's 860,000 training objects is half a gigabyte.

    Returns:
        `DetectionDataset`. An image whose id is not an int gets 1, 2, ... as
        `image_id` and keeps its own as `source_id`.

    Raises:
        FileNotFoundError: If the json or images are missing.
        ValueError: If the json has not COCO's format, or, with "raise", if a
            category id is unknown, an id repeats, or a box is not four finite
            numbers in pixels.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(folder, num_train=3, num_valid=2)
        >>> dataset = from_coco(f"{folder}/valid.json", f"{folder}/valid")
        >>> len(dataset), dataset.class_names
        (2, ('circle', 'square', 'triangle'))
    """
    content, source = read_json(annotations)
    problems = Problems(f"`from_coco` of {source!r}", on_error)
    sidecar, split = _sidecar_of(annotations)
    names, category_ids, sidecar = read_classes(content, class_names, sidecar, source)
    images = read_images(content["images"], source, problems)
    annotations_of = group_annotations(
        content["annotations"], images, category_ids, source, problems
    )
    if image_dir is None:
        image_dir = _find_image_dir(annotations, images)
    records = _make_records(images, annotations_of, path_of(image_dir), problems, masks)
    records = apply_sidecar(
        sidecar,
        split,
        records,
        [record.file_name for record in records],
        names,
        fields=("source_id", "file_name"),  # COCO has the others itself
    )
    records = check_boxes(records, problems, source)
    return DetectionDataset(records, names, category_ids, problems=problems.finish())


def _sidecar_of(annotations):
    """The sidecar of a json file, if it is of this file, and its name there."""
    if isinstance(annotations, dict):
        return None, None
    path = path_of(annotations)
    sidecar = read_sidecar(path.parent)
    is_of_it = sidecar is not None and path.stem in sidecar.images
    return sidecar if is_of_it else None, path.stem


def _find_image_dir(annotations, images):
    """The folder near a json file in which its first image is."""
    if isinstance(annotations, dict):
        raise InvalidValueError("`image_dir` is needed where `annotations` is a dict")
    path = path_of(annotations)
    folder, split = path.parent, split_of_json(path)
    places = (path.stem, split, "", "images", f"images/{split}", "data", "JPEGImages")
    candidates = [folder / place for place in places]
    candidates += [folder.parent / place for place in places[1:5]]
    names = [image["file_name"] for image in images.values()][:10]
    for candidate in candidates:
        if any(is_file(_path_in(candidate, name)) for name in names):
            return candidate
    if not names:
        return folder
    raise FileNotFoundError(
        f"`from_coco` found no folder with the images of {os.fspath(path)!r}, such "
        f"as {names[0]!r}. Pass `image_dir`. Looked in: "
        f"{[str(candidate) for candidate in dict.fromkeys(candidates)]}"
    )


def _path_in(folder, name):
    """The path of an image; tools of Windows write backslashes between folders."""
    path = folder / name
    if "\\" in name and not is_file(path):
        return folder / name.replace("\\", "/")
    return path


def split_of_json(path):
    """The split that the name of a COCO json file means: "val2017", "train"."""
    path = path_of(path)
    if path.name == "_annotations.coco.json":  # Roboflow: one in each split's folder
        return path.parent.name
    return path.stem.removeprefix("instances_")


def _make_records(images, annotations_of, image_dir, problems, masks):
    counted = not all(map(is_id, images))
    records = []
    for number, (key, image) in enumerate(images.items(), 1):
        path = _path_in(image_dir, image["file_name"])
        declared = check_size(image.get("height"), image.get("width"))
        image_size = find_image_size(path, declared, problems)
        if image_size is None:
            continue
        members = annotations_of[key]
        boxes = [annotation["bbox"] for _, _, annotation in members]
        areas = [_area(a, box) for box, (_, _, a) in zip(boxes, members)]
        record = Record(
            image=str(path),
            image_size=image_size,
            image_id=number if counted else key,
            source_id=key,
            file_name=image["file_name"],
            boxes_xywh=boxes,
            labels=[label for _, label, _ in members],
            is_crowd=[a.get("iscrowd") in (1, "1") for _, _, a in members],
            area=areas,
            annotation_ids=[annotation_id for annotation_id, _, _ in members],
            shapes=tuple(_shape(a) for _, _, a in members) if masks else None,
        )
        records.append(record)
    return records


def _area(annotation, box):
    area = annotation.get("area")
    if type(area) in (int, float) and 0 <= area <= 1e18:  # not NaN, not infinite
        return area
    return box[2] * box[3]


def _shape(annotation):
    """The `segmentation` of an annotation in little memory, or None without one."""
    shape = annotation.get("segmentation")
    if isinstance(shape, dict) and {"size", "counts"} <= set(shape):
        return shape
    if not isinstance(shape, list) or not shape:
        return None
    try:
        return [np.asarray(points, np.float32) for points in shape]
    except (TypeError, ValueError):
        return shape  # which `load_mask` refuses, with the name of the image


def write_coco(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
) -> None:
    """Writes a new folder in COCO's format: `SPLIT.json` and `SPLIT/` with images.

    Boxes, areas, crowd flags, image and category ids are exactly those of the
    dataset. JPEG and PNG files are copied; other images become PNG files.
    `effdet_keras.json` keeps source ids and file names. The shapes of objects, where
    the dataset was read with `masks=True`, are the `segmentation` of the annotations;
    masks of whole images (`with_masks`) become PNG files in `SPLIT_masks/`, which
    `with_masks(folder / "SPLIT_masks", seg_class_names)` reads.

    Args:
        datasets: `DetectionDataset`, or dict from split name to one.
        folder: folder to make. It appears once it is complete.

    Returns:
        `None`.

    Raises:
        FileExistsError: If the folder is there.
        ValueError: If the splits differ in their classes, or an image cannot be
            decoded.

    Example:
        >>> import pathlib, tempfile
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "cats"
        >>> write_coco(dataset, folder)
        >>> sorted(path.name for path in folder.iterdir())
        ['effdet_keras.json', 'train', 'train.json']
        >>> from_coco(folder / "train.json")[0]["boxes"].tolist()
        [[4.0, 8.0, 20.0, 40.0]]
    """
    datasets = named_splits(datasets)
    names = {}
    with new_folder(folder) as partial:
        for split, dataset in datasets.items():
            names[split] = write_images(dataset.records, partial / split)
            content = dataset.to_coco()
            for image, name in zip(content["images"], names[split]):
                image["file_name"] = name
            _add_shapes(content["annotations"], dataset.records)
            _write_masks(partial / f"{split}_masks", dataset.records, names[split])
            text = json.dumps(content)
            (partial / f"{split}.json").write_text(text, encoding="utf-8")
        write_sidecar(partial, datasets, names)


def _add_shapes(annotations, records):
    """Adds the `segmentation` of the objects that have one."""
    shapes = (
        None if shape is None else shape_as_coco(shape, *map(int, record.image_size))
        for record in records
        for shape in record.shapes or [None] * len(record.labels)
    )
    for annotation, shape in zip(annotations, shapes, strict=True):
        if shape is not None:
            annotation["segmentation"] = shape


def _write_masks(folder, records, names):
    """Writes the masks of whole images, each by the name that its image keeps.

    That is the name in its first file, by which `with_masks` looks for it; two images
    of one name in different folders have two masks.
    """
    for record, name in zip(records, names):
        if record.mask is not None:
            kept = pathlib.PurePosixPath(record.file_name or name)
            is_outside = kept.is_absolute() or ".." in kept.parts
            path = (folder / (name if is_outside else kept)).with_suffix(".png")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png_of(load_mask(record)))


def coco_readers(path):
    """Finds COCO json files: dict from split to the function that reads it."""
    if path.is_file():
        files = {split_of_json(path): path} if _is_coco(path) else {}
    else:
        files = _coco_files(path) or _coco_files(path / "annotations")
        folders = [] if files else sorted(p for p in path.iterdir() if p.is_dir())
        for folder in folders:
            for file in _coco_files(folder).values():
                files.setdefault(folder.name, file)
    return {
        split_of_name(split): functools.partial(from_coco, file)
        for split, file in files.items()
    }


def _coco_files(folder):
    """The COCO json files of a folder by their split."""
    files = sorted(folder.glob("*.json"))
    # COCO's own folder has files of keypoints beside those of boxes.
    named = [file for file in files if file.name.startswith("instances_")]
    instances = [file for file in named if _is_coco(file)]
    found = instances or [file for file in files if _is_coco(file)]
    return {split_of_json(file): file for file in found}


def _is_coco(path):
    """Whether a file has the three keys; without reading the gigabyte it may be."""
    if path.suffix.lower() != ".json":
        return False
    path = local_copy(path)
    if not path.stat().st_size:
        return False
    keys = (b'"images"', b'"annotations"', b'"categories"')
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return all(content.find(key) >= 0 for key in keys)
