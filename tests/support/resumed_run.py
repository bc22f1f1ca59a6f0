"""A program: runs of one configuration in children, which are killed and go on.

    python tests/support/resumed_run.py FOLDER KILLS

One run is left alone. Others are killed with -9 within a save, within an evaluation or
before a step, or told to stop by SIGTERM, and resumed until they are done.

It never runs TensorFlow itself, so that its children may be forks, which have all
modules loaded. It prints as JSON what was killed where, and which runs differ from the
first.
"""

import collections
import functools
import hashlib
import io
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
import traceback
import zipfile

import h5py
import keras
import numpy as np
import tensorflow as tf  # noqa: F401 (loaded, for the children)
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras._internal import whole_files
from effdet_keras.data import write_shapes
from effdet_keras.evaluate.coco import COCOMetric

EPOCHS, STEPS, IMAGES = 3, 2, 2  # steps of an epoch, images of an evaluation
_PLACES = ("save", "evaluation", "step", "stop")
_OF_THE_CLOCK = ("time", "seconds")


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


class _Killer(keras.callbacks.Callback):
    """Ends the process before a step."""

    def __init__(self, step):
        super().__init__()
        self._left = step

    def on_train_batch_begin(self, batch, logs=None):
        self._left -= 1
        if self._left < 0:
            die()


def _die_at_call(number, owner, name):
    """Ends the process within the call of this number of a function."""
    function, calls = getattr(owner, name), [0]

    def counted(*arguments, **options):
        calls[0] += 1
        if calls[0] == number:
            die()
        return function(*arguments, **options)

    setattr(owner, name, counted)


def _in_save(number):
    """Ends the process where a checkpoint is written, and not yet in its place."""
    flush, calls = whole_files._flush, [0]

    def counted(path):
        calls[0] += str(path).endswith(".partial.keras")
        if calls[0] == number:
            die()
        flush(path)

    whole_files._flush = counted


def train(folder, shapes, place, number):
    """The run, in a child; it may be killed at a place."""
    callbacks = []
    if place == "save":
        _in_save(number)
    elif place == "evaluation":
        _die_at_call(number, COCOMetric, "update")
    elif place == "step":
        callbacks.append(_Killer(number))
    elif place == "stop":
        send = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
        threading.Timer(number, send).start()
    fields = tiny_run(
        epochs=EPOCHS,
        batch_size=2,
        deterministic=True,
        save_every_steps=1,
        test_split=None,
        verbose=2,  # to the log of the run: it says where it resumes
        tensorboard=False,
    )
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
    ek.fine_tune(shapes, out=folder, resume=True, callbacks=callbacks, **fields)


def in_child(folder, shapes, place, number):
    """Whether it came to its end; else it was killed."""
    child = os.fork()
    if not child:
        try:
            train(folder, shapes, place, number)
        except SystemExit as stopped:
            os._exit(stopped.code)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) in (0, 128 + signal.SIGTERM), "the run failed"
        return os.WEXITSTATUS(status) == 0
    # SIGTERM before the training: nothing is caught, as nothing is to be saved.
    assert os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGTERM)
    return False


def result_of(folder):
    """What a run came to: a digest of all weights, and its log without the clock."""
    digest = hashlib.sha256()
    for name in ("best", "last"):
        with zipfile.ZipFile(folder / "archive" / f"{name}.keras") as archive:
            digest.update(_arrays(archive))
    rows = [json.loads(line) for line in (folder / "log.jsonl").open()]
    rows = [{k: v for k, v in r.items() if k not in _OF_THE_CLOCK} for r in rows]
    return {"weights": digest.hexdigest(), "rows": rows}


def _arrays(archive):
    content = []
    with h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:

        def add(name, item):
            if isinstance(item, h5py.Dataset):
                content.append(name.encode() + np.asarray(item).tobytes())

        file.visititems(add)
    return b"".join(sorted(content))


def main(folder, kills):
    folder = pathlib.Path(folder)
    random.seed(0)
    shapes = folder / "shapes"
    write_shapes(shapes, num_train=2 * STEPS, num_valid=IMAGES, image_size=64)
    begun = time.monotonic()
    assert in_child(folder / "whole", shapes, None, 0)
    seconds = time.monotonic() - begun
    expected = result_of(folder / "whole")
    counts, different, number = collections.Counter(), [], 0
    while sum(counts.values()) < kills:
        number += 1
        run = folder / f"killed-{number}"
        for place in _PLACES:
            at = {
                "save": random.randint(1, STEPS + 1),
                "evaluation": random.randint(1, IMAGES),
                "step": random.randint(1, STEPS),
                "stop": random.uniform(0.1, 0.8) * seconds,
            }[place]
            is_last = sum(counts.values()) == kills
            if in_child(run, shapes, None if is_last else place, at):
                break
            counts[place] += 1
        else:
            assert in_child(run, shapes, None, 0)
        if result_of(run) != expected:
            different.append([str(run), result_of(run), expected])
    print(json.dumps({"kills": counts, "runs": number, "different": different}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
