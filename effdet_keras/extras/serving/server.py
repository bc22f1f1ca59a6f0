"""The process of a server: it listens, takes signals, and ends without losing any."""

import asyncio
import contextlib
import signal

from effdet_keras._internal.optional_imports import uvicorn
from effdet_keras.extras.serving.app import create_app
from effdet_keras.extras.serving.service import DetectionService


def run_server(service: DetectionService, host: str, port: int) -> None:
    """Answers until SIGTERM or Ctrl-C; then answers what was accepted, and returns.

    SIGHUP rolls the model in anew, see `DetectionService.reload`.
    """
    config = uvicorn.Config(
        create_app(service),
        host=host,
        port=port,
        http="h11",
        ws="none",
        log_level="info",
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
    )
    server = uvicorn.Server(config)
    try:
        asyncio.run(_serve(server, service))
    except KeyboardInterrupt:  # uvicorn raises the signal again when all is done
        if not (server.started and server.should_exit):
            raise


async def _serve(server, service):
    tasks = set()

    def reload():
        task = asyncio.create_task(service.reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with contextlib.suppress(NotImplementedError, AttributeError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    await server.serve()
