"""What the steps and functions of all backends inherit: defaults for one device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class TrainingDefaults:
    """Methods around a training step, with defaults for one device and one process.

    The classes of `train/steps` and `train/functions` inherit it. Those of TensorFlow
    and JAX override what is different with several devices or processes.
    """

    # Whether the train function is given a batch that `fit` has drawn.
    receives_batches = False

    def make_train_function(self, force: bool = False) -> None:
        """Makes Keras' train function, which raises where a loss is not finite.

        Where `fit` resumes within an epoch, it skips the steps that are done.
        """
        if self.train_function is None or force:
            with self.function_build_scope():
                super().make_train_function(force)
            self.train_function = self._with_finite_check(
                self.train_function, is_training=True
            )
            self.skip_steps_before_position()

    def make_test_function(self, force: bool = False) -> None:
        """Makes Keras' test function, which raises where a loss is not finite."""
        if self.test_function is None or force:
            with self.function_build_scope():
                super().make_test_function(force)
            self.test_function = self._with_finite_check(
                self.test_function, is_training=False
            )

    def function_build_scope(self) -> contextlib.AbstractContextManager:
        """The context in which Keras makes its train and test functions."""
        return contextlib.nullcontext()

    def variable_scope(self) -> contextlib.AbstractContextManager:
        """The context in which variables are made for all devices of the model."""
        return contextlib.nullcontext()

    def distribute_fit_data(self, data: Any) -> Any:
        """What Keras' `fit` is given for the batches of this process."""
        return data

    def predict_local_batch(
        self, keras_predict: Callable, model: Any, inputs: Any
    ) -> Any:
        """The prediction of `model`, this one or an `EvaluationStep`, for a batch.

        `inputs` are the rows of the batch that this process has.
        """
        return keras_predict(inputs)

    def skip_step(self, logs: dict, *arguments: Any) -> Any:
        """What a train function returns for a step that is not trained."""
        return logs

    def loss_normalizer(self, num_positives: Any, normalizer_fn: Callable) -> Any:
        """The `normalizer` of `DetectionLoss`; None: it computes its own."""
        return None

    def _apply_gradients(self, gradients, variables):
        """The optimizer's update of the variables; `apply_update` calls it."""
        self.optimizer.apply(gradients, variables)
