"""Exported files of every format behind one call, and what they say of their model."""

from __future__ import annotations

import abc
import dataclasses
import json
import math
import os
import pathlib
from typing import ClassVar

import numpy as np

from effdet_keras._internal.checksum import (
    CHECKSUM_NAME,
    WITHOUT_CHECKSUM,
    verify_checksum,
    write_checksum,
)
from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.whole_files import local_path
from effdet_keras._version import __version__
from effdet_keras.box_ops import area, clip_boxes
from effdet_keras.detect.postprocess import (
    Postprocess,
    empty_detections,
    postprocess_outputs,
)
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.export.registry import FORMATS, format_of_file
from effdet_keras.images import SPARSE, check_pixels
from effdet_keras.network.anchors import anchors_of
from effdet_keras.network.config import EfficientDetConfig


class Runtime(abc.ABC):
    """An exported network in the runtime of its format.

    `package` is what runs the format; `description` is read from inside the file.
    `other_files` are those that belong to the one at `path`.
    `input_dtype` is that of the file's own input, which `run` makes of float32, and
    `precision` that of the computing, where it is not the file's own.
    """

    package: ClassVar[OptionalModule]
    path: pathlib.Path
    other_files: tuple[pathlib.Path, ...] = ()
    description: Description
    input_dtype: str = "float32"
    precision: str | None = None

    @abc.abstractmethod
    def run(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Runs the network; several threads may call it at a time.

        Args:
            images: float32 array `[B, H, W, 3]`, letterboxed pixels 0-255. Where
                `description.batch_size` is a number, `B` must be it.

        Returns:
            Dict of float32 arrays, as `description.outputs` says: the raw outputs of
            the network, or what `Postprocess` returns, boxes in pixels of the input,
            and of a segmentation head `class_map` `[B, H, W]`, uint8.
        """


def open_runtime(
    path: str | os.PathLike[str],
    num_threads: int | None = None,
    precision: str = "float32",
) -> Runtime:
    """Opens an exported file in the runtime of its format, as `Predictor.load`."""
    path = _file_to_open(local_path(path, "The path of an exported model"))
    format = format_of_file(path)
    runtime = format.load_runtime()
    runtime.package.require(f"Running '{path}'")
    options = {} if precision == "float32" else {"precision": precision}
    rule = "`precision` is of OpenVINO alone"
    require(not options or format.name == "openvino", rule, path=str(path), **options)
    return runtime(path, num_threads=num_threads, **options)


REPORT_NAME = "export_report.json"  # in the folder of an export
COMPILED_ENDING = "_edgetpu"  # of a file's stem, which no runtime here can open


def _file_to_open(path):
    """The path itself, or in the folder of an export target the model's file."""
    target, format = _target_of(path)
    if target is None:
        return path
    if format not in FORMATS:
        raise _made_for(target, path)
    return file_of_export(path, format)


def file_of_export(path: pathlib.Path, format: str) -> pathlib.Path:
    """The model in what an export wrote: itself, or the file in the target's folder."""
    ending = FORMATS[format].ending
    if not (path.is_dir() and ending):
        return path
    files = sorted(path.rglob(f"*{ending}"))
    files = [file for file in files if not file.stem.endswith(COMPILED_ENDING)]
    return files[0] if files else path


def _target_of(folder):
    """The target and the format of the export in a folder; None where it has none."""
    report = folder / REPORT_NAME
    if not report.is_file():
        return None, None
    told = json.loads(report.read_text(encoding="utf-8"))
    return told.get("target"), told.get("format")


def _made_for(target, path):
    """The error of a target's file that `Predictor` cannot open."""
    return InvalidValueError(
        f"'{path}' is of an export for {target!r}, and is damaged or made for what "
        "runs it there alone. For `ek.Predictor` export the model without `target` "
        "too, to a path such as 'pets.onnx'."
    )


def as_input(images: np.ndarray, dtype: str) -> np.ndarray:
    """Pixels 0-255 in the numbers that a file takes: of int8, 0 is -128.

    Example:
        >>> as_input(np.array([0.4, 254.8]), "int8")
        array([-128,  127], dtype=int8)
    """
    images = np.asarray(images)
    if dtype == "float32":
        return images.astype(dtype)
    images = np.clip(np.round(images), 0, 255)
    return (images - 128 if dtype == "int8" else images).astype(dtype)


# --- An exported file, used as the model it was made of: in NumPy, without Keras.


class ExportedDetector:
    """What `detect` and the evaluation need of a model, from a `Runtime`.

    `weights_digest` is of the live model that it was made of, if no file of it stays.
    """

    def __init__(self, runtime, weights_digest=None):
        description = runtime.description
        self.runtime = runtime
        self.weights_digest = weights_digest
        self.config = description.config
        self.class_names = description.class_names
        self.category_ids = description.category_ids
        self.seg_class_names = description.seg_class_names
        self.postprocess = description.postprocess
        self.score_settings = description.score_settings
        self._is_raw = description.is_raw
        has_anchors = self._is_raw and self.config.has_detection
        self._anchors = anchors_of(self.config) if has_anchors else None

    def predict_on_batch(self, images, content_sizes=None):
        """Detections of letterboxed images, any number, in pixels of the input.

        `content_sizes` `[B, 2]` are those of `Postprocess`. A file with detections
        takes none: its boxes that lie beside the content are left out here, so that
        there may be fewer than of the live model, but none that it does not find.
        """
        check_pixels(images, "a batch of images", step=SPARSE)
        size = self.runtime.description.batch_size or len(images)
        parts = []
        for start in range(0, len(images), size):
            batch = images[start : start + size]
            count = len(batch)
            if count < size:
                missing = np.zeros((size - count, *batch.shape[1:]), batch.dtype)
                batch = np.concatenate([batch, missing])
            sizes = None
            if content_sizes is not None:
                sizes = np.resize(content_sizes[start : start + count], (size, 2))
            outputs = self.detect_outputs(self.runtime.run(batch), sizes)
            parts.append({name: value[:count] for name, value in outputs.items()})
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}

    def detect_outputs(self, outputs, content_sizes=None):
        """What the runtime returned to detections, in pixels of the input."""
        if self._is_raw:
            return postprocess_outputs(
                outputs, self.postprocess, self._anchors, self.config, content_sizes
            )
        if not self.config.has_detection:
            nothing = empty_detections(len(outputs["class_map"]), np)
            outputs = {**nothing, **outputs}
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        if content_sizes is not None:
            outputs = _without_boxes_beside(outputs, np.asarray(content_sizes))
        return outputs


