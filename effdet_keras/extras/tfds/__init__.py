"""Reads datasets of TensorFlow Datasets, from folders or from examples in memory."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats import reading
from effdet_keras.data.formats.dataset_files import visible_folders
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.formats.tfrecord import (
    Example,
    check_fractions,
    missing_shards,
    read_examples,
    shards_in,
    with_ids,
)
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError, require

_INFO, _FEATURES = "dataset_info.json", "features.json"
_NAMES = "objects-label.labels.txt"
_SHARD = re.compile(r".+-(?P<split>[^-]+)\.tfrecord-\d{5,9}-of-\d{5,9}")
_FLAGS = ("objects/is_crowd", "objects/is_difficult", "objects/is_group_of")


def from_tfds(
    source: Any,
    split: str | None = None,
    *,
    class_names: ClassNames | None = None,
    on_error: str = "auto",
) -> DetectionDataset:
    """Reads a dataset of TensorFlow Datasets, which need not be installed.

    Each example has `image`, and `objects` with `bbox` (`yxyx`, as fractions of the
    image) and `label` (from 0). It may also have `image/filename`, `image/id`, and in
    `objects` `area`, `id`, `is_crowd`, `is_difficult` and `is_group_of`. An object with
    one of these three flags is a crowd region.

    Images of a folder or a builder are read when they are needed. Examples are taken as
    they are, with decoded images, and stay in memory.

    Args:
        source: one of

            - a folder such as `~/tensorflow_datasets/coco/2017/1.1.0`, or a folder that
              contains only one such folder;
            - a `tfds.builder(...)` whose data is prepared;
            - a finite `tf.data.Dataset`, or any iterable, of such examples: dicts of
              tensors or arrays, not batched.
        split: string, such as "train" or "validation"; None for the only one. Examples
            have no split.
        class_names: as in `load`. Examples have no names: pass
            `info.features["objects"]["label"].names`.
        on_error: as in `load`.

    Returns:
        `DetectionDataset`. `image_id` is `image/id` if all ids are different ints,
        otherwise 1, 2, ...

    Raises:
        FileNotFoundError: If the folder contains no such dataset, or lacks files of it.
        ValueError: If there are several splits and none is named, if files are damaged,
            or if examples have another format.

    Example:
        >>> examples = [{
        ...     "image": np.zeros((32, 48, 3), "uint8"),
        ...     "objects": {"bbox": [[0.25, 0.5, 0.5, 1.0]], "label": [0]}}]
        >>> dataset = from_tfds(examples, class_names=["cat"])
        >>> dataset[0]["boxes"].tolist()
        [[8.0, 24.0, 16.0, 48.0]]
    """
    folder = getattr(source, "data_dir", source)  # a builder's folder of its version
    if isinstance(folder, str | os.PathLike):
        return _from_folder(pathlib.Path(folder), split, class_names, on_error)
    return _from_examples(source, split, class_names, on_error)


def _find_folder(folder):
    """Returns the folder with the files, which may be one or two levels below."""
    inner = visible_folders(folder) if folder.is_dir() else []
    places = [folder, *inner, *(p for place in inner for p in visible_folders(place))]
    found = sorted(place for place in places if (place / _FEATURES).is_file())
    if not found:
        raise FileNotFoundError(
            f"A TFDS folder must contain `{_FEATURES}` and `{_INFO}`. Received: "
            f"{str(folder)!r}. Was `download_and_prepare()` called?"
        )
    if len(found) > 1:
        raise InvalidValueError(
            "The folder must contain only one TFDS dataset. Received: "
            f"{str(folder)!r} with "
            f"{[str(place.relative_to(folder)) for place in found]}. Give the path of "
            "one of them"
        )
    return found[0]


def _splits_of(folder):
    splits = shards_in(folder, _SHARD)
    if not splits:
        raise InvalidValueError(
            "The folder of a TFDS dataset must contain files such as "
            f"`NAME-train.tfrecord-00000-of-00001`. Received: {str(folder)!r} with "
            f"{sorted(p.name for p in folder.iterdir())}"
        )
    return splits


def _from_folder(folder, split, class_names, on_error):
    problems = Problems(f"`from_tfds` of {str(folder)!r}", on_error)
    folder = _find_folder(folder)
    splits = _splits_of(folder)
    split = reading.chosen_split(splits, split, folder)
    files = splits[split]
    for missing in missing_shards(files):  # the dataset would be incomplete
        text = f"Only {missing}. Copy or prepare the dataset again."
        raise FileNotFoundError(text)
    names = folder / _NAMES
    text = names.read_text(encoding="utf-8") if names.is_file() else ""
    known = [line.strip() for line in text.split("\n") if line.strip()]
    found = read_examples(files, "image", _read_image, problems)
    known = dict(enumerate(known, 1))
    return _made(found, known, class_names, problems, str(folder))


def _made(found, known, class_names, problems, source):
    classes = reading.numbered_classes(
        known, class_names, found, are_category_ids=False
    )
    return reading.make_dataset(
        found, classes, problems, source=source, keep_unusable=True
    )


def _read_image(place, example):
    """Returns the image and annotations of an example as a `reading.Found`."""
    sides = example.floats("objects/bbox")
    if len(sides) % 4:
        raise InvalidValueError(
            f"`objects/bbox` has {len(sides)} numbers, not 4 per box"
        )
    number, ids = example.first_int("image/id"), example.ints("objects/id")
    area = [example.floats("objects/area"), example.ints("objects/area")]
    return reading.Found(
        place=place,
        image=example["image"],
        boxes=sides.reshape(-1, 4),
        classes=example.ints("objects/label") + 1,
        source_id=example.text("image/id") if number is None else str(number),
        file_name=example.text("image/filename"),
        is_crowd=example.any_flag(_FLAGS, len(sides) // 4),
        area=np.concatenate(area),
        annotation_ids=ids if len(ids) else None,
    )


def _from_examples(source, split, class_names, on_error):
    """Makes a `DetectionDataset` from an iterable of TFDS examples."""
    rule = "`source` must be a folder, a builder, or an iterable of single examples"
    require(hasattr(source, "__iter__"), rule, source=source)
    require(
        split is None and class_names is not None,
        "Examples have neither splits nor class names: leave `split` out, and pass "
        '`class_names=info.features["objects"]["label"].names`',
        split=split,
        class_names=class_names,
    )
    problems = Problems("`from_tfds` of examples", on_error)
    found = []
    for number, example in enumerate(_iterate(source), 1):
        try:
            image = _read_image(f"example {number}", _features_of(example))
            found.append(check_fractions(image, problems))
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            text = f"no {error} in it" if isinstance(error, KeyError) else str(error)
            problems.add("unreadable annotation", f"example {number}", text)
    found = with_ids(found)
    return _made(found, {}, class_names, problems, "examples")


def _iterate(source):
    if not hasattr(source, "element_spec"):  # not a `tf.data.Dataset`
        yield from source
        return
    if source.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise InvalidValueError(
            "`source` must end. Received: a `tf.data.Dataset` that repeats forever"
        )
    try:
        yield from source.as_numpy_iterator()
    except tf.errors.OpError as error:
        raise InvalidValueError(f"`source` cannot be read ({error.message})") from error


def _features_of(example):
    """Converts an example in memory to the form of a file's, with pixels as image."""
    image, objects = np.asarray(example["image"]), example["objects"]
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InvalidValueError(
            f"`image` must be uint8 of shape [H, W, 3]; it is {image.dtype} of shape "
            f"{image.shape}"
        )
    boxes = np.asarray(objects["bbox"], np.float64)
    if boxes.size and (boxes.ndim != 2 or boxes.shape[1] != 4):
        raise InvalidValueError(
            f"`bbox` must have the shape [n, 4]; it has {boxes.shape}"
        )
    features = Example({"image": image, "objects/bbox": boxes.reshape(-1)})
    for key in ("image/id", "image/filename"):
        values = np.asarray(example.get(key, [])).reshape(-1)
        is_id = values.dtype.kind in "iu"
        texts = [
            v if isinstance(v, bytes) else str(v).encode() for v in values.tolist()
        ]
        features[key] = values.astype(np.int64) if is_id else texts
    for key in ("objects/label", "objects/id", "objects/area", *_FLAGS):
        values = np.asarray(objects.get(key.removeprefix("objects/"), []))
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise InvalidValueError(
                f"`{key.removeprefix('objects/')}` must be numbers of shape [n]"
            )
        features[key] = values.astype(np.float64 if "area" in key else np.int64)
    return features


def tfds_readers(path):
    """Returns a dict from splits of a TFDS folder to functions that read them."""
    if not path.is_dir():
        return {}
    splits = _splits_of(_find_folder(path))
    return {name: functools.partial(from_tfds, path, name) for name in splits}
