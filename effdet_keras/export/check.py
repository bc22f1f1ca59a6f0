"""Checks an exported file against the live model, and reports the differences."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

import numpy as np
from keras import ops

from effdet_keras._internal.backend import without_tf32
from effdet_keras._internal.whole_files import write_text
from effdet_keras.box_ops import area
from effdet_keras.detect.detect import image_sources, letterboxed
from effdet_keras.detect.postprocess import postprocess_outputs
from effdet_keras.errors import InvalidValueError, printable
from effdet_keras.evaluate.image_result import ImageResult, match_detections
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.labels import BACKGROUND

_MIN_SCORE = 0.05  # detections below are noise, and need not be found by the file
# If no detection reaches `_MIN_SCORE`, the highest scores are compared. With 8 bits,
# the lower one must be at least this share of the other, or within two steps of 1/256.
_TOP_SHARE, _TOP_STEPS = 0.5, 2 / 256
_TIE = 1e-4  # of an IoU, since boxes of two runtimes differ in their last bits
_SHOWN_ERRORS = 5  # lines in the text; the file lists more


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits within which an export must agree with the live model."""

    # The largest difference of raw outputs, as a share of their largest absolute value,
    # or of 1 if that is larger.
    outputs: float
    scores: float  # the largest difference of scores
    matched: float  # the smallest share of the live model's detections to be found
    pixels: float  # the smallest share of pixels with the live model's class


