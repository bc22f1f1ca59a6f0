"""Functions that the writers share: checks of the splits, and files of images."""

import io
import pathlib
import re
import unicodedata
import warnings
from collections.abc import Mapping

import numpy as np
from PIL import Image

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.reading import ONE_SPLIT, usable_only
from effdet_keras.data.record import load_image, stored_bytes
from effdet_keras.errors import InvalidTypeError, require
from effdet_keras.images import EXIF_ORIENTATION


def named_splits(datasets, *, usable=False, masks=True, crowds=True):
    """Returns the splits that a writer received, checked.

    Args:
        datasets: `DetectionDataset`, or dict from split name to one.
        usable: whether to leave out boxes without an area inside their image.
        masks: whether the format can store masks.
        crowds: whether the format can store crowds. A warning is given for what it
            cannot store.

    Returns:
        Dict from split name to `DetectionDataset`.

    Raises:
        TypeError: If there is anything but datasets.
        ValueError: If the name of a split is not a valid folder name on all systems, or
            the splits differ in classes or category ids.
    """
    if isinstance(datasets, DetectionDataset):
        datasets = {ONE_SPLIT: datasets}
    is_mapping = isinstance(datasets, Mapping)
    others = datasets.values() if is_mapping else [datasets]
    kinds = [type(x).__name__ for x in others if not isinstance(x, DetectionDataset)]
    require(
        is_mapping and not kinds,
        "The first argument, `datasets`, must be a `DetectionDataset`, or a dict from "
        "the name of a split to one; the second, `folder`, the path of a new folder",
        InvalidTypeError,
        datasets=kinds[0] if kinds else type(datasets).__name__,
    )
    are_names = all(
        re.fullmatch(r"[\w .-]*\w", name) and name == portable_name(name)
        for name in datasets
    )
    rule = (
        "`datasets` must have at least one split, each with a valid name for a folder"
    )
    require(datasets and are_names, rule, splits=list(datasets))
    classes = {name: (d.class_names, d.category_ids) for name, d in datasets.items()}
    rule = (
        "The splits of a dataset must have the same classes and category ids: "
        "read the others with `class_names=` of the first"
    )
    require(len(set(classes.values())) == 1, rule, classes=classes)
    records = [record for dataset in datasets.values() for record in dataset.records]
    lost = []
    if not masks and any(record.has_mask for record in records):
        lost.append("masks: `write_coco` keeps them")
    if not crowds and any(record.is_crowd.any() for record in records):
        lost.append("crowds, which are written as ordinary boxes")
    if lost:
        warnings.warn(f"This format cannot store {'; '.join(lost)}.", stacklevel=3)
    if not usable:
        return dict(datasets)
    return {
        name: DetectionDataset(usable_only(d.records), d.class_names, d.category_ids)
        for name, d in datasets.items()
    }


# Characters that neither an xml file nor a row of a table can hold.
_CONTROL = re.compile("[\\x00-\\x08\\x0a-\\x1f\\ud800-\\udfff]")


def check_names_survive(datasets, title):
    """Raises if a text format would change the name of a class or damage its files.

    Readers of these formats remove the spaces around a text.
    """
    names = next(iter(datasets.values())).class_names
    lost = [name for name in names if name != name.strip() or _CONTROL.search(name)]
    rule = (
        f"{title} cannot store names of classes with spaces around them or with "
        "control characters. Read the dataset with other names, or write COCO json"
    )
    require(not lost, rule, class_names=lost)


def encode_image(record):
    """Returns an image file's bytes and suffix.

    The file is a PNG of the pixels unless the stored JPEG or PNG looks the same in
    every program.
    """
    if not isinstance(record.image, np.ndarray):
        data = stored_bytes(record.image)
        suffix = _plain_suffix(data, record.image_size)
        if suffix is not None:
            return data, suffix
    return png_of(load_image(record)), ".png"


def png_of(pixels):
    """Returns the bytes of a PNG file of a uint8 array `[H, W]` or `[H, W, 3]`."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _plain_suffix(data, image_size):
    """Returns the suffix of a JPEG or PNG of this size without EXIF turn, or None."""
    try:
        with Image.open(io.BytesIO(data)) as stored:
            is_upright = stored.getexif().get(EXIF_ORIENTATION, 1) == 1
            if is_upright and (stored.height, stored.width) == tuple(image_size):
                return {"JPEG": ".jpg", "PNG": ".png"}.get(stored.format)
    except Exception:  # `load_image` decodes it and explains the error
        return None


# Characters that Windows refuses in the name of a file, and names that it reserves for
# devices.
_REFUSED = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_DEVICES = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE
)


def portable_name(name: str) -> str:
    """Returns a file or folder name that every system accepts.

    A name that is accepted already is returned unchanged.

    Example:
        >>> portable_name("12:30.jpg"), portable_name("aux"), portable_name("cat 1.jpg")
        ('12_30.jpg', 'aux_', 'cat 1.jpg')
    """
    name = _REFUSED.sub("_", name).rstrip(" .") or "_"
    return re.sub(r"^([^.]*)", r"\1_", name) if _DEVICES.fullmatch(name) else name


def image_stems(records):
    """Returns a unique file name without folders and suffix for each record."""
    stems, taken, next_number = [], set(), {}
    for record in records:
        name = record.file_name.replace("\\", "/")
        stem = pathlib.PurePosixPath(name).stem or f"{record.image_id:012d}"
        unique = stem = portable_name(stem)
        number = next_number.get(stem, 2)
        while _same_in_file_systems(unique) in taken:
            unique, number = f"{stem}_{number}", number + 1
        taken.add(_same_in_file_systems(unique))
        next_number[stem] = number  # lower numbers are taken
        stems.append(unique)
    return stems


def _same_in_file_systems(name):
    """Returns a key that is equal for names that some file system takes for the same.

    Some ignore upper and lower case, or how a letter with an accent is encoded.
    """
    return unicodedata.normalize("NFC", name).lower()


def write_images(records, folder, stems=None):
    """Writes the images of records into a folder; returns the names of the files."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for record, stem in zip(records, stems or image_stems(records)):
        data, suffix = encode_image(record)
        (folder / (stem + suffix)).write_bytes(data)
        names.append(stem + suffix)
    return names
