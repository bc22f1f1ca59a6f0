"""`batch_size="auto"`: measures the largest batch that fits into memory.

A child process trains steps with growing batches of artificial images. If the system
kills it because memory is full, this process continues, and knows the last batch size
that worked.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

from effdet_keras.data.anchor_fit import fitted_image_size
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.arrays import from_arrays
from effdet_keras.errors import InvalidStateError
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.runs.components import (
    Splits,
    make_model,
    training_batches,
    with_teacher,
)
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.train import auto_recipe
from effdet_keras.train.new_classes import ALL_BUT_NEW_CLASSES
from effdet_keras.weights.read_weights import read_weights

# The learning rate of the recipe grows with batches of up to 16, and small batches
# learn more from each image. 64 is the batch size of the reference.
_LARGEST, _LARGEST_OF_MANY = 16, 64
_MANY_IMAGES = 5_000
_PATIENCE = 900  # seconds; a machine that takes longer is swapping memory
_COMMAND = (sys.executable, "-m", "effdet_keras.extras.batch_size")


def choose_batch_size(configuration: RunConfiguration, splits: Splits) -> int:
    """Returns the largest batch that fits; call it before using a card's memory."""
    sizes = candidates(len(splits.train))
    listed = ", ".join(map(str, sizes))
    print(f"Measuring which batch size fits into memory: {listed} ...", flush=True)
    task = {
        "configuration": _for_trial(configuration, splits.train).to_dict(),
        "class_names": list(splits.train.class_names),
        "boxes": max(len(record.labels) for record in splits.train.records),
        "seg_class_names": splits.train.seg_class_names,
        "sizes": sizes,
    }
    done, failure = _run_child(task)
    if not done:
        raise InvalidStateError(
            f"Not even a batch of {sizes[0]} can be trained here ({failure}). Choose "
            "a smaller `image_size` (--image-size) or `model` (--model), or give "
            "`batch_size` (--batch-size) as a number."
        )
    reason = f"the next larger size failed ({failure})"
    if done[-1] == sizes[-1]:
        reason = (
            "this is the largest size that is tried, because smaller batches learn "
            "more per image"
        )
    print(f"batch_size={done[-1]}: {reason}.", flush=True)
    return done[-1]


def with_batch_size(configuration, splits, hparams, fields):
    """Returns the configuration with a number as `batch_size` instead of "auto"."""
    if configuration.batch_size != "auto":
        return configuration
    size = choose_batch_size(configuration, splits)
    configuration = configuration.replace(batch_size=size)
    # google/automl's rates are for 64 images; those of a `pipeline.config` for any.
    if hparams is not None and "learning_rate" not in fields:
        from effdet_keras.extras.hparams import read_hparams

        read = read_hparams(hparams, batch_size=size).fields
        scaled = {n: rate for n, rate in read.items() if n == "learning_rate"}
        configuration = configuration.replace(**scaled)
    return configuration


def candidates(num_images: int) -> list[int]:
    """Returns the batch sizes to try: powers of two, at most the number of images."""
    is_small = num_images < _MANY_IMAGES
    largest = min(_LARGEST if is_small else _LARGEST_OF_MANY, max(num_images, 1))
    return [2**power for power in range(largest.bit_length())]


def _for_trial(configuration, train):
    """Returns a configuration with everything that the child cannot know itself."""
    changed = {"weights": None, "checkpoint_type": None, "name_map": {}}
    if configuration.teacher is None:  # otherwise the anchors are the teacher's
        changed["anchors"] = None
    if configuration.freeze == ALL_BUT_NEW_CLASSES:
        # The trial loads no detector with old classes. It trains everything instead,
        # which needs more memory.
        changed["freeze"] = None
        if configuration.image_size in ("auto", None):
            changed["image_size"] = _size_of_weights(configuration)
    elif configuration.image_size == "auto" and not configuration.is_hub_module:
        config = EfficientDetConfig.from_name(
            configuration.model, **configuration.model_config
        )
        changed["image_size"] = fitted_image_size(train, config)
    # Two steps are enough, so there is no length. No data is read, so splits stay.
    return configuration.replace(
        **changed,
        **dict.fromkeys(("data", "format", "class_names", "epochs", "time_budget")),
        steps=auto_recipe.STEPS,
        verbose=0,
    )