def _without_boxes_beside(outputs, content_sizes):
    """The detections that reach into the content of their image, moved to the front."""
    inside = area(clip_boxes(outputs["boxes"], content_sizes[:, None])) > 0.0
    rows = np.arange(inside.shape[1])
    is_kept = inside & (rows < outputs["num_detections"][:, None])
    order = np.argsort(~is_kept, axis=1, kind="stable")
    count = is_kept.sum(axis=1)
    is_used = rows < count[:, None]
    boxes = np.take_along_axis(outputs["boxes"], order[..., None], axis=1)
    scores = np.take_along_axis(outputs["scores"], order, axis=1)
    labels = np.take_along_axis(outputs["labels"], order, axis=1)
    return {
        **outputs,
        "boxes": boxes * is_used[..., None].astype(boxes.dtype),
        "scores": scores * is_used.astype(scores.dtype),
        "labels": np.where(is_used, labels, labels.dtype.type(-1)),
        "num_detections": count.astype(outputs["num_detections"].dtype),
    }


# --- What an exported file says of its model: kept inside it, read before it runs.

DESCRIPTION_NAME = "effdet_keras.json"  # of the asset, the entry, the property
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Description:
    """The model behind an exported file, and what the file returns of it."""

    config: EfficientDetConfig
    class_names: tuple | None = None
    category_ids: tuple | None = None
    postprocess: Postprocess = dataclasses.field(default_factory=Postprocess)
    outputs: str = "detections"
    precision: str = "float32"
    batch_size: int | None = None
    score_settings: ScoreSettings | None = None
    seg_class_names: tuple | None = None
    # Rows of each box, one for each of its best classes: of LiteRT's own operation.
    classes_per_detection: int = 1

    @property
    def is_raw(self):
        """Whether decoding and suppression are left to the reader."""
        return self.outputs != "detections"

    def other_suppression(self, live: Postprocess) -> str:
        """How the file chooses boxes otherwise than the model; "" where it does not."""
        found, parts = self.postprocess, []
        if found.method != live.method:
            parts.append({"hard": "hard NMS", "gaussian": "Soft-NMS"}[found.method])
        if self.config.num_classes > 1:
            if found.per_class != live.per_class:
                parts.append("per class" if found.per_class else "across classes")
            if self.classes_per_detection > 1:
                parts.append(f"{self.classes_per_detection} classes for each box")
            elif found.pre_nms_top_k == 0 and live.pre_nms_top_k != 0:
                parts.append("one class for each box")
        if live.drop_empty and not found.drop_empty:
            parts.append("boxes in the padding too")
        if found.lowest_score != live.lowest_score:
            parts.append(f"scores above {found.lowest_score:g}")
        return ", ".join(parts)

    def to_json(self):
        """The description as text, to be stored in the file."""
        settings = self.score_settings
        fields = {
            "format": _FORMAT,
            "effdet_keras": __version__,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
            "config": self.config.to_dict(),
            "postprocess": _settings_in_json(self.postprocess.get_config()),
            "score_settings": settings.to_dict() if settings is not None else None,
        }
        if self.classes_per_detection == 1:  # as in files of before
            del fields["classes_per_detection"]
        return json.dumps(fields, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text):
        """The description that `to_json` wrote."""
        fields, settings = json.loads(text), None
        written_by, rule = fields.pop("effdet_keras"), "Upgrade to read this export"
        require(fields.pop("format") <= _FORMAT, rule, written_by=written_by)
        for name in ("class_names", "category_ids", "seg_class_names"):
            fields[name] = fields.get(name) and tuple(fields[name])
        if fields["score_settings"] is not None:
            settings = ScoreSettings.from_dict(fields["score_settings"])
        return cls(
            **{
                **fields,
                "config": EfficientDetConfig(**fields["config"]),
                "postprocess": Postprocess(**_settings_of_json(fields["postprocess"])),
                "score_settings": settings,
            }
        )


