"""`batch_size="auto"`: the largest batch that fits into memory, measured.

A child process trains steps with growing batches of made-up images. Where the system
ends it, because memory is full, this process goes on, and knows the last size that was
done.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.extras import extra
from effdet_keras.data.anchor_fit import fitted_image_size
from effdet_keras.errors import InvalidStateError
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.splits import Splits
from effdet_keras.train import auto_recipe

DONE, TOO_LARGE = "done", "too large"  # what a line of the child says
# The rate of the recipe grows with batches up to 16, and a small batch learns more
# from each image; 64 is the reference's.
_LARGEST, _LARGEST_OF_MANY = 16, 64
_PATIENCE = 900  # seconds: a machine that swaps memory is no use
_COMMAND = (sys.executable, "-m", "effdet_keras.runs.batch_size_trial")


def choose_batch_size(configuration: RunConfiguration, splits: Splits) -> int:
    """Measures the largest batch that fits, and prints it with its reason.

    It has to run before this process uses a graphics card, whose memory it takes.
    """
    sizes = candidates(len(splits.train))
    print(f"Measuring which batch fits into memory: {_listed(sizes)} ...", flush=True)
    task = {
        "configuration": _for_trial(configuration, splits.train).to_dict(),
        "class_names": list(splits.train.class_names),
        "boxes": max(len(record.labels) for record in splits.train.records),
        "sizes": sizes,
    }
    lines, failure = _run_child(task)
    done = [line["size"] for line in lines if line["result"] == DONE]
    if not done:
        raise InvalidStateError(
            f"Not even a batch of {sizes[0]} can be trained here "
            f"({failure or 'memory is full'}). Take a smaller `image_size` or `model`, "
            "or give `batch_size` as a number."
        )
    refused = [line for line in lines if line["result"] == TOO_LARGE]
    if done[-1] == sizes[-1]:
        reason = "the largest that is tried: smaller batches learn more per image"
    elif refused:
        reason = f"{refused[0]['size']} is too large: {refused[0]['reason']}"
    else:
        reason = f"with the next size {failure or 'the memory was full'}"
    print(f"batch_size={done[-1]}: {reason}.", flush=True)
    return done[-1]


def with_batch_size(
    configuration: RunConfiguration,
    splits: Splits,
    hparams: str | os.PathLike | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> RunConfiguration:
    """The configuration with a number where `batch_size` is "auto".

    A rate of google/automl's hyper-parameters is that of 64 images, and is scaled when
    the number is known. That of a `pipeline.config` is for any number, as there.
    """
    if configuration.batch_size != "auto":
        return configuration
    size = choose_batch_size(configuration, splits)
    configuration = configuration.replace(batch_size=size)
    if hparams is not None and "learning_rate" not in fields:
        read = extra("hparams:read_hparams")(hparams, batch_size=size).fields
        scaled = {n: rate for n, rate in read.items() if n == "learning_rate"}
        configuration = configuration.replace(**scaled)
    return configuration


def candidates(num_images: int) -> list[int]:
    """The sizes to try: powers of two, no more than there are images.

    Example:
        >>> candidates(100), candidates(5), candidates(10_000)[-1]
        ([1, 2, 4, 8, 16], [1, 2, 4], 64)
    """
    is_small = num_images < auto_recipe.SMALL
    largest = min(_LARGEST if is_small else _LARGEST_OF_MANY, max(num_images, 1))
    return [2**power for power in range(largest.bit_length())]


def _for_trial(configuration, train):
    """The configuration, with all that the child could only know from the data."""
    changed = {"weights": None, "checkpoint_type": None}
    if configuration.teacher is None:  # whose anchors they are
        changed["anchors"] = None
    if configuration.image_size == "auto" and not configuration.is_hub_module:
        config = EfficientDetConfig.from_name(
            configuration.model, **configuration.model_config
        )
        changed["image_size"] = fitted_image_size(train, config)
    # No length: two steps tell. Nothing is read, so that names of splits do not count.
    return configuration.replace(
        **changed,
        **dict.fromkeys(("data", "format", "class_names", "epochs", "time_budget")),
        steps=auto_recipe.STEPS,
        verbose=0,
    )


def _run_child(task):
    """The lines that the child wrote, and why it stopped: None where it was done."""
    root = str(pathlib.Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out.jsonl")
        out.touch()
        into = pathlib.Path(folder, "task.json")
        into.write_text(json.dumps({**task, "out": str(out)}), encoding="utf-8")
        try:
            child = subprocess.run(
                [*_COMMAND, str(into)],
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                env={**os.environ, "PYTHONPATH": path},
                check=False,
            )
            failure = _failure(child)
        except subprocess.TimeoutExpired:
            failure = f"it took more than {_PATIENCE // 60} minutes"
        text = out.read_text(encoding="utf-8")
    # A line may have been cut where the child was killed.
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], failure


def _failure(child):
    if child.returncode == 0:
        return None
    if child.returncode < 0:
        return "the system ended the trial, as it does when memory is full"
    said = child.stderr.strip().splitlines() or ["it says nothing"]
    return f"the trial failed: {said[-1]}"


def _listed(sizes):
    return ", ".join(map(str, sizes))
