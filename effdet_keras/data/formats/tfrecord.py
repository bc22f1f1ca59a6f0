"""TFRecord files, as google/automl and the TF Object Detection API have them."""

from __future__ import annotations

import collections
import functools
import glob
import hashlib
import itertools
import os
import pathlib
import re
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from effdet_keras._internal.whole_files import is_remote, local_path, new_folder
from effdet_keras.category_ids import category_ids_or_default
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.embedded_images import (
    FractionalImage,
    make_dataset,
    read_images,
)
from effdet_keras.data.formats.folder_writing import encode_image, named_splits, png_of
from effdet_keras.data.formats.label_map import (
    ClassNames,
    label_map_of,
    read_label_map,
    write_label_map,
)
from effdet_keras.data.formats.record_building import check_size
from effdet_keras.data.formats.sidecar import read_sidecar, write_sidecar
from effdet_keras.data.formats.tf_example import encode_example, write_records
from effdet_keras.data.problems import Problems
from effdet_keras.data.record import pixels_of_shape
from effdet_keras.errors import InvalidValueError

_LABEL_MAP = "label_map.pbtxt"
_IMAGES_PER_SHARD = 1000  # about 150 MB of photographs


def from_tfrecord(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    class_names: ClassNames | None = None,
    label_map: Mapping[int, str] | str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    masks: bool = False,
) -> DetectionDataset:
    """Reads TFRecord files of `tf.train.Example`.

    The keys are those of google/automl's EfficientDet and of the TF Object
    Detection API: `image/encoded`, `image/object/bbox/{xmin,xmax,ymin,ymax}` as
    fractions, `image/object/class/label` from 1, and where present
    `image/{height,width,filename,source_id}` and
    `image/object/{area,is_crowd,group_of,difficult,class/text}`. Groups and
    difficult objects are crowds. Images stay in the files, and are read from
    there when asked for; so the files must not be compressed. The Object Detection
    API's `image/object/weight` is not read: each box counts 1.

    The labels in the files are the `category_ids`. Their names come from
    `label_map`, or else from the one `.pbtxt` beside the files, or else from
    the `class/text` of the objects. Without any of these they are `class_names` in
    order, or else "1", "2", ... TensorFlow is not needed.

    Args:
        files: path, glob pattern such as `"data/train-?????-of-00032.tfrecord"`,
            list of these, or a folder with the files of one split.
        class_names: names in the order of the labels, to bring a second dataset in
            line with a first one: pass the first dataset's `class_names`, which may
            have classes that are not in this one. Or a label map, as for `load`. None
            takes the names in the files.
        label_map: dict from label to name; "coco", "voc" or "waymo"; or the path of
            a file: `item { id: 1 name: 'cat' }` in a .pbtxt, `{"cat": 1}` in a
            .json, or `1: cat` in a .yaml.
        on_error: "raise" raises one error that names everything that is wrong;
            "skip" leaves it out, warns, and lists it in `dataset.problems`.
        masks: whether to read `image/object/mask`, a PNG of each object in which its
            pixels are not 0, for a model with a segmentation head. The classes of
            pixels are then as of `from_coco(..., masks=True)`. The PNG files stay in
            memory.

    Returns:
        `DetectionDataset`. `image_id` is the `image/source_id` if these are
        different ints, else 1, 2, ...

    Raises:
        FileNotFoundError: If no file matches.
        ValueError: If files are damaged or have another format, or their boxes or
            labels are wrong.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> folder = tempfile.mkdtemp() + "/cats"
        >>> write_tfrecord({"train": dataset}, folder)
        >>> from_tfrecord(f"{folder}/train-*")
        DetectionDataset(1 image, 1 box, 1 class: cat)
    """
    paths = find_files(files)
    source = describe_files(files, paths)
    reader = f"`from_tfrecord` of {source}"
    warn_of_missing(paths, reader)
    problems = Problems(reader, on_error)
    folders = {pathlib.Path(path).parent for path in paths}
    sidecar = read_sidecar(*folders) if len(folders) == 1 else None
    names = _read_label_maps(folders) if label_map is None else label_map_of(label_map)
    texts = {}
    read_image = functools.partial(_read_image, names=texts, masks=masks)
    images = read_images(paths, read_image, problems)
    known = names or texts
    if sidecar is not None:
        written = enumerate(_file_ids(sidecar.category_ids))
        sidecar = sidecar.renamed({i: known[k] for i, k in written if k in known})
    return make_dataset(
        images,
        known,
        class_names,
        problems,
        source=source,
        sidecar=sidecar,
        split=split_of_files(paths),
        fields=("image_id", "source_id", "annotation_ids"),
    )


def _read_label_maps(folders):
    """Names of the classes by id, of the label map beside the files; or empty."""
    found = sorted(path for folder in folders for path in folder.glob("*.pbtxt"))
    maps = [read_label_map(path) for path in found]
    if any(names != maps[0] for names in maps):
        raise InvalidValueError(
            "There must be one label map beside the files, or `label_map` must say "
            f"which one. Received: {[str(path) for path in found]}"
        )
    return maps[0] if maps else {}


