"""A common interface for exported files of every format, and their descriptions."""

from __future__ import annotations

import abc
import dataclasses
import json
import math
import os
import pathlib
from typing import Any, ClassVar

import numpy as np

from effdet_keras._internal.checksum import (
    CHECKSUM_NAME,
    WITHOUT_CHECKSUM,
    verify_checksum,
    write_checksum,
)
from effdet_keras._internal.json_files import read_json_object
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

    Attributes:
        package: the package that runs the format.
        path: path of the exported file or folder.
        other_files: further files that belong to the one at `path`.
        description: `Description` of the model, read from the file.
        input_dtype: dtype of the file's input. `run` converts float32 to it.
        precision: precision of the computation, if it is not that of the file.
    """

    package: ClassVar[OptionalModule]
    path: pathlib.Path
    other_files: tuple[pathlib.Path, ...] = ()
    description: Description
    input_dtype: str = "float32"
    precision: str | None = None

    @abc.abstractmethod
    def run(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Runs the network. Several threads may call this method at the same time.

        Args:
            images: float32 array `[B, H, W, 3]`, letterboxed pixels 0-255. If
                `description.batch_size` is a number, `B` must be equal to it.

        Returns:
            Dict of arrays, depending on `description.outputs`: the raw outputs of the
            network, float32; or the dict of `Postprocess`, with boxes in pixels of the
            input, and with a segmentation head `class_map` `[B, H, W]`, uint8.
        """


def open_runtime(
    path: str | os.PathLike[str],
    num_threads: int | None = None,
    precision: str = "float32",
) -> Runtime:
    """Opens an exported file in the runtime of its format, as `Predictor.load` does.

    Args:
        path: path of the exported file, or of the folder of an export.
        num_threads: int, or None for the default of the runtime.
        precision: "float32"; or "bfloat16", for OpenVINO only.

    Raises:
        ValueError: If the file cannot be opened, or `precision` is not supported.
        FileNotFoundError: If there is no such file.
        ImportError: If the package of the format is not installed.
    """
    path = _file_to_open(local_path(path, "The path of an exported model"))
    format = format_of_file(path)
    runtime = format.load_runtime()
    runtime.package.require(f"Running '{path}'")
    options = {} if precision == "float32" else {"precision": precision}
    rule = "`precision` can be set only for OpenVINO files"
    require(not options or format.name == "openvino", rule, path=str(path), **options)
    return runtime(path, num_threads=num_threads, **options)


REPORT_NAME = "export_report.json"  # in the folder of an export
COMPILED_ENDING = "_edgetpu"  # end of the stem of files that no runtime here can open


def _file_to_open(path):
    """Returns the path itself; for the folder of an export target, the model in it."""
    target, format = _target_of(path)
    if target is None:
        return path
    if format not in FORMATS:
        raise _made_for(target, path)
    return file_of_export(path, format)


def file_of_export(path: pathlib.Path, format: str) -> pathlib.Path:
    """Returns the model's file of an export: the path itself, or a file in a folder."""
    ending = FORMATS[format].ending
    if not (path.is_dir() and ending):
        return path
    files = sorted(path.rglob(f"*{ending}"))
    files = [file for file in files if not file.stem.endswith(COMPILED_ENDING)]
    return files[0] if files else path


def _target_of(folder):
    """Returns target and format of the export in a folder; None if not known."""
    report = read_report(folder)
    return report.get("target"), report.get("format")


