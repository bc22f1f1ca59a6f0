"""How this process was launched: which of how many, and where they meet."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping

from effdet_keras.errors import InvalidValueError

_SLURM_PORTS = 61440, 4096  # the first, and how many: a job's id chooses one


@dataclasses.dataclass(frozen=True)
class Launch:
    """Which process this is, as the variables of a launcher tell.

    Args:
        process_id: int from 0; process 0 is the one that writes.
        num_processes: int, how many there are on all hosts.
        coordinator: string "host:port" where process 0 listens; None for one process
            that needs none.
        source: string, the variable by which the launcher was recognized.
        local_process_id: int, which process of this host it is; None if unknown.
        workers: tuple of "host:port", the address of each process, where the launcher
            tells all; else None.

    Raises:
        ValueError: If the numbers or the address cannot be right.

    Example:
        >>> launch = Launch(1, 2, "node1:1234")
        >>> launch.coordinator_host, launch.coordinator_port
        ('node1', 1234)
    """

    process_id: int
    num_processes: int
    coordinator: str | None = None
    source: str = "given"
    local_process_id: int | None = None
    workers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.num_processes < 1:
            raise InvalidValueError(
                f"There must be at least one process. {self._received()}"
            )
        if not 0 <= self.process_id < self.num_processes:
            raise InvalidValueError(
                "The processes are counted from 0: this one must be below "
                f"{self.num_processes}. {self._received()}"
            )
        if self.coordinator is None:
            if self.num_processes > 1:
                raise InvalidValueError(
                    f"Several processes need an address to meet. {self._received()}"
                )
            return
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidValueError(
                f"The address must be 'host:port'. {self._received()}"
            )

    def _received(self):
        return (
            f"Received by {self.source}: process {self.process_id} of "
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
    """Reads how this process was launched.

    The first of these launchers whose variables are there is believed:

    - `TF_CONFIG`, the JSON of TensorFlow's own launchers, with all addresses;
    - `JAX_PROCESS_ID`, `JAX_NUM_PROCESSES` and `JAX_COORDINATOR_ADDRESS`, which
      Kubeflow Trainer's JAX runtime sets, or a person;
    - `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`, as torchrun sets them;
    - `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` and `SLURM_STEP_NODELIST` of `srun`.

    Args:
        environ: mapping of names to strings, such as `os.environ`.

    Returns:
        `Launch`; None where no launcher has set anything.

    Raises:
        ValueError: If a variable is missing or cannot be right; the message names it.

    Example:
        >>> launch = launch_of({"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2",
        ...                     "JAX_COORDINATOR_ADDRESS": "node1:1234"})
        >>> launch.process_id, launch.num_processes, launch.coordinator
        (1, 2, 'node1:1234')
        >>> launch_of({}) is None
        True
    """
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
    if kind not in ("chief", "worker") or set(cluster) - {"chief", "worker"}:
        raise InvalidValueError(
            "TF_CONFIG may name workers, and one of them as chief: parameter servers "
            "do not work with Keras 3, and each worker takes part in the evaluation. "
            f"Received: TF_CONFIG={environ['TF_CONFIG']!r}"
        )
    before = len(cluster.get("chief", [])) if kind == "worker" else 0
    return Launch(
        index + before,
        len(workers),
        workers[0] if workers else None,
        "TF_CONFIG",
        workers=workers,
    )


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
        _number_or_none(environ, "JAX_LOCAL_PROCESS_ID"),
    )


def _of_torchrun(environ):
    port = _number(environ, "MASTER_PORT")
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun itself listens on the one that it names
    return Launch(
        _number(environ, "RANK"),
        _number(environ, "WORLD_SIZE"),
        _address(_text(environ, "MASTER_ADDR"), port),
        "RANK",
        _number_or_none(environ, "LOCAL_RANK"),
    )


def _of_slurm(environ):
    host = _first_host(_text(environ, "SLURM_STEP_NODELIST"))
    first, count = _SLURM_PORTS
    return Launch(
        _number(environ, "SLURM_PROCID"),
        _number(environ, "SLURM_STEP_NUM_TASKS"),
        f"{host}:{first + _number(environ, 'SLURM_JOB_ID') % (count - 1)}",
        "SLURM_STEP_NODELIST",
        _number_or_none(environ, "SLURM_LOCALID"),
    )


def _first_host(nodes):
    """The first of Slurm's list of hosts: 'gpu[07-09,12],big1' is 'gpu07'."""
    found = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\]([^\[,]*))?", nodes)
    if found is None:
        raise InvalidValueError(
            "SLURM_STEP_NODELIST must name hosts, such as 'node[1-4]'. Received: "
            f"SLURM_STEP_NODELIST={nodes!r}"
        )
    return "".join(part or "" for part in found.groups())


def _address(host, port):
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
    if not value.isdecimal():
        raise InvalidValueError(
            f"{name} must be a whole number of at least 0. Received: {name}={value!r}"
        )
    return int(value)


def _number_or_none(environ, name):
    return _number(environ, name) if environ.get(name, "").strip() else None


# By the variable that tells of each. Slurm last: another launcher may run inside it,
# and a shell of Slurm has variables without being one of several processes.
_LAUNCHERS = {
    "TF_CONFIG": _of_tf_config,
    "JAX_PROCESS_ID": _of_jax,
    "RANK": _of_torchrun,
    "SLURM_STEP_NODELIST": _of_slurm,
}
