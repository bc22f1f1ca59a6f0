"""Boxes as fractions of their image, as TFRecord and TFDS have them, to records."""

import collections
import dataclasses
import functools
import os
import re

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.label_map import ids_of_classes, requested_classes
from effdet_keras.data.formats.record_building import check_boxes, unknown_class
from effdet_keras.data.formats.sidecar import apply_sidecar
from effdet_keras.data.formats.tf_example import ExampleReader, read_records
from effdet_keras.data.record import Record
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import EncodedImage, read_image_size

_MAX_UNNAMED = 10_000  # classes: a label above it, without a name, is damage
_ID = re.compile(r"-?[0-9]{1,18}")  # fits into int64


@dataclasses.dataclass(slots=True)
class FractionalImage:
    """An image and its annotations, boxes as fractions of its sides."""

    place: str
    image: EncodedImage | np.ndarray
    image_size: tuple | None
    source_id: str
    file_name: str
    boxes: np.ndarray
    file_ids: np.ndarray
    is_crowd: np.ndarray
    area: np.ndarray
    annotation_ids: np.ndarray
    shapes: tuple | None = None

    def check(self):
        """Raises ValueError where the annotations differ in number."""
        count = len(self.boxes)
        numbers = {
            "labels": len(self.file_ids),
            "crowd flags": len(self.is_crowd),
            "areas": len(self.area) or count,
            "ids": len(self.annotation_ids) or count,
            "masks": count if self.shapes is None else len(self.shapes),
        }
        wrong = [f"{number} {key}" for key, number in numbers.items() if number - count]
        if wrong:
            raise InvalidValueError(f"{', '.join(wrong)} for {count} boxes")


def make_dataset(
    images,
    known,
    class_names,
    problems,
    *,
    source,
    sidecar,
    split,
    fields,
    has_category_ids=True,
):
    """Makes a dataset of what was read, and tells what was wrong with it."""
    try:
        class_names, file_ids, category_ids = choose_classes(
            known, class_names, sidecar, images, has_category_ids=has_category_ids
        )
    except ValueError:
        problems.finish()  # says more, if there are any
        raise
    records = make_records(images, file_ids, known, problems)
    names = [str(record.source_id) for record in records]
    records = apply_sidecar(sidecar, split, records, names, class_names, fields=fields)
    records = check_boxes(records, problems, source)
    found = problems.finish()
    return DetectionDataset(records, class_names, category_ids, problems=found)


def choose_classes(known, class_names, sidecar, images, *, has_category_ids=True):
    """Chooses which classes there are, and by which ids the file means them."""
    ids = None
    if class_names is not None:
        class_names, ids = requested_classes(class_names)
    elif not known:
        class_names = _numbers_as_names(images)
    elif sidecar is not None and set(known.values()) <= set(sidecar.class_names):
        class_names = sidecar.class_names
    else:
        class_names = tuple(known[i] for i in sorted(known))
    file_ids = ids_of_classes(class_names, known, ids if has_category_ids else None)
    if sidecar is not None:
        return class_names, file_ids, sidecar.category_ids_of(class_names)
    if ids is not None and not has_category_ids:
        return class_names, file_ids, ids
    return class_names, file_ids, file_ids


def _numbers_as_names(images):
    ids = np.concatenate([[0], *(image.file_ids for image in images)])
    highest = int(ids[ids <= _MAX_UNNAMED].max(initial=0))
    if highest < 1:
        raise InvalidValueError(
            "The classes must be named where no object shows how many there are. "
            "Received: no names, and no object of a class. Pass `class_names`"
        )
    return tuple(str(i) for i in range(1, highest + 1))


def read_images(paths, read_image, problems):
    """Reads the images of TFRecord files, and notes what cannot be read."""
    images = []
    for path in paths:
        shard = os.path.basename(path)
        try:
            for number, (offset, data) in enumerate(read_records(path), 1):
                place = f"{shard} record {number}"
                try:
                    example = ExampleReader(data)
                    locate = functools.partial(example.image, path=path, offset=offset)
                    image = read_image(place, example, locate)
                    image.check()
                except ValueError as error:
                    problems.add("unreadable annotation", place, str(error))
                else:
                    images.append(image)
        except ValueError as error:
            problems.add("unreadable annotation", shard, str(error))
    return images


