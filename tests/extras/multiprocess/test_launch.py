"""How processes start: the variables of launchers, where all meet, what is refused."""

import concurrent.futures
import contextlib
import json
import socket

import keras
import pytest
from support.programs import free_port

from effdet_keras._internal.processes import ENGINES, is_first_process
from effdet_keras.errors import InvalidStateError
from effdet_keras.extras import multiprocess
from effdet_keras.extras.multiprocess import tensorflow as meeting
from effdet_keras.extras.multiprocess.launch import Launch, launch_of
from effdet_keras.extras.multiprocess.tensorflow import addresses_of_all

JAX = {
    "JAX_PROCESS_ID": "1",
    "JAX_NUM_PROCESSES": "3",
    "JAX_COORDINATOR_ADDRESS": "job-node-0-0.job:29500",
    "JAX_COORDINATOR_PORT": "29500",  # Kubeflow Trainer sets both
}
TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "8",  # of the job, of which this step has fewer
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[07-09,12],big1",
}


def tf_config(cluster, kind="worker", index=0):
    content = {"cluster": cluster, "task": {"type": kind, "index": index}}
    return {"TF_CONFIG": json.dumps(content)}


CHIEF = {"chief": ["c:1"], "worker": ["a:1", "b:1"]}


@pytest.mark.parametrize(
    "environ, expected",
    [
        ({}, None),
        (tf_config({"worker": ["a:1", "b:2"]}, index=1), (1, 2, "a:1")),
        (tf_config(CHIEF, "worker", 1), (2, 3, "c:1")),
        (JAX, (1, 3, "job-node-0-0.job:29500")),
        (
            {**JAX, "JAX_COORDINATOR_ADDRESS": "job-node-0-0.job"},
            (1, 3, "job-node-0-0.job:29500"),
        ),
        (TORCHRUN, (3, 4, "node1:29500")),
        ({**TORCHRUN, "MASTER_ADDR": "::1"}, (3, 4, "[::1]:29500")),
        # The port on which torchrun itself listens is left alone.
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}, (3, 4, "node1:29501")),
        (SLURM, (2, 4, "gpu07:61442")),
        ({**SLURM, "SLURM_STEP_NODELIST": "node1"}, (2, 4, "node1:61442")),
        ({**SLURM, "SLURM_STEP_NODELIST": "n[3,5]-ib"}, (2, 4, "n3-ib:61442")),
        (
            {**SLURM, "SLURM_STEP_NODELIST": "r[1-2]n[01-04,9]x,b1"},
            (2, 4, "r1n01x:61442"),
        ),
        # A shell of Slurm is no step, and other launchers run inside one.
        ({**SLURM, "SLURM_STEP_NODELIST": ""}, None),
        ({**SLURM, **TORCHRUN}, (3, 4, "node1:29500")),
    ],
)
def test_variables_of_launchers(environ, expected):
    launch = launch_of(environ)
    if launch is not None:
        assert launch.source in environ
        launch = launch.process_id, launch.num_processes, launch.coordinator
    assert launch == expected


@pytest.mark.smoke
def test_tf_config_names_all_workers():
    environ = tf_config({"worker": ["a:1", "b:2"]}, index=1)
    assert launch_of(environ).workers == ("a:1", "b:2")


def test_all_processes_of_a_job_of_slurm_meet_at_one_port_of_their_own():
    def port(job):
        return launch_of({**SLURM, "SLURM_JOB_ID": str(job)}).coordinator_port

    assert port(1) != port(2)
    assert all(1024 < port(job) < 65536 for job in range(0, 10_000, 7))


@pytest.mark.parametrize(
    "environ, said",
    [
        ({"TF_CONFIG": "worker 1"}, "TF_CONFIG='worker 1'"),
        (
            tf_config({"worker": ["a:1"]}, index=1),
            "below the number of processes.*TF_CONFIG",
        ),
        (tf_config({"worker": ["a:1"], "ps": ["b:1"]}), "parameter servers"),
        ({"RANK": "0"}, "'MASTER_PORT'.*RANK='0'.*docs/distributed.md"),
        ({**JAX, "JAX_PROCESS_ID": "one"}, "JAX_PROCESS_ID='one'"),
    ],
)
def test_what_cannot_be_right_is_named(environ, said):
    with pytest.raises(ValueError, match=said):
        launch_of(environ)


# What `start` refuses before it starts anything.


@pytest.mark.tensorflow
def test_several_workers_need_a_launcher(monkeypatch):
    for name in ("TF_CONFIG", "JAX_PROCESS_ID", "RANK", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="TF_CONFIG.*docs/distributed.md"):
        multiprocess.start("multiworker")


def test_an_engine_needs_its_backend():
    other = "jax" if keras.backend.backend() == "tensorflow" else "mirrored"
    backend = ENGINES[other]
    with pytest.raises(ValueError, match=f"KERAS_BACKEND={backend}"):
        multiprocess.start(other)


def test_a_process_has_one_engine(monkeypatch):
    engine = object()
    monkeypatch.setattr(multiprocess, "_started", {"mirrored": engine})
    assert multiprocess.start("mirrored") is engine
    with pytest.raises(RuntimeError, match="trains with distribute='mirrored'"):
        multiprocess.start("jax")


def test_alone_a_process_is_the_first_and_gathers_its_own():
    processes = multiprocess.current_processes()
    assert (processes.index, processes.count) == (0, 1)
    assert processes.gather([1]) == [[1]]
    assert is_first_process()


# Processes tell each other where they listen; one that does not come is named.


@pytest.fixture
def coordinator():
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def others(monkeypatch):
    """Runs functions beside the test, and waits for them."""
    monkeypatch.setattr(meeting, "_BETWEEN_TRIES", 0.01)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool


def say(coordinator, content):
    """What someone else who connects to process 0 says, once it listens."""
    host, port = coordinator.split(":")
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            connection = socket.create_connection((host, port))
            break
    # Process 0 ends the connection, after its answer if there is one.
    with connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(content)
        connection.recv(1)


def test_all_are_told_the_addresses_of_all(coordinator, others):
    found = [
        others.submit(addresses_of_all, Launch(i, 3, coordinator)) for i in (2, 1, 0)
    ]
    first, *rest = [one.result() for one in found]
    assert all(one == first for one in rest)
    assert len(set(first)) == 3 and all(one.startswith("127.0.0.1:") for one in first)


def test_processes_that_do_not_come_are_named(coordinator):
    said = r"2 of 3 processes did not.*\[1, 2\]"
    with pytest.raises(InvalidStateError, match=said) as error:
        addresses_of_all(Launch(0, 3, coordinator), timeout=0.01)
    assert coordinator in str(error.value)


def test_a_first_process_that_is_not_there_is_named(coordinator):
    with pytest.raises(
        InvalidStateError, match="Process 1 of 2 could not connect to process 0"
    ):
        addresses_of_all(Launch(1, 2, coordinator), timeout=0.01)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\n", b""])
def test_who_says_something_else_or_nothing_does_not_matter(
    coordinator, others, said, monkeypatch
):
    monkeypatch.setattr(meeting, "_SILENCE", 0.2)
    first = others.submit(addresses_of_all, Launch(0, 2, coordinator))
    say(coordinator, said)  # until process 0 ends the connection
    second = others.submit(addresses_of_all, Launch(1, 2, coordinator))
    assert first.result() == second.result()
