"""`effdet-keras serve` as a process: no accepted request is lost at its end."""

import asyncio
import concurrent.futures
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types

import numpy as np
import pytest
from support.small_datasets import encoded
from support.tiny import LITE0, lively_model

from effdet_keras import cli
from effdet_keras.extras.serving import uvicorn
from effdet_keras.extras.serving.app import check_address, run_server
from effdet_keras.extras.serving.command import Limits
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow


def test_a_missing_extra_is_named_with_its_cure(command, monkeypatch):
    monkeypatch.setattr(uvicorn, "_name", "no_such_server")
    pytest.importorskip("starlette", reason="needs the extra `serve`")
    told = command("serve", "model.keras", status=1)
    assert 'needs no_such_server: pip install "effdet-keras[serve]"' in told


@pytest.mark.slow  # 20 seconds of a server
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTERM to catch")
def test_sigterm_answers_all_that_was_accepted(tmp_path):
    httpx = pytest.importorskip("httpx", reason="the client of this test")
    pytest.importorskip("uvicorn", reason="needs the extra `serve`")
    write_archive(lively_model(backbone=LITE0), tmp_path / "pets.keras")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    root = pathlib.Path(cli.__file__).parents[2]
    path = os.pathsep.join(map(str, [root, *filter(None, sys.path)]))
    # A batch that never fills waits: the signal finds all requests unanswered.
    flags = ["--port", str(port), "--max-batch", "16", "--max-wait", "5"]
    command = [sys.executable, "-m", "effdet_keras", "serve"]
    process = subprocess.Popen(
        [*command, str(tmp_path / "pets.keras"), *flags],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
    )
    image = encoded(np.full((40, 56, 3), 9, "uint8"))

    def is_up():
        try:
            return httpx.get(f"{url}/health", timeout=60).status_code == 200
        except httpx.TransportError:
            return False

    def post(_):
        answer = httpx.post(f"{url}/detect", content=image, timeout=300)
        return answer.status_code

    try:
        until(is_up, process)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            answers = [threads.submit(post, i) for i in range(8)]
            in_flight = "effdet_requests_in_flight 8.0"
            until(lambda: in_flight in httpx.get(f"{url}/metrics").text, process)
            process.send_signal(signal.SIGTERM)
            assert [answer.result() for answer in answers] == [200] * 8
        assert process.wait(300) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def until(is_true, process):
    deadline = time.monotonic() + 300
    while not is_true():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_address_that_cannot_be_had_is_told_before_the_model_is_opened(command):
    pytest.importorskip("uvicorn", reason="needs the extra `serve`")
    serve = ("serve", "missing.keras")
    for port in ("99999999", "-1"):
        told = command(*serve, "--port", port, status=1)
        assert f"from 0 to 65535. Received: port={port}" in told
    for host in ("999.1.2.3", "a" * 70):
        told = command(*serve, "--host", host, status=1)
        assert "must be an address or a name of this machine" in told
        assert f"Received: host='{host}'" in told
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            told = command(*serve, "--host", host, "--port", port, status=1)
            assert f"Received: host='{host}', port={port} (Addr" in told
    check_address("127.0.0.1", port)
    check_address("localhost", 0)
    check_address("", 0)


def test_a_form_that_cannot_be_read_prints_nothing(monkeypatch):
    """Its client gets the reason, and a stranger could fill the log."""
    pytest.importorskip("uvicorn", reason="needs the extra `serve`")
    logger = logging.getLogger("python_multipart")
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(asyncio, "run", lambda task: task.close())
    service = types.SimpleNamespace(limits=Limits())
    run_server(service, "127.0.0.1", 0)
    assert not logging.getLogger("python_multipart.multipart").isEnabledFor(
        logging.WARNING
    )
