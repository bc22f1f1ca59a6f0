"""`effdet_keras.json`: what a format has no place for, kept beside the data."""

import dataclasses
import json
import numbers
import pathlib
import warnings

import numpy as np

from effdet_keras._internal.remote_path import path_of
from effdet_keras.category_ids import extend_category_ids
from effdet_keras.errors import InvalidValueError

SIDECAR_NAME = "effdet_keras.json"

# What a format may have no place for, as fields of `Record`.
FIELDS = ("image_id", "source_id", "file_name", "is_crowd", "area", "annotation_ids")

_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """What `effdet_keras.json` says of the data beside it."""

    path: pathlib.Path
    class_names: tuple
    category_ids: tuple
    images: dict

    def category_ids_of(self, class_names):
        """Returns the category id of each name, a new one where it has none."""
        known = dict(zip(self.class_names, self.category_ids))
        return extend_category_ids(class_names, known)

    def renamed(self, name_of):
        """Returns the sidecar with the names that its classes have now."""
        old = enumerate(self.class_names)
        class_names = tuple(name_of.get(label, name) for label, name in old)
        if len(set(class_names)) != len(class_names):
            return self
        return dataclasses.replace(self, class_names=class_names)


def write_sidecar(folder, datasets, names):
    """Writes ids, file names, crowd flags, areas and classes beside the data."""
    first = next(iter(datasets.values()))
    content = {
        "about": "What this format has no place for; effdet_keras reads it",
        "version": _VERSION,
        "class_names": list(first.class_names),
        "category_ids": list(first.category_ids),
        "images": {
            split: {
                name: _keep(record)
                for name, record in zip(names[split], dataset.records)
            }
            for split, dataset in datasets.items()
        },
    }
    path = pathlib.Path(folder) / SIDECAR_NAME
    path.write_text(json.dumps(content), encoding="utf-8")


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
    if not np.array_equal(record.area, _box_area(record)):
        kept["area"] = record.area.tolist()
    return kept


def read_sidecar(folder):
    """Reads the sidecar of a folder."""
    path = path_of(folder) / SIDECAR_NAME
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
        if content["version"] != _VERSION:
            raise InvalidValueError(f"version {content['version']!r} is not {_VERSION}")
        sidecar = Sidecar(
            path,
            tuple(str(name) for name in content["class_names"]),
            tuple(int(i) for i in content["category_ids"]),
            {split: dict(kept) for split, kept in content["images"].items()},
        )
    except _UNFIT as error:
        _warn(path, f"{type(error).__name__}: {error}")
        return None
    names, ids = sidecar.class_names, sidecar.category_ids
    if not len(names) == len(ids) == len(set(names)) == len(set(ids)) > 0:
        _warn(path, "it does not give each class a category id of its own")
        return None
    return sidecar


# What a file of any content at all can raise when its parts are asked for.
_UNFIT = (
    *(ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, OverflowError, RecursionError),
)


def apply_sidecar(sidecar, split, records, names, class_names, *, fields=FIELDS):
    """Gives records what the sidecar keeps of them, if it fits all of them."""
    if sidecar is None or (split is not None and split not in sidecar.images):
        return list(records)
    try:
        images = _images_of(sidecar, split)
        place = {name: i for i, name in enumerate(images)}
        restored = []
        for record, name in zip(records, names):
            kept = _read_kept(record, name, images[name])
            _check_labels(record, name, kept, sidecar.class_names, class_names)
            taken = {field: kept[field] for field in fields}
            restored.append(dataclasses.replace(record, **taken))
    except KeyError as error:
        _warn(sidecar.path, f"it does not know {error}")
        return list(records)
    except _UNFIT as error:
        _warn(sidecar.path, error)
        return list(records)
    if len({record.image_id for record in restored}) != len(restored):
        # Splits may use the same ids: together they are counted anew.
        restored = [
            dataclasses.replace(new, image_id=old.image_id)
            for new, old in zip(restored, records)
        ]
    order = sorted(range(len(restored)), key=lambda i: place[names[i]])
    return [restored[i] for i in order]


def _images_of(sidecar, split):
    if split is not None:
        return sidecar.images[split]
    return {name: kept for s in sidecar.images.values() for name, kept in s.items()}


def _read_kept(record, name, entry):
    """The fields that the sidecar keeps of an image, checked."""
    count = len(entry["labels"])
    is_crowd = np.zeros(count, bool)
    is_crowd[np.asarray(entry.get("crowd", []), int)] = True
    image_id = int(np.asarray(entry["image_id"], np.int64).reshape(()))
    source_id = entry.get("source_id", image_id)
    kept = {
        "image_id": image_id,
        "source_id": source_id if type(source_id) is int else str(source_id),
        "file_name": str(entry["file_name"]),
        "labels": entry["labels"],
        "is_crowd": is_crowd,
        "area": np.asarray(entry.get("area", _box_area(record)), np.float64),
        "annotation_ids": np.asarray(entry["annotation_ids"], np.int64),
    }
    if any(kept[field].shape != (count,) for field in ("area", "annotation_ids")):
        raise InvalidValueError(f"what it keeps of {name!r} differs in length")
    return kept


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


def _box_area(record):
    return record.boxes_xywh[:, 2] * record.boxes_xywh[:, 3]


def _warn(path, reason):
    warnings.warn(
        f"{str(path)!r} does not fit the data beside it and is not used: {reason}",
        stacklevel=4,
    )
