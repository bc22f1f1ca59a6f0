"""Detects in encoded images, with a queue between the clients and the network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from effdet_keras.detect.detect import (
    PreprocessedImage,
    ScoreRule,
    detect_preprocessed,
    preprocess_image,
)
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import EffDetError
from effdet_keras.extras.decoding import decode_image
from effdet_keras.extras.serving import prometheus_client
from effdet_keras.letterbox import has_area

_LOG = logging.getLogger("effdet_keras.extras.serving")
_DECODERS = 2  # threads; decoding takes little time compared to the network


class DetectionService:
    """A detector for many concurrent clients.

    Args:
        open_model: function that returns a `Predictor`. It is called at the start and
            at each `reload`.
        limits: `Limits` of the server.
        calibrated: bool, whether scores get the temperature stored with the model.
    """

    def __init__(self, open_model, limits, calibrated=False):
        self._open_model, self.limits = open_model, limits
        self._calibrated = calibrated
        self.engine = self._new_engine()
        self._batcher: Batcher | None = None
        self._decoders = concurrent.futures.ThreadPoolExecutor(
            _DECODERS, "effdet-decoding"
        )
        self.metrics = Metrics(lambda: len(self._batcher or ()))
        self._reloading = asyncio.Lock()

    async def start(self) -> None:
        """Starts the batches; must be called in the event loop."""
        self._batcher = Batcher(self._detect, self.limits)
        await self._batcher.start()

    async def close(self) -> None:
        """Finishes all accepted requests, and stops."""
        await self._batcher.close()
        self._decoders.shutdown()

    async def detect(self, data, score, classes=None):
        """Returns the detections in an image, and its size; `classes=None` is all."""
        engine = self.engine  # keeps this one, even if a newer one replaces it
        item = await self.run(engine.prepare, data, score, self.limits, classes)
        return await self._batcher.submit((engine, item)), item.size

    async def run(self, function, *arguments):
        """Runs a slow function in one of the threads that decode images."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._decoders, function, *arguments)

    async def reload(self) -> bool:
        """Opens the model again; until then, or if that fails, the old one is used."""
        async with self._reloading:
            try:
                engine = await asyncio.to_thread(self._new_engine)
            except Exception as error:  # the old model is better than none
                _LOG.error("The model was not replaced: %s", error)
                self.metrics.reloads.labels("failed").inc()
                return False
            self.engine = engine
        _LOG.info("The model was replaced: requests are answered by the new one")
        self.metrics.reloads.labels("done").inc()
        return True

    def _new_engine(self):
        engine = Engine(self._open_model(), self.limits.max_batch, self._calibrated)
        engine.warm_up()
        return engine

    def _detect(self, items):
        """Detects in images that one engine has preprocessed, or two after a reload."""
        start, results = time.perf_counter(), [None] * len(items)
        for engine in dict.fromkeys(engine for engine, _ in items):
            places = [i for i, (of, _) in enumerate(items) if of is engine]
            found = engine.detect([items[i][1] for i in places])
            for place, detections in zip(places, found):
                results[place] = detections
        self.metrics.batch_images.observe(len(items))
        self.metrics.batch_seconds.observe(time.perf_counter() - start)
        return results


# --- A model that is ready: preprocessing of images, and detection in batches.


class Engine:
    """Detects in batches of 1, 2, 4, ... images, so that few sizes are compiled.

    An exported file with a fixed batch size gets the images without padding.
    """

    def __init__(self, predictor, max_batch, calibrated=False):
        self.detector, self._calibrated = predictor.detector, calibrated
        runtime = getattr(self.detector, "runtime", None)  # only of an exported file
        self._is_fixed = runtime is not None and bool(runtime.description.batch_size)
        sizes = [1]
        while sizes[-1] < max_batch and not self._is_fixed:
            sizes.append(min(2 * sizes[-1], max_batch))
        self._sizes = sizes

    def warm_up(self) -> None:
        """Runs the network once for each batch size."""
        grey = np.full((*self.detector.config.image_size, 3), 128, "uint8")
        item = self._preprocess(grey, self.rule(0.5))
        for size in self._sizes:
            self.detect([item] * size)

    def rule(self, score: Any, classes: Sequence[str] | None = None) -> ScoreRule:
        """Returns the `ScoreRule` for a lowest score, or "best"; may raise errors."""
        return ScoreRule(self.detector, score, self._calibrated, classes)

    def prepare(self, data, score, limits, classes=None):
        """Decodes and preprocesses an image; does not keep the decoded image."""
        rule = self.rule(score, classes)
        return self._preprocess(decode_image(data, **limits.decoding), rule)

    def detect(self, items: list[PreprocessedImage]) -> list[Detections]:
        rows = len(items)
        if not self._is_fixed:
            rows = next(size for size in self._sizes if size >= rows)
        found = detect_preprocessed(self.detector, items, rows)
        # Boxes in the padding beside an image have no area inside the image.
        return [some[has_area(some.boxes)] for some in found]

    def _preprocess(self, image, rule):
        return preprocess_image(self.detector.config, image, rule)._replace(image=None)


