"""A program: processes gather, then the last one is killed and the others notice."""

import os
import pathlib
import signal
import sys
import time

from effdet_keras.extras import multiprocess


def main(name, folder):
    if name == "jax":
        from effdet_keras.extras.multiprocess import jax as engine  # needs JAX

        engine.HEARTBEAT_TIMEOUT = 10
    processes = multiprocess.start(name).processes
    found = processes.gather({"index": processes.index, "text": "x" * processes.index})
    assert found == [{"index": i, "text": "x" * i} for i in range(processes.count)]
    print("gathered", flush=True)
    pathlib.Path(folder, f"{processes.index} gathered").touch()
    if processes.index == processes.count - 1:
        # A process that still receives would lose what is on its way to it.
        while len(list(pathlib.Path(folder).glob("* gathered"))) < processes.count:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    processes.gather("nobody there")


if __name__ == "__main__":
    main(*sys.argv[1:])
