"""A program: processes gather, then the last one is killed and the others notice."""

import os
import signal

from effdet_keras import distribution


def main():
    distribution.start("multiworker")
    processes = distribution.current_processes()
    found = processes.gather({"index": processes.index, "text": "x" * processes.index})
    assert found == [{"index": i, "text": "x" * i} for i in range(processes.count)]
    processes.barrier()
    if processes.index == processes.count - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    processes.gather("nobody there")


if __name__ == "__main__":
    main()