def _read_image(place, example, locate, names, masks):
    """One image; adds to `names` what its objects say of the classes."""
    image = locate("image/encoded")
    if image is None:
        raise InvalidValueError(f"no `image/encoded`, but {example.keys()[:5]}")
    corners = [example.floats(f"image/object/bbox/{key}") for key in _CORNERS]
    if len({len(side) for side in corners}) > 1:
        numbers = dict(zip(_CORNERS, map(len, corners)))
        raise InvalidValueError(f"boxes whose sides differ in number: {numbers}")
    boxes = np.stack(corners, axis=1)
    file_ids = example.ints("image/object/class/label")
    _learn_names(names, file_ids, example.texts("image/object/class/text"))
    return FractionalImage(
        place=place,
        image=image,
        image_size=check_size(
            example.first_int("image/height"), example.first_int("image/width")
        ),
        source_id=example.text("image/source_id"),
        file_name=example.text("image/filename"),
        boxes=boxes,
        file_ids=file_ids,
        is_crowd=example.any_flag(_FLAGS, len(boxes)),
        area=example.floats("image/object/area"),
        annotation_ids=np.zeros(0, np.int64),
        shapes=tuple(example.images("image/object/mask")) if masks else None,
    )


def _learn_names(names, file_ids, texts):
    for file_id, text in zip(file_ids.tolist(), texts):
        if file_id < 1 or not text:
            continue
        if names.setdefault(file_id, text) != text:
            raise InvalidValueError(
                f"label {file_id} is {names[file_id]!r} in records before, and "
                f"{text!r} here"
            )


_CORNERS = ("ymin", "xmin", "ymax", "xmax")
_FLAGS = tuple(f"image/object/{key}" for key in ("is_crowd", "group_of", "difficult"))


