"""Requests that come one by one, answered in batches."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

from effdet_keras.errors import EffDetError


class QueueFullError(EffDetError):
    """There is no room for one more item: try again later."""


class Batcher:
    """Groups items into batches for a function, which runs in a thread of its own.

    A batch is full at `max_batch` items; the first of them waits `max_wait` seconds for
    others at most, and not at all for those that are there already. An item whose
    caller has gone, such as after a timeout, is not worked on.
    """

    def __init__(
        self,
        work: Callable[[list[Any]], Sequence[Any]],
        *,
        max_batch: int,
        max_wait: float,
        max_queue: int,
    ) -> None:
        self._work, self._max_batch, self._max_wait = work, max_batch, max_wait
        self._queue: asyncio.Queue = asyncio.Queue(max_queue)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "effdet-batches")
        self._task: asyncio.Task | None = None

    def __len__(self) -> int:
        return self._queue.qsize()

    async def start(self) -> None:
        """Begins to work."""
        self._task = asyncio.create_task(self._run())

    async def submit(self, item: Any) -> Any:
        """Returns the result of an item."""
        future = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((item, future))
        except asyncio.QueueFull:
            raise QueueFullError("The queue is full: try again later") from None
        return await future

    async def close(self) -> None:
        """Works on all that is in the queue, and ends."""
        await self._queue.put(None)
        await self._task
        self._thread.shutdown()

    async def _run(self):
        loop, is_last = asyncio.get_running_loop(), False
        while not is_last:
            batch, is_last = await self._next_batch()
            batch = [(item, future) for item, future in batch if not future.done()]
            if not batch:
                continue
            items = [item for item, _ in batch]
            try:
                results = await loop.run_in_executor(self._thread, self._work, items)
            except Exception as error:  # of this batch alone: the next may be well
                results = [error] * len(items)
            for (_, future), result in zip(batch, results):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    async def _next_batch(self):
        """Items and futures, and whether they are the last."""
        first = await self._queue.get()
        if first is None:
            return [], True
        batch, deadline = [first], asyncio.get_running_loop().time() + self._max_wait
        while len(batch) < self._max_batch:
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
