"""Generated images of shapes: a small detection task that needs no download."""

from __future__ import annotations

import json
import os

import numpy as np
from PIL import Image, ImageDraw

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.whole_files import (
    atomic_write_all,
    check_may_be_folder,
    files_in,
    local_path,
)
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.coco import from_coco
from effdet_keras.data.record import run_lengths

SHAPE_NAMES = ("circle", "square", "triangle")
_CATEGORIES = [{"id": i, "name": name} for i, name in enumerate(SHAPE_NAMES, 1)]

_SUPERSAMPLING = 4  # shapes are drawn this much larger, for smooth edges
_MAX_OBJECTS = 5
_EMPTY_SHARE = 0.08  # fraction of images without objects
_SIDES = (0.25, 0.5)  # smallest and largest diameter, as a fraction of the image
_MIN_VISIBLE = 0.6  # fraction of an object that others must leave visible
_MIN_CONTRAST = 90.0  # distance in RGB between a shape and the pixels under it
_JPEG_QUALITY = 90


def write_shapes(
    folder: str | os.PathLike[str],
    *,
    num_train: int = 600,
    num_valid: int = 100,
    image_size: int = 128,
    seed: int = 0,
) -> tuple[DetectionDataset, DetectionDataset]:
    """Writes a dataset of shapes on textured backgrounds, in COCO's format.

    An image has up to five circles, squares and triangles of any color, rotation and
    size, which may overlap. Some images are empty. Lines in the background belong to no
    class. Each image depends only on `seed` and its number, so a larger dataset
    contains the smaller one.

    The files are `train.json`, `valid.json` and the JPEG files in `train/` and
    `valid/`. Those of an earlier call are replaced, and no other files.

    Args:
        folder: path of the folder to write to; made if it does not exist.
        num_train: int, number of training images.
        num_valid: int, number of validation images.
        image_size: int, height and width in pixels, at least 32.
        seed: int, 0 or more.

    Returns:
        `(train, valid)`: two `DetectionDataset`s, as `from_coco` reads them.

    Raises:
        ValueError: If a number of images is below one or `image_size` below 32.
        FileExistsError: If `folder` has a dataset of these names that this function did
            not write.

    Example:
        >>> import tempfile
        >>> train, valid = write_shapes(tempfile.mkdtemp(), num_train=4, num_valid=2)
        >>> len(train), valid[0]["image"].shape, valid.class_names
        (4, (128, 128, 3), ('circle', 'square', 'triangle'))
    """
    check_whole_number("num_train", num_train, "[1, inf)")
    check_whole_number("num_valid", num_valid, "[1, inf)")
    check_whole_number("image_size", image_size, "[32, inf)")
    check_whole_number("seed", seed, "[0, inf)")
    folder = local_path(folder, "The folder of `write_shapes`")
    counts = {"train": num_train, "valid": num_valid}
    for name in counts:
        _check_replaces_only_shapes(folder, name)
    datasets = []
    for part, (name, count) in enumerate(counts.items()):
        images = folder / name
        with atomic_write_all(images, kept=files_in(images)) as new:
            (new / name).mkdir()
            content = _write_part(new / name, count, image_size, [seed, part])
            text = json.dumps(content)
            (new / f"{name}.json").write_text(text, encoding="utf-8")
        datasets.append(from_coco(folder / f"{name}.json", images))
    return tuple(datasets)


def _check_replaces_only_shapes(folder, name):
    """Raises `FileExistsError` if another dataset has the names of a split's files."""
    check_may_be_folder(folder / name)
    path = folder / f"{name}.json"
    there = [path] if os.path.lexists(path) else list((folder / name).glob("*"))
    if not there:
        return
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        is_own = content["categories"] == _CATEGORIES
    except (OSError, ValueError, LookupError, TypeError):
        is_own = False
    if not is_own:
        raise FileExistsError(
            f"'{there[0]}' already exists, and is not a file of `write_shapes`: "
            "nothing was written. Give another folder."
        )


