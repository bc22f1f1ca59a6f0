"""How this process was launched: which of how many, and where they meet."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from effdet_keras._internal.processes import OneProcess
from effdet_keras.errors import InvalidStateError, InvalidValueError, require

_SLURM_PORTS = 61440, 4096  # the first, and how many: a job's id chooses one


@dataclasses.dataclass(frozen=True)
class Launch:
    """Which process this is, as the variable `source` of a launcher tells."""

    process_id: int
    num_processes: int
    coordinator: str
    source: str = "given"
    workers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.num_processes < 1:
            self._refuse("There must be at least one process.")
        if not 0 <= self.process_id < self.num_processes:
            self._refuse(
                "The processes are counted from 0: this one must be below "
                f"{self.num_processes}."
            )
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            self._refuse("The address must be 'host:port'.")

    def _refuse(self, reason):
        raise InvalidValueError(
            f"{reason} Received by {self.source}: process {self.process_id} of "
            f"{self.num_processes}, coordinator {self.coordinator!r}"
        )

    @property
    def coordinator_host(self) -> str:
        """The host of process 0; an address of IPv6 without its brackets."""
        return self.coordinator.rpartition(":")[0].strip("[]")

    @property
    def coordinator_port(self) -> int:
        """The port on which process 0 listens."""
        return int(self.coordinator.rpartition(":")[2])


def launch_of(environ: Mapping[str, str]) -> Launch | None:
    """How this process was launched, by the first of `_LAUNCHERS` that is set."""
    for name, read in _LAUNCHERS.items():
        if environ.get(name, "").strip():
            return read(environ)
    return None


def _of_tf_config(environ):
    try:
        content = json.loads(environ["TF_CONFIG"])
        cluster, task = content["cluster"], content["task"]
        kind, index = task["type"], int(task["index"])
        workers = (*cluster.get("chief", []), *cluster.get("worker", []))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidValueError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["node1:1234", '
            '"node2:1234"]}, "task": {"type": "worker", "index": 0}}. Received: '
            f"TF_CONFIG={environ['TF_CONFIG']!r}"
        ) from error
    require(
        {kind, *cluster} <= {"chief", "worker"},
        "TF_CONFIG may name workers, and one of them as chief: parameter servers "
        "do not work with Keras 3, and each worker takes part in the evaluation",
        TF_CONFIG=environ["TF_CONFIG"],
    )
    before = len(cluster.get("chief", [])) if kind == "worker" else 0
    first = workers[0] if workers else ""
    return Launch(index + before, len(workers), first, "TF_CONFIG", workers)


def _of_jax(environ):
    address = _text(environ, "JAX_COORDINATOR_ADDRESS")
    port = environ.get("JAX_COORDINATOR_PORT", "").strip()
    if port and not re.search(r":\d+$", address):
        address = f"{address}:{_number(environ, 'JAX_COORDINATOR_PORT')}"
    return Launch(
        _number(environ, "JAX_PROCESS_ID"),
        _number(environ, "JAX_NUM_PROCESSES"),
        address,
        "JAX_PROCESS_ID",
    )


def _of_torchrun(environ):
    port = _number(environ, "MASTER_PORT")
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun itself listens on the one that it names
    return Launch(
        _number(environ, "RANK"),
        _number(environ, "WORLD_SIZE"),
        joined_address(_text(environ, "MASTER_ADDR"), port),
        "RANK",
    )


def _of_slurm(environ):
    host = _first_host(_text(environ, "SLURM_STEP_NODELIST"))
    first, count = _SLURM_PORTS
    return Launch(
        _number(environ, "SLURM_PROCID"),
        _number(environ, "SLURM_STEP_NUM_TASKS"),
        f"{host}:{first + _number(environ, 'SLURM_JOB_ID') % (count - 1)}",
        "SLURM_STEP_NODELIST",
    )


def _first_host(nodes):
    """The first of Slurm's list of hosts: 'gpu[07-09,12],big1' is 'gpu07'."""
    found = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\]([^\[,]*))?", nodes)
    rule = "SLURM_STEP_NODELIST must name hosts, such as 'node[1-4]'"
    require(found is not None, rule, SLURM_STEP_NODELIST=nodes)
    return "".join(part or "" for part in found.groups())


def joined_address(host, port):
    """ "host:port", with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _text(environ, name):
    value = environ.get(name, "").strip()
    if not value:
        raise InvalidValueError(
            f"The launcher has not set {name}, which several processes need."
        )
    return value


def _number(environ, name):
    value = _text(environ, name)
    rule = f"{name} must be a whole number of at least 0"
    require(value.isdecimal(), rule, **{name: value})
    return int(value)


# By the variable that tells of each. Slurm last: another launcher may run inside it,
# and a shell of Slurm has variables without being one of several processes.
_LAUNCHERS = {
    "TF_CONFIG": _of_tf_config,
    "JAX_PROCESS_ID": _of_jax,
    "RANK": _of_torchrun,
    "SLURM_STEP_NODELIST": _of_slurm,
}


# --- What an engine offers, and what a process does when another one is gone.


@dataclasses.dataclass(frozen=True)
class Engine:
    """What a backend's `engine(name, launch)` returns; models are made in `scope()`."""

    processes: OneProcess
    scope: Callable[[], AbstractContextManager]


def lost_process(processes: OneProcess, detail: str = "") -> InvalidStateError:
    """The error to raise; this process then ends without waiting for the lost one."""
    # TensorFlow and JAX would wait for the lost process when this one ends.
    atexit.register(end_at_once)
    return InvalidStateError(
        f"Process {processes.index} of {processes.count} has lost another process of "
        "the training, which was stopped or cannot be reached: see what that one "
        "wrote. Start all processes again; with `resume` (--resume) they go on from "
        f"the last checkpoint.{f' ({detail})' if detail else ''}"
    )


def end_at_once() -> None:
    """Ends this process with status 1, and runs nothing that is registered for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
