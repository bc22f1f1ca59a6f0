"""What a stranger sends over a connection of their own, and what becomes of it."""

import contextlib
import json
import re
import socket
import threading
import time

import numpy as np
import pytest
from support.live_server import live_server
from support.small_datasets import encoded
from support.tiny import lively_model

from effdet_keras.extras.serving.command import Limits
from effdet_keras.extras.serving.service import DetectionService
from effdet_keras.predictor import Predictor

pytestmark = pytest.mark.tensorflow

LIMITS = Limits(max_bytes=50_000, max_pixels=20_000, max_batch=2, body_timeout=1.0)


@pytest.fixture(scope="module")
def service():
    pytest.importorskip("prometheus_client", reason="needs the extra `serve`")
    model = lively_model()
    return DetectionService(lambda: Predictor(model), LIMITS)


@pytest.fixture(scope="module")
def port(service):
    with live_server(service) as port:
        yield port


@pytest.fixture(autouse=True)
def the_others_are_answered(port):
    """Whatever a test sent: a good image is answered after it."""
    yield
    status, answer = asked(port, post(image()))
    assert status == 200 and json.loads(answer)["width"] == 56


def image():
    return encoded(np.full((40, 56, 3), 9, "uint8"))


def post(body, head="", target="/detect"):
    return (
        f"POST {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{head}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def form(name, content, file_name):
    head = f'Content-Disposition: form-data; name="{name}"; filename="{file_name}"'
    body = f"--x\r\n{head}\r\n\r\n".encode() + content + b"\r\n--x--\r\n"
    return post(body, "Content-Type: multipart/form-data; boundary=x\r\n")


def asked(port, *sent, pause=0.0):
    """Status and body of the answer to what is sent piece by piece."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
                time.sleep(pause)
        except OSError:
            pass  # it was closed before all was sent
        answer = b""
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass  # what was sent beyond the answer is not read
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(re.match(rb"HTTP/1.1 (\d+)", head)[1]), body


def test_a_body_that_comes_drop_by_drop_is_ended(port):
    head = b"POST /detect HTTP/1.1\r\nHost: here\r\nContent-Length: 40000\r\n\r\n"
    status, body = asked(port, head, *[b"x"] * 30, pause=0.05)
    assert status == 408
    assert b"did not arrive within 1 seconds" in body


def test_a_body_without_a_length_is_read_no_further_than_the_limit(port):
    head = b"POST /detect HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"4000\r\n" + bytes(0x4000) + b"\r\n"
    status, body = asked(port, head, *[chunk] * 400)  # 6.5 MB without an end
    assert status == 413 and b"more than 50,000 bytes" in body


def test_a_body_that_will_be_too_long_is_not_awaited(port):
    head = b"POST /detect HTTP/1.1\r\nHost: here\r\nContent-Length: 50001\r\n\r\n"
    status, body = asked(port, head)
    assert status == 413 and b"more than 50,000 bytes" in body


@pytest.mark.parametrize("file_name", ["../../etc/passwd", "C:\\boot.ini", ""])
def test_the_name_of_a_file_is_no_path(port, file_name):
    status, body = asked(port, form("image", image(), file_name))
    assert status == 200
    assert not file_name or file_name.encode() not in body


@pytest.mark.parametrize(
    "target", ["/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"]
)
def test_a_path_in_the_address_leads_to_no_file(port, target):
    request = f"GET {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    status, body = asked(port, request.encode())
    assert status == 404 and b"root" not in body


def test_no_address_is_ever_fetched(port):
    asked_of_us = []
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.settimeout(0.1)
        stop = threading.Event()

        def listen():
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    asked_of_us.append(inside.accept())

        listener = threading.Thread(target=listen)
        listener.start()
        url = f"http://127.0.0.1:{inside.getsockname()[1]}/secret.png"
        as_json = json.dumps({"url": url, "image": url}).encode()
        as_svg = f'<svg><image href="{url}"/></svg>'.encode()
        statuses = [
            asked(port, post(b"", target=f"/detect?url={url}&image={url}"))[0],
            asked(port, post(url.encode()))[0],
            asked(port, post(url.encode(), "Content-Type: text/uri-list\r\n"))[0],
            asked(port, post(as_json, "Content-Type: application/json\r\n"))[0],
            asked(port, post(as_svg, "Content-Type: image/svg+xml\r\n"))[0],
            asked(port, form("image", url.encode(), url))[0],
            asked(port, form("url", url.encode(), url))[0],
        ]
        time.sleep(0.3)
        stop.set()
        listener.join()
    assert statuses == [400, 400, 415, 415, 400, 400, 400]
    assert asked_of_us == []


def test_what_is_no_http_is_refused(port):
    assert asked(port, b"\x16\x03\x01 no HTTP\r\n\r\n")[0] == 400
    long = b"GET / HTTP/1.1\r\nHost: here\r\nX: " + bytes([97]) * 200_000 + b"\r\n\r\n"
    assert asked(port, long)[0] in (400, 431)


def test_a_client_that_goes_away_is_counted(port, service):
    def gone():
        found = re.search(
            r'requests_total{status="499"} (\d+)', service.metrics.text().decode()
        )
        return int(found[1]) if found else 0

    before, deadline = gone(), time.monotonic() + 60
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(post(image())[:-20])
    while gone() == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