def make_records(images, file_ids, known, problems):
    """Makes records, with boxes in pixels, and notes what is wrong."""
    label_of = {file_id: label for label, file_id in enumerate(file_ids)}
    image_ids = _image_ids([image.source_id for image in images])
    annotation_ids = _annotation_ids(images)
    records, unknown = [], collections.Counter()
    for image, image_id, ids in zip(images, image_ids, annotation_ids):
        try:
            image_size = _image_size(image)
        except ValueError as error:
            problems.add("corrupt image", image.place, str(error))
            continue
        is_known = np.isin(image.file_ids, file_ids)
        unknown.update(image.file_ids[~is_known].tolist())
        keep = is_known & _good_boxes(image, problems)
        records.append(_make_record(image, image_size, image_id, ids, keep, label_of))
    for file_id, count in unknown.items():
        place = next(p.place for p in images if file_id in p.file_ids)
        name = repr(known[file_id]) if file_id in known else f"class {file_id}, from 1,"
        problems.add("unknown class", place, unknown_class(name, count))
    return records


def _image_ids(source_ids):
    if all(_ID.fullmatch(source_id) for source_id in source_ids):
        numbers = [int(source_id) for source_id in source_ids]
        if len(set(numbers)) == len(numbers):
            return numbers
    return range(1, len(source_ids) + 1)


def _annotation_ids(images):
    """The file's ids where each annotation has one of its own, else 1, 2, ..."""
    counts = [len(image.boxes) for image in images]
    ids = np.concatenate([np.zeros(0, np.int64), *(p.annotation_ids for p in images)])
    if len(ids) != sum(counts) or len(np.unique(ids)) != len(ids):
        ids = np.arange(1, sum(counts) + 1)
    return np.split(ids, np.cumsum(counts)[:-1])


def _image_size(image):
    if isinstance(image.image, np.ndarray):
        return image.image.shape[:2]
    return image.image_size or read_image_size(image.image)


def _good_boxes(image, problems):
    """Which boxes have numbers that can be meant, bool `[n]`."""
    # The margin is for boxes that reach out of the image. Boxes in pixels would
    # be clipped to the whole image, and trained on. NaN compares as False.
    near = np.all((image.boxes >= -1) & (image.boxes <= 2), axis=1)
    finite = np.isfinite(image.area) if len(image.area) else near
    for i in np.flatnonzero(~(near & finite)):
        detail = "ymin={:g} xmin={:g} ymax={:g} xmax={:g}".format(*image.boxes[i])
        detail += f" area={image.area[i]:g}" if near[i] else ": must be from 0 to 1"
        problems.add("bad box", image.place, detail)
    return near & finite


def _make_record(image, image_size, image_id, annotation_ids, keep, label_of):
    height, width = image_size
    boxes = image.boxes[keep]
    low, high = boxes[:, 1::-1], boxes[:, :1:-1]  # x, y
    boxes_xywh = np.concatenate([low, high - low], axis=1)
    boxes_xywh *= (width, height, width, height)
    box_area = boxes_xywh[:, 2] * boxes_xywh[:, 3]
    area = box_area
    if len(image.area):
        area = image.area[keep]
        # google/automl's VOC converter writes the area as a fraction as well.
        is_fraction = np.isclose(area * height * width, box_area, rtol=1e-3, atol=0)
        area = np.where(is_fraction, box_area, area)
    source_id = image.source_id
    return Record(
        image=image.image,
        image_size=(height, width),
        image_id=image_id,
        source_id=image_id if source_id in ("", str(image_id)) else source_id,
        file_name=image.file_name,
        boxes_xywh=boxes_xywh,
        labels=[label_of[i] for i in image.file_ids[keep].tolist()],
        is_crowd=image.is_crowd[keep],
        area=area,
        annotation_ids=annotation_ids[keep],
        shapes=_kept_shapes(image.shapes, keep),
    )


def _kept_shapes(shapes, keep):
    if shapes is None:
        return None
    return tuple(shapes[i] for i in np.arange(len(shapes))[keep].tolist())
