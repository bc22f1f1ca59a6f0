"""Starts programs: alone, or in several processes with the variables of a launcher."""

import os
import pathlib
import socket
import subprocess
import sys

TESTS = pathlib.Path(__file__).parents[1]
TIMEOUT = 1800  # seconds, on a loaded machine: nothing is measured by it


SUPPORT = TESTS / "support"
PATHS = [str(TESTS), str(TESTS.parent), *filter(None, sys.path)]


def run_alone(*arguments, cwd=None, **variables):
    """What `python ARGUMENTS` prints; it must succeed."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), **variables}
    command = [sys.executable, *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": TIMEOUT}
    done = subprocess.run(command, cwd=cwd, env=environ, check=False, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def launch(arguments, folder, *, backend="tensorflow", count=2, **variables):
    """Starts `python ARGUMENTS` in `count` processes; their output goes to a folder.

    Returns:
        List of `subprocess.Popen`. `output` reads what each has said.
    """
    port = free_port()
    started = []
    for i in range(count):
        environ = {
            **os.environ,
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONPATH": os.pathsep.join(PATHS),
            "JAX_PROCESS_ID": str(i),
            "JAX_NUM_PROCESSES": str(count),
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            **variables,
        }
        with open(folder / f"process-{i}.txt", "wb") as file:
            started.append(
                subprocess.Popen(
                    [sys.executable, *map(str, arguments)],
                    env=environ,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )
    return started


def output(folder, i):
    return (folder / f"process-{i}.txt").read_text(errors="replace")


def statuses(started, timeout=TIMEOUT):
    """The exit status of each process; one that hangs is ended, and an error."""
    try:
        return [process.wait(timeout) for process in started]
    finally:
        for process in started:
            process.kill()


def run(arguments, folder, **options):
    """Runs a program in two processes, which must both succeed."""
    found = statuses(launch(arguments, folder, **options))
    said = "\n".join(output(folder, i) for i in range(len(found)))
    assert set(found) == {0}, said
