"""What a training step does on each backend, and the step that evaluates."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, Protocol

import keras
from keras import ops


class BackendStep(Protocol):
    """The training step of one model on one backend.

    `Trainer` hands Keras' hooks on to it: the three steps, and what Keras does with
    them. A step may call the model's `compute_loss`, `metrics` and `averages`, and
    reads how to train in `model.settings`. It is also the step's duty that a batch
    whose loss is not finite moves no weight and raises `model.refusal(...)`, where
    the backend can raise inside of a compiled step or behind it.

    Args:
        model: `EfficientDet`.
    """

    # Whether `fit` draws a batch before it asks for a step, or the step draws it.
    is_given_batches: bool

    def __init__(self, model: Any) -> None: ...

    def train(self, keras_step: Callable, *arguments: Any) -> Any:
        """One update of the weights, then of their moving averages.

        Args:
            keras_step: Keras' own `train_step` of this backend.
            *arguments: what Keras gives it: `(data,)`, or `(state, data)` on JAX.

        Returns:
            What `keras_step` returns: logs, on JAX with the new state.
        """

    def test(self, keras_step: Callable, *arguments: Any) -> Any:
        """The losses of one batch; arguments and result as in `train`."""

    def predict(self, keras_step: Callable, *arguments: Any) -> Any:
        """The detections of one batch; arguments as in `train`."""

    def predict_on_batch(self, keras_predict: Callable, model: Any, inputs: Any) -> Any:
        """What a model gives for a batch that no other process knows of.

        Args:
            keras_predict: Keras' own `predict_on_batch` of `model`.
            model: the model of this step, or one that runs it.
            inputs: array, or dict of arrays.

        Returns:
            What `keras_predict` returns: NumPy arrays.
        """

    def checked_loss(self, loss: Any, truth: dict, training: bool) -> Any:
        """Returns the loss of a batch, or raises where it is not finite."""

    def making_function(self) -> contextlib.AbstractContextManager:
        """The context in which Keras makes the functions of `train` and `test`."""

    def watched(self, train_function: Callable) -> Callable:
        """Returns the function that `fit` calls for each step, with what surrounds it.

        Args:
            train_function: what Keras made of `train`, compiled.
        """

    def skipped(self, logs: dict, *arguments: Any) -> Any:
        """What the function of `watched` returns for a step that is not trained.

        Args:
            logs: the logs of the steps before.
            *arguments: what `fit` calls that function with.
        """

    def scope(self) -> contextlib.AbstractContextManager:
        """The context in which variables are made for all devices of the model."""

    def data_of_fit(self, data: Any) -> Any:
        """What Keras' `fit` is given for the batches of this process.

        Args:
            data: batches, of which each process has its share (`distribution`).

        Raises:
            ValueError, RuntimeError: If several processes cannot train on it.
        """

    def normalizer(self, num_positives: Any, rule: Callable) -> Any:
        """The `normalizer` of `DetectionLoss`, or None for that of the batch alone.

        Args:
            num_positives: float32 scalar, those of the part of the batch that this
                step sees.
            rule: `DetectionLoss.normalizer_of`, of those of the whole batch.
        """

    def predicting(self, predict_function: Callable) -> Callable:
        """Returns the function that `predict_on_batch` calls, with what surrounds it.

        Each of several processes calls it as often as it likes, with batches of its
        own; the devices of the process share out a batch.

        Args:
            predict_function: what Keras made of `predict`, compiled.
        """

    def carried_variables(self) -> list:
        """Returns variables that a step changes and Keras does not know of."""

    def scaling_gradients(self, values: list) -> list:
        """Returns values of variables through which gradients pass multiplied.

        Args:
            values: those that Keras is about to differentiate by, on JAX.
        """


def step_of_backend(model: Any) -> BackendStep:
    """The step of the backend that Keras runs on, for one model."""
    # Imported by name, because only one of the three backends may be installed.
    backend = importlib.import_module(f"{__name__}.{keras.backend.backend()}")
    return backend.Step(model)


class EvaluationStep(keras.Model):
    """What a model finds inside the images of a batch, and what its loss says of it.

    Keras' own `predict_on_batch` compiles it, on every backend.

    Args:
        model: `EfficientDet`, with the averages or the weights that it has at each
            call; compiled, where losses are asked for.

    Call arguments:
        inputs: dict of `images` `[B, H, W, 3]`; maybe `content_sizes` `[B, 2]`, see
            `Postprocess`; and for losses `boxes` `[B, M, 4]`, `labels` `[B, M]`, and
            bools `is_counted` `[B]`: other images fill up the batch, and belong to no
            loss.

    Returns:
        Dict of `detections`, as `Postprocess` returns, and of `losses`, float32 `[1]`
        by name, empty without `labels`.
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
        model, losses = self.model, {}
        outputs = model(inputs["images"], training=False)
        if "labels" in inputs:
            counted = inputs["is_counted"]
            losses = model.losses_of(inputs, outputs, is_counted=counted)
        return {
            "detections": model.detect_outputs(outputs, inputs.get("content_sizes")),
            "losses": {name: ops.reshape(x, (1,)) for name, x in losses.items()},
        }


def _what_is_traced(model):
    return (
        *(model.settings, model.postprocess, model.jit_compile),
        *model.parts.values(),
        *model.variables,
    )
