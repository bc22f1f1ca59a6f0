"""A program: processes gather, then the last one is killed and the others notice."""

import os
import signal
import sys

from effdet_keras import distribution


def main(name):
    if name == "jax":
        from effdet_keras.extras.multiprocess import jax as engine  # needs JAX

        engine.HEARTBEAT_TIMEOUT = 10
    processes = distribution.start(name).processes
    found = processes.gather({"index": processes.index, "text": "x" * processes.index})
    assert found == [{"index": i, "text": "x" * i} for i in range(processes.count)]
    print("gathered", flush=True)
    if processes.index == processes.count - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    processes.gather("nobody there")


if __name__ == "__main__":
    main(*sys.argv[1:])
