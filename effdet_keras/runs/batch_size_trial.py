"""The child process of `batch_size.py`: trains two steps with each batch size."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np

from effdet_keras.data import DetectionDataset, from_arrays
from effdet_keras.errors import InvalidStateError
from effdet_keras.runs.batch_size import DONE, TOO_LARGE
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.fitting import training_batches
from effdet_keras.runs.make_model import make_model, with_teacher
from effdet_keras.runs.memory import Growth, available_bytes, peak_bytes

_SHARE = 0.8  # of the free memory that a batch may need
_NAMES_OF_FULL = ("ResourceExhausted", "OutOfMemory", "MemoryError")


def main(path: str) -> None:
    """Tries the sizes of a task, and writes a line of JSON for each.

    Args:
        path: path of the task, a file of JSON, which `choose_batch_size` writes.
    """
    task = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    configuration = RunConfiguration.from_dict(task["configuration"])
    out = pathlib.Path(task["out"])
    base, free = peak_bytes(), available_bytes()
    growth = None
    for size in task["sizes"]:
        if growth is not None and free is not None:
            more = growth.expected(size) - base
            if more > _SHARE * free:
                reason = f"it would need about {_gb(more)} of {_gb(free)} that are free"
                _write(out, size, TOO_LARGE, reason)
                return
        try:
            train(configuration.replace(batch_size=size), task)
        except Exception as error:
            if not is_full_memory(error):
                raise
            _write(out, size, TOO_LARGE, "the memory of the device is full")
            return
        growth = Growth(base, size, peak_bytes())
        _write(out, size, DONE)


def train(configuration: RunConfiguration, task: dict[str, Any]) -> None:
    """Trains two steps on made-up images.

    Args:
        configuration: `RunConfiguration` with a `batch_size`.
        task: dict with `class_names`, and `boxes`, how many an image has.
    """
    dataset = made_up(configuration, task["class_names"], task["boxes"])
    model = make_model(configuration, dataset)
    batches = training_batches(model, configuration, dataset)
    with with_teacher(model, configuration, batches) as batches:
        history = model.fit(batches, epochs=1, verbose=0)
    if not np.isfinite(history.history["loss"][0]):
        raise InvalidStateError("The loss of made-up images is not finite.")


def made_up(
    configuration: RunConfiguration, class_names: list[str], boxes: int
) -> DetectionDataset:
    """Images of noise for two steps, with as many boxes as the fullest one has."""
    size = configuration.image_size
    height, width = size if isinstance(size, tuple) else (size, size)
    if not isinstance(height, int):  # a module of TF-Hub, which has its own size
        height = width = 512
    count = 2 * configuration.batch_size
    image = np.random.default_rng(0).integers(0, 255, (height, width, 3), "uint8")
    box = [0.25 * height, 0.25 * width, 0.75 * height, 0.75 * width]
    labels = [index % len(class_names) for index in range(boxes)]
    return from_arrays(
        [image] * count,
        boxes=[np.float32([box] * boxes).reshape(-1, 4)] * count,
        labels=[np.int32(labels)] * count,
        class_names=class_names,
    )


def is_full_memory(error: BaseException) -> bool:
    """Whether an error of any backend says that memory is full.

    Example:
        >>> is_full_memory(MemoryError()), is_full_memory(ValueError("of a shape"))
        (True, False)
    """
    text = f"{type(error).__name__} {error}".replace(" ", "").replace("_", "").lower()
    return any(name.lower() in text for name in _NAMES_OF_FULL)


def _write(out, size, result, reason=""):
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"size": size, "result": result, "reason": reason}))
        file.write("\n")


def _gb(count):
    return f"{count / 1e9:.1f} GB"


if __name__ == "__main__":
    main(sys.argv[1])
