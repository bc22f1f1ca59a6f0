"""Starts the batches of each epoch of `fit` at their position in the data order."""

from __future__ import annotations

from typing import Any

from effdet_keras.data.pipeline.image_reader import find_image_readers


class DataOrder:
    """The order of the data of one `fit`, for batches of a `DetectionDataset`.

    Other data has its own order, which is not changed here.

    If `initial_epoch` is 0, the order continues after an earlier `fit` over the same
    batches. So many calls of `fit` with one epoch do not all see the same augmented
    images.

    Args:
        data: the batches of `fit`.
        steps_per_epoch: int, or None if an epoch is one pass over the data.
        initial_epoch: int, the number of epochs that were trained before.
    """

    def __init__(
        self, data: Any, steps_per_epoch: int | None, initial_epoch: int
    ) -> None:
        passes = find_image_readers(data)
        self._passes = {
            reader.order: per_pass
            for reader, per_pass in passes.items()
            if reader.order is not None
        }
        length = int(data.cardinality()) if passes else 0
        self._is_endless = length < 0
        self._length = length if length > 0 else None
        self._steps = steps_per_epoch or self._length
        self._epochs_before = 0
        if initial_epoch == 0 and self._passes:
            self._epochs_before = max(order.epochs_trained for order in self._passes)
        self._has_started = False

    @property
    def seed(self) -> int | None:
        """The seed of the order, or None unless there is exactly one order."""
        seeds = [order.seed for order in self._passes]
        return seeds[0] if len(seeds) == 1 else None

    def start(self, epoch: int, step: int = 0) -> bool:
        """Sets where the next iteration over the data starts.

        Args:
            epoch: int, the 0-based epoch that begins.
            step: int, the number of steps of the epoch that are done.

        Returns:
            bool, whether the data starts at `step`. If not, the batches of the done
            steps have to be drawn and skipped.
        """
        epoch += self._epochs_before
        for order in self._passes:
            order.epochs_trained = epoch + 1
        if self._steps is None:  # the length of an epoch is not known
            for order in self._passes:
                order.start_at(epoch)
            return step == 0
        if self._is_endless and self._has_started:
            return step == 0  # one iteration continues through all epochs
        self._has_started = True
        # A dataset that cannot start in the middle of a pass starts at its beginning.
        can_skip = len(self._passes) == 1 and all(
            order.can_skip(per_pass) for order, per_pass in self._passes.items()
        )
        for order, per_pass in self._passes.items():
            at = epoch * self._steps + (step if can_skip else 0)
            number, skipped = self._pass_at(at, per_pass)
            if can_skip:
                order.start_at(number, skipped, per_pass)
            else:
                order.start_at(number)
        return can_skip or step == 0

    def _pass_at(self, steps: int, per_pass: int) -> tuple[int, int]:
        """Returns the pass, and the batch in it, after so many steps of training."""
        if self._length is None:
            return divmod(steps, per_pass)
        rounds, steps = divmod(steps, self._length)
        number, skipped = divmod(steps, per_pass)
        return rounds * -(-self._length // per_pass) + number, skipped
