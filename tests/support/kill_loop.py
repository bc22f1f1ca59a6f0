"""A program: writes files in a child, kills it, looks at what is left, again and again.

    python tests/support/kill_loop.py WRITER FOLDER KILLS

It prints what it counted as JSON. It never runs TensorFlow itself, so that its children
may be forks, which have all modules loaded when they start.
"""

import collections
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import zipfile

import effdet_keras as ek
from effdet_keras.data import write_shapes, write_yolo
from effdet_keras.weights.archive import read_archive_info, write_archive

_IMAGES = 24
_LONGEST = 0.1  # seconds that a child lives after its first file


def write_archives(folder, number):
    """Both checkpoints of an epoch, of one layer."""
    from support.tiny import StandIn

    model = StandIn()
    for epoch in itertools.count(number * 1000):
        for name in ("best.keras", "last.keras"):
            write_archive(model, folder / name, {"epoch": epoch})
            yield


def archive_is_whole(path):
    with zipfile.ZipFile(path) as archive:
        return archive.testzip() is None and "epoch" in read_archive_info(path)


def write_datasets(folder, number):
    """A folder after the other."""
    dataset = ek.data.load(folder.parent / "shapes", "train")
    for name in itertools.count(number * 1000):
        write_yolo({"train": dataset}, folder / str(name))
        yield


def dataset_is_whole(path):
    return len(ek.data.load(path, "train")) == _IMAGES


WRITERS = {
    "archives": (write_archives, archive_is_whole),
    "datasets": (write_datasets, dataset_is_whole),
}


def kill_one(write, folder, number):
    """Runs a writer in a child, and kills it at a random moment."""
    read, told = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        for _ in write(folder, number):
            os.write(told, b".")
    os.close(told)
    assert os.read(read, 1), "the child has ended before its first file"
    time.sleep(random.uniform(0.0, _LONGEST))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(read)
    assert os.WTERMSIG(status) == signal.SIGKILL


def main(writer, folder, kills):
    write, is_whole = WRITERS[writer]
    folder = pathlib.Path(folder)
    random.seed(0)
    if write is write_datasets:
        shapes = folder.parent / "shapes"
        write_shapes(shapes, num_train=_IMAGES, num_valid=1, image_size=32)
    folder.mkdir()
    counts = collections.Counter()
    for number in range(kills):
        kill_one(write, folder, number)
        counts["kills"] += 1
        for path in sorted(folder.iterdir()):
            if path.name.startswith("."):
                counts["left half written"] += 1
            else:
                counts["whole" if is_whole(path) else "broken"] += 1
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name.startswith("."):
                path.unlink()
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
