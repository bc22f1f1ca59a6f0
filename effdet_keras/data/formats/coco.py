"""COCO json files: to a dataset, and from one."""

from __future__ import annotations

import collections
import functools
import itertools
import json
import mmap
import os
import pathlib
import reprlib
from collections.abc import Mapping

import numpy as np

from effdet_keras._internal.remote_path import (
    is_file,
    kept_if_readable,
    local_copy,
    path_of,
)
from effdet_keras._internal.whole_files import new_folder
from effdet_keras.data.dataset import DetectionDataset, check_class_names
from effdet_keras.data.formats.folder_writing import named_splits, png_of, write_images
from effdet_keras.data.formats.label_map import (
    ClassNames,
    ids_of_classes,
    requested_classes,
)
from effdet_keras.data.formats.record_building import (
    are_coordinates,
    check_boxes,
    check_size,
    find_image_size,
    split_of_name,
    unknown_class,
    whole_number,
)
from effdet_keras.data.formats.sidecar import apply_sidecar, read_sidecar, write_sidecar
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import Record, load_mask, shape_as_coco
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
        >>> from effdet_keras.data.shapes import write_shapes
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
        >>> from effdet_keras.data.formats.arrays import from_arrays
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
    """Writes the masks of whole images, each by the name that its image keeps."""
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


# --- What a COCO json file says: its classes, images and annotations, checked.

_MAX_ID = 2**63 - 1  # ids travel as int64


def read_json(annotations):
    """Returns the content of a json file or dict, and what messages call it."""
    if isinstance(annotations, dict):
        content, source = annotations, "a dict"
    else:
        source = os.fspath(annotations)
        copy = local_copy(annotations)
        with kept_if_readable(copy):
            content = _content_of(copy, source)
    needed = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(
        isinstance(content.get(key), list) for key in needed
    ):
        found = (
            {key: type(value).__name__ for key, value in content.items()}
            if isinstance(content, dict)
            else type(content).__name__
        )
        raise InvalidValueError(
            "`from_coco` expects a json object with the lists `images`, "
            f"`annotations` and `categories`. Received: {source!r} with "
            f"{reprlib.repr(found)}"
        )
    return content, source


def _content_of(path, source):
    with open(path, "rb") as file:
        data = file.read()
    try:
        return json.loads(data)  # finds out which UTF it is
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(
            f"`from_coco` expects a json file. Received: {source!r} ({error})"
        ) from error


def read_classes(content, class_names, sidecar, source):
    """The name and the category id of each label; the sidecar with today's names."""
    categories = content["categories"]
    ids = [_get(category, "id") for category in categories]
    if not all(map(is_id, ids)) or len(set(ids)) != len(ids):
        raise InvalidValueError(
            "Each category must have an int `id` of its own. "
            f"Received: {source!r} with ids {reprlib.repr(ids)}"
        )
    names = [_get(category, "name") for category in categories]
    if not all(isinstance(name, str | int) for name in names):
        raise InvalidValueError(
            "Each category must have a `name`. "
            f"Received: {source!r} with names {reprlib.repr(names)}"
        )
    name_of = {i: str(name) for i, name in sorted(zip(ids, names))}
    name_of = _without_useless_names(name_of, content["annotations"])
    check_class_names(tuple(name_of.values()), f"{source!r}")
    if sidecar is not None:
        written = enumerate(sidecar.category_ids)
        sidecar = sidecar.renamed({i: name_of[k] for i, k in written if k in name_of})
    if class_names is None and sidecar is not None:
        same = sorted(sidecar.class_names) == sorted(name_of.values())
        class_names = sidecar.class_names if same else None  # its order
    if class_names is None:
        return tuple(name_of.values()), list(name_of), sidecar
    class_names, ids = requested_classes(class_names)
    return class_names, ids_of_classes(class_names, name_of, ids), sidecar


def _without_useless_names(name_of, annotations):
    """Without classes of no annotation whose name is blank, or that of another one."""
    uses = collections.Counter(name for name in name_of.values() if name.strip())
    if len(uses) == len(name_of):
        return name_of
    used = {whole_number(_get(a, "category_id")) for a in annotations}
    return {i: name for i, name in name_of.items() if uses[name] == 1 or i in used}


def read_images(images, source, problems):
    """The usable items of `images` by their id."""
    found = {}
    for i, image in enumerate(images):
        key = _key(_get(image, "id"))
        file_name = _get(image, "file_name")
        if key is None or not isinstance(file_name, str) or not file_name:
            problems.add(
                "unreadable annotation",
                source,
                f"images[{i}] needs an `id` and a `file_name`: {reprlib.repr(image)}",
            )
        elif key in found:
            problems.add("duplicate id", file_name, f"image id {key!r} repeats")
        else:
            found[key] = image
    return found


