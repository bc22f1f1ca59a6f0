"""The report of `check` as JSON, for programs that decide whether to use the data."""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from effdet_keras._internal.whole_files import is_remote, shown_address
from effdet_keras._version import __version__
from effdet_keras.data.dataset import boxes_per_class
from effdet_keras.data.problems import KINDS, Problem, Severity
from effdet_keras.errors import printable

if TYPE_CHECKING:
    from effdet_keras.extras.data_check.check import CheckReport

# Incremented if a key is renamed or removed, but not if a key is added.
_SCHEMA = 1


def exit_status(reports: Mapping[str, CheckReport], *, strict: bool) -> int:
    """Returns the exit status: 1 for errors, or with `strict` for warnings, else 0.

    Args:
        reports: dict from split name to `CheckReport`.
        strict: bool, whether warnings count as errors.
    """
    refused = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    problems = [problem for report in reports.values() for problem in report.problems]
    return int(any(problem.severity in refused for problem in problems))


def json_of(
    reports: Mapping[str, CheckReport], data: str | os.PathLike[str], *, strict: bool
) -> str:
    """Returns reports as the text of a JSON file.

    Args:
        reports: dict from split name to `CheckReport`.
        data: str or path of the dataset.
        strict: bool, whether warnings count as errors.
    """
    every = [problem for report in reports.values() for problem in report.problems]
    status = exit_status(reports, strict=strict)
    splits = {name: _split(report) for name, report in reports.items()}
    return _text(data, strict, status, counts=_counts(every), splits=splits)


def json_of_error(data: str | os.PathLike[str], error: Exception, strict: bool) -> str:
    """Returns the text of a JSON file for data that cannot be read at all."""
    said = {"type": type(error).__name__, "message": printable(error)}
    return _text(data, strict, 1, counts=_counts([]), splits={}, error=said)


def _text(data, strict, status, **content):
    content = {
        "schema": _SCHEMA,
        "effdet_keras": __version__,
        "data": shown_address(data) if is_remote(data) else os.fspath(data),
        "strict": strict,
        "ok": status == 0,
        "exit_status": status,
        **content,
    }
    # ASCII only, because a terminal or a program may expect any encoding.
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _split(report):
    dataset = report.dataset
    counts = boxes_per_class(dataset).tolist() if len(dataset) else []
    return {
        "images": len(dataset),
        "boxes": sum(len(record.labels) for record in dataset.records),
        "boxes_per_class": dict(zip(dataset.class_names, counts)),
        "ok": report.ok,
        "counts": _counts(report.problems),
        "problems": [_problem(problem) for problem in report.problems],
        "anchor_coverage": [
            {
                "size": row.size,
                "boxes": int(row.num_boxes),
                "share": float(row.share) if row.num_boxes else None,
                "mean_iou": float(row.mean_iou) if row.num_boxes else None,
            }
            for row in report.coverage
        ],
    }


def _counts(problems: Sequence[Problem]) -> dict[str, int]:
    counts = collections.Counter(problem.severity for problem in problems)
    return {severity.value: counts[severity] for severity in Severity}


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.kind.replace(" ", "-"),
        "severity": problem.severity.value,
        "file": problem.file,
        "detail": problem.detail,
        "image_ids": [int(image_id) for image_id in problem.image_ids],
        "consequence": KINDS[problem.kind].consequence,
    }
