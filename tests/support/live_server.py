"""A server in a thread, at a port of this machine: for what needs a real connection."""

import contextlib
import threading
import time

import pytest

from effdet_keras.extras.serving.app import create_app


@contextlib.contextmanager
def live_server(service):
    """Gives the port of a server for a `DetectionService`."""
    pytest.importorskip("starlette", reason="needs the extra `serve`")
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")
    config = uvicorn.Config(
        create_app(service), port=0, http="h11", log_level="critical"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.02)
    (listening,) = server.servers[0].sockets
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
