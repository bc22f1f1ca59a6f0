"""What the writers share: splits, images out of records."""

import io
import os
import pathlib
import re
import warnings

import numpy as np
from PIL import Image

from effdet_keras._internal.remote_path import path_of
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.record_building import ONE_SPLIT
from effdet_keras.data.record import count_unusable, load_example
from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.images import EXIF_ORIENTATION, EncodedImage

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def named_splits(datasets, *, usable=False, masks=True):
    """Returns what a writer was given as a dict of its splits, checked."""
    if isinstance(datasets, DetectionDataset):
        datasets = {ONE_SPLIT: datasets}
    is_dict = isinstance(datasets, dict)
    if not is_dict or not all(_is_split(*item) for item in datasets.items()):
        raise InvalidTypeError(
            "`datasets` must be a `DetectionDataset`, or a dict from split name to "
            f"`DetectionDataset`. Received: datasets={datasets!r}"
        )
    bad = [name for name in datasets if not _is_folder_name(name)]
    if bad or not datasets:
        raise InvalidValueError(
            "`datasets` must have one split or more, each with a name that a folder "
            f"can have. Received: {list(datasets)}"
        )
    classes = {name: (d.class_names, d.category_ids) for name, d in datasets.items()}
    if len(set(classes.values())) > 1:
        raise InvalidValueError(
            "The splits of a dataset must have the same classes and category ids: "
            "read the others with `class_names=` of the first. "
            f"Received: {dict(list(classes.items())[:3])}"
        )
    if not masks:
        _warn_of_lost_masks(datasets)
    if not usable:
        return dict(datasets)
    return {name: _usable(dataset) for name, dataset in datasets.items()}


def _warn_of_lost_masks(datasets):
    records = [record for dataset in datasets.values() for record in dataset.records]
    with_masks = [r for r in records if r.mask is not None or r.shapes is not None]
    if with_masks:
        warnings.warn(
            f"This format has boxes alone: masks of {len(with_masks):,} of "
            f"{len(records):,} images, such as {with_masks[0].name!r}, are not "
            "written. `write_coco` keeps them.",
            stacklevel=4,
        )


def _is_split(name, dataset):
    return isinstance(name, str) and isinstance(dataset, DetectionDataset)


def _is_folder_name(name):
    return name not in ("", ".", "..") and not any(c in name for c in '/\\:*?"<>|\0')


def _usable(dataset):
    counts = count_unusable(dataset.records)
    records = [
        record.usable() if count else record
        for record, count in zip(dataset.records, counts)
    ]
    return DetectionDataset(records, dataset.class_names, dataset.category_ids)


def encode_image(record):
    """Returns a record's image as the bytes of a file, and its suffix."""
    if not isinstance(record.image, np.ndarray):
        data = _stored_bytes(record.image)
        suffix = _plain_suffix(data, record.image_size)
        if suffix is not None:
            return data, suffix
    return png_of(load_example(record)["image"]), ".png"


def png_of(pixels):
    """The bytes of a PNG file of a uint8 array `[H, W]` or `[H, W, 3]`."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _stored_bytes(image):
    if isinstance(image, EncodedImage):
        return image.read()
    return path_of(image).read_bytes()


def _plain_suffix(data, image_size):
    """The suffix of a JPEG or PNG of this size that needs no turning, else None."""
    try:
        with Image.open(io.BytesIO(data)) as stored:
            if stored.getexif().get(EXIF_ORIENTATION, 1) != 1:
                return None
            if (stored.height, stored.width) != tuple(image_size):
                return None
            return {"JPEG": ".jpg", "PNG": ".png"}.get(stored.format)
    except Exception:  # not ours to explain: `load_example` decodes it, and does
        return None


def image_stems(records):
    """Returns a file name without suffix for each record, each different."""
    stems, taken = [], set()
    for record in records:
        name = record.file_name.replace("\\", "/")
        stem = pathlib.PurePosixPath(name).stem or f"{record.image_id:012d}"
        stem = _CONTROL.sub("_", stem)
        unique, number = stem, 2
        while unique.lower() in taken:  # some file systems do not tell case
            unique, number = f"{stem}_{number}", number + 1
        taken.add(unique.lower())
        stems.append(unique)
    return stems


def write_images(records, folder, stems=None):
    """Writes the images of records into a folder, which is made."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for record, stem in zip(records, stems or image_stems(records)):
        data, suffix = encode_image(record)
        (folder / (stem + suffix)).write_bytes(data)
        names.append(stem + suffix)
    return names


def refuse_existing(*paths):
    """Raises FileExistsError if one of `paths` is there: writers overwrite nothing."""
    there = [os.fspath(path) for path in paths if os.path.lexists(path)]
    if there:
        raise FileExistsError(
            "A dataset is never written over what is there. "
            f"Received: {there[:3]}. Name another folder or remove it"
        )
