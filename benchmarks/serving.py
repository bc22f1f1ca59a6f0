"""What load can `effdet-keras serve` take on the loopback, with and without batches?

A server process has an ONNX export. In another process, clients each send one request
after another: JPEG files of 640 x 480. A fraction of them (`--bad`) are not images, are
cut off, are decompression bombs, or are too large.

The results are throughput, the times of good requests, the memory of the server after a
tenth of the requests and at the end, and whether any request was lost. At the end, a
new model is loaded, and then the server is ended, each while clients wait:
`answered_during_*` is the number of responses, and `lost_during_*` the number of
responses that never came.
"""

import argparse
import asyncio
import collections
import io
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BATCHES = (8, 1)
_EXPECTED = {"good": 200, "no image": 400, "cut off": 400, "bomb": 413, "large": 413}
_LARGE = 10_000_001  # bytes: one more than the server accepts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--bad", type=float, default=0.05, help="share of bad requests")
    parser.add_argument("--image-size", type=int, default=320)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.requests, arguments.clients, arguments.image_size = 60, 4, 64
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-c", _EXPORT, folder, str(arguments.image_size)],
            check=True,
        )
        bodies = bodies_in(pathlib.Path(folder))
        for max_batch in arguments.batches:
            line = measured(pathlib.Path(folder), bodies, max_batch, arguments)
            print(json.dumps(line), flush=True)


_EXPORT = """
import sys
import effdet_keras as ek
model = ek.EfficientDet.from_preset(
    "efficientdet-lite0", image_size=int(sys.argv[2]), max_level=6, verbose=0)
model.export(sys.argv[1] + "/model.onnx", verbose=0)
"""


def bodies_in(folder):
    """Returns the bytes of each kind of request."""
    from images import write_images
    from PIL import Image

    write_images(folder, 4)
    good = [(folder / f"{number}.jpg").read_bytes() for number in range(1, 5)]
    bomb = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(bomb, "PNG")
    return {
        "good": good,
        "no image": [b"no image", b"http://127.0.0.1/image.jpg", b"/etc/passwd"],
        "cut off": [data[:2000] for data in good],
        "bomb": [bomb.getvalue()],
        "large": [bytes(_LARGE)],
    }


def measured(folder, bodies, max_batch, arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "effdet_keras", "serve", folder / "model.onnx"]
    flags = ["--port", str(port), "--max-batch", str(max_batch)]
    with open(folder / f"log-{max_batch}.txt", "w") as log:
        server = subprocess.Popen([*command, *flags], stderr=log)
        try:
            line = asyncio.run(load(server, port, bodies, arguments))
        finally:
            server.kill()
            server.wait()
    return {"case": f"--max-batch {max_batch}", **line}


async def load(server, port, bodies, arguments):
    import httpx

    limits = httpx.Limits(max_connections=arguments.clients)
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        while not await is_up(client):
            assert server.poll() is None, "the server ended"
            await asyncio.sleep(0.1)
        kinds = kinds_of(arguments.requests, arguments.bad)
        tenth = len(kinds) // 10
        early = await answers(client, bodies, kinds[:tenth], arguments.clients)
        before = memory_mb(server)
        start = time.perf_counter()
        late = await answers(client, bodies, kinds[tenth:], arguments.clients)
        seconds = time.perf_counter() - start
        after = memory_mb(server)
        wrong = [r for r in early + late if r.status != _EXPECTED[r.kind]]
        good = sorted(r.seconds for r in late if r.kind == "good")
        line = {
            "requests": len(kinds),
            "clients": arguments.clients,
            "bad": sum(kind != "good" for kind in kinds),
            "answered_otherwise": len(wrong),
            "requests_per_second": round(len(late) / seconds, 1),
            "p50_ms": round(1000 * statistics.median(good), 1),
            "p99_ms": round(1000 * good[int(0.99 * len(good))], 1),
            "mb_after_a_tenth": before,
            "mb_at_the_end": after,
        }
        for name, number in (("reload", signal.SIGHUP), ("end", signal.SIGTERM)):
            line |= await answered_during(
                name, number, server, client, bodies, arguments
            )
    line["exit_status"] = server.wait(120)
    return line


async def answered_during(name, number, server, client, bodies, arguments):
    """Sends a signal while every client waits; all requests must be answered."""
    waiting = asyncio.create_task(
        answers(client, bodies, ["good"] * arguments.clients, arguments.clients)
    )
    in_flight = f"effdet_requests_in_flight {arguments.clients}.0"
    while in_flight not in (await asyncio.to_thread(metrics, client)):
        if waiting.done():  # all were answered before the signal: try again
            waiting = asyncio.create_task(
                answers(client, bodies, ["good"] * arguments.clients, arguments.clients)
            )
    server.send_signal(number)
    statuses = collections.Counter(r.status for r in await waiting)
    if number == signal.SIGHUP:
        while 'effdet_reloads_total{result="done"} 1.0' not in metrics(client):
            more = await answers(client, bodies, ["good"] * 4, 4)
            statuses.update(r.status for r in more)
    lost = sum(statuses.values()) - statuses[200]
    return {f"answered_during_{name}": statuses[200], f"lost_during_{name}": lost}


def metrics(client):
    """Returns the metrics, read over a separate connection."""
    import httpx

    return httpx.get(f"{client.base_url}/metrics", timeout=120).text


async def is_up(client):
    import httpx

    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False


def kinds_of(count, bad):
    """Returns the kind of each request; the bad ones are evenly distributed."""
    kinds, every = ["good"] * count, max(1, round(1 / bad)) if bad else count + 1
    others = [kind for kind in _EXPECTED if kind != "good"]
    for place in range(0, count, every):
        kinds[place] = others[place // every % len(others)]
    return kinds


Answer = collections.namedtuple("Answer", "kind status seconds")


async def answers(client, bodies, kinds, num_clients):
    """Returns an `Answer` for each request; status 0 if it was lost."""
    import httpx

    waiting, found = iter(enumerate(kinds)), []

    async def work():
        for number, kind in waiting:
            body = bodies[kind][number % len(bodies[kind])]
            start = time.perf_counter()
            try:
                answer = await client.post("/detect?score=0.5", content=body)
                status = answer.status_code
            except httpx.TransportError:
                status = 0
            found.append(Answer(kind, status, time.perf_counter() - start))

    await asyncio.gather(*(work() for _ in range(num_clients)))
    return found


def memory_mb(process):
    """Returns the memory that a process uses now."""
    pages = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


if __name__ == "__main__":
    main()