def read_report(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the content of the export report in a folder; empty if there is none.

    Raises:
        ValueError: If the report is damaged.
    """
    path = folder / REPORT_NAME
    if not path.is_file():
        return {}
    cure = "Export the model again, to another path."
    return read_json_object(path, "an export", cure, error=InvalidValueError)


def _made_for(target, path):
    """Returns the error for a target's file that `Predictor` cannot open."""
    return InvalidValueError(
        f"'{path}' is an export for {target!r}: it is damaged, or only the runtime of "
        "that target can run it. For `ek.Predictor`, export the model without "
        "`target` as well, to a path such as 'pets.onnx'."
    )


def as_input(images: np.ndarray, dtype: str) -> np.ndarray:
    """Converts pixels 0-255 to the input dtype of a file; for int8, 0 becomes -128.

    Args:
        images: array of any shape, pixels 0-255.
        dtype: "float32", "uint8" or "int8". Integers are rounded and clipped.

    Returns:
        Array of the same shape.

    Example:
        >>> as_input(np.array([0.4, 254.8]), "int8")
        array([-128,  127], dtype=int8)
    """
    images = np.asarray(images)
    if dtype == "float32":
        return images.astype(dtype)
    images = np.clip(np.round(images), 0, 255)
    return (images - 128 if dtype == "int8" else images).astype(dtype)


# --- An exported file, used like the original model, in NumPy and without Keras.


class ExportedDetector:
    """Adapts a `Runtime` to the interface of a model in `detect` and evaluation.

    Args:
        runtime: `Runtime`.
        weights_digest: digest of the weights of the live model that was exported, if
            the exported file is temporary; else None.
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
        """Detects in any number of letterboxed images, in pixels of the input.

        `content_sizes` `[B, 2]` are those of `Postprocess`. A file with detections does
        not take them. Its boxes that lie outside of the content are removed here. So
        there may be fewer detections than with the live model, but no others.
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
        """Converts outputs of the runtime to detections, in pixels of the input."""
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
    """Removes detections that lie outside of the content of their image.

    The remaining ones are moved to the front.
    """
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


# --- The description of the model in an exported file, read before the file runs.

DESCRIPTION_NAME = "effdet_keras.json"  # name of the asset, zip entry or property
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Description:
    """Describes the model of an exported file, and the outputs of the file."""

    config: EfficientDetConfig
    class_names: tuple | None = None
    category_ids: tuple | None = None
    postprocess: Postprocess = dataclasses.field(default_factory=Postprocess)
    outputs: str = "detections"
    precision: str = "float32"
    batch_size: int | None = None
    score_settings: ScoreSettings | None = None
    seg_class_names: tuple | None = None
    # The number of rows per box, one for each of its best classes. Only LiteRT's custom
    # operation can have more than one.
    classes_per_detection: int = 1

    @property
    def is_raw(self):
        """Whether the file returns raw outputs, without decoding and suppression."""
        return self.outputs != "detections"

    def other_suppression(self, live: Postprocess) -> str:
        """Returns how the file's suppression differs from the model's; "" if equal."""
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
        """Returns the description as JSON text, to be stored in the file."""
        settings = self.score_settings
        fields = {
            "format": _FORMAT,
            "effdet_keras": __version__,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
            "config": self.config.to_dict(),
            "postprocess": _settings_in_json(self.postprocess.get_config()),
            "score_settings": settings.to_dict() if settings is not None else None,
        }
        if self.classes_per_detection == 1:  # as in files of older versions
            del fields["classes_per_detection"]
        return json.dumps(fields, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text):
        """Reads the description from the text of `to_json`."""
        fields, settings = json.loads(text), None
        written_by, rule = (
            fields.pop("effdet_keras"),
            "This export was written by a newer version of effdet_keras: upgrade to "
            "read it",
        )
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


# JSON cannot represent a threshold of minus infinity, so it is the text "-inf" there.


def _settings_in_json(settings):
    return {name: str(x) if x == -math.inf else x for name, x in settings.items()}


def _settings_of_json(settings):
    return {name: -math.inf if x == "-inf" else x for name, x in settings.items()}


def require_sealed(path, others=()):
    """Raises an error if a file, or one of the others, differs from its checksum."""
    if not (path.is_file() and verify_checksum(path, others)):
        raise damaged(path)


def write_description(path, description, files):
    """Writes a description, with checksums, for files that cannot contain it."""
    texts = {DESCRIPTION_NAME: description.to_json(), CHECKSUM_NAME: WITHOUT_CHECKSUM}
    path.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
    write_checksum(path, files)


def read_description(path, files):
    """Reads the file of `write_description`; raises an error if a file was changed."""
    require_sealed(path, files)
    texts = json.loads(path.read_text(encoding="utf-8"))
    return Description.from_json(texts[DESCRIPTION_NAME])


def damaged(path):
    """Returns the error for a damaged file."""
    target, _ = _target_of(path.parent)
    if target is not None:
        return _made_for(target, path)
    return InvalidValueError(
        f"'{path}' is damaged, or `EfficientDet.export` did not write it: export the "
        "model again."
    )


def describe(model, **fields):
    """Returns the description of a model; `fields` are those of `Description`."""
    names = "config", "class_names", "category_ids", "postprocess"
    names += "score_settings", "seg_class_names"
    return Description(**{**{name: getattr(model, name) for name in names}, **fields})


def join_levels(maps, config):
    """Concatenates the maps of each level to raw outputs.

    `maps` are arrays `[B, h, w, num_anchors * columns]`, with names such as
    `class_logits_3`. Returns `class_logits` `[B, N, C]` and `box_deltas` `[B, N, 4]`.
    """
    levels = range(config.min_level, config.max_level + 1)

    def concat_levels(name, columns):
        of_levels = [maps[f"{name}_{level}"] for level in levels]
        rows = [x.reshape(len(x), -1, columns) for x in of_levels]
        return np.concatenate(rows, axis=1)

    names = {"class_logits": config.num_classes, "box_deltas": 4}
    return {name: concat_levels(name, columns) for name, columns in names.items()}


def names_of_levels(config):
    """Returns the names of the maps of all levels, in their order in files."""
    levels = range(config.min_level, config.max_level + 1)
    return tuple(f"{x}_{n}" for n in levels for x in ("box_deltas", "class_logits"))


def labels_of(model):
    """Returns the class names of a model or description; numbers if it has none."""
    return tuple(model.class_names or map(str, range(model.config.num_classes)))