# --- The metrics of a server, for Prometheus.

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters and histograms of one server, in a registry of its own."""

    def __init__(self, queue_length):
        client = prometheus_client
        self._registry = client.CollectorRegistry()
        client.ProcessCollector(registry=self._registry)  # memory, open files, CPU time

        def made(kind, name, text, **options):
            return kind(f"effdet_{name}", text, registry=self._registry, **options)

        counter, gauge, histogram = client.Counter, client.Gauge, client.Histogram
        text = "Answered requests of /detect, by HTTP status"
        self.requests = made(counter, "requests", text, labelnames=["status"])
        text = "From the first byte of a request of /detect to its answer"
        self.seconds = made(histogram, "request_seconds", text, buckets=_SECONDS)
        text = "Requests of /detect that are not answered yet"
        self.in_flight = made(gauge, "requests_in_flight", text)
        sizes = {"buckets": (1, 2, 4, 8, 16, 32, 64)}
        self.batch_images = made(
            histogram, "batch_images", "Images in a batch", **sizes
        )
        text = "Network and postprocess of a batch"
        self.batch_seconds = made(histogram, "batch_seconds", text, buckets=_SECONDS)
        text = "Requests to load a new model, by their result"
        self.reloads = made(counter, "reloads", text, labelnames=["result"])
        waiting = made(gauge, "queue_images", "Images that wait for the network")
        waiting.set_function(queue_length)

    def text(self) -> bytes:
        """Returns all metrics in the text format of Prometheus."""
        return prometheus_client.generate_latest(self._registry)


# --- Batches of requests that arrive one by one.


class QueueFullError(EffDetError):
    """Raised if there is no room for another item: try again later."""


class Batcher:
    """Groups items into batches for a function, which runs in its own thread.

    A batch is full at `max_batch` items. Its first item waits at most `max_wait`
    seconds for others. Items that are already in the queue are taken without waiting.
    An item is skipped if its caller has gone, for example after a timeout.
    """

    def __init__(self, work, limits):
        self._work, self._limits = work, limits
        self._queue: asyncio.Queue = asyncio.Queue(limits.max_queue)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "effdet-batches")
        self._task: asyncio.Task | None = None

    def __len__(self) -> int:
        return self._queue.qsize()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def submit(self, item: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((item, future))
        except asyncio.QueueFull:
            raise QueueFullError("The queue is full: try again later") from None
        return await future

    async def close(self) -> None:
        """Processes everything in the queue, and stops."""
        await self._queue.put(None)
        await self._task
        self._thread.shutdown()

    async def _run(self):
        """Processes batches from the queue until closed; sets each item's result."""
        loop, is_last = asyncio.get_running_loop(), False
        while not is_last:
            batch, is_last = await self._next_batch()
            batch = [(item, future) for item, future in batch if not future.done()]
            if not batch:
                continue
            items = [item for item, _ in batch]
            try:
                results = await loop.run_in_executor(self._thread, self._work, items)
            except Exception as error:  # only fails this batch; the next may succeed
                results = [error] * len(items)
            for (_, future), result in zip(batch, results):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    async def _next_batch(self):
        """Returns pairs of item and future, and whether they are the last ones."""
        first = await self._queue.get()
        if first is None:
            return [], True
        now = asyncio.get_running_loop().time()
        batch, deadline = [first], now + self._limits.max_wait
        while len(batch) < self._limits.max_batch:
            try:
                entry = self._queue.get_nowait()
            except asyncio.QueueEmpty:
                try:
                    async with asyncio.timeout_at(deadline):
                        entry = await self._queue.get()
                except TimeoutError:
                    break
            if entry is None:
                return batch, True
            batch.append(entry)
        return batch, False
