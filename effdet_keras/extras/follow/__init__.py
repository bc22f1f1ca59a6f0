"""Evaluates the checkpoints of a run while it trains, from another process."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import time
from typing import Any

from effdet_keras._internal.whole_files import (
    is_remote,
    local_path,
    shown_address,
    write_text,
)
from effdet_keras.callbacks.tensorboard import TensorBoardWriter, has_tensorboard
from effdet_keras.data.dataset import count_of
from effdet_keras.detect.evaluate import evaluate
from effdet_keras.errors import InvalidValueError, check_argument, require
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.components import choose_splits
from effdet_keras.runs.configuration import FILE_PATTERNS, in_words, seconds_of
from effdet_keras.runs.run_folder import RunFolder, read_rows
from effdet_keras.weights.archive import copy_archive, read_entry
from effdet_keras.weights.checkpoint_files import (
    BEST_FILE,
    EARLIER_FILE,
    PREVIOUS_FILE,
)

_PAUSE = 2.0  # seconds between two looks into the folder
_PAUSE_OF_REMOTE = 10.0  # the same for an address, where a look needs several requests


def follow_run(run, data, *, timeout="20m", batch_size=8, out=None):
    """Evaluates each new checkpoint of a run, until the run is done or times out.

    Checkpoints that an earlier, stopped follower has evaluated are not evaluated again.

    Args:
        run: path or address of the run's folder.
        data: `DatasetSource`, the dataset. If it names no split, the images are those
            by which the run would choose its best checkpoint.
        timeout: string, how long to wait for something new, such as "90s" or "20m".
        batch_size: int, images per batch.
        out: path of the folder for the results; None for a subfolder of the run. A run
            at an address needs it.

    Returns:
        List of dicts, the metrics of each checkpoint.

    Raises:
        ValueError: If an argument is invalid, or `out` has results of another run or
            split.
        FileNotFoundError: If no run begins in time, or it has no checkpoint.
    """
    expected = "a duration such as '90s', '20m' or '1.5h'"
    seconds = seconds_of(timeout)
    check_argument(seconds is not None, "--timeout", timeout, expected)
    pause, name = _PAUSE, os.fspath(run)
    if is_remote(run):
        pause, name = _PAUSE_OF_REMOTE, shown_address(run)
        rule = (
            "The run is at an address, so the results are written to a folder on "
            "this machine: name a folder"
        )
        require(out is not None, f"{rule} (--out)", run=name)
    folder = RunFolder(run)
    ends = time.monotonic() + seconds
    while not folder.has_run:
        if time.monotonic() > ends:
            raise FileNotFoundError(
                f"No run began in '{name}' within {timeout}. Check the path, or wait "
                "longer (--timeout)."
            )
        time.sleep(pause)
        _update(folder)
    split, dataset = _images(folder, data)
    is_of_run = out is None  # the folder of a run has no results of other runs
    out = folder.followed if is_of_run else local_path(out, "`--out`")
    numbers = _Numbers(out, f"{folder.path}", split, is_of_run)
    print(
        f"Following '{name}' on the {count_of(len(dataset), 'image')} of '{split}'. "
        "It ends when the run is complete, or when no new checkpoint appears for "
        f"{timeout}.",
        flush=True,
    )
    checkpoints = NewCheckpoints(folder.archive, {moment_of(r) for r in numbers.rows})
    checkpoint, is_done = OneModel(), False
    with tempfile.TemporaryDirectory() as place:
        copy = pathlib.Path(place, "checkpoint.keras")
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not is_done:
            _update(folder)
            has_ended = folder.finished.is_file()  # read before the last look
            taken = checkpoints.take(copy)
            if taken is None:
                is_done = has_ended
                time.sleep(0 if is_done else pause)
                continue
            started = time.monotonic()
            coco = checkpoint.numbers(copy, taken[1], dataset, batch_size)
            numbers.add(*taken, coco, time.monotonic() - started, copy)
            ends = time.monotonic() + seconds
    if not numbers.rows:
        raise FileNotFoundError(
            f"The run in '{name}' has written no checkpoint to evaluate."
        )
    print(
        "The run is done." if is_done else f"No new checkpoint appeared for {timeout}.",
        f"{count_of(len(numbers.rows), 'checkpoint')} evaluated, the best of epoch "
        f"{numbers.best['epoch']}: AP {numbers.best['AP']:.4f}",
    )
    for path in (numbers.path, numbers.best_file):
        print(f"  {path}")
    return numbers.rows


def _update(folder):
    """Fetches new files from an address; ignores errors, since outages may pass."""
    with contextlib.suppress(OSError):
        folder.update()


def _images(folder, data):
    """Returns the name of the split, and the images to evaluate on."""
    if data.split is not None:
        return data.split, data.load((data.split,))
    run = folder.read_configuration()
    where = {"data": data.path, "format": data.format or run.format}
    names = ("unlabelled", "on_error", "reader_options")
    how = {name: getattr(data, name) for name in names}
    where |= {name: value for name, value in how.items() if value is not None}
    chosen = run.replace(**where, **dict.fromkeys(FILE_PATTERNS))
    return "validation", choose_splits(chosen).validation


class OneModel:
    """Evaluates one checkpoint after another, with a graph that is built once."""

    def __init__(self) -> None:
        self.model: EfficientDet | None = None
        self._made_for: dict[str, Any] = {}

    def numbers(self, path, info, dataset, batch_size):
        self.take(path, info)
        names = self.model.class_names
        if names is not None and set(dataset.class_names) <= set(names):
            dataset = dataset.with_classes(names)
        return evaluate(self.model, dataset, batch_size=batch_size, verbose=False)

    def take(self, path: pathlib.Path, info: dict[str, Any]) -> None:
        """Loads a checkpoint into `model`, with the moving averages if it has any."""
        made_for = {name: info.get(name) for name in ("config", "class_names")}
        if self._is_plain() and made_for == self._made_for:
            self.model.load_pretrained(path, verbose=0)
        else:
            self.model = EfficientDet.from_archive(path)
            self._made_for = made_for

    def _is_plain(self):
        """Returns whether checkpoints differ only in their weights.

        The graph of a TF-Hub module and the learned ranges of quantization-aware
        training can only be loaded from an archive. Without these ranges, a model would
        compute in float.
        """
        model = self.model
        if model is None:
            return False
        return model.features is None and model.quantization is None


class _Numbers:
    """The results of checkpoints: JSON lines, TensorBoard, and the best checkpoint."""

    def __init__(
        self, out: pathlib.Path, run: str, split: str, is_of_run: bool
    ) -> None:
        self.path, self.best_file = out / "numbers.jsonl", out / BEST_FILE
        self.rows = read_rows(self.path)
        self._of = {"run": run, "split": split}
        others = [row for row in self.rows if row.get("split") != split]
        if not is_of_run:
            same = os.path.realpath(run)
            others += [
                row
                for row in self.rows
                if os.path.realpath(row.get("run") or "") != same
            ]
        if others:
            raise InvalidValueError(
                f"'{self.path}' already has results of '{others[0].get('run')}' on "
                f"'{others[0].get('split')}'. Received: '{run}' on '{split}'. Give "
                "another folder (--out)."
            )
        self._board = TensorBoardWriter(out) if has_tensorboard() else None

    @property
    def best(self) -> dict[str, Any]:
        """The row with the highest AP; the first one of equal rows."""
        return max(self.rows, key=lambda row: row["AP"])

    def add(self, name, info, coco, seconds, file):
        """Prints and writes the results of a checkpoint, and keeps it if it is best."""
        row = {
            **self._of,
            "checkpoint": name,
            "epoch": info["epoch"],
            "created": info["created"],
            "seconds": round(seconds, 1),
            **coco,
        }
        self.rows.append(row)
        is_best = self.best is row
        if is_best:
            copy_archive(file, self.best_file)
        write_text(self.path, "".join(json.dumps(x) + "\n" for x in self.rows))
        if self._board is not None:  # as in `fit`, its first epoch is 0
            known = {f"coco/{n}": value for n, value in coco.items() if value >= 0}
            self._board.scalars(known, step=max(info["epoch"] - 1, 0))
        step = (info.get("training_position") or {}).get("step")  # within an epoch
        moment = f"epoch {info['epoch']}" + (f" and {step} steps" if step else "")
        print(
            f"{moment}  AP {coco['AP']:.4f}  AP50 {coco['AP50']:.4f}  {name}, "
            f"{in_words(seconds)}" + (", the best so far" if is_best else ""),
            flush=True,
        )


# --- The checkpoints of a training, read one by one from another process.

_BEST_PREFIX = BEST_FILE.removesuffix("keras")  # best.keras, best.previous.keras


class NewCheckpoints:
    """Copies new checkpoints, so that the training may replace the files meanwhile.

    `last.keras` counts as new each time that it is replaced, and so does any other
    checkpoint. The exceptions are the files that are kept because they were the
    best: each of them was `last.keras` before.
    """

    def __init__(self, folder: str | os.PathLike, done: set[tuple] = frozenset()):
        self.folder = pathlib.Path(folder)
        self._done = set(done)

    def take(self, copy: str | os.PathLike) -> tuple[str, dict[str, Any]] | None:
        """Copies the oldest new checkpoint; returns its name and info, or None."""
        for _, path in sorted(self._new_files()):
            with contextlib.suppress(InvalidValueError, OSError):  # may be gone already
                shutil.copyfile(path, copy)
                info = read_entry(copy, True)
                if moment_of(info) not in self._done:
                    self._done.add(moment_of(info))
                    return path.name, info
        return None

    def _new_files(self):
        """Yields the moment and path of each new file; some may be incomplete."""
        for path in self.folder.glob("*.keras"):
            if path.name.startswith((".", _BEST_PREFIX)) or path.name == PREVIOUS_FILE:
                continue
            if EARLIER_FILE.fullmatch(path.name):  # of an earlier training
                continue
            with contextlib.suppress(InvalidValueError, OSError):
                moment = moment_of(read_entry(path))
                if moment not in self._done:
                    yield moment, path


def moment_of(info: dict[str, Any]) -> tuple[int, str]:
    """Returns when a checkpoint was written; all copies of a file have the same."""
    return info.get("epoch", 0), info.get("created", "")
