"""A program: processes that are killed while they replace a checkpoint.

    python tests/support/killed_archives.py FOLDER

For each place of `PLACES` a child writes `FOLDER/PLACE.keras` as epoch 1, and is killed
there while it writes epoch 2. The program never runs TensorFlow itself, so that its
children may be forks, which have all modules loaded.
"""

import os
import pathlib
import signal
import sys
import zipfile

from support.tiny import StandIn

from effdet_keras.weights.archive import write_archive

# Before Keras has written a byte; with the weights, and without what describes them;
# with both, before the new file takes the name of the old one.
PLACES = ("before the weights", "after the weights", "before the renaming")


def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def write_twice(path, place):
    """Writes a checkpoint, and dies while writing the next one over it."""
    model = StandIn()
    write_archive(model, path, {"epoch": 1})
    if place == "before the weights":
        model.save = kill
    elif place == "after the weights":
        zipfile.ZipFile.__init__ = killed_when_appending(zipfile.ZipFile.__init__)
    else:
        os.replace = kill
    write_archive(model, path, {"epoch": 2})


def killed_when_appending(open_zip):
    """What opens a zip file, but kills the process where an entry is to be added."""

    def opened(self, file, mode="r", *arguments, **options):
        if mode == "a":
            kill()
        open_zip(self, file, mode, *arguments, **options)

    return opened


def main(folder):
    for place in PLACES:
        child = os.fork()
        if not child:
            write_twice(pathlib.Path(folder) / f"{place}.keras", place)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"{place}: the child was not killed"
        assert os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main(sys.argv[1])