def _write_part(folder, count, image_size, seed):
    """Writes `count` images of random shapes; returns their COCO annotations."""
    images, annotations = [], []
    for image_id in range(1, count + 1):
        rng = np.random.default_rng([*seed, image_id])
        pixels, shapes = draw_shapes(rng, image_size)
        file_name = f"{image_id:05d}.jpg"
        Image.fromarray(pixels).save(folder / file_name, quality=_JPEG_QUALITY)
        image = {"id": image_id, "file_name": file_name}
        images.append({**image, "height": image_size, "width": image_size})
        covered = _covered([mask for _, mask in shapes])
        for (label, mask), above in zip(shapes, covered):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": label + 1,
                    "bbox": _box_of(mask),
                    "area": int(mask.sum()),
                    "iscrowd": 0,
                    "segmentation": run_lengths(mask & ~above),
                }
            )
    return {"images": images, "annotations": annotations, "categories": _CATEGORIES}


def draw_shapes(rng, image_size):
    """Returns pixels, and label and mask of each shape; later ones are on top."""
    pixels = _background(rng, image_size)
    shapes = []  # (label, bool mask); later ones are on top
    is_empty = rng.random() < _EMPTY_SHARE
    wanted = 0 if is_empty else rng.integers(1, _MAX_OBJECTS + 1)
    for _ in range(3 * wanted):  # some attempts fail because the place is occupied
        if len(shapes) == wanted:
            break
        label = int(rng.integers(len(SHAPE_NAMES)))
        alpha = _shape_alpha(rng, SHAPE_NAMES[label], image_size)
        mask = alpha > 0.5
        if _hides_another(mask, [other for _, other in shapes]):
            continue
        color = _contrasting_color(rng, pixels[mask].mean(axis=0))
        shade = color + rng.normal(0, 8, pixels.shape)
        pixels = pixels + alpha[..., None] * (shade - pixels)
        shapes.append((label, mask))
    pixels = np.clip(pixels + rng.normal(0, 3, pixels.shape), 0, 255)
    return pixels.astype(np.uint8), shapes


def _covered(masks):
    """Returns, for each mask, the part that later masks hide."""
    above, covered = np.zeros_like(masks[0]) if masks else None, []
    for mask in reversed(masks):
        covered.insert(0, above)
        above = above | mask
    return covered


def _background(rng, size):
    """Returns pixels of soft blotches, stripes, lines and grain."""
    blotches = np.clip(
        rng.normal(128, 45, (int(rng.integers(2, 9)),) * 2 + (3,)), 0, 255
    )
    image = Image.fromarray(blotches.astype(np.uint8)).resize(
        (size, size), Image.BICUBIC
    )
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(0, 7)):
        ends = [tuple(point) for point in rng.uniform(0, size, (2, 2))]
        draw.line(ends, tuple(rng.integers(0, 256, 3)), width=1 + size // 100)
    pixels = np.asarray(image, np.float64)
    y, x = np.mgrid[:size, :size] / size
    angle, waves = rng.uniform(0, np.pi), rng.uniform(2, 25)
    phase = 2 * np.pi * waves * (y * np.sin(angle) + x * np.cos(angle))
    stripes = rng.uniform(0, 22) * np.sin(phase)
    grain = rng.normal(0, rng.uniform(2, 14), (size, size, 1))
    return pixels + stripes[..., None] + grain


def _shape_alpha(rng, name, size):
    """Returns the fraction of each pixel, from 0 to 1, that a random shape covers."""
    radius = size * rng.uniform(*_SIDES) / 2
    center = rng.uniform(0.8 * radius, size - 0.8 * radius, 2)  # may be cut a little
    turn = rng.uniform(0, 2 * np.pi)
    canvas = Image.new("L", (size * _SUPERSAMPLING,) * 2)
    draw = ImageDraw.Draw(canvas)
    corners = center + radius * _outline(name, turn)
    draw.polygon([tuple(corner) for corner in corners * _SUPERSAMPLING], fill=255)
    return np.asarray(canvas.reduce(_SUPERSAMPLING), np.float64) / 255


def _outline(name, turn):
    """Returns the corners `[n, 2]` of a shape on the unit circle."""
    corners = {"circle": 48, "square": 4, "triangle": 3}[name]
    angle = turn + 2 * np.pi * np.arange(corners) / corners
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _hides_another(mask, others):
    pairs = zip(others, _covered([*others, mask]))
    hides = [(x & ~above).sum() < _MIN_VISIBLE * x.sum() for x, above in pairs]
    return mask.sum() < 20 or any(hides)


def _contrasting_color(rng, surroundings):
    while True:
        color = rng.uniform(0, 255, 3)
        if np.linalg.norm(color - surroundings) >= _MIN_CONTRAST:
            return color


def _box_of(mask):
    left, top, right, bottom = Image.fromarray(mask).getbbox()
    return [left, top, right - left, bottom - top]
