"""A program: processes gather and copy, then one is killed and the others notice."""

import os
import pathlib
import signal
import sys
import time

from effdet_keras.extras import multiprocess
from effdet_keras.runs import run_folder


def main(name, folder):
    if name == "jax":
        from effdet_keras.extras.multiprocess import jax as engine  # needs JAX

        engine.HEARTBEAT_TIMEOUT = 10
    processes = multiprocess.start(name).processes
    found = processes.gather({"index": processes.index, "text": "x" * processes.index})
    assert found == [{"index": i, "text": "x" * i} for i in range(processes.count)]
    check_copies(processes, pathlib.Path(folder, f"run {processes.index}"))
    print("gathered", flush=True)
    pathlib.Path(folder, f"{processes.index} gathered").touch()
    if processes.index == processes.count - 1:
        # A process that still receives would lose what is on its way to it.
        while len(list(pathlib.Path(folder).glob("* gathered"))) < processes.count:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    processes.gather("nobody there")


def check_copies(processes, folder):
    """The others get a file of the first, in pieces."""
    run_folder._PIECE = 40_000
    content, path = bytes(range(250)) * 400, folder / "archive" / "best.keras"
    if processes.index == 0:
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    run = run_folder.RunFolder(folder)
    run_folder.copy_from_first(run, run_folder.file_of_best(run))
    assert path.read_bytes() == content


if __name__ == "__main__":
    main(*sys.argv[1:])
