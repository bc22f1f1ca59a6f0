"""Detections in letterboxed images of which it is known where the padding begins."""

from __future__ import annotations

from typing import Any

import keras


class DetectionStep(keras.Model):
    """What a model finds inside the images, and not in the padding beside them.

    Keras' own `predict_on_batch` compiles it, on every backend.

    Args:
        model: `EfficientDet`.

    Call arguments:
        inputs: dict of `images` `[B, H, W, 3]` and `content_sizes` `[B, 2]`, see
            `Postprocess`.

    Returns:
        Dict, as `Postprocess` returns.
    """

    def __init__(self, model: Any) -> None:
        # In mixed precision Keras would cast the images: the model does it.
        super().__init__(name="detection_step", dtype="float32")
        self.model = model
        self.jit_compile = model.jit_compile
        self.run_eagerly = model.run_eagerly
        self._made_for = _what_is_traced(model)
        self.built = True  # it has no variables but the model's

    def is_for(self, model: Any) -> bool:
        """Whether the model still has the postprocess that was traced."""
        now = _what_is_traced(model)
        return len(now) == len(self._made_for) and all(
            one is other for one, other in zip(now, self._made_for)
        )

    def predict_on_batch(self, x: dict[str, Any]) -> dict[str, Any]:
        step = self.model._step
        return step.predict_on_batch(super().predict_on_batch, self, x)

    def call(self, inputs):
        outputs = self.model(inputs["images"], training=False)
        return self.model.detect_outputs(outputs, inputs["content_sizes"])


def _what_is_traced(model):
    return (
        *(model.postprocess, model.jit_compile, model.quantization),
        *model.variables,
    )
