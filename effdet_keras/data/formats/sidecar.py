"""`effdet_keras.json`: what a format has no place for, kept beside the data."""

import dataclasses
import json
import numbers
import pathlib
import warnings

import numpy as np

from effdet_keras._internal.remote_path import path_of
from effdet_keras.category_ids import extend_category_ids
from effdet_keras.data.record import areas_of
from effdet_keras.errors import InvalidValueError

_NAME = "effdet_keras.json"
_VERSION = 1

# What a format may have no place for, as fields of `Record`.
FIELDS = ("image_id", "source_id", "file_name", "is_crowd", "area", "annotation_ids")

# What a file of any content at all can raise when its parts are asked for.
_UNFIT = (
    *(ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, OverflowError, RecursionError),
)


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """What `effdet_keras.json` says of the data beside it; nothing if there is none."""

    path: pathlib.Path
    class_names: tuple  # in the order of the labels
    category_ids: tuple
    images: dict  # split to image name to what is kept of that image

    def category_ids_of(self, class_names):
        """The category id of each name, a new one where it has none; or None."""
        known = dict(zip(self.class_names, self.category_ids))
        return extend_category_ids(class_names, known) if known else None

    def renamed(self, name_of):
        """The sidecar with the names that some of its labels have now, by label."""
        old = enumerate(self.class_names)
        class_names = tuple(name_of.get(label, name) for label, name in old)
        if len(set(class_names)) != len(class_names):
            return self
        return dataclasses.replace(self, class_names=class_names)


NO_SIDECAR = Sidecar(pathlib.Path(), (), (), {})


def write_sidecar(folder, datasets, names):
    """Writes what the data in a folder has no place for, by split and name of image."""
    first = next(iter(datasets.values()))
    content = {
        "about": "What this format has no place for; effdet_keras reads it",
        "version": _VERSION,
        "class_names": list(first.class_names),
        "category_ids": list(first.category_ids),
        "images": {
            split: dict(zip(names[split], map(_keep, dataset.records)))
            for split, dataset in datasets.items()
        },
    }
    pathlib.Path(folder, _NAME).write_text(json.dumps(content), encoding="utf-8")


def _keep(record):
    kept = {
        "image_id": int(record.image_id),
        "file_name": record.file_name,
        "labels": record.labels.tolist(),
        "annotation_ids": record.annotation_ids.tolist(),
    }
    if record.source_id != record.image_id:
        is_int = isinstance(record.source_id, numbers.Integral)
        kept["source_id"] = int(record.source_id) if is_int else str(record.source_id)
    if record.is_crowd.any():
        kept["crowd"] = np.flatnonzero(record.is_crowd).tolist()
    if not np.array_equal(record.area, areas_of(record.boxes_xywh)):
        kept["area"] = record.area.tolist()
    return kept


def read_sidecar(folder):
    """The sidecar of a folder, or `NO_SIDECAR`."""
    path = path_of(folder) / _NAME
    if not path.is_file():
        return NO_SIDECAR
    try:
        content = json.loads(path.read_bytes())
        if content["version"] != _VERSION:
            raise InvalidValueError(f"version {content['version']!r} is not {_VERSION}")
        names = tuple(str(name) for name in content["class_names"])
        ids = tuple(int(i) for i in content["category_ids"])
        if not len(names) == len(ids) == len(set(names)) == len(set(ids)) > 0:
            raise InvalidValueError("not each class has a category id of its own")
        images = {split: dict(kept) for split, kept in content["images"].items()}
    except _UNFIT as error:
        _warn(path, f"{type(error).__name__}: {error}")
        return NO_SIDECAR
    return Sidecar(path, names, ids, images)


def apply_sidecar(sidecar, split, records, names, class_names, *, fields=FIELDS):
    """Gives records those `fields` that the sidecar keeps, if it fits all of them."""
    images = sidecar.images.get(split)
    if split is None:
        images = {n: k for s in sidecar.images.values() for n, k in s.items()}
    if images is None or not sidecar.images:
        return list(records)
    try:
        restored = []
        for record, name in zip(records, names):
            kept = _read_kept(record, name, images[name])
            _check_labels(record, name, kept, sidecar.class_names, class_names)
            taken = {field: kept[field] for field in fields}
            restored.append(dataclasses.replace(record, **taken))
    except _UNFIT as error:  # the data was changed since: all of it is left aside
        is_key = isinstance(error, KeyError)
        _warn(sidecar.path, f"it does not know {error}" if is_key else error)
        return list(records)
    if len({record.image_id for record in restored}) != len(restored):
        # Splits may use the same ids: together they are counted.
        restored = [
            dataclasses.replace(new, image_id=old.image_id)
            for new, old in zip(restored, records)
        ]
    place = {name: i for i, name in enumerate(images)}
    order = sorted(range(len(restored)), key=lambda i: place[names[i]])
    return [restored[i] for i in order]


def _read_kept(record, name, entry):
    """The fields that the sidecar keeps of an image, checked."""
    count = len(entry["labels"])
    is_crowd = np.zeros(count, bool)
    is_crowd[np.asarray(entry.get("crowd", []), int)] = True
    image_id = int(np.asarray(entry["image_id"], np.int64).reshape(()))
    source_id = entry.get("source_id", image_id)
    area = np.asarray(entry.get("area", areas_of(record.boxes_xywh)), np.float64)
    annotation_ids = np.asarray(entry["annotation_ids"], np.int64)
    if not area.shape == annotation_ids.shape == (count,):
        raise InvalidValueError(f"what it keeps of {name!r} differs in length")
    return {
        "image_id": image_id,
        "source_id": source_id if type(source_id) is int else str(source_id),
        "file_name": str(entry["file_name"]),
        "labels": entry["labels"],
        "is_crowd": is_crowd,
        "area": area,
        "annotation_ids": annotation_ids,
    }


def _check_labels(record, name, kept, kept_names, class_names):
    written = [kept_names[label] for label in kept["labels"]]
    found = [class_names[i] if i >= 0 else None for i in record.labels]
    if len(written) != len(found):
        raise InvalidValueError(
            f"{name!r} has {len(found)} boxes, and was written with {len(written)}"
        )
    if written != found:
        raise InvalidValueError(
            f"{name!r} has boxes of other classes than it was written with"
        )


def _warn(path, reason):
    warnings.warn(
        f"{str(path)!r} does not fit the data beside it and is not used: {reason}",
        stacklevel=4,
    )