def group_annotations(annotations, images, category_ids, source, problems):
    """`(annotation id, label, annotation)` by the key of the image."""
    # Most of it all at once, one by one only to name what is wrong: COCO has
    # 860,000 annotations.
    annotations = _only_dicts(annotations, source, problems)
    good = _good_boxes(annotations)
    if not all(good):
        _name_bad_boxes(annotations, good, images, source, problems)
    label_of = {category_id: label for label, category_id in enumerate(category_ids)}
    groups = {key: [] for key in images}
    unknown, strangers = collections.Counter(), collections.Counter()
    rows = zip(
        _annotation_ids(annotations),
        good,
        _as_ids([a.get("category_id") for a in annotations]),
        _as_ids([a.get("image_id") for a in annotations]),
        annotations,
    )
    for annotation_id, is_good, category_id, image_key, annotation in rows:
        if image_key not in groups:
            strangers[reprlib.repr(annotation.get("image_id"))] += 1
        elif category_id not in label_of:
            unknown[reprlib.repr(annotation.get("category_id"))] += 1
        elif is_good:
            label = label_of[category_id]
            groups[image_key].append((annotation_id, label, annotation))
    if annotations and strangers.total() == len(annotations):
        problems.add("only stray annotations", source, _no_id_fits(strangers, images))
        strangers.clear()
    for image_id, count in strangers.items():
        detail = f"{_number(count)} of image_id {image_id}, which is not in `images`"
        problems.add("stray annotation", source, detail)
    for category_id, count in unknown.items():
        detail = unknown_class(f"category id {category_id}", count)
        problems.add("unknown class", source, detail)
    return groups


def _no_id_fits(strangers, images):
    image_id, image = next(iter(strangers)), next(iter(images), None)
    return (
        f"none of the {strangers.total():,} annotations has the id of an image: "
        f"`image_id` is such as {image_id}, and `id` of `images` such as {image!r}"
    )


def _only_dicts(annotations, source, problems):
    if all(isinstance(annotation, dict) for annotation in annotations):
        return annotations
    for i, annotation in enumerate(annotations):
        if not isinstance(annotation, dict):
            detail = f"annotations[{i}] is {reprlib.repr(annotation)}"
            problems.add("unreadable annotation", source, detail)
    return [annotation for annotation in annotations if isinstance(annotation, dict)]


def _good_boxes(annotations):
    boxes = [annotation.get("bbox") for annotation in annotations]
    if not boxes or _are_boxes(boxes):
        return [True] * len(boxes)
    return [_are_boxes([box]) for box in boxes]


def _are_boxes(boxes):
    if not all(type(box) in (list, tuple) and len(box) == 4 for box in boxes):
        return False
    types = set(map(type, itertools.chain.from_iterable(boxes)))
    if not types <= {int, float}:
        return False
    try:
        return bool(are_coordinates(np.asarray(boxes, np.float64)).all())
    except OverflowError:  # an int of hundreds of digits
        return False


def _name_bad_boxes(annotations, good, images, source, problems):
    for annotation, is_good in zip(annotations, good):
        if not is_good:
            image = images.get(_key(annotation.get("image_id")), {})
            problems.add(
                "bad box",
                image.get("file_name", source),
                f"bbox={reprlib.repr(annotation.get('bbox'))} of annotation "
                f"{reprlib.repr(annotation.get('id'))} is not four finite numbers: "
                "left, top, width, height",
            )


def _annotation_ids(annotations):
    ids = [annotation.get("id") for annotation in annotations]
    if all(map(is_id, ids)) and len(set(ids)) == len(ids):
        return ids
    # pycocotools keeps annotations by id: without one each, some are lost.
    return range(1, len(annotations) + 1)


def _as_ids(values):
    if set(map(type, values)) <= {int, str}:
        return values
    return [_key(value) for value in values]


def _key(value):
    """An id by which things find each other, or None."""
    return value if isinstance(value, str) else whole_number(value)


def _get(item, key):
    return item.get(key) if isinstance(item, dict) else None


def is_id(value):
    """Says whether a value is an int that can be an id."""
    return type(value) is int and abs(value) <= _MAX_ID


def _number(count):
    return "1 annotation" if count == 1 else f"{count:,} annotations"
