"""Selects the steps of the current backend, and defines `EvaluationStep`."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

# As in Keras, `EfficientDet` inherits from the class of the current backend.
if keras.backend.backend() == "tensorflow":
    from effdet_keras.train.steps.tensorflow import TensorFlowSteps as BackendSteps
elif keras.backend.backend() == "jax":
    from effdet_keras.train.steps.jax import JAXSteps as BackendSteps
else:
    from effdet_keras.train.steps.torch import TorchSteps as BackendSteps

__all__ = ["BackendSteps", "EvaluationStep"]


class EvaluationStep(keras.Model):
    """Computes the detections and the losses of a batch in one step.

    Keras' `predict_on_batch` compiles it, on every backend.

    Args:
        model: `EfficientDet`.

    Call arguments:
        inputs: dict of `images`, optionally `content_sizes`, and for losses the ground
            truth and `is_counted`, bool `[B]`; see `evaluate_and_detect_on_batch`.

    Returns:
        Dict of `detections`, as `predict` returns them, and of `losses`, a dict by
        name of float32 tensors `[1]`, which is empty without ground truth.
    """

    def __init__(self, model: Any) -> None:
        # In mixed precision Keras would cast images and boxes. The model casts them.
        super().__init__(name="evaluation_step", dtype="float32")
        self.model = model
        self.jit_compile = model.jit_compile
        self.run_eagerly = model.run_eagerly
        self._made_for = _what_is_traced(model)
        self.built = True  # it has no variables besides the model's

    def is_for(self, model: Any) -> bool:
        """Returns whether the model still has the loss and postprocess of the trace."""
        now = _what_is_traced(model)
        return [*map(id, now)] == [*map(id, self._made_for)]

    def predict_on_batch(self, x: dict[str, Any]) -> dict[str, Any]:
        return self.model.predict_local_batch(super().predict_on_batch, self, x)

    def call(self, inputs):
        model, losses = self.model, {}
        outputs = model(inputs["images"], training=False)
        if "labels" in inputs:
            counted = inputs["is_counted"]
            losses = model.compute_losses(inputs, outputs, is_counted=counted)
        return {
            "detections": model.detect_outputs(outputs, inputs.get("content_sizes")),
            "losses": {name: ops.reshape(x, (1,)) for name, x in losses.items()},
        }


def _what_is_traced(model):
    return (
        model.settings,
        model.postprocess,
        model.jit_compile,
        model.quantization,
        *model.auxiliary_losses.values(),
        *model.variables,
    )