# JSON has no number for a threshold of minus infinity: it is the text "-inf" there.


def _settings_in_json(settings):
    return {name: str(x) if x == -math.inf else x for name, x in settings.items()}


def _settings_of_json(settings):
    return {name: -math.inf if x == "-inf" else x for name, x in settings.items()}


def require_sealed(path, others=()):
    """Raises unless a file, and the others, are as an export of ours wrote them."""
    if not (path.is_file() and verify_checksum(path, others)):
        raise damaged(path)


def write_description(path, description, files):
    """Writes the description of files that cannot hold it, with their checksums."""
    texts = {DESCRIPTION_NAME: description.to_json(), CHECKSUM_NAME: WITHOUT_CHECKSUM}
    path.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
    write_checksum(path, files)


def read_description(path, files):
    """What `write_description` wrote; raises unless it and the files are unchanged."""
    require_sealed(path, files)
    texts = json.loads(path.read_text(encoding="utf-8"))
    return Description.from_json(texts[DESCRIPTION_NAME])


def damaged(path):
    """The error of a file that cannot be what was written."""
    target, _ = _target_of(path.parent)
    if target is not None:
        return _made_for(target, path)
    return InvalidValueError(
        f"'{path}' is not what `EfficientDet.export` wrote, or damaged: export the "
        "model again."
    )


def describe(model, **fields):
    """The description of a model; see `Description` for the `fields`."""
    names = "config", "class_names", "category_ids", "postprocess"
    names += "score_settings", "seg_class_names"
    return Description(**{**{name: getattr(model, name) for name in names}, **fields})


def join_levels(maps, config):
    """Raw outputs of the maps of each level.

    `maps` are arrays `[B, h, w, num_anchors * columns]`, called `class_logits_3` and so
    on; returns `class_logits` `[B, N, C]` and `box_deltas` `[B, N, 4]`.
    """
    levels = range(config.min_level, config.max_level + 1)

    def concat_levels(name, columns):
        of_levels = [maps[f"{name}_{level}"] for level in levels]
        rows = [x.reshape(len(x), -1, columns) for x in of_levels]
        return np.concatenate(rows, axis=1)

    names = {"class_logits": config.num_classes, "box_deltas": 4}
    return {name: concat_levels(name, columns) for name, columns in names.items()}


def names_of_levels(config):
    """The names of the maps, in the order of files that have them."""
    levels = range(config.min_level, config.max_level + 1)
    return tuple(f"{x}_{n}" for n in levels for x in ("box_deltas", "class_logits"))


def labels_of(model):
    """The names of a model's (or description's) classes; numbers without names."""
    return tuple(model.class_names or map(str, range(model.config.num_classes)))
