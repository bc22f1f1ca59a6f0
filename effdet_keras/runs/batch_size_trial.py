"""The child process of `batch_size.py`: trains two steps with each batch size."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import sys
from typing import Any

import numpy as np

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.arrays import from_arrays
from effdet_keras.errors import InvalidStateError
from effdet_keras.runs.batch_size import DONE, TOO_LARGE
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.fitting import training_batches
from effdet_keras.runs.make_model import make_model, with_teacher

_SHARE = 0.8  # of the free memory that a batch may need
_NAMES_OF_FULL = ("ResourceExhausted", "OutOfMemory", "MemoryError")


def main(path: str) -> None:
    """Tries the sizes of a task, and writes a line of JSON for each."""
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
    """Trains two steps on made-up images."""
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


# --- How much memory this process had, how much is free, and how much a batch needs.

# Of Linux; elsewhere nothing is known.
_STATUS = pathlib.Path("/proc/self/status")
_MEMINFO = pathlib.Path("/proc/meminfo")
# Of a container: its limit, and what is taken of it.
_CGROUP = pathlib.Path("/sys/fs/cgroup")


def peak_bytes() -> int:
    """The most memory that this process had so far; 0 where it cannot be known.

    Example:
        >>> peak_bytes() >= 0
        True
    """
    found = _kilobytes(_STATUS, "VmHWM")
    return 0 if found is None else found


def available_bytes(
    meminfo: pathlib.Path = _MEMINFO, cgroup: pathlib.Path = _CGROUP
) -> int | None:
    """The memory that is free for this process; None where it cannot be known.

    Example:
        >>> free = available_bytes()
        >>> free is None or free > 0
        True
    """
    found = _kilobytes(meminfo, "MemAvailable")
    free = [] if found is None else [found]
    limit, taken = (_number_in(cgroup / f"memory.{n}") for n in ("max", "current"))
    if limit is not None and taken is not None:
        # Of files that were read the system lets go when memory is short.
        stat = cgroup / "memory.stat"
        found = re.search(r"^inactive_file (\d+)", _text(stat), re.MULTILINE)
        of_files = int(found[1]) if found else 0
        free.append(max(limit - taken + of_files, 0))
    return min(free, default=None)


@dataclasses.dataclass(frozen=True)
class Growth:
    """How the memory of a process grows with the batch."""

    base: int
    size: int
    peak: int

    def expected(self, size: int) -> int:
        """The bytes to expect with a larger batch, if they grow with its images.

        Example:
            >>> Growth(base=100, size=2, peak=140).expected(4)
            180
        """
        return self.base + (self.peak - self.base) * size // self.size


def _kilobytes(path, name):
    """The bytes of a line such as `VmHWM:  12 kB`; None without one."""
    found = re.search(rf"^{name}:\s+(\d+) kB", _text(path), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _number_in(path):
    """The number in a file; None where there is none, such as "max" for no limit."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path):
    return path.read_text() if path.is_file() else ""
