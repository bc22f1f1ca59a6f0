"""What a training step does on each backend, and the step that evaluates."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from effdet_keras.train.optimizers import clip_gradients


class BackendStep:
    """What differs from backend to backend in the steps of one model.

    `EfficientDet._train` is the training step, for all backends, and calls the first
    six methods. A batch whose loss is not finite moves nothing, and `model.refusal`
    is raised, where the backend can: inside of a compiled step or behind it.

    Args:
        model: `EfficientDet`.
    """

    # Whether `fit` draws a batch before it asks for a step, or the step draws it.
    is_given_batches = False
    # Whether a step that a float16 optimizer leaves out moves statistics all the same.
    left_out_steps_move_statistics = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def train(self, step: Callable, *arguments: Any) -> Any:
        """Runs `step(data)` for what Keras gives a `train_step`, and wants back."""
        raise NotImplementedError

    def gradients(self, data: Any, before: Any) -> tuple[Any, list, Any]:
        """The loss of a batch, its gradients with the loss scale, and what it moved.

        That is the model's `joined` statistics; `before` begins with what they were.
        """
        raise NotImplementedError

    def clipped(self, gradients: list) -> tuple[list, Any]:
        """Gradients clipped one by one, then together; and their norm after it."""
        recipe = self._model.settings.recipe
        scale = self._model.optimizer.scale_loss(ops.ones(()))
        options = {"each": recipe.clips_each, "scale": scale}
        return clip_gradients(gradients, recipe.clip_norm, **options)

    def on_all_replicas(self, is_fine: Any) -> Any:
        """Whether it is true on every replica: all refuse a batch, or none."""
        return is_fine

    def finish(
        self, logs: Any, update: Callable, goes_on: Any, data: Any, step: Any
    ) -> Any:
        """Calls `update()` where the step `goes_on`, or refuses its batch.

        Returns the logs; with `goes_on`, where a compiled step leaves that to `train`.
        """
        raise NotImplementedError

    def apply(self, gradients: list, variables: list) -> None:
        """The optimizer's update."""
        self._model.optimizer.apply(gradients, variables)

    def test(self, keras_step: Callable, *arguments: Any) -> Any:
        """The losses of one batch, by Keras' own `test_step` or as that does."""
        raise NotImplementedError

    def predict(self, keras_step: Callable, data: Any) -> Any:
        """The detections of one batch; arguments as in `test`."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self._model.detect_step(images)

    def predict_on_batch(self, keras_predict: Callable, model: Any, inputs: Any) -> Any:
        """What a model, or one that runs it, gives for a batch of this process."""
        return keras_predict(inputs)

    def making_function(self) -> contextlib.AbstractContextManager:
        """The context in which Keras makes the functions of `train` and `test`."""
        return contextlib.nullcontext()

    def compiled(self, function: Callable) -> Callable:
        """What Keras made there, compiled."""
        return function

    def watched(self, train_function: Callable) -> Callable:
        """The compiled function of a step, with what surrounds it."""
        return train_function

    def skipped(self, logs: dict, *arguments: Any) -> Any:
        """What that function returns for a step that is not trained."""
        return logs

    def scope(self) -> contextlib.AbstractContextManager:
        """The context in which variables are made for all devices of the model."""
        return contextlib.nullcontext()

    def data_of_fit(self, data: Any) -> Any:
        """What Keras' `fit` is given for the batches of this process."""
        return data

    def normalizer(self, num_positives: Any, rule: Callable) -> Any:
        """As of `Part`: where each replica sees a part of the batch."""
        return None

    def predicting(self, predict_function: Callable) -> Callable:
        """The compiled function of `predict`, with what surrounds it.

        Each of several processes calls it as often as it likes, with batches of its
        own; the devices of the process share out a batch.
        """
        return predict_function

    def carried_variables(self) -> list:
        """Variables that a step changes and Keras does not know of."""
        return []


def step_of_backend(model: Any) -> BackendStep:
    """The step of the backend that Keras runs on, for one model."""
    # Imported by name, because only one of the three backends may be installed.
    backend = importlib.import_module(f"{__name__}.{keras.backend.backend()}")
    return backend.Step(model)


class EvaluationStep(keras.Model):
    """What a model finds inside the images of a batch, and what its loss says of it.

    It takes a dict of `images`; maybe `content_sizes`; and for losses `boxes`, `labels`
    and bools `is_counted` `[B]`. It returns `detections`, and `losses` by name, `[1]`.
    Keras' own `predict_on_batch` compiles it, on every backend.
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
        return [*map(id, now)] == [*map(id, self._made_for)]

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
        model.settings,
        model.postprocess,
        model.jit_compile,
        *model.parts.values(),
        *model.variables,
    )
