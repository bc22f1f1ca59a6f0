"""One call of `fit`, `evaluate` or `predict`: whose images, and what stopped it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from keras import ops

from effdet_keras.data.pipeline.image_reader import ImageReader, readers_of
from effdet_keras.distribution.processes import current_processes
from effdet_keras.errors import InvalidValueError, NonFiniteLossError
from effdet_keras.training import truth as truth_rules


class Run:
    """What is known of the data of one call, for errors in plain words.

    Args:
        data: what the call was given, in batches.
    """

    def __init__(self, data: Any = None) -> None:
        self._readers: list[ImageReader] = readers_of(data)
        self._error = None  # what stopped a step: the backend may hide it in its own
        for reader in self._readers:
            reader.error = None

    @contextlib.contextmanager
    def plain_errors(self) -> Iterator[None]:
        """Context that raises what stopped the run, not what the backend made of it."""
        try:
            yield
        except Exception as error:
            errors = [self._error, *(reader.error for reader in self._readers)]
            errors.append(current_processes().plain_error(error))
            plain = next((e for e in errors if e is not None), error)
            if plain is error:
                raise
            raise plain from None

    def refusal(self, truth: dict, config: Any, step: int | None) -> Exception:
        """The error for a batch whose loss is NaN or infinite.

        Args:
            truth: the batch's ground truth, of arrays.
            config: the model's `EfficientDetConfig`.
            step: int, which training step it is, from 1; None in evaluation.

        Returns:
            ValueError if the ground truth is wrong, else FloatingPointError.
        """
        fault = truth_rules.explain_batch(truth, config)
        where = "an evaluation step" if step is None else f"training step {step}"
        batch = f"The batch of {where} {self._names(truth.get('image_id'))}"
        if fault is not None:
            self._error = InvalidValueError(
                f"{fault}. {batch}. This batch did not change the model."
            )
            return self._error
        error = NonFiniteLossError(
            "The loss is not finite, or its gradients or the statistics of batch norm "
            f"are not. {batch}. This batch did not change the model, which can still "
            "be saved. Usual causes: a learning rate too high for the batch size, no "
            "`clip_norm`, float16 where bfloat16 would hold the values, or pixels "
            "that are not finite or far from 0-255."
        )
        # Of several replicas one may know more: that its ground truth is wrong.
        self._error = self._error or error
        return error

    def _names(self, image_ids):
        if image_ids is None:
            return "names no images (its ground truth has no 'image_id')"
        ids = ops.convert_to_numpy(image_ids).reshape(-1).tolist()
        if len(self._readers) == 1:
            return f"has the images {', '.join(map(self._readers[0].name_of, ids))}"
        return f"has the images with `image_id` {', '.join(map(str, ids))}"
