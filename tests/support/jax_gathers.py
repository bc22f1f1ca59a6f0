"""A program: two processes on JAX gather, then the second is killed."""

import os
import signal

from effdet_keras import distribution


def main():
    from effdet_keras.extras.multiprocess import jax as engine_of_jax  # needs JAX

    engine_of_jax.HEARTBEAT_TIMEOUT = 10
    processes = distribution.start("jax").processes
    processes.barrier()
    print("gathered", processes.gather(f"of {processes.index}"), flush=True)
    if processes.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    processes.gather("and again")


if __name__ == "__main__":
    main()
