"""How this process was launched: its number, their count, and where they meet."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from effdet_keras._internal.processes import SingleProcess
from effdet_keras.errors import InvalidStateError, InvalidValueError, require

_SLURM_PORTS = 61440, 4096  # the first port, and their number; a job's id selects one


@dataclasses.dataclass(frozen=True)
class Launch:
    """The place of this process among all, as a launcher's variable `source` says."""

    process_id: int
    num_processes: int
    coordinator: str
    source: str = "given"
    workers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require(
            0 <= self.process_id < self.num_processes,
            "The index of a process must be 0 or more and below the number of "
            "processes",
            source=self.source,
            process_id=self.process_id,
            num_processes=self.num_processes,
        )

    @property
    def coordinator_host(self) -> str:
        """The host of process 0; an IPv6 address has no brackets."""
        return self.coordinator.rpartition(":")[0].strip("[]")

    @property
    def coordinator_port(self) -> int:
        return int(self.coordinator.rpartition(":")[2])


def launch_of(environ: Mapping[str, str]) -> Launch | None:
    """Returns how this process was launched, by the first launcher that is set."""
    for name, read in _LAUNCHERS.items():
        if environ.get(name, "").strip():
            try:
                return read(environ)
            except (LookupError, TypeError, ValueError) as error:
                raise InvalidValueError(
                    "The environment variables of a launcher are incomplete or "
                    f"wrong: {error!r}. Received: {name}={environ[name]!r}. "
                    "docs/distributed.md lists the variables that each launcher "
                    "needs."
                ) from error
    return None


def _read_tf_config(environ):
    content = json.loads(environ["TF_CONFIG"])
    cluster, task = content["cluster"], content["task"]
    require(
        {task["type"], *cluster} <= {"chief", "worker"},
        "TF_CONFIG may contain only workers, one of which may be the chief: "
        "parameter servers do not work with Keras 3, and there is no separate "
        "evaluator, because each worker takes part in the evaluation",
        TF_CONFIG=environ["TF_CONFIG"],
    )
    chiefs = cluster.get("chief", [])
    workers = (*chiefs, *cluster.get("worker", []))
    before = len(chiefs) if task["type"] == "worker" else 0
    index = int(task["index"]) + before
    return Launch(index, len(workers), workers[0], "TF_CONFIG", workers)


def _read_jax_variables(environ):
    address = environ["JAX_COORDINATOR_ADDRESS"]
    if not re.search(r":\d+$", address):
        address = f"{address}:{int(environ['JAX_COORDINATOR_PORT'])}"
    return Launch(
        int(environ["JAX_PROCESS_ID"]),
        int(environ["JAX_NUM_PROCESSES"]),
        address,
        "JAX_PROCESS_ID",
    )


def _read_torchrun(environ):
    port = int(environ["MASTER_PORT"])
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun itself listens on the named port
    return Launch(
        int(environ["RANK"]),
        int(environ["WORLD_SIZE"]),
        host_and_port(environ["MASTER_ADDR"], port),
        "RANK",
    )


def _read_slurm(environ):
    host = _first_host(environ["SLURM_STEP_NODELIST"])
    first, count = _SLURM_PORTS
    return Launch(
        int(environ["SLURM_PROCID"]),
        int(environ["SLURM_STEP_NUM_TASKS"]),
        f"{host}:{first + int(environ['SLURM_JOB_ID']) % (count - 1)}",
        "SLURM_STEP_NODELIST",
    )


def _first_host(nodes):
    """Returns the first host of Slurm's list: 'r[1-2]n[07-09,12],big1' is 'r1n07'."""
    several = re.match(r"(?:[^\[,]|\[[^\]]*\])+", nodes)[0]  # up to the first comma
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", several)


def host_and_port(host, port):
    """Returns "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# By the variable that indicates each launcher. Slurm comes last: another launcher may
# run inside it, and Slurm sets its variables also in a shell without several processes.
_LAUNCHERS = {
    "TF_CONFIG": _read_tf_config,
    "JAX_PROCESS_ID": _read_jax_variables,
    "RANK": _read_torchrun,
    "SLURM_STEP_NODELIST": _read_slurm,
}


# --- The interface of an engine, and the reaction to a lost process.


@dataclasses.dataclass(frozen=True)
class Engine:
    """The result of a backend's `engine(name, launch)`; make models in `scope()`."""

    processes: SingleProcess
    scope: Callable[[], AbstractContextManager]


def filled_up(array: Any, multiple: int) -> np.ndarray:
    """Returns an array padded with rows of zeros to a multiple of the devices."""
    array = np.asarray(array)
    missing = -len(array) % multiple
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))


def lost_process(processes: SingleProcess, detail: str = "") -> InvalidStateError:
    """Returns the error to raise; this process will end without waiting for others."""
    # TensorFlow and JAX would wait for the lost process when this one ends.
    atexit.register(end_at_once)
    return InvalidStateError(
        f"rank {processes.index} of {processes.count}: another worker of the training "
        "died or is unreachable; see its output. Start all processes again; with "
        "`resume` (--resume) they continue from the last checkpoint."
        f"{f' ({detail})' if detail else ''}"
    )


def end_at_once() -> None:
    """Ends this process with status 1, without running any exit handlers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