def write_tfrecord(
    datasets: DetectionDataset | Mapping[str, DetectionDataset],
    folder: str | os.PathLike[str],
    *,
    num_shards: int | None = None,
) -> None:
    """Writes datasets as TFRecord files, for this and for other programs.

    Makes a new folder with `SPLIT-00000-of-00004.tfrecord` and so on, images
    dealt out to the files in turn, and `label_map.pbtxt`. The keys are
    those that google/automl's EfficientDet and the TF Object Detection API
    read and write. Labels are the `category_ids`, or count from 1 where one of
    those is below 1. Boxes without area in their image are left out, as those
    programs do; boxes that reach out of it stay as they are. The shapes of objects,
    where the dataset was read with `masks=True`, become `image/object/mask`; of an
    object that has only a box the mask is its box.

    Args:
        datasets: `DetectionDataset`, or dict from split name to
            `DetectionDataset`, all of the same classes.
        folder: path of the new folder.
        num_shards: files per split, at most one per image. None makes one per 1,000
            images.

    Raises:
        FileExistsError: If `folder` is there.
        FileNotFoundError: If an image is gone.
        OSError: If the folder cannot be written.
        ValueError: If the classes differ, a name cannot be that of a file, an image
            cannot be read, or there are masks of whole images (`with_masks`), for which
            these files have no place.

    Example: see `from_tfrecord`.
    """
    splits = named_splits(datasets, usable=True)
    if num_shards is not None and num_shards < 1:
        raise InvalidValueError(
            f"`num_shards` must be 1 or more. Received: num_shards={num_shards}"
        )
    first = next(iter(splits.values()))
    ids = _file_ids(first.category_ids)
    with new_folder(folder) as partial:
        write_label_map(partial / _LABEL_MAP, dict(zip(ids, first.class_names)))
        names = {split: list(map(str, d.image_ids)) for split, d in splits.items()}
        write_sidecar(partial, splits, names)
        for split, dataset in splits.items():
            count = num_shards or max(1, -(-len(dataset) // _IMAGES_PER_SHARD))
            count = min(count, max(1, len(dataset)))
            for i in range(count):
                path = partial / f"{split}-{i:05d}-of-{count:05d}.tfrecord"
                records = dataset.records[i::count]
                write_records(
                    path, (_encode_record(r, ids, first.class_names) for r in records)
                )


def _file_ids(category_ids):
    """The ids that files have for classes: 0 means the background there."""
    if min(category_ids) > 0:
        return category_ids
    return category_ids_or_default(None, len(category_ids))


def _encode_record(record, category_ids, class_names):
    data, suffix = encode_image(record)
    masks = {}
    if record.mask is not None:
        raise InvalidValueError(
            "TFRecord files have masks of objects, none of whole images, such as "
            f"{record.name!r} has of `with_masks`. Write the dataset from before "
            "`with_masks`, or use `write_coco`, which keeps these masks."
        )
    if record.shapes is not None:
        masks["image/object/mask"] = _encoded_shapes(record)
    height, width = record.image_size
    low = record.boxes_xywh[:, :2]
    high = low + record.boxes_xywh[:, 2:]
    (xmin, ymin), (xmax, ymax) = (low / (width, height)).T, (high / (width, height)).T
    return encode_example(
        {
            "image/height": np.array([height]),
            "image/width": np.array([width]),
            "image/filename": record.file_name,
            "image/source_id": str(record.image_id),
            "image/key/sha256": hashlib.sha256(data).hexdigest(),
            "image/encoded": data,
            "image/format": {".jpg": "jpeg", ".png": "png"}[suffix],
            "image/object/bbox/xmin": xmin,
            "image/object/bbox/xmax": xmax,
            "image/object/bbox/ymin": ymin,
            "image/object/bbox/ymax": ymax,
            "image/object/class/text": [class_names[i] for i in record.labels],
            "image/object/class/label": np.array(category_ids, np.int64)[record.labels],
            "image/object/is_crowd": record.is_crowd,
            "image/object/area": record.area,
            "image/object/difficult": np.zeros(len(record.labels), np.int64),
            **masks,
        }
    )


def _encoded_shapes(record):
    """A PNG file of each object, as bytes: 1 where its pixels are."""
    height, width = map(int, record.image_size)
    files = []
    for shape, box in zip(record.shapes, record.boxes_xywh.tolist()):
        if shape is None:
            left, top, right, bottom = box[0], box[1], box[0] + box[2], box[1] + box[3]
            shape = [[left, top, right, top, right, bottom, left, bottom]]
        pixels = pixels_of_shape(shape, height, width)
        files.append(png_of(pixels.astype(np.uint8)))
    return files


def tfrecord_readers(path):
    """Finds TFRecord files: dict from split to the function that reads it."""
    if path.is_file():
        splits = tfrecord_splits(path.parent)
        splits = {k: [str(path)] for k, files in splits.items() if str(path) in files}
    else:
        splits = tfrecord_splits(path)
    return {s: functools.partial(from_tfrecord, files) for s, files in splits.items()}


# --- The names of TFRecord files: splits, and shards such as `-00000-of-00002`.

_SUFFIX, _NUMBER = r"\.(?:tfrecords?|tfrec|record)", r"-\d{1,9}-of-\d{1,9}"
_SHARD = re.compile(
    rf"(?P<split>.+?)(?:{_SUFFIX}{_NUMBER}|{_NUMBER}{_SUFFIX}|{_NUMBER}|{_SUFFIX})"
    r"(?:\.gz)?"
)


def tfrecord_splits(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Finds the TFRecord files of a folder, by split."""
    splits = _splits_of(pathlib.Path(folder))
    if not splits:
        inner = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
        found = {path.name: _splits_of(path) for path in inner}
        splits = {
            name: sorted(itertools.chain.from_iterable(inner_splits.values()))
            for name, inner_splits in found.items()
            if inner_splits
        }
    return splits


def _splits_of(folder):
    splits = collections.defaultdict(list)
    for path in sorted(folder.iterdir()):
        match = _SHARD.fullmatch(path.name)
        if match and path.is_file():
            splits[match["split"]].append(str(path))
    return dict(splits)


def find_files(files):
    """The paths that `files` stands for, in order."""
    if not isinstance(files, str | os.PathLike):
        if not files:
            raise InvalidValueError(
                f"`files` must name some. Received: files={files!r}"
            )
        return [path for entry in files for path in find_files(entry)]
    if is_remote(files):
        local_path(files, "A TFRecord file")  # raises
    files = os.fspath(files)
    if os.path.isdir(files):
        return _only_split(files)
    paths = [files] if os.path.exists(files) else sorted(glob.glob(files))
    if not paths:
        raise FileNotFoundError(
            "`files` must be a file, a pattern that matches some, or a folder. "
            f"Received: files={files!r}, which matches nothing"
        )
    return paths


def describe_files(files, paths):
    """Returns what messages call the files."""
    if isinstance(files, str | os.PathLike):
        return repr(os.fspath(files))
    return repr(paths[0]) + (f" and {len(paths) - 1} more" if paths[1:] else "")


def _only_split(folder):
    splits = tfrecord_splits(folder)
    if not splits:
        raise FileNotFoundError(
            "The folder must have files such as `train-00000-of-00002.tfrecord` or "
            f"`train.record` in it. Received: files={folder!r}, which has none"
        )
    if len(splits) > 1:
        raise InvalidValueError(
            "A folder must have the files of one split. "
            f"Received: files={folder!r} with {sorted(splits)}. Pass a pattern, such "
            f"as {os.path.join(folder, min(splits))}*"
        )
    return next(iter(splits.values()))


def split_of_files(paths):
    """The split that the names of the files say, or None if these differ."""
    matches = [_SHARD.fullmatch(os.path.basename(path)) for path in paths]
    splits = {match and match["split"] for match in matches}
    return splits.pop() if len(splits) == 1 else None


def warn_of_missing(paths, reader):
    """Warns of shards that the names of the others speak of."""
    groups = collections.defaultdict(set)
    for path in paths:
        folder, name = os.path.split(path)
        match = re.search(_NUMBER, name)
        if match:
            number, total = (int(i) for i in re.findall(r"\d+", match.group()))
            groups[folder, name.replace(match.group(), ""), total].add(number)
    for (_, name, total), numbers in groups.items():
        if len(numbers) < total:
            warnings.warn(
                f"{reader}: {len(numbers)} of the {total} files of {name!r} are there, "
                "and read",
                stacklevel=3,
            )
