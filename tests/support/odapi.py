"""What the TF Object Detection API computed: files that are not in the repository."""

import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "shared" / "reference" / "odapi"


def odapi_path(name):
    """Finds one of them, or skips the test."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(
            f"the Object Detection API's own {name} is not part of the repository; it "
            f"is looked for in {FOLDER}"
        )
    return path


def padded_truth(arrays, case, size, rows=None):
    """The ground truth of a case as `fit` takes it, of 2 images of `size` pixels."""
    boxes_of = [arrays[f"{case}/gt{i}/boxes"] for i in (0, 1)]
    rows = max(map(len, boxes_of)) if rows is None else rows
    boxes = np.zeros((2, rows, 4), "float32")
    labels = np.full((2, rows), -1, "int32")
    weights = np.zeros((2, rows), "float32")
    for i, given in enumerate(boxes_of):
        boxes[i, : len(given)] = given * size
        labels[i, : len(given)] = arrays[f"{case}/gt{i}/classes"]
        weights[i, : len(given)] = arrays[f"{case}/gt{i}/weights"]
    return {"boxes": boxes, "labels": labels, "weights": weights}
