"""What can be wrong with the image files of a dataset."""

import concurrent.futures
import hashlib
import io
import os
import warnings

import numpy as np
from PIL import Image, UnidentifiedImageError

from effdet_keras.data.problems import Problem
from effdet_keras.images import EXIF_ORIENTATION, EncodedImage, read_image


def find_in_images(records, *, decode=True):
    """Finds images that are missing, broken, turned, of another size, or duplicates.

    Several threads read the files, as training does.

    Args:
        records: sequence of `Record`.
        decode: whether to read every file to its end. False reads only its
            header. Files that are cut off are then not found, and duplicates only
            if they have the same path.

    Returns:
        List of `Problem`.

    Example:
        >>> import dataclasses
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((8, 8, 3), "uint8")
        >>> record = from_arrays([image], [[]], [[]], ["cat"]).records[0]
        >>> gone = dataclasses.replace(record, image="gone.jpg", file_name="gone.jpg")
        >>> [(p.kind, p.file) for p in find_in_images([record, gone])]
        [('missing image', 'gone.jpg')]
    """
    with warnings.catch_warnings(), concurrent.futures.ThreadPoolExecutor() as pool:
        # Pillow warns of odd metadata, without naming the file.
        warnings.simplefilter("ignore")
        looks = list(pool.map(lambda record: _look_at(record, decode), records))
    problems = [problem for problem, _ in looks if problem is not None]
    return problems + _find_twins(records, [fingerprint for _, fingerprint in looks])


def find_shared_images(splits):
    """Finds images of a split that an earlier split has as well.

    It compares the bytes of the files, not what can be seen in them.

    Args:
        splits: dict from split name to sequence of `Record`.

    Returns:
        Dict from split name to list of `Problem`.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((8, 8, 3), "uint8")
        >>> records = from_arrays([image], [[]], [[]], ["cat"]).records
        >>> shared = find_shared_images({"train": records, "valid": records})
        >>> shared["train"], shared["valid"][0].detail
        ([], "same image as image_id=1 of split 'train'")
    """
    found, first = {}, {}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for split, records in splits.items():
            found[split] = []
            hashes = list(pool.map(_hash_of_image, records))
            for record, digest in zip(records, hashes):
                if digest in first:
                    other, name = first[digest]
                    detail = f"same image as {name} of split {other!r}"
                    problem = Problem("shared image", record.name, detail)
                    found[split].append(problem)
            # Duplicates inside one split are found by `find_in_images`.
            for record, digest in zip(records, hashes):
                if digest is not None:
                    first.setdefault(digest, (split, record.name))
    return found


def _hash_of_image(record):
    """A value that equal images share; None for an image that cannot be read."""
    if isinstance(record.image, np.ndarray):
        return record.image.shape, _hash(np.ascontiguousarray(record.image))
    try:
        return _hash(_read(record.image))
    except OSError:
        return None


def _look_at(record, decode):
    """`(Problem or None, fingerprint or None)` of one image."""
    image, name = record.image, record.name
    if isinstance(image, np.ndarray):
        return None, (image.shape, _hash(np.ascontiguousarray(image)))
    try:
        data = _read(image) if decode or isinstance(image, EncodedImage) else None
        size, orientation = _read_head(image if data is None else io.BytesIO(data))
        problem = _compare_sizes(record, size, orientation)
        if decode and (problem is None or problem.kind != "wrong size"):
            read_image(image, size=record.image_size)
    except FileNotFoundError:
        return Problem("missing image", name, f"no file {_place(image)!r}"), None
    except Exception as error:  # a broken file makes Pillow raise almost anything
        return Problem("corrupt image", name, _reason(error, image)), None
    return problem, _place(image) if data is None else _hash(data)


def _read(image):
    if isinstance(image, EncodedImage):
        return image.read()
    with open(image, "rb") as file:
        return file.read()


def _read_head(file):
    """Size as stored and EXIF orientation."""
    with Image.open(file) as stored:
        return (stored.height, stored.width), stored.getexif().get(EXIF_ORIENTATION, 1)


def _hash(data):
    return hashlib.blake2b(data, digest_size=16).digest()


def _place(image):
    return str(image) if isinstance(image, EncodedImage) else os.fspath(image)


def _reason(error, image):
    """What Pillow says, without our own words around it."""
    error = error.__cause__ or error
    if isinstance(error, UnidentifiedImageError):
        path = image.path if isinstance(image, EncodedImage) else image
        size = (
            image.length if isinstance(image, EncodedImage) else os.path.getsize(path)
        )
        return "not an image format that Pillow knows" if size else "the file is empty"
    return str(error) or type(error).__name__


def _compare_sizes(record, stored, orientation):
    annotated = tuple(int(side) for side in record.image_size)
    swaps = orientation in (5, 6, 7, 8)
    upright = stored[::-1] if swaps else stored
    kind, detail = None, f"EXIF orientation {orientation}, stored as {_size(stored)}"
    if annotated not in (upright, stored):
        kind = "wrong size"
        detail = (
            f"annotated as {_size(annotated)}, is {_size(upright)} (height x width)"
            + _cure(annotated, upright)
        )
    elif annotated != upright:
        kind, detail = "sideways image", f"{detail}, and so annotated"
    elif orientation in range(2, 9):
        kind = "turned image"
        if swaps and upright != stored:
            detail += ", annotated upright"
        else:
            detail += "; its size does not tell which way up it was annotated"
    return kind and Problem(kind, record.name, detail)


def _cure(annotated, actual):
    if annotated == actual[::-1]:
        return "; are height and width swapped?"
    scale = np.divide(actual, annotated)
    if abs(scale[0] / scale[1] - 1) < 0.02:
        return f"; was it resized by {scale.mean():.3g} after it was annotated?"
    return ""


def _size(size):
    return f"{size[0]}x{size[1]}"


def _find_twins(records, fingerprints):
    problems, first = [], {}
    for record, fingerprint in zip(records, fingerprints):
        if fingerprint is None:
            continue
        other = first.setdefault(fingerprint, record)
        if other is not record:
            detail = f"same image as {other.name}, with {_compare_boxes(record, other)}"
            ids = (other.image_id, record.image_id)
            problems.append(Problem("duplicate image", record.name, detail, ids))
    return problems


def _compare_boxes(record, other):
    if not np.array_equal(record.boxes_xywh, other.boxes_xywh):
        return "other boxes"
    if not np.array_equal(record.labels, other.labels):
        return "the same boxes and other labels"
    return "the same boxes"
