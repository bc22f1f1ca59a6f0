"""Bytes of an image to detections, with a queue between the clients and the network."""

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Callable

from effdet_keras.detections import Detections
from effdet_keras.predictor import Predictor
from effdet_keras.serving.batcher import Batcher
from effdet_keras.serving.engine import Engine, detect_all
from effdet_keras.serving.limits import Limits
from effdet_keras.serving.metrics import Metrics

_LOG = logging.getLogger("effdet_keras.serving")
_DECODERS = 2  # threads; decoding takes a small part of the time of a network


class DetectionService:
    """A detector for many clients at the same time.

    Args:
        open_model: function without arguments that returns a `Predictor`: called at the
            start, and for every new model that is rolled in.
        limits: `Limits`.
        calibrated: bool, see `Predictor.detect`.
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
        """Detects in one image.

        Returns:
            `(detections, (height, width))`.

        Raises:
            ValueError: If it is no image, or `score` is out of its range.
            RuntimeError: If the model has no thresholds, and `score` is "best".
            QueueFullError: If too many images wait.
        """
        prepared = await self.run(self.engine.prepare, data, score, self.limits)
        return await self._batcher.submit(prepared), prepared.image_size

    async def run(self, function: Callable, *arguments):
        """Runs what takes an image's time in one of the threads that decode."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._decoders, function, *arguments)

    async def reload(self) -> bool:
        """Opens the model anew; until it is ready, and if it fails, the old answers.

        Returns:
            bool, whether there is a new model now.
        """
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
