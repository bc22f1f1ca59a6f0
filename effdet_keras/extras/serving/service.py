"""Bytes of an image to detections, with a queue between the clients and the network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import prometheus_client
from effdet_keras.detect.detect import (
    Prepared,
    ScoreRule,
    detect_prepared,
    prepared,
)
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.letterbox import has_area
from effdet_keras.detect.predictor import Predictor
from effdet_keras.extras.serving.batcher import Batcher
from effdet_keras.extras.serving.limits import Limits
from effdet_keras.images import decode_image

_LOG = logging.getLogger("effdet_keras.extras.serving")
_DECODERS = 2  # threads; decoding takes a small part of the time of a network


class DetectionService:
    """A detector for many clients at the same time.

    Args:
        open_model: function without arguments that returns a `Predictor`: called at the
            start, and for every new model that is rolled in.
    """

    def __init__(
        self,
        open_model: Callable[[], Predictor],
        limits: Limits,
        calibrated: bool = False,
    ) -> None:
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
        """Begins to work; call it where the event loop runs."""
        self._batcher = Batcher(
            self._detect,
            max_batch=self.limits.max_batch,
            max_wait=self.limits.max_wait,
            max_queue=self.limits.max_queue,
        )
        await self._batcher.start()

    async def close(self) -> None:
        """Answers all that was accepted, and ends."""
        await self._batcher.close()
        self._decoders.shutdown()

    async def detect(
        self, data: bytes, score: float | str
    ) -> tuple[Detections, tuple[int, int]]:
        """Detects in one image."""
        engine = self.engine  # which answers, also after a newer one came
        item = await self.run(engine.prepare, data, score, self.limits)
        return await self._batcher.submit((engine, item)), item.size

    async def run(self, function: Callable, *arguments):
        """Runs what takes an image's time in one of the threads that decode."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._decoders, function, *arguments)

    async def reload(self) -> bool:
        """Opens the model anew; until it is ready, and if it fails, the old answers."""
        async with self._reloading:
            try:
                engine = await asyncio.to_thread(self._new_engine)
            except Exception as error:  # the old model is better than none
                _LOG.error("The model was not replaced: %s", error)
                self.metrics.reloads.labels("failed").inc()
                return False
            self.engine = engine
        _LOG.info("A new model answers")
        self.metrics.reloads.labels("done").inc()
        return True

    def _new_engine(self):
        engine = Engine(self._open_model(), self.limits.max_batch, self._calibrated)
        engine.warm_up()
        return engine

    def _detect(self, items):
        start = time.perf_counter()
        results = detect_all(items)
        self.metrics.batch_images.observe(len(items))
        self.metrics.batch_seconds.observe(time.perf_counter() - start)
        return results


# --- A model, ready to answer: images to inputs of the network, inputs to detections.


class Engine:
    """Detects in batches of 1, 2, 4, ... images, so that few sizes are compiled."""

    def __init__(
        self, predictor: Predictor, max_batch: int, calibrated: bool = False
    ) -> None:
        self.detector, self._calibrated = predictor.detector, calibrated
        sizes = [1]
        while sizes[-1] < max_batch:
            sizes.append(min(2 * sizes[-1], max_batch))
        self._sizes = sizes

    def warm_up(self) -> None:
        """Runs the network once for every size of a batch."""
        grey = np.full((*self.detector.config.image_size, 3), 128, "uint8")
        item = self._prepared(grey, self.rule(0.5))
        for size in self._sizes:
            self.detect([item] * size)

    def rule(self, score: Any) -> ScoreRule:
        """What is kept for a lowest score, or "best"; errors as of `ScoreRule`."""
        return ScoreRule(self.detector, score, self._calibrated)

    def prepare(self, data: bytes, score: Any, limits: Limits) -> Prepared:
        """Decodes an image; the decoded image is gone when this returns."""
        rule = self.rule(score)
        return self._prepared(decode_image(data, **limits.of_image), rule)

    def detect(self, items: list[Prepared]) -> list[Detections]:
        """Returns the detections of each image."""
        rows = next(size for size in self._sizes if size >= len(items))
        found = detect_prepared(self.detector, items, rows)
        # What was found in the padding beside an image has no area in it.
        return [some[has_area(some.boxes)] for some in found]

    def _prepared(self, image, rule):
        return prepared(self.detector.config, image, rule)._replace(image=None)


def detect_all(
    items: list[tuple[Engine, Prepared]],
) -> list[Detections | Exception]:
    """Detects in images that were prepared by one engine or, for a moment, by two."""
    results: list[Any] = [None] * len(items)
    for engine in dict.fromkeys(engine for engine, _ in items):
        places = [i for i, (of, _) in enumerate(items) if of is engine]
        found = engine.detect([items[i][1] for i in places])
        for place, detections in zip(places, found):
            results[place] = detections
    return results


# --- What a server counts and measures, for Prometheus.

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters and histograms of one server, in a registry of their own."""

    def __init__(self, queue_length):
        client = prometheus_client
        self._registry = registry = client.CollectorRegistry()
        client.ProcessCollector(registry=registry)  # memory, open files, CPU time
        self.requests = client.Counter(
            "effdet_requests",
            "Requests of /detect that were answered, by HTTP status",
            ["status"],
            registry=registry,
        )
        self.seconds = client.Histogram(
            "effdet_request_seconds",
            "From the first byte of a request of /detect to its answer",
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = client.Gauge(
            "effdet_requests_in_flight",
            "Requests of /detect that are not answered yet",
            registry=registry,
        )
        self.batch_images = client.Histogram(
            "effdet_batch_images",
            "Images in a batch",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self.batch_seconds = client.Histogram(
            "effdet_batch_seconds",
            "Network and postprocess of a batch",
            buckets=_SECONDS,
            registry=registry,
        )
        self.reloads = client.Counter(
            "effdet_reloads",
            "Times that a new model was asked for, by how it went",
            ["result"],
            registry=registry,
        )
        waiting = client.Gauge(
            "effdet_queue_images", "Images that wait for the network", registry=registry
        )
        waiting.set_function(queue_length)

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return prometheus_client.generate_latest(self._registry)
