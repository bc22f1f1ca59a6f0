"""Processes tell each other where they listen; one that does not come is named."""

import concurrent.futures
import contextlib
import json
import socket

import pytest
from support.several_processes import free_port

from effdet_keras.errors import InvalidStateError
from effdet_keras.extras.multiprocess import tensorflow as meeting
from effdet_keras.extras.multiprocess.launch import Launch
from effdet_keras.extras.multiprocess.tensorflow import addresses_of_all


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
    with pytest.raises(InvalidStateError, match=r"2 did not come.*\[1, 2\]") as error:
        addresses_of_all(Launch(0, 3, coordinator), timeout=0.01)
    assert coordinator in str(error.value)


def test_a_first_process_that_is_not_there_is_named(coordinator):
    with pytest.raises(
        InvalidStateError, match="Process 1 of 2 did not find process 0"
    ):
        addresses_of_all(Launch(1, 2, coordinator), timeout=0.01)


@pytest.mark.parametrize(
    ("number", "count"), [(0, 2), (1, 3)], ids=["number of another", "another training"]
)
def test_a_process_of_another_training_is_refused(coordinator, others, number, count):
    said = {"process_id": number, "num_processes": count, "port": 1}
    others.submit(say, coordinator, json.dumps(said).encode() + b"\n")
    with pytest.raises(InvalidStateError, match=f"process {number} of {count} came"):
        addresses_of_all(Launch(0, 2, coordinator))


def test_a_port_that_something_else_has_is_named(others):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        coordinator = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidStateError, match="cannot listen at") as error:
            addresses_of_all(Launch(0, 2, coordinator))
    assert coordinator in str(error.value)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\n", b"5\n", b"{}\n", b""])
def test_who_says_something_else_or_nothing_does_not_matter(
    coordinator, others, said, monkeypatch
):
    monkeypatch.setattr(meeting, "_SILENCE", 0.2)
    first = others.submit(addresses_of_all, Launch(0, 2, coordinator))
    say(coordinator, said)  # until process 0 ends the connection
    second = others.submit(addresses_of_all, Launch(1, 2, coordinator))
    assert first.result() == second.result()
