"""Base class of the steps and functions of all backends: defaults for one device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class TrainingDefaults:
    """Methods around a training step, with defaults for one device and one process.

    The classes of `train/steps` and `train/functions` inherit from it. Those of
    TensorFlow and JAX override what differs with several devices or processes.
    """

    # Whether the train function receives a batch that `fit` has drawn.
    receives_batches = False

    def make_train_function(self, force: bool = False) -> None:
        """Makes Keras' train function, which raises an error if a loss is not finite.

        If `fit` resumes within an epoch, the function skips the steps that are done.
        """
        if self.train_function is None or force:
            with self.function_build_scope():
                super().make_train_function(force)
            self.train_function = self._with_finite_check(
                self.train_function, is_training=True
            )
            self.skip_steps_before_position()

    def make_test_function(self, force: bool = False) -> None:
        """Makes Keras' test function, which raises an error if a loss is not finite."""
        if self.test_function is None or force:
            with self.function_build_scope():
                super().make_test_function(force)
            self.test_function = self._with_finite_check(
                self.test_function, is_training=False
            )

    def function_build_scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which Keras makes its train and test functions."""
        return contextlib.nullcontext()

    def variable_scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which variables are created on all of its devices."""
        return contextlib.nullcontext()

    def distribute_fit_data(self, data: Any) -> Any:
        """Returns the batches of this process in the form for Keras' `fit`."""
        return data

    def predict_local_batch(
        self, keras_predict: Callable, model: Any, inputs: Any
    ) -> Any:
        """Returns the prediction of a model for the rows of a batch of this process.

        Args:
            keras_predict: Keras' `predict_on_batch` of `model`.
            model: this model, or an `EvaluationStep` that runs it.
            inputs: the rows of the batch that this process has.
        """
        return keras_predict(inputs)

    def skip_step(self, logs: dict, *arguments: Any) -> Any:
        """Returns the result of a train function for a skipped step."""
        return logs

    def loss_normalizer(self, num_positives: Any, normalizer_fn: Callable) -> Any:
        """Returns the `normalizer` of `DetectionLoss`, or None for its own."""
        return None

    def _apply_gradients(self, gradients, variables):
        """Updates the variables with the optimizer; `apply_update` calls it."""
        self.optimizer.apply(gradients, variables)
