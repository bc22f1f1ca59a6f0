"""Detections and losses of a batch from one forward pass, as one compiled graph."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


class EvaluationStep(keras.Model):
    """What a model finds in a batch, and what its loss says of the same outputs.

    Keras' own `predict_on_batch` compiles it, on every backend.

    Args:
        model: compiled `EfficientDet`, with the averages or the weights that it has at
            each call.

    Call arguments:
        inputs: dict of `images` `[B, H, W, 3]`, `boxes` `[B, M, 4]`, `labels` `[B, M]`,
            and bools `is_counted` `[B]`: other images fill up the batch, and belong to
            no loss; and maybe `content_sizes` `[B, 2]`, see `Postprocess`.

    Returns:
        Dict of `detections`, as `Postprocess` returns, and of `losses`, float32 `[1]`
        by name.
    """

    def __init__(self, model: Any) -> None:
        # In mixed precision Keras would cast images and boxes: the model does it.
        super().__init__(name="evaluation_step", dtype="float32")
        self.model = model
        self.jit_compile = model.jit_compile
        self.run_eagerly = model.run_eagerly
        self._made_for = _what_is_traced(model)
        self.built = True  # it has no variables but the model's

    def is_for(self, model: Any) -> bool:
        """Whether the model still has the loss and postprocess that were traced."""
        now = _what_is_traced(model)
        return len(now) == len(self._made_for) and all(
            one is other for one, other in zip(now, self._made_for)
        )

    def predict_on_batch(self, x: dict[str, Any]) -> dict[str, Any]:
        step = self.model._step
        return step.predict_on_batch(super().predict_on_batch, self, x)

    def call(self, inputs):
        model = self.model
        outputs = model(inputs["images"], training=False)
        losses = model.losses_of(inputs, outputs, is_counted=inputs["is_counted"])
        return {
            "detections": model.detect_outputs(outputs, inputs.get("content_sizes")),
            "losses": {name: ops.reshape(x, (1,)) for name, x in losses.items()},
        }


def _what_is_traced(model):
    return (
        *(model.settings, model.postprocess, model.quantization),
        *model.trainable_variables,
    )