# Weights in 8 bits change the detections of a network. With them, the limits only
# distinguish a broken file from a rounded one. `evaluate` measures what rounding costs.
_IN_8_BITS = Limits(outputs=0.5, scores=0.3, matched=0.5, pixels=0.8)
LIMITS = {
    "float32": Limits(outputs=1e-3, scores=1e-3, matched=0.98, pixels=0.999),
    "float16": Limits(outputs=0.05, scores=0.05, matched=0.9, pixels=0.98),
    "dynamic": _IN_8_BITS,
    "int8": _IN_8_BITS,
}


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """Describes an export, and compares it with the live model.

    Attributes:
        path, size_bytes: the exported file or folder, and its total size in bytes.
        format, target, outputs, precision: strings, as they were given or chosen.
        images: int, the number of images on which model and export ran.
        live_detections: int, the number of detections of the live model with a score of
            0.05 or more.
        matched: int, the number of these that the export found too, with the same label
            and an IoU of at least 0.5.
        max_score_difference: float, the largest difference of the sorted scores.
        max_box_difference: float, the largest difference of a coordinate of matched
            boxes, in pixels of the network's input.
        max_output_difference: dict from the name of a raw output to its largest
            difference, as a share of its largest absolute value (at least 1); None if
            the outputs are not raw.
        metrics: dict with the COCO metrics of the `model` and of the `export`; None if
            there was no dataset to evaluate.
        same_pixels: float, the share of pixels with the live model's class, in the
            image with the smallest share; None without a segmentation head.
        rounding_errors: tuple of `(name, error)`, the values in the network that lose
            most by rounding to int8 after training, the largest error first.
        advice: string, whether quantization-aware training would be worth it.
        suppression: string, the differences between the suppression of the file and
            that of the model, or "". The file is compared with the model with the
            file's suppression.
        warnings, notes: tuples of strings; notes tell what to copy for the target.
        files: tuple of strings, the written files, relative to the export's folder.

    Example:
        >>> report = ExportReport(
        ...     path="pets.onnx", format="onnx", outputs="detections",
        ...     precision="float32", size_bytes=16_000_000, images=4,
        ...     live_detections=79, matched=79,
        ...     max_score_difference=4e-7, max_box_difference=2e-5)
        >>> print(str(report).splitlines()[0])
        pets.onnx: onnx, float32, detections, 16.0 MB
    """

    path: str
    format: str
    outputs: str
    precision: str
    size_bytes: int
    images: int
    live_detections: int
    matched: int
    max_score_difference: float
    max_box_difference: float
    max_output_difference: dict[str, float] | None = None
    metrics: dict[str, dict[str, float]] | None = None
    same_pixels: float | None = None
    rounding_errors: tuple[tuple[str, float], ...] = ()
    advice: str = ""
    warnings: tuple[str, ...] = ()
    target: str | None = None
    notes: tuple[str, ...] = ()
    suppression: str = ""
    files: tuple[str, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report to a JSON file."""
        text = json.dumps(dataclasses.asdict(self), indent=1)
        write_text(path, text + "\n")

    def __str__(self) -> str:
        images = "1 image" if self.images == 1 else f"{self.images} images"
        found = (
            f"  on {images}: the file finds {self.matched} of the model's "
            f"{self.live_detections} detections; scores differ by at most "
            f"{self.max_score_difference:.2g}, boxes by at most "
            f"{self.max_box_difference:.2g} pixels"
        )
        if not self.live_detections:
            found = (
                f"  on {images}: the model has no detections to compare; "
                f"scores differ by at most {self.max_score_difference:.2g}"
            )
        lines = [
            f"{self.path}: {self.format}, {self.precision}, {self.outputs}, "
            f"{self.size_bytes / 1e6:.1f} MB",
            found,
        ]
        if self.same_pixels is not None:
            lines.append(f"  {self.same_pixels:.2%} of the pixels have the same class")
        for name, value in (self.max_output_difference or {}).items():
            lines.append(f"  {name} differs by at most {value:.2g}")
        if self.suppression:
            cost = (
                ""
                if self.metrics
                else (
                    ": pass a dataset as `evaluate` (--evaluate) to measure what that "
                    "costs"
                )
            )
            lines.append(
                "  the file selects boxes in another way than the model "
                f"({self.suppression}){cost}"
            )
        for name, metrics in (self.metrics or {}).items():
            for number in ("AP", "mIoU"):
                if number in metrics:
                    lines.append(f"  {number} of the {name}: {metrics[number]:.3f}")
        if self.rounding_errors:
            lines.append("  largest rounding errors, relative to the values:")
        for name, error in self.rounding_errors[:_SHOWN_ERRORS]:
            lines.append(f"    {error:6.1%}  {name}")
        if self.advice:
            lines.append(f"  {self.advice}")
        lines += [f"  {warning}" for warning in self.warnings]
        lines += self.notes
        return printable("\n".join(lines))


@without_tf32()  # the rounding of TF32 would exceed LIMITS
def check_export(model, runtime, images, *, format, others=()):
    """Runs an exported file and the live model on the same images.

    Args:
        model: `EfficientDet` in float32.
        runtime: `Runtime` of the exported file.
        images: images to detect in, as `detect` takes them.
        format: string, the name of the format, for the report.
        others: further images of a kind for which the model was not made. For these
            only the scores are compared, but not which boxes are found.

    Returns:
        `ExportReport`.

    Raises:
        ValueError: If a difference exceeds `LIMITS`.
    """
    description = runtime.description
    detector = ExportedDetector(runtime)
    live_counts, matched, scores, boxes, differences = 0, 0, [0.0], [0.0], {}
    same_pixels, highest = [], np.zeros(2)  # highest score of model and of file
    sources, _ = image_sources(images)
    num_judged = len(sources)
    for index, source in enumerate([*sources, *others]):
        pixels, _ = letterboxed(model.config, source)
        batch = pixels[None]
        if runtime.input_dtype != "float32":  # as `run` does for such inputs
            batch = np.round(batch)
        live = {n: ops.convert_to_numpy(v) for n, v in model(batch).items()}
        if description.is_raw:
            outputs = runtime.run(np.repeat(batch, description.batch_size or 1, axis=0))
            for name, value in live.items():
                gap = float(np.abs(np.asarray(outputs[name])[0] - value[0]).max())
                share = gap / max(1.0, float(np.abs(value).max()))
                # NumPy's maximum propagates NaN, while Python's may lose it.
                worst = np.maximum(share, differences.get(name, 0.0))
                differences[name] = float(worst)
            found = detector.detect_outputs(outputs)
        else:
            found = detector.predict_on_batch(batch)
        found = {name: value[0] for name, value in found.items()}
        expected, gap = _closest_expected(description, live, model, found)
        scores.append(gap)
        tops = [d["scores"].max(initial=0.0) for d in (expected, found)]
        highest = np.maximum(highest, tops)
        if index >= num_judged:
            continue
        wanted, hits, gap = _compare(expected, found)
        live_counts, matched = live_counts + wanted, matched + hits
        boxes.append(gap)
        if "class_map" in expected:
            is_same = expected["class_map"] == found["class_map"]
            same_pixels.append(float(is_same.mean()))
    report = ExportReport(
        path=os.fspath(runtime.path),
        format=format,
        outputs=description.outputs,
        precision=description.precision,
        size_bytes=sum(map(size_of, (runtime.path, *runtime.other_files))),
        images=num_judged + len(others),
        live_detections=live_counts,
        matched=matched,
        max_score_difference=float(np.max(scores)),
        max_box_difference=float(np.max(boxes)),
        max_output_difference=differences or None,
        same_pixels=min(same_pixels) if same_pixels else None,
        suppression=description.other_suppression(model.postprocess),
    )
    if model.config.has_detection and not live_counts:
        report = dataclasses.replace(report, warnings=(_unchecked(*highest),))
        _require_equal_tops(report, *highest)
    _require_within(LIMITS[description.precision], report)
    return report


def _closest_expected(description, live, model, found):
    """Returns the detections that the file should find, and the difference of scores.

    If the IoU of two boxes is at the threshold of hard NMS, the last bit determines
    whether a box is kept, and all sorted scores after it shift by one. So the results
    with a slightly different threshold are also correct, and the closest one counts.
    """
    postprocess = description.postprocess
    closest = least = None
    for shift in (0.0, -_TIE, _TIE):
        threshold = float(np.clip(postprocess.iou_threshold + shift, 0.0, 1.0))
        shifted = dataclasses.replace(postprocess, iou_threshold=threshold)
        expected = _expected(description, shifted, live, model)
        expected = {n: ops.convert_to_numpy(v)[0] for n, v in expected.items()}
        # A missing score was below the threshold.
        low = postprocess.score_threshold or 0.0
        first, second = (np.maximum(d["scores"], low) for d in (expected, found))
        gap = float(np.abs(first - second).max(initial=0.0))
        if closest is None or gap < least:
            closest, least = expected, gap
        if postprocess.method != "hard" or gap <= _TIE:
            break
    return closest, least


def _expected(description, postprocess, live, model):
    """Computes the detections that the file should find from `live` raw outputs."""
    config = model.config
    expected = postprocess_outputs(live, postprocess, model.anchors, config)
    if description.classes_per_detection > 1:
        found = postprocess(
            live,
            model.anchors,
            config.image_size,
            box_scales=config.box_scales,
            anchor_indices=True,
        )
        expected |= _with_more_classes(
            found,
            live["class_logits"],
            description.classes_per_detection,
            postprocess.lowest_score,
        )
    return expected


def _with_more_classes(found, class_logits, count, lowest_score):
    """Returns detections with `count` rows per box, the best classes of its anchor.

    `found` is the result of `Postprocess` for one image, with `anchor_indices`, in
    NumPy. Rows whose score is not above `lowest_score` are removed, and the others are
    sorted by score, as LiteRT's operation and `LiteRTRuntime` do.
    """
    used = int(found["num_detections"][0])
    logits = class_logits[0, found["anchor_indices"][0, :used]]  # [D, C]
    labels = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    scores = 1 / (1 + np.exp(-np.take_along_axis(logits, labels, axis=1)))
    boxes = np.repeat(found["boxes"][0, :used], labels.shape[1], axis=0)
    labels, scores = labels.reshape(-1), scores.reshape(-1)
    kept = np.flatnonzero(scores > lowest_score)
    order = kept[np.argsort(-scores[kept], kind="stable")]
    missing = len(found["scores"][0]) * count - len(order)
    rows = boxes[order], scores[order].astype("float32"), labels[order].astype("int32")
    boxes, scores, labels = (
        np.pad(row, [(0, missing)] + [(0, 0)] * (row.ndim - 1))[None] for row in rows
    )
    labels[0, len(order) :] = BACKGROUND
    num_detections = np.array([len(order)], "int32")
    named = {"boxes": boxes, "scores": scores, "labels": labels}
    return {**named, "num_detections": num_detections}


def _unchecked(of_model, of_file):
    """Returns a warning for images in which the model detects nothing to compare."""
    cure = "pass `images` in which the model finds objects, or a dataset as `evaluate`"
    if not max(of_model, of_file):
        return (
            "NOT CHECKED: neither the model nor the file found anything in these "
            f"images. To check the file, {cure}"
        )
    return (
        f"the model found nothing with a score of at least {_MIN_SCORE} in these "
        f"images. Only the highest scores were compared, {of_model:.3g} of the model "
        f"and {of_file:.3g} of the file. To check more, {cure}"
    )


def _require_equal_tops(report, of_model, of_file):
    """Raises ValueError if the highest scores differ too much in an 8-bit file."""
    if LIMITS[report.precision] is not _IN_8_BITS:
        return  # other precisions have narrow limits for scores
    low, high = sorted((float(of_model), float(of_file)))
    if low < _TOP_SHARE * high and high - low > _TOP_STEPS:
        raise InvalidValueError(
            f"The {report.format} export ({report.precision}) does not compute the "
            f"same as the model: the highest score in these images is {of_file:.3g}, "
            f"but {of_model:.3g} in the model. Nothing was written. "
            f"{_CURES[report.precision]}"
        )


def size_of(path):
    """Returns the size in bytes of a file, or of all files in a folder."""
    path = pathlib.Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _compare(expected, found):
    """Returns the numbers of live and of matched detections, and the box difference."""
    used = (expected["scores"] >= _MIN_SCORE) & (area(expected["boxes"]) > 0)
    count = int(found["num_detections"])
    boxes, labels = expected["boxes"][used], expected["labels"][used]
    rows = (found[name][:count] for name in ("boxes", "scores", "labels"))
    result = ImageResult(0, boxes, labels, *rows)
    matches = match_detections(result)
    gaps = result.boxes[matches.is_true] - boxes[matches.truth[matches.is_true]]
    return len(boxes), len(gaps), float(np.abs(gaps).max(initial=0.0))


def _require_within(limits, report):
    """Raises `InvalidValueError` if the report exceeds any of the limits."""
    raw = report.max_output_difference or {}
    differences = [(f"`{n}` differs", v, limits.outputs) for n, v in raw.items()]
    differences.append(("scores differ", report.max_score_difference, limits.scores))
    problems = [
        f"{what} by {value:.3g} (limit {limit})"
        for what, value, limit in differences
        if not value <= limit  # also true for NaN
    ]
    if report.matched < limits.matched * report.live_detections:
        problems.append(
            f"{report.matched} of {report.live_detections} detections were found (at "
            f"least {limits.matched:.0%} are needed)"
        )
    if report.same_pixels is not None and report.same_pixels < limits.pixels:
        problems.append(
            f"{report.same_pixels:.2%} of the pixels have the same class (at least "
            f"{limits.pixels:.1%} are needed)"
        )
    if problems:
        raise InvalidValueError(
            f"The {report.format} export ({report.precision}) does not compute the "
            f"same as the model: {'; '.join(problems)}. Nothing was written. "
            f"{_CURES[report.precision]}"
        )


_CURES = {  # what to do, by precision
    "int8": "Calibrate with more images of the kind the model will see, train the "
    "model for int8 with `quantize_aware`, or export float16.",
    "dynamic": "Export float16, or int8 with images to calibrate it.",
    "float16": (
        "Some numbers of this model may be too large for float16, or too close to "
        "each other: export float32, if the format or target has it."
    ),
    "float32": (
        "Nothing is rounded in float32, so the tool that converts the model has a "
        "fault, or this package has. Try another format or target, and please report "
        "this message with the versions of the packages."
    ),
}
