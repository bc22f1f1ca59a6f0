"""Writes the files that a device's program needs in addition to the network.

Targets whose files return raw outputs write anchors, labels and `detector.h` next to
them. `detector.h` is C++ with the settings of the model. It letterboxes an image, and
turns the outputs into detections, as `detect` does.
"""

from __future__ import annotations

import importlib.resources
import json
import math

import numpy as np

from effdet_keras import box_ops
from effdet_keras.detect.postprocess import MIN_AREA
from effdet_keras.export.runtime import labels_of

ANCHORS_NAME, LABELS_NAME, HEADER_NAME = "anchors.bin", "labels.txt", "detector.h"


def write_detector(model, folder):
    """Writes `labels.txt`, `anchors.bin` and `detector.h` of a model."""
    labels = labels_of(model)
    (folder / LABELS_NAME).write_text("\n".join(labels) + "\n", encoding="utf-8")
    (folder / ANCHORS_NAME).write_bytes(np.asarray(model.anchors, "<f4").tobytes())
    template = importlib.resources.files(__package__).joinpath(HEADER_NAME)
    text = template.read_text(encoding="utf-8")
    text = text.replace("/*NAME*/", model.config.name)
    text = text.replace("/*SETTINGS*/", _settings(model, labels))
    (folder / HEADER_NAME).write_text(text, encoding="utf-8")


def _settings(model, labels):
    """Returns the constants of `detector.h` as C++ text."""
    config, post = model.config, model.postprocess
    height, width = config.image_size
    values = {
        "int kHeight": height,
        "int kWidth": width,
        "int kNumAnchors": len(model.anchors),
        "int kNumClasses": config.num_classes,
        "bool kHalfPixel": config.resize_method == "half_pixel",
        "float kPadding[3]": config.padding_rgb,
        "float kBoxScales[4]": config.box_scales,
        "float kMinSide": box_ops.MIN_SIDE,
        "float kMinArea": MIN_AREA,
        "float kMaxLogSide": box_ops.MAX_LOG_SIDE,
        "float kScoreThreshold": post.lowest_score,
        "std::size_t kTopPairs": _or_all(post.pre_nms_top_k),
        "std::size_t kMaxDetections": post.max_detections,
        "int kMaxPerClass": post.max_detections_per_class or post.max_detections,
        "bool kDropEmpty": post.drop_empty,
        "bool kPerClass": post.per_class,
        "bool kSoft": post.method == "gaussian",
        "float kSigma": post.sigma,
        "float kIouThreshold": post.iou_threshold,
    }
    lines = [f"constexpr {name} = {_literal(v)};" for name, v in values.items()]
    names = ", ".join(map(_string, labels))
    lines.append(f"static const char* const kLabels[] = {{{names}}};")
    return "\n".join(lines)


def _or_all(count):
    """Returns the number of pairs; for None, more than any network has."""
    return 2**31 - 1 if count is None else count


def _literal(value):
    """Formats a Python number, bool or sequence of numbers as C++."""
    if isinstance(value, tuple | list):
        return "{" + ", ".join(map(_literal, value)) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return f"{sign}std::numeric_limits<float>::infinity()"
    return f"{np.float32(value)}f"  # the shortest text of this number


def _string(text):
    """Formats a C++ string in UTF-8, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("??", r"?\?")