def _size_of_weights(configuration):
    """Returns the input size of the initial detector; None for that of the preset."""
    if configuration.weights in ("auto", None):  # `compile` will raise an error
        return None
    source = read_weights(configuration.weights, configuration.model, verbose=0)
    return (source.config or {}).get("image_size")


def _run_child(task):
    """Returns the sizes that the child finished, and why it stopped, if it failed."""
    root = str(pathlib.Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:
        out, into = (pathlib.Path(folder, name) for name in ("out.txt", "task.json"))
        out.touch()
        into.write_text(json.dumps({**task, "out": str(out)}), encoding="utf-8")
        command, options = [*_COMMAND, str(into)], {"timeout": _PATIENCE}
        options |= {"capture_output": True, "text": True, "env": environment}
        try:
            failure = _failure(subprocess.run(command, check=False, **options))
        except subprocess.TimeoutExpired:
            failure = f"it took more than {_PATIENCE // 60} minutes"
        text = out.read_text(encoding="utf-8")
    # The last line may be incomplete if the child was killed.
    return [int(line) for line in text[: text.rfind("\n") + 1].split()], failure


def _failure(child):
    if child.returncode == 0:
        return None
    if child.returncode < 0:
        return "the operating system ended the trial, as it does when memory is full"
    said = child.stderr.strip().splitlines() or ["(no output on stderr)"]
    return f"the trial ended: {said[-1]}"


# --- The child process: trains two steps with each batch size.

_SHARE = 0.8  # the fraction of free memory that a batch may need


def main(path: str) -> None:
    """Tries the batch sizes of a task, and writes a line for each that works."""
    task = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    configuration = RunConfiguration(**task["configuration"])
    base, free = peak_bytes(), available_bytes()
    per_image = 0.0  # bytes, measured with the previous batch
    for size in task["sizes"]:
        more = size * per_image
        if free is not None and more > _SHARE * free:
            sys.exit(f"it would need about {_gb(more)}, and {_gb(free)} are free")
        train(configuration.replace(batch_size=size), task)
        per_image = (peak_bytes() - base) / size
        with open(task["out"], "a", encoding="utf-8") as file:
            file.write(f"{size}\n")


def train(configuration, task):
    """Trains two steps on artificial images."""
    names = task["class_names"], task["seg_class_names"]
    dataset = made_up(configuration, *names, task["boxes"])
    model = make_model(configuration, dataset)
    batches = training_batches(model, configuration, dataset)
    with with_teacher(model, configuration, batches) as batches:
        model.fit(batches, epochs=1, verbose=0)


def made_up(configuration, class_names, seg_class_names, boxes):
    """Returns noise images for two steps, each with the most boxes that an image has.

    If there are classes of pixels, each image has a mask of the first class.
    """
    size = configuration.image_size
    height, width = size if isinstance(size, tuple) else (size, size)
    if not isinstance(height, int):  # a TF-Hub module has its own size
        height = width = 512
    count = 2 * configuration.batch_size
    image = np.random.default_rng(0).integers(0, 255, (height, width, 3), "uint8")
    box = [0.25 * height, 0.25 * width, 0.75 * height, 0.75 * width]
    labels = [index % len(class_names) for index in range(boxes)]
    dataset = from_arrays(
        [image] * count,
        boxes=[np.float32([box] * boxes).reshape(-1, 4)] * count,
        labels=[np.int32(labels)] * count,
        class_names=class_names,
    )
    if seg_class_names is None:
        return dataset
    mask = np.zeros((height, width), "uint8")
    records = (dataclasses.replace(record, mask=mask) for record in dataset.records)
    return DetectionDataset(records, class_names, seg_class_names=seg_class_names)


def _gb(count):
    return f"{count / 1e9:.1f} GB"


# --- The memory that this process has used, and that is free. This only works on Linux.

_ROOT = pathlib.Path("/")  # the root of the kernel's files


def peak_bytes() -> int:
    """Returns the peak memory of this process in bytes; 0 if it is unknown."""
    return _kilobytes("proc/self/status", "VmHWM") or 0


def available_bytes() -> int | None:
    """Returns the free memory for this process in bytes; None if it is unknown.

    It is the free memory of the machine, or what the limit of a container leaves, if
    that is less.
    """
    found = [_kilobytes("proc/meminfo", "MemAvailable"), *map(_left_in, _groups())]
    return min((count for count in found if count is not None), default=None)


def _kilobytes(name, field):
    """Returns the bytes in a line such as `VmHWM:  12 kB`; None without this line."""
    found = re.search(rf"^{field}:\s+(\d+) kB", _text(_ROOT / name), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _groups():
    """Yields the folders of the control groups that limit this process' memory.

    A group is inside of other groups, such as those of a pod, a user or a job, whose
    limits apply as well.
    """
    # Lines such as `0::/user.slice`, or `4:memory:/docker/3a7c` in version 1.
    lines = _text(_ROOT / "proc/self/cgroup").splitlines()
    entries = [line.split(":", 2) for line in lines if line.count(":") > 1]
    path_of = {controllers: path for _, controllers, path in entries}
    for kind, root, mount in _mounted_groups():
        names = [n for n in path_of if n == "" or "memory" in n.split(",")]
        is_first = kind == "cgroup"
        path = next((path_of[n] for n in names if bool(n) is is_first), None)
        if path is None:
            continue
        # In a container, the folder at the start of the path may be the mounted one.
        inside = pathlib.PurePosixPath(path)
        if root != "/" and inside.is_relative_to(root):
            inside = inside.relative_to(root)
        parts = [part for part in inside.parts if part not in ("/", "..")]
        folder = _ROOT / mount.lstrip("/")
        yield folder
        for part in parts:
            folder = folder / part
            yield folder


def _mounted_groups():
    """Yields kind, root and mount point of mounted control groups for memory."""
    for line in _text(_ROOT / "proc/self/mountinfo").splitlines():
        left, dash, right = line.partition(" - ")
        if not dash:
            continue
        kind, *rest = right.split()
        is_of_memory = kind == "cgroup" and "memory" in rest[-1].split(",")
        if kind == "cgroup2" or is_of_memory:
            _, _, _, root, mount, *_ = left.split()
            yield kind, root, mount


# The files of a group, by version: its limits, the memory in use, and the part of it
# that holds files and is freed when memory is short. From `memory.high` on, the system
# slows down the group.
_VERSIONS = (
    (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
)
_NO_LIMIT = 2**60  # bytes: in version 1, numbers of this size mean no limit


def _left_in(folder):
    """Returns the bytes that a group's limit leaves; None if there is no limit."""
    for limits, current, of_files in _VERSIONS:
        texts = [_text(folder / name).strip() for name in (*limits, current)]
        *limits, taken = [int(text) if text.isdigit() else None for text in texts]
        limits = [n for n in limits if n is not None and n < _NO_LIMIT]
        if not limits or taken is None:
            continue
        stat = _text(folder / "memory.stat")
        found = re.search(rf"^{of_files} (\d+)", stat, re.MULTILINE)
        taken -= int(found[1]) if found else 0
        return max(min(limits) - max(taken, 0), 0)
    return None


def _text(path):
    try:
        return path.read_text()
    except OSError:  # does not exist, or only the system may read it
        return ""


if __name__ == "__main__":
    main(sys.argv[1])
